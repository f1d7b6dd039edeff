//! Whose disk has to hurry. A slot needs a majority, and every sync costs: the members beyond it may put several slots on the disk at once.
//!
//! It changes no promise: an acceptor answers when its record is durable, sooner or later. The rules it keeps:
//! * those who were not told that they may wait are a majority;
//! * nobody waits long for the wrong ones: in between everybody hurries, which shows who is quick and how quick a majority can be, and if those that were chosen (this node among them) turn
//!   out to be clearly slower than that, everybody hurries for longer.

use crate::types::{NodeId, Time};
use crate::view::View;
use std::sync::Arc;
use std::time::Duration;

/// So long everybody hurries at least, and until enough slots were measured.
const HURRY: Duration = Duration::from_millis(50);
/// Slots that tell how long one takes if everybody hurries, and if only the chosen ones do: more, because a hiccup shall not count for all of them.
const ENOUGH: u32 = 8;
const MANY: u32 = 64;
/// Longer ones count as this much: a pause of the machine says nothing about its disks.
const PAUSE: Duration = Duration::from_millis(5);
/// After this time it is measured again.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// So long everybody hurries when those that were chosen were slow: at first, and at most.
const SLOW: Duration = Duration::from_secs(2);
const SLOW_MAX: Duration = Duration::from_secs(60);
/// A slot that takes longer than this, without one of those that were chosen, is enough to look for others.
const LATE: Duration = Duration::from_millis(3);
/// What does not count as slower.
const NOISE: Duration = Duration::from_micros(200);

/// How long slots took.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u32,
    sum: Duration,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took.min(PAUSE);
    }

    fn value(self) -> Duration {
        self.sum / self.count.max(1)
    }
}

/// Who hurries now.
#[derive(Clone, Debug)]
enum Mode {
    /// Everybody, since then; at least until then.
    Everybody { since: Time, until: Time },
    /// Only the chosen ones, since then; how long the last slots took.
    Chosen { since: Time, took: Mean },
}

/// Who is quick.
#[derive(Clone, Debug)]
pub(super) struct Haste {
    me: NodeId,
    /// The voters beside this node, and how often each was among the first while everybody hurried. The first of them are the chosen ones.
    voters: Vec<(NodeId, u32)>,
    /// How many of them make a majority together with this node.
    needed: usize,
    /// The members that may wait while only the chosen ones hurry.
    others: Arc<[NodeId]>,
    mode: Mode,
    /// How long slots took while everybody hurried.
    best: Mean,
    /// How long everybody hurries if the chosen ones are slow.
    penalty: Duration,
}

impl Haste {
    /// For a reign over `view` that begins now.
    pub(super) fn new(me: NodeId, view: &View, now: Time) -> Haste {
        Haste {
            me,
            voters: view.voters().filter(|voter| *voter != me).map(|voter| (voter, 0)).collect(),
            needed: view.majority() - usize::from(view.is_voter(me)),
            others: Arc::default(),
            mode: Mode::Everybody { since: now, until: now.plus(HURRY) },
            best: Mean::default(),
            penalty: SLOW,
        }
    }

    /// Who may wait with what is proposed now.
    pub(super) fn may_wait(&mut self, view: &View, now: Time) -> Arc<[NodeId]> {
        match self.mode {
            Mode::Everybody { until, .. } if now < until || self.best.count < ENOUGH => Arc::default(),
            Mode::Everybody { .. } => {
                self.choose(view);
                self.mode = Mode::Chosen { since: now, took: Mean::default() };
                self.others.clone()
            }
            Mode::Chosen { since, .. } if now.since(since) < MEASURE_EVERY => self.others.clone(),
            Mode::Chosen { .. } => {
                self.penalty = SLOW;
                self.hurry(HURRY, now);
                Arc::default()
            }
        }
    }

    fn choose(&mut self, view: &View) {
        self.voters.sort_by_key(|(_, first)| std::cmp::Reverse(*first));
        let chosen = &self.voters[..self.needed.min(self.voters.len())];
        let waits =
            |member: &&NodeId| **member != self.me && chosen.iter().all(|(voter, _)| voter != *member);
        self.others = view.members.keys().filter(waits).copied().collect();
    }

    fn hurry(&mut self, time: Duration, now: Time) {
        self.mode = Mode::Everybody { since: now, until: now.plus(time) };
        self.best = Mean::default();
        for (_, first) in &mut self.voters {
            *first = 0;
        }
    }

