//! The generator of nonsense: messages about what the cluster is doing, with something wrong in them.
//!
//! What peers say is never what only a node may say to itself ([`Message::is_local`]): a host drops that. What the host says has sane numbers.

use crate::cluster::{Cluster, Mail};
use crate::dice::Dice;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use warlock_consensus::message::{Echo, Heartbeat, P1b};
use warlock_consensus::*;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Malice {
    /// Peers say anything.
    Peers,
    /// The node's own host says things out of place, with sane numbers.
    Host,
    Both,
}

/// What the generator may borrow from the cluster, so that its messages are about something.
pub(super) struct Scene {
    ballots: Vec<Ballot>,
    views: Vec<ViewState>,
    slot: u64,
    origins: Vec<Origin>,
    /// Whether views and ballots may be anything. (One view of the far future is enough to end a cluster; there must be runs without.)
    wild: bool,
}

impl Scene {
    pub(super) fn of(cluster: &Cluster, wild: bool) -> Scene {
        let nodes = cluster.nodes.values();
        Scene {
            ballots: nodes
                .clone()
                .flat_map(|n| [n.node.leader().ballot(), n.node.acceptor().promised()])
                .collect(),
            views: nodes.clone().map(|n| n.node.leader().view().clone()).collect(),
            slot: nodes.clone().map(|n| n.node.replica().decided()).max().unwrap_or(0),
            origins: nodes.clone().map(|n| n.node.origin()).collect(),
            wild,
        }
    }

    pub(super) fn mail(&self, dice: &mut Dice, malice: Malice, bold: bool) -> Mail {
        let to = NodeId(1 + dice.below(3));
        if malice == Malice::Host || (malice == Malice::Both && dice.below(4) == 0) {
            let (role, message) = self.host_message(dice);
            let from = Address { node: to, role: RoleId::Host };
            return Mail { from, to: Address { node: to, role }, message };
        }
        let peer = NodeId(1 + (to.0 + dice.below(2)) % 3);
        let stranger = if dice.below(10) == 0 { dice.node(bold) } else { peer };
        // A host takes nothing from the network that claims to come from its own node.
        let node = if stranger == to { peer } else { stranger };
        let from = Address { node, role: dice.pick(&[RoleId::Replica, RoleId::Leader, RoleId::Acceptor]) };
        let (role, message) = self.peer_message(dice, bold);
        assert!(!message.is_local());
        Mail { from, to: Address { node: to, role }, message }
    }

    fn slot(&self, dice: &mut Dice, bold: bool) -> u64 {
        if dice.coin() { (self.slot + dice.below(5)).saturating_sub(2) } else { dice.number(bold) }
    }

    fn ballot(&self, dice: &mut Dice, bold: bool) -> Ballot {
        let mut ballot = dice.pick(&self.ballots);
        match dice.below(6) {
            0 => ballot.round = ballot.round.saturating_add(dice.below(3)),
            1 | 2 if !self.wild => ballot.round = ballot.round.saturating_sub(1),
            1 => ballot.view = dice.number(bold),
            2 => ballot.round = dice.number(bold),
            3 => ballot.leader = dice.node(bold),
            _ => {}
        }
        ballot
    }

    fn watermark(&self, dice: &mut Dice, bold: bool) -> Watermark {
        Watermark { ballot: self.ballot(dice, bold), slot: self.slot(dice, bold) }
    }

    fn view(&self, dice: &mut Dice, bold: bool) -> Arc<View> {
        let mut view = (*dice.pick(&self.views).current).clone();
        match dice.below(8) {
            0 | 1 if !self.wild => view.number = view.number.saturating_sub(1),
            0 => view.number = dice.number(bold),
            1 => view.number = view.number.saturating_add(1),
            2 => view.members = BTreeMap::new(),
            3 => view.next_member = dice.number(bold),
            4 => view.lease = dice.duration(bold),
            5 => {
                let condition =
                    dice.pick(&[Condition::Valid, Condition::Join, Condition::Observer, Condition::Down]);
                view.members.insert(dice.node(bold), Member { condition, contact: Bytes::new() });
            }
            _ => {}
        }
        Arc::new(view)
    }

    fn views(&self, dice: &mut Dice, bold: bool) -> ViewState {
        let previous = dice.coin().then(|| self.view(dice, bold));
        ViewState { current: self.view(dice, bold), established: dice.coin(), previous }
    }

    fn origin(&self, dice: &mut Dice, bold: bool) -> Origin {
        let mut origin = dice.pick(&self.origins);
        match dice.below(6) {
            0 => origin.incarnation = dice.number(bold),
            1 => origin.node = dice.node(bold),
            _ => {}
        }
        origin
    }

    fn command(&self, dice: &mut Dice, bold: bool) -> Command {
        let id = CommandId { origin: self.origin(dice, bold), seq: dice.number(bold) };
        Command { id, low: dice.number(bold), payload: Bytes::from_static(b"absurd") }
    }

