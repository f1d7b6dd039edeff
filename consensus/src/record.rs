//! The durable facts of a node, and how a node is put together again from them.
//!
//! A journal is a sequence of [`Record`]s. [`Durable`] folds it: the fold of a journal is the fold of any compacted
//! journal that [`Durable::into_records`] made of a prefix, followed by the rest.

use crate::message::PValue;
use crate::types::{Ballot, Slot};
use crate::value::Value;
use crate::view::ViewState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A durable fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Record {
    /// Acceptor: nothing below this ballot is promised or accepted any more (A1).
    Promise(Ballot),
    /// Leader: this ballot is used; never again (L2).
    Round(Ballot),
    /// Acceptor: accepted. Implies a promise of its ballot.
    Accept {
        /// What, where, in which ballot.
        pvalue: PValue,
        /// This node's wall clock then: after a restart it tells how long ago the stamp was.
        wall_ms: u64,
    },
    /// Replica: everything up to this slot is decided; the value of a slot is the one learned, else the one accepted last.
    Decided {
        /// The slot.
        slot: u64,
    },
    /// Replica: a decided value that came from a peer. Outweighs whatever the acceptor accepts for that slot, before or after: a
    /// late proposal of an old leader may still be accepted here.
    Learned {
        /// The slot.
        slot: u64,
        /// The value.
        value: Arc<Value>,
    },
    /// Any role: the configuration.
    View(ViewState),
    /// Acceptor: the longest lease it ever granted.
    Lease(Duration),
    /// Acceptor: a stamp it saw and its wall clock then.
    Clock {
        /// The master that made the stamp.
        master: Ballot,
        /// The stamp.
        stamp_ms: u64,
        /// The wall clock.
        wall_ms: u64,
    },
    /// Host: this life of the node (durable before its first command id).
    Incarnation(u64),
}

/// All durable facts of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The acceptor's promise.
    pub promise: Ballot,
    /// The leader's last used ballot.
    pub round: Ballot,
    /// What the acceptor accepted, per data slot the highest ballot.
    pub accepted: BTreeMap<u64, PValue>,
    /// The same for the newest reconfiguration slot.
    pub reconfig: Option<PValue>,
    /// Decided up to here.
    pub decided: u64,
    /// Decided values that came from peers.
    pub learned: BTreeMap<u64, Arc<Value>>,
    /// The configuration.
    pub view: Option<ViewState>,
    /// The longest lease ever granted.
    pub lease_max: Duration,
    /// The newest master's last stamp and the wall clock then.
    pub clock: Option<(Ballot, u64, u64)>,
    /// The node's last life.
    pub incarnation: u64,
}