    /// These made up the majority that decided a slot, each with the time when it was asked.
    pub(super) fn decided(&mut self, view: &View, by: &[(NodeId, Time)], now: Time) {
        let Some(asked_at) = by.iter().map(|(_, asked_at)| *asked_at).min() else { return };
        let took = now.since(asked_at);
        let answered = |member: NodeId| by.iter().any(|(node, _)| *node == member);
        match &mut self.mode {
            // What was asked before is about another mode.
            Mode::Everybody { since, .. } | Mode::Chosen { since, .. } if asked_at < *since => {}
            Mode::Everybody { .. } => {
                self.best.add(took);
                for (voter, first) in &mut self.voters {
                    *first += u32::from(answered(*voter));
                }
            }
            Mode::Chosen { took: mean, .. } => {
                mean.add(took);
                let last = if mean.count < MANY { None } else { Some(std::mem::take(mean)) };
                let is_slow = last.is_some_and(|mean| mean.value() > self.best.value() * 3 / 2 + NOISE);
                let misses = |(voter, _): &(NodeId, u32)| !answered(*voter);
                let is_missed = (view.is_voter(self.me) && !answered(self.me))
                    || self.voters.iter().take(self.needed).any(misses);
                if is_slow {
                    self.hurry(self.penalty, now);
                    self.penalty = (self.penalty * 2).min(SLOW_MAX);
                } else if took > LATE && is_missed {
                    self.hurry(HURRY, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const ME: NodeId = NodeId(1);

    fn us(us: u64) -> Time {
        Time(us)
    }

    /// A reign whose slots are decided after some time, by some of the voters.
    struct Reign {
        view: View,
        haste: Haste,
        now: u64,
    }

    impl Reign {
        fn of(voters: u64) -> Reign {
            let members = (1..=voters).map(|id| (NodeId(id), Bytes::new()));
            let view = View::first(members, Duration::from_secs(1));
            Reign { haste: Haste::new(ME, &view, us(0)), view, now: 0 }
        }

        /// Who may wait with a slot that takes this long and is decided by these.
        fn slot(&mut self, took_us: u64, by: &[u64]) -> Vec<u64> {
            let waits = self.haste.may_wait(&self.view, us(self.now)).iter().map(|node| node.0).collect();
            let by: Vec<(NodeId, Time)> = by.iter().map(|id| (NodeId(*id), us(self.now))).collect();
            self.now += took_us;
            self.haste.decided(&self.view, &by, us(self.now));
            waits
        }

        /// Slots until somebody may wait; who.
        fn until_somebody_waits(&mut self, took_us: u64, by: &[u64]) -> Vec<u64> {
            for _ in 0..1_000_000 {
                let waits = self.slot(took_us, by);
                if !waits.is_empty() {
                    return waits;
                }
            }
            Vec::new()
        }
    }

    #[test]
    fn those_beyond_a_majority_may_wait() {
        for (voters, waiting) in [(3, vec![3]), (4, vec![4]), (5, vec![4, 5]), (7, vec![5, 6, 7])] {
            let mut reign = Reign::of(voters);
            let majority: Vec<u64> = (1..=voters / 2 + 1).collect();
            assert_eq!(reign.until_somebody_waits(300, &majority), waiting, "of {voters}");
            assert!(reign.now > 50_000, "everybody hurries at the beginning");
        }
        let mut pair = Reign::of(2);
        assert!((0..1_000).all(|_| pair.slot(300, &[1, 2]).is_empty()));
    }

    #[test]
    fn those_that_are_quick_are_chosen() {
        let mut reign = Reign::of(3);
        assert_eq!(reign.until_somebody_waits(300, &[1, 3]), [2]);
    }

    #[test]
    fn who_is_gone_is_replaced_at_once() {
        let mut reign = Reign::of(3);
        assert_eq!(reign.until_somebody_waits(300, &[1, 2]), [3]);
        assert_eq!(reign.slot(4_000, &[1, 3]), [3]);
        assert_eq!(reign.slot(300, &[1, 3]), [0; 0], "everybody hurries");
        assert_eq!(reign.until_somebody_waits(300, &[1, 3]), [2]);
    }

    #[test]
    fn when_the_chosen_ones_are_slower_than_others_everybody_hurries() {
        let mut reign = Reign::of(3);
        // This node's own disk is slow: while everybody hurries, the other two are quicker.
        assert_eq!(reign.until_somebody_waits(300, &[2, 3]), [3]);
        let slots = (0..).take_while(|_| !reign.slot(2_000, &[1, 2]).is_empty()).count();
        assert!(slots <= 64, "noticed after {slots} slots");
        let before = reign.now;
        assert_eq!(reign.until_somebody_waits(300, &[2, 3]), [3], "tried again");
        assert!(reign.now - before > 1_900_000, "but not soon");
    }

    #[test]
    fn a_pause_now_and_then_is_no_reason() {
        let mut reign = Reign::of(3);
        assert_eq!(reign.until_somebody_waits(300, &[1, 2]), [3]);
        assert!((0..640).all(|n| !reign.slot(if n % 32 == 0 { 20_000 } else { 300 }, &[1, 2]).is_empty()));
    }

    #[test]
    fn it_is_measured_again_now_and_then() {
        let mut reign = Reign::of(3);
        assert_eq!(reign.until_somebody_waits(300, &[1, 2]), [3]);
        let slots = (0..100_000).take_while(|_| !reign.slot(300, &[1, 2]).is_empty()).count();
        assert!((16_000..17_000).contains(&slots), "after {slots} slots");
    }
}
