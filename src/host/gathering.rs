//! When the commands of this node's clients leave: at once, or together with others.
//!
//! Every batch costs each node a sync and several wake-ups, however small it is, so a busy node does better with few large batches. Clients that wait for
//! an answer before they ask again come back together, shortly after they were answered together: they are waited for, as long as they do come.
//!
//! The rule it keeps: a lonely command never waits, and each leaves with the first turn of the node after two milliseconds at the latest.

use consensus::{Now, Time};
use std::time::Duration;

/// What was gathered leaves after this time at the latest, whatever is on its way.
const GATHER_MAX: Duration = Duration::from_millis(2);
/// The same when nothing is on its way.
const COMPANY_MAX: Duration = Duration::from_millis(1);
/// When nothing is on its way and nobody has come for so long, nobody else is waited for.
const QUIET_MAX: Duration = Duration::from_micros(100);
/// Among fewer than these, everybody is better off alone.
const FEW: usize = 4;
/// So many share the costs of a batch well enough; what counts then is that the disks and the network have something to do meanwhile.
const MANY: usize = 128;

/// What is known of the crowd.
#[derive(Default)]
pub struct Gathering {
    /// The most that waited together since the last batch left: so many may come back.
    crowd: usize,
    /// When the first of those that did not leave yet came.
    since: Time,
    /// When the last of them came, or somebody was answered.
    quiet_since: Time,
    /// Since when nothing is on its way.
    free_since: Option<Time>,
    /// Somebody was answered since the last look.
    has_answered: bool,
}

impl Gathering {
    /// A command came: now `gathered` did not leave yet, and `waiting` have no answer, those included.
    pub fn came(&mut self, gathered: usize, waiting: usize, now: Now) {
        if gathered == 1 {
            self.since = now.at;
        }
        self.quiet_since = now.at;
        self.crowd = self.crowd.max(waiting);
    }

    /// A command was answered: its client may come back.
    pub fn answered(&mut self) {
        self.has_answered = true;
    }

    /// Whether what was gathered leaves now.
    pub fn leaves(&mut self, gathered: usize, on_the_way: usize, timeout: Duration, now: Now) -> bool {
        if std::mem::take(&mut self.has_answered) {
            self.quiet_since = now.at;
        }
        self.free_since = if on_the_way == 0 { self.free_since.or(Some(now.at)) } else { None };
        if gathered == 0 {
            return false;
        }
        let leaves =
            self.is_worth_it(gathered, on_the_way) || self.is_overdue(now) || self.until(timeout) <= now.at;
        if leaves {
            self.crowd = gathered + on_the_way;
            self.free_since = None;
        }
        leaves
    }

    /// When what was gathered leaves at the latest. Never later than its clients are given up: those must have left.
    #[must_use]
    pub fn until(&self, timeout: Duration) -> Time {
        self.since.plus(GATHER_MAX.min(timeout))
    }

    fn is_worth_it(&self, gathered: usize, on_the_way: usize) -> bool {
        let are_all = on_the_way == 0 && gathered >= self.crowd - self.crowd / 8;
        are_all || (gathered >= on_the_way && (self.crowd < FEW || gathered >= MANY))
    }

    /// Whether the others are not coming.
    fn is_overdue(&self, now: Now) -> bool {
        let is_late = |free_since: Time| {
            self.quiet_since.plus(QUIET_MAX) <= now.at
                || free_since.max(self.since).plus(COMPANY_MAX) <= now.at
        };
        self.free_since.is_some_and(is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(micros: u64) -> Now {
        Now { at: Time(micros), wall_ms: 0 }
    }

    /// A crowd as clients make it that ask again when they are answered.
    #[derive(Default)]
    struct Clients {
        gathering: Gathering,
        gathered: usize,
        on_the_way: usize,
    }

    impl Clients {
        fn come(&mut self, count: usize, now: u64) {
            for _ in 0..count {
                self.gathered += 1;
                self.gathering.came(self.gathered, self.gathered + self.on_the_way, at(now));
            }
        }

        fn are_answered(&mut self, count: usize) {
            self.on_the_way -= count;
            self.gathering.answered();
        }

        /// How many leave.
        fn leave(&mut self, now: u64) -> usize {
            if !self.gathering.leaves(self.gathered, self.on_the_way, TIMEOUT, at(now)) {
                return 0;
            }
            self.on_the_way += self.gathered;
            std::mem::take(&mut self.gathered)
        }
    }

    #[test]
    fn a_lonely_command_never_waits() {
        let mut clients = Clients::default();
        for time in 1..9 {
            assert_eq!(clients.leave(10 * time), 0, "there is nothing");
            clients.come(1, 10 * time);
            assert_eq!(clients.leave(10 * time), 1);
            clients.are_answered(1);
        }
    }

    #[test]
    fn few_do_not_wait_for_each_other() {
        let mut clients = Clients::default();
        for sent in 0..2 {
            clients.come(1, 10 * sent);
            assert_eq!(clients.leave(10 * sent), 1);
        }
        clients.are_answered(1);
        clients.come(1, 500);
        assert_eq!(clients.leave(500), 1);
    }

    #[test]
    fn a_crowd_that_was_answered_leaves_together_when_it_is_back() {
        let mut clients = Clients::default();
        clients.come(20, 0);
        assert_eq!(clients.leave(0), 20);
        clients.come(20, 100);
        assert_eq!(clients.leave(100), 0, "others are on their way");
        clients.are_answered(20);
        assert_eq!(clients.leave(400), 0, "those may come back");
        clients.come(14, 450);
        assert_eq!(clients.leave(460), 0);
        clients.come(1, 470);
        assert_eq!(clients.leave(470), 35, "nearly all of them");
        clients.come(5, 480);
        assert_eq!(clients.leave(480), 0);
        clients.are_answered(35);
        clients.come(35, 900);
        assert_eq!(clients.leave(900), 40);
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for() {
        let mut clients = Clients::default();
        clients.come(20, 0);
        assert_eq!(clients.leave(0), 20);
        clients.come(1, 50);
        clients.are_answered(20);
        assert_eq!(clients.leave(300), 0);
        assert_eq!(clients.leave(399), 0);
        assert_eq!(clients.leave(400), 1, "nobody came for 100 us");
        clients.are_answered(1);
        clients.come(1, 500);
        assert_eq!(clients.leave(500), 1, "the others are forgotten");
    }

    #[test]
    fn those_that_drop_in_one_by_one_cannot_hold_the_first_for_long() {
        let mut clients = Clients::default();
        clients.come(100, 0);
        assert_eq!(clients.leave(0), 100);
        clients.are_answered(100);
        assert_eq!(clients.leave(1_000), 0);
        let mut time = 1_000;
        loop {
            clients.come(1, time);
            if clients.leave(time) > 0 {
                break;
            }
            time += 50;
        }
        assert_eq!(time, 2_000);
        // While something is on its way, a little longer.
        clients.come(1, 3_000);
        assert_eq!(clients.leave(4_999), 0);
        assert_eq!(clients.gathering.until(TIMEOUT), Time(5_000));
        assert_eq!(clients.leave(5_000), 1);
    }

    #[test]
    fn large_batches_follow_each_other() {
        let mut clients = Clients::default();
        clients.come(MANY, 0);
        assert_eq!(clients.leave(0), MANY);
        clients.come(MANY - 1, 10);
        assert_eq!(clients.leave(10), 0, "fewer than are on their way");
        clients.come(1, 20);
        assert_eq!(clients.leave(20), MANY);
    }
}