impl Durable {
    /// Takes the next record of the journal in.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Promise(ballot) => self.promise = self.promise.max(ballot),
            Record::Round(ballot) => self.round = self.round.max(ballot),
            Record::Accept { pvalue, wall_ms } => {
                self.promise = self.promise.max(pvalue.ballot);
                self.see_clock(pvalue.value.made_in, pvalue.value.stamp_ms, wall_ms);
                match pvalue.slot {
                    Slot::Data(slot) => {
                        let known = self.accepted.entry(slot).or_insert_with(|| pvalue.clone());
                        if pvalue.ballot >= known.ballot {
                            *known = pvalue;
                        }
                    }
                    Slot::Reconfig(_) => {
                        let known = self.reconfig.as_ref().map(|p| (p.slot, p.ballot));
                        if known.is_none_or(|k| (pvalue.slot, pvalue.ballot) >= k) {
                            self.reconfig = Some(pvalue);
                        }
                    }
                }
            }
            Record::Decided { slot } => self.decided = self.decided.max(slot),
            Record::Learned { slot, value } => {
                self.learned.insert(slot, value);
            }
            Record::View(state) => match &mut self.view {
                Some(known) => {
                    known.learn(&state);
                }
                None => self.view = Some(state),
            },
            Record::Lease(lease) => self.lease_max = self.lease_max.max(lease),
            Record::Clock { master, stamp_ms, wall_ms } => self.see_clock(master, stamp_ms, wall_ms),
            Record::Incarnation(life) => self.incarnation = self.incarnation.max(life),
        }
    }

    /// The decided value of `slot`, if it is known here.
    #[must_use]
    pub fn decided_value(&self, slot: u64) -> Option<&Arc<Value>> {
        if let Some(value) = self.learned.get(&slot) {
            return Some(value);
        }
        if slot > self.decided {
            return None;
        }
        self.accepted.get(&slot).map(|pvalue| &pvalue.value)
    }

    /// The last slot of the unbroken run of decided values that starts behind `slot`.
    #[must_use]
    pub fn decided_through(&self, slot: u64) -> u64 {
        (slot + 1..).take_while(|next| self.decided_value(*next).is_some()).last().unwrap_or(slot)
    }

    /// Forgets what a durable snapshot up to `slot` covers.
    ///
    /// **Safe:** only a snapshot of this node's own that is durable may be named here.
    pub fn forget_through(&mut self, slot: u64) {
        self.accepted = self.accepted.split_off(&(slot + 1));
        self.learned = self.learned.split_off(&(slot + 1));
        self.decided = self.decided.max(slot);
    }

    /// The shortest journal that says the same.
    #[must_use]
    pub fn into_records(self) -> Vec<Record> {
        let mut records = vec![
            Record::Incarnation(self.incarnation),
            Record::Promise(self.promise),
            Record::Round(self.round),
            Record::Lease(self.lease_max),
        ];
        if let Some((master, stamp_ms, wall_ms)) = self.clock {
            records.push(Record::Clock { master, stamp_ms, wall_ms });
        }
        records.extend(self.view.map(Record::View));
        let wall_ms = 0; // an old stamp: `Clock` above has the newest one
        records.extend(self.accepted.into_values().map(|pvalue| Record::Accept { pvalue, wall_ms }));
        records.extend(self.reconfig.map(|pvalue| Record::Accept { pvalue, wall_ms }));
        records.extend(self.learned.into_iter().map(|(slot, value)| Record::Learned { slot, value }));
        records.push(Record::Decided { slot: self.decided });
        records
    }

    fn see_clock(&mut self, master: Ballot, stamp_ms: u64, wall_ms: u64) {
        // A master without a time says nothing about any line.
        if stamp_ms > 0 && self.clock.is_none_or(|(known, stamp, _)| (master, stamp_ms) > (known, stamp)) {
            self.clock = Some((master, stamp_ms, wall_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;
    use crate::value::Body;

    fn ballot(round: u64) -> Ballot {
        Ballot { view: 1, round, leader: NodeId(1) }
    }

    fn value(stamp_ms: u64) -> Arc<Value> {
        Arc::new(Value { made_in: ballot(1), stamp_ms, body: Body::Noop })
    }

    fn accept(slot: u64, round: u64, stamp_ms: u64) -> Record {
        let pvalue = PValue { slot: Slot::Data(slot), ballot: ballot(round), value: value(stamp_ms) };
        Record::Accept { pvalue, wall_ms: 5 }
    }

    fn fold(records: impl IntoIterator<Item = Record>) -> Durable {
        let mut durable = Durable::default();
        records.into_iter().for_each(|record| durable.apply(record));
        durable
    }

    #[test]
    fn a_learned_value_outweighs_what_is_accepted_later() {
        let learned = Record::Learned { slot: 1, value: value(7) };
        let durable = fold([accept(1, 1, 3), learned, accept(1, 2, 9), Record::Decided { slot: 1 }]);
        assert_eq!(durable.decided_value(1).map(|value| value.stamp_ms), Some(7));
    }

    #[test]
    fn a_master_without_a_time_does_not_hide_the_time_before_it() {
        let clock = |round, stamp_ms| Record::Clock { master: ballot(round), stamp_ms, wall_ms: 9 };
        assert_eq!(fold([clock(1, 630), clock(2, 0)]).clock, Some((ballot(1), 630, 9)));
        assert_eq!(fold([clock(1, 630), clock(2, 5)]).clock, Some((ballot(2), 5, 9)));
    }

    #[test]
    fn the_compacted_journal_says_the_same() {
        let records = [
            Record::Incarnation(3),
            Record::Promise(ballot(4)),
            Record::Round(ballot(2)),
            accept(1, 1, 10),
            accept(2, 1, 20),
            Record::Learned { slot: 3, value: value(30) },
            Record::Decided { slot: 2 },
            Record::Lease(Duration::from_secs(1)),
        ];
        let durable = fold(records);
        assert_eq!(durable.decided_through(0), 3);
        assert_eq!(fold(durable.clone().into_records()), durable);
        let mut compacted = durable.clone();
        compacted.forget_through(2);
        assert_eq!(compacted.decided_value(2), None);
        assert_eq!(compacted.decided_through(2), 3);
        assert_eq!(compacted.promise, durable.promise);
    }
}
