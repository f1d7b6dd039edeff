//! What to do while no node answers: say so, once, and go on. Only who never reached any node gives up, after its patience: it may have been told the
//! wrong place. A cluster that was there comes back.

use crate::cli::say::note;
use std::time::{Duration, Instant};

/// A shorter silence is not worth a line: a fail-over, for instance.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// How long nobody has answered.
#[derive(Debug)]
pub struct Outage {
    patience: Duration,
    since: Option<Instant>,
    is_said: bool,
    was_reached: bool,
}

impl Outage {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new(patience: Duration) -> Outage {
        Outage { patience, since: None, is_said: false, was_reached: false }
    }

    /// A node greeted: there is somebody.
    pub fn is_reached(&mut self) {
        self.was_reached = true;
    }

    /// A node answered what was asked.
    pub fn is_over(&mut self) {
        (self.since, self.is_said, self.was_reached) = (None, false, true);
    }

    /// Nobody did, because of this. True: there is nobody.
    pub fn is_enough(&mut self, why: &str) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.was_reached && since.elapsed() >= self.patience {
            return true;
        }
        if !self.is_said && since.elapsed() >= SAY_AFTER {
            self.is_said = true;
            note!("warlock: {why}\nwarlock: goes on trying");
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_never_reached_anybody_gives_up() {
        let mut outage = Outage::new(Duration::ZERO);
        assert!(outage.is_enough("nobody"));
        outage.is_reached();
        assert!(!outage.is_enough("nobody any more"));
        outage.is_over();
        assert!(!outage.is_enough("again"));
    }
}