    fn value(&self, dice: &mut Dice, bold: bool) -> Arc<Value> {
        let body = match dice.below(6) {
            0 => Body::Noop,
            1 => Body::Start { establishes: None },
            2 => Body::Start { establishes: Some(self.view(dice, bold)) },
            3 => Body::Reconfig(self.view(dice, bold)),
            _ => Body::Commands((0..dice.below(3)).map(|_| self.command(dice, bold)).collect()),
        };
        Arc::new(Value { made_in: self.ballot(dice, bold), stamp_ms: dice.number(bold), body })
    }

    fn any_slot(&self, dice: &mut Dice, bold: bool) -> Slot {
        match dice.below(4) {
            0 => Slot::Reconfig(if dice.coin() { 1 + dice.below(3) } else { dice.number(bold) }),
            _ => Slot::Data(self.slot(dice, bold)),
        }
    }

    fn pvalue(&self, dice: &mut Dice, bold: bool) -> PValue {
        let (slot, ballot, value) =
            (self.any_slot(dice, bold), self.ballot(dice, bold), self.value(dice, bold));
        PValue { slot, ballot, value }
    }

    /// Not so far ahead that filling the gap takes all memory.
    fn near_pvalue(&self, dice: &mut Dice, bold: bool) -> PValue {
        let mut pvalue = self.pvalue(dice, bold);
        if let Slot::Data(slot) = &mut pvalue.slot {
            *slot %= 100_000;
        }
        pvalue
    }

    fn change(&self, dice: &mut Dice, bold: bool) -> Change {
        match dice.below(6) {
            0 => Change::Add { contact: Bytes::from(format!("x{}", dice.below(3))), observer: dice.coin() },
            1 => Change::Promote(dice.node(bold)),
            2 => Change::Down((0..dice.below(4)).map(|_| dice.node(bold)).collect::<BTreeSet<_>>()),
            3 => Change::Remove(dice.node(bold)),
            _ => Change::Lease(dice.duration(bold)),
        }
    }

