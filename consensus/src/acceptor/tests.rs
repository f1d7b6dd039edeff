//! What a watermark proves to an acceptor, and whom a bound one refuses.

use super::*;
use crate::message::Targets;
use crate::view::View;
use bytes::Bytes;

const NOW: Now = Now { at: Time(1_000_000), wall_ms: 1 };

fn acceptor() -> Acceptor {
    let view = View::first((1..=5).map(|id| (NodeId(id), Bytes::new())), Duration::from_secs(1));
    let durable = Durable { view: Some(ViewState::first(view)), ..Durable::default() };
    Acceptor::recover(NodeId(4), Arc::new(Config::default()), durable, 0, NOW)
}

fn ballot(round: u64, leader: u64) -> Ballot {
    Ballot { view: 1, round, leader: NodeId(leader) }
}

fn accept(acceptor: &mut Acceptor, ballot: Ballot) -> Outputs {
    let value = Arc::new(Value { made_in: ballot, stamp_ms: 1, body: Body::Noop });
    let pvalue = PValue { slot: Slot::Data(1), ballot, value };
    let from = Address { node: ballot.leader, role: RoleId::Commander(ballot, Slot::Data(1)) };
    let lease = Duration::from_secs(1);
    let commit = Watermark::default();
    acceptor.on_message(
        from,
        Message::P2a { pvalue, commit, sent_at: Time(0), lease, may_wait: Arc::default() },
        NOW,
    )
}

fn handed_over(acceptor: &mut Acceptor, ballot: Ballot) -> usize {
    let from = Address { node: ballot.leader, role: RoleId::Leader };
    let commit = Watermark { ballot, slot: 1 };
    let outputs = acceptor.on_message(from, Message::Commit { commit }, NOW);
    outputs
        .sends
        .iter()
        .map(|envelope| match &envelope.message {
            Message::Learn { entries, .. } => entries.len(),
            _ => 0,
        })
        .sum()
}

#[test]
fn a_watermark_decides_only_what_was_accepted_in_its_own_ballot() {
    // n1's phase 1 ended late: its watermark covers slot 1, which was chosen in 1.2.n3. n4 accepted something else in between.
    let mut late = acceptor();
    let _ = accept(&mut late, ballot(1, 4));
    assert_eq!(handed_over(&mut late, ballot(1, 1)), 0, "a value of a higher ballot proves nothing");
    let mut lower = acceptor();
    let _ = accept(&mut lower, ballot(1, 1));
    assert_eq!(handed_over(&mut lower, ballot(2, 3)), 0, "nor does a value of a lower one");
    let mut same = acceptor();
    let _ = accept(&mut same, ballot(2, 3));
    assert_eq!(handed_over(&mut same, ballot(2, 3)), 1);
}

/// What an acceptor answers to another leader that asks for a promise at `at`.
fn ask(acceptor: &mut Acceptor, at: Time) -> Outputs {
    let (ballot, view) = (ballot(2, 2), acceptor.view.clone());
    let from = Address { node: NodeId(2), role: RoleId::Scout(ballot) };
    let now = Now { at, wall_ms: 1 };
    acceptor.on_message(from, Message::P1a { ballot, from_slot: 0, view }, now)
}

/// An acceptor that granted a lease of a second, and restarted at second 5.
fn restarted(config: Config) -> Acceptor {
    let mut durable = Durable { view: Some(acceptor().view), ..Durable::default() };
    durable.apply(Record::Promise(ballot(1, 1)));
    durable.apply(Record::Lease(Duration::from_secs(1)));
    let now = Now { at: Time(5_000_000), wall_ms: 1 };
    Acceptor::recover(NodeId(4), Arc::new(config), durable, 0, now)
}

fn refuses(outputs: &Outputs) -> bool {
    matches!(outputs.sends[0].message, Message::Refused { .. })
}

#[test]
fn a_bound_acceptor_refuses_others_and_changes_nothing() {
    let mut acceptor = acceptor();
    let _ = accept(&mut acceptor, ballot(1, 1));
    let refused = ask(&mut acceptor, Time(1_900_000));
    assert!(refuses(&refused));
    assert_eq!(refused.sends[0].to, Targets::One(NodeId(2)));
    assert!(refused.persist.is_empty());
    assert!(!refuses(&ask(&mut acceptor, Time(2_000_001))));
}

#[test]
fn a_restarted_acceptor_is_bound_as_if_it_had_just_granted_its_longest_lease() {
    let mut acceptor = restarted(Config::default());
    assert!(refuses(&ask(&mut acceptor, Time(5_900_000))));
    assert!(!refuses(&ask(&mut acceptor, Time(6_000_001))));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_restarted_acceptor_that_forgets_its_lease_is_noticed() {
    let bug = Some(Bug::LeaseForgottenAtRestart);
    let mut acceptor = restarted(Config { bug, ..Config::default() });
    assert!(!refuses(&ask(&mut acceptor, Time(5_900_000))), "the check above would fail");
}
