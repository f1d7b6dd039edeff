//! What is searched: the configurations, and which planted bug each of them notices.
//!
//! Each is small enough to be searched to its end; what it leaves out, it leaves out by a field of [`Setup`] that says so.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use warlock_consensus::planted::Bug;
use warlock_consensus::*;

/// One ballot that a leader may use.
#[derive(Clone)]
pub struct Plan {
    /// The leader's node.
    pub node: u64,
    /// The ballot's view.
    pub view: u64,
    /// How many values of its own it proposes after the inherited ones.
    pub own: u64,
    /// Whether its leader scouts only when it was told that its view is established.
    pub waits: bool,
    /// Whether it announces what is decided. (Nobody inherits from the last ballot.)
    pub announces: bool,
    /// The next view that it proposes, unless it inherited one.
    pub reconfigures: Option<Arc<View>>,
}

/// A configuration to search.
#[derive(Clone)]
pub struct Setup {
    pub name: &'static str,
    /// Nodes 1..=nodes.
    pub nodes: usize,
    /// View 1, and view 2 if there is one.
    pub views: Vec<Arc<View>>,
    /// By rising ballot.
    pub plans: Vec<Plan>,
    /// Data slots 1..=slots; nothing is proposed above.
    pub slots: u64,
    /// Whether decisions travel: replicas learn, catch up, and write watermarks down.
    pub decisions: bool,
    /// The nodes whose replicas catch up. (Bit i: node i + 1.)
    pub learners: u8,
    /// The nodes that write watermarks down when it pleases them; the others do when their acceptor asks for it.
    pub writers: u8,
    /// The nodes that hear announcements that come by themselves; the others hear those that come with proposals.
    pub hearers: u8,
    /// Whether the first ballot is adopted at the start. (There is nothing that it could inherit.)
    pub first_adopted: bool,
    /// Whether the first ballot's reconfiguration is chosen at the start, and every node knows it.
    pub reconfigured: bool,
    /// How often a node may crash and come back with what was durable.
    pub crashes: u8,
}

pub fn view(number: u64, voters: &[u64]) -> Arc<View> {
    let contact = |id: &u64| (NodeId(*id), Bytes::from(format!("n{id}")));
    let first = View::first(voters.iter().map(contact), Duration::ZERO);
    Arc::new(View { number, next_member: if number == 1 { 4 } else { 5 }, ..first })
}

fn plan(node: u64, view: u64, own: u64) -> Plan {
    Plan { node, view, own, waits: false, announces: true, reconfigures: None }
}

fn one_view(name: &'static str, plans: Vec<Plan>, slots: u64) -> Setup {
    let views = vec![view(1, &[1, 2, 3])];
    Setup {
        name,
        nodes: 3,
        views,
        plans,
        slots,
        decisions: false,
        learners: 0b111,
        writers: 0b111,
        hearers: 0b111,
        first_adopted: false,
        reconfigured: false,
        crashes: 0,
    }
}

/// Three acceptors, two leaders, two slots, two ballots.
pub fn two_ballots() -> Setup {
    one_view("2 slots x 2 ballots", vec![plan(1, 1, 2), plan(2, 1, 2)], 2)
}

/// Three acceptors, two leaders, one slot, three ballots.
pub fn three_ballots() -> Setup {
    one_view("1 slot x 3 ballots", vec![plan(1, 1, 1), plan(2, 1, 1), plan(1, 1, 1)], 1)
}

/// Three acceptors, two leaders, two slots, three ballots.
pub fn wide() -> Setup {
    let plans = vec![plan(1, 1, 2), plan(2, 1, 2), plan(1, 1, 1)];
    Setup { first_adopted: true, ..one_view("2 slots x 3 ballots", plans, 2) }
}

/// Decisions travel as watermarks; acceptors drop what their nodes hold.
pub fn watermarks() -> Setup {
    let plans = vec![plan(1, 1, 1), plan(3, 1, 1)];
    let name = "watermarks, 2 slots x 2 ballots";
    Setup { decisions: true, first_adopted: true, ..one_view(name, plans, 2) }
}

/// The same with one crash of one node.
pub fn crash() -> Setup {
    let plans = vec![plan(1, 1, 1), plan(3, 1, 1)];
    let name = "a crash, watermarks, 1 slot x 2 ballots";
    Setup { decisions: true, first_adopted: true, crashes: 1, ..one_view(name, plans, 1) }
}

/// Two leaders of one view want different next views.
pub fn rival_views() -> Setup {
    let mut plans = vec![plan(1, 1, 0), plan(2, 1, 0)];
    plans[0].reconfigures = Some(view(2, &[1, 2]));
    plans[1].reconfigures = Some(view(2, &[2, 3]));
    one_view("two rival reconfigurations", plans, 1)
}

/// From view 1 {1,2,3} to view 2 {2,3,4}, from the beginning: a slot beside the reconfiguration, then two leaders that need both views.
pub fn reconfiguration() -> Setup {
    let views = vec![view(1, &[1, 2, 3]), view(2, &[2, 3, 4])];
    let mut plans = vec![plan(1, 1, 1), plan(2, 2, 1), plan(3, 2, 1)];
    plans[0].reconfigures = Some(views[1].clone());
    let name = "view 1 {1,2,3} to view 2 {2,3,4}, 2 slots x 3 ballots";
    Setup { nodes: 4, views, first_adopted: true, ..one_view(name, plans, 2) }
}

/// The same, with the reconfiguration chosen, and with decisions that travel: the new view is established, acceptors drop what their
/// nodes hold, and a later leader does without the old view.
pub fn establishment() -> Setup {
    let name = "view 2 {2,3,4} is established, watermarks, 2 slots x 3 ballots";
    let mut setup = reconfiguration();
    setup.plans[2].waits = true;
    setup.plans[2].announces = false;
    Setup {
        name,
        decisions: true,
        learners: 0b1010,
        writers: 0,
        hearers: 0b0010,
        reconfigured: true,
        ..setup
    }
}

/// Every configuration, smallest first.
pub fn all() -> Vec<Setup> {
    vec![
        two_ballots(),
        rival_views(),
        three_ballots(),
        watermarks(),
        crash(),
        wide(),
        reconfiguration(),
        establishment(),
    ]
}

/// The planted bugs that a configuration notices, and which.
pub fn covered() -> Vec<(Bug, Setup)> {
    vec![
        (Bug::PromiseNotDurable, crash()),
        (Bug::AcceptNotDurable, crash()),
        (Bug::FirstValueWins, three_ballots()),
        (Bug::ProposeBelowWatermark, watermarks()),
        (Bug::AcceptBelowPromise, two_ballots()),
        (Bug::OldViewSkipped, reconfiguration()),
        (Bug::HolesAtViewStart, establishment()),
        (Bug::OldValueTakenAsDecided, watermarks()),
        (Bug::WatermarkOverreach, watermarks()),
        (Bug::ReconfigForgotten, rival_views()),
    ]
}

/// The default configuration with one rule broken.
pub fn with_bug(bug: Bug) -> Config {
    #[cfg(feature = "planted-bugs")]
    return Config { bug: Some(bug), ..Config::default() };
    #[cfg(not(feature = "planted-bugs"))]
    panic!("{bug:?} needs the feature planted-bugs");
}