    /// A message that a peer may send, to the role that would take it or to any other.
    fn peer_message(&self, dice: &mut Dice, bold: bool) -> (RoleId, Message) {
        let ballot = self.ballot(dice, bold);
        let slot = self.any_slot(dice, bold);
        let (role, message) = match dice.below(24) {
            0 => (RoleId::Acceptor, Message::Probe { ballot }),
            1 => {
                let (promised, wait) = (self.ballot(dice, bold), dice.duration(bold));
                (RoleId::Leader, Message::ProbeAnswer { ballot, promised, wait })
            }
            2 => {
                let (from_slot, view) = (self.slot(dice, bold), self.views(dice, bold));
                (RoleId::Acceptor, Message::P1a { ballot, from_slot, view })
            }
            3 | 4 => {
                let answer = P1b {
                    ballot,
                    promised: if dice.coin() { ballot } else { self.ballot(dice, bold) },
                    from_slot: if dice.coin() { 0 } else { self.slot(dice, bold) },
                    watermark: self.slot(dice, bold),
                    accepted: (0..dice.below(4)).map(|_| self.near_pvalue(dice, bold)).collect(),
                    more_from: (dice.below(4) == 0).then(|| self.slot(dice, bold)),
                    reconfig: (dice.below(4) == 0).then(|| self.pvalue(dice, bold)),
                    view: self.views(dice, bold),
                    clock: message::ClockReport {
                        master: self.ballot(dice, bold),
                        stamp_ms: dice.number(bold),
                        estimate_ms: dice.number(bold),
                        is_monotonic: dice.coin(),
                    },
                };
                (RoleId::Scout(ballot), Message::P1b(Box::new(answer)))
            }
            5 => (RoleId::Scout(ballot), Message::Refused { ballot, wait: dice.duration(bold) }),
            6 | 7 => {
                let (pvalue, commit) = (self.pvalue(dice, bold), self.watermark(dice, bold));
                let (sent_at, lease) = (dice.time(bold), dice.duration(bold));
                let may_wait = (0..dice.number(false) % 4).map(|_| dice.node(bold)).collect();
                (RoleId::Acceptor, Message::P2a { pvalue, commit, sent_at, lease, may_wait })
            }
            8 | 9 => {
                let promised = if dice.coin() { ballot } else { self.ballot(dice, bold) };
                let (sent_at, granted) = (dice.time(bold), dice.coin());
                (RoleId::Commander(ballot, slot), Message::P2b { ballot, slot, promised, sent_at, granted })
            }
            10 => (RoleId::Acceptor, Message::Commit { commit: self.watermark(dice, bold) }),
            11 => {
                let heartbeat = Heartbeat {
                    ballot,
                    seq: dice.number(bold),
                    sent_at: dice.time(bold),
                    commit: self.watermark(dice, bold),
                    view: self.views(dice, bold),
                    cluster_ms: dice.number(bold),
                    echo: dice.coin().then(|| Echo { life: dice.number(bold), seq: dice.number(bold) }),
                    read_index: self.slot(dice, bold),
                };
                (RoleId::Acceptor, Message::Heartbeat(Box::new(heartbeat)))
            }
            12 => {
                let (seq, sent_at, granted) = (dice.number(bold), dice.time(bold), dice.coin());
                let promised = if dice.coin() { ballot } else { self.ballot(dice, bold) };
                (
                    RoleId::Leader,
                    Message::HeartbeatAnswer {
                        ballot,
                        seq,
                        sent_at,
                        promised,
                        granted,
                        life: dice.number(bold),
                    },
                )
            }
            13 => {
                let role = dice.pick(&[RoleId::Leader, RoleId::Acceptor]);
                (role, Message::Release { ballot, successor: dice.node(bold) })
            }
            14 => {
                let commands = (0..dice.below(4)).map(|_| self.command(dice, bold)).collect();
                (RoleId::Leader, Message::Request { commands })
            }
            15 => {
                let (origin, expected) = (self.origin(dice, bold), dice.number(bold));
                (RoleId::Replica, Message::OutOfOrder { origin, expected, ballot })
            }
            16 => {
                let (reader, seq, slot) = (self.origin(dice, bold), dice.below(4), self.slot(dice, bold));
                match dice.coin() {
                    true => (RoleId::Leader, Message::ReadIndex { reader, seq }),
                    false => (RoleId::Replica, Message::ReadIndexAt { reader, seq, slot }),
                }
            }
            17 => {
                let (applied, durable) = (self.slot(dice, bold), self.slot(dice, bold));
                (RoleId::Leader, Message::Progress { ballot, applied, durable })
            }
            18 => (RoleId::Replica, Message::Fetch { from_slot: self.slot(dice, bold) }),
            19 => {
                let (first, decided) = (self.slot(dice, bold), self.slot(dice, bold));
                let values = (0..dice.below(4)).map(|_| self.value(dice, bold)).collect();
                (RoleId::Replica, Message::Log { first, values, decided })
            }
            20 => {
                let (slot, offset) = (self.slot(dice, bold), dice.number(bold));
                let total = if dice.coin() { 4 } else { dice.number(bold) };
                let data = Bytes::from_static(&[1, 2, 3, 4]).slice(..dice.below(5) as usize);
                match dice.below(3) {
                    0 => (RoleId::Replica, Message::SnapshotFetch { slot, offset }),
                    1 => (RoleId::Replica, Message::SnapshotChunk { slot, offset, total, data }),
                    _ => (RoleId::Replica, Message::SnapshotChunk { slot, offset: 0, total, data }),
                }
            }
            21 => {
                let view = self.views(dice, bold);
                let role = dice.pick(&[RoleId::Replica, RoleId::Leader, RoleId::Acceptor]);
                (role, if dice.coin() { Message::ViewIs(view) } else { Message::Dismissed(view) })
            }
            22 => match dice.coin() {
                true => (
                    RoleId::Leader,
                    Message::Reconfigure { change: self.change(dice, bold), ticket: dice.number(bold) },
                ),
                false => {
                    let to = dice.coin().then(|| dice.node(bold));
                    (RoleId::Leader, Message::Transfer { to, ticket: dice.number(bold) })
                }
            },
            _ => {
                let result = if dice.coin() { Ok(dice.number(bold)) } else { Err(AdminError::Busy) };
                (RoleId::Leader, Message::AdminAnswer { ticket: dice.number(bold), result })
            }
        };
        let strays = [
            RoleId::Replica,
            RoleId::Leader,
            RoleId::Acceptor,
            RoleId::Scout(ballot),
            RoleId::Commander(ballot, slot),
        ];
        if dice.below(10) == 0 { (dice.pick(&strays), message) } else { (role, message) }
    }

    /// What a confused host may say: sane numbers, no sense.
    fn host_message(&self, dice: &mut Dice) -> (RoleId, Message) {
        let slot = self.slot(dice, false);
        let message = match dice.below(9) {
            0 => {
                let (stamp_ms, executed_below) = (dice.number(false), dice.number(false));
                Message::Applied { slot, stamp_ms, executed_below }
            }
            1 => {
                let payloads = vec![Bytes::from_static(b"again"); dice.below(3) as usize];
                Message::Submit { first_seq: dice.number(false), payloads }
            }
            2 => Message::Abandon { seq: dice.number(false) },
            3 => Message::Read { read: dice.number(false) },
            4 => Message::SnapshotTaken { slot },
            5 | 6 => {
                let view = dice.coin().then(|| self.views(dice, false));
                let (stamp_ms, executed_below) = (dice.number(false), dice.number(false));
                Message::Installed { slot, stamp_ms, executed_below, view }
            }
            7 => Message::InstallFailed { slot },
            _ => {
                return (
                    RoleId::Leader,
                    Message::Reconfigure { change: self.change(dice, false), ticket: 1 },
                );
            }
        };
        (RoleId::Replica, message)
    }
}
