//! K1: tokens of a lock strictly increase, and two clients never hold it at the same instant of true time.

use super::Verdict;

/// A time in which a client rightly believes that it holds the lock.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: u64,
    from: u64,
    until: u64,
}

/// Every hold of the lock.
#[derive(Debug, Default)]
pub struct Locks {
    holds: Vec<Hold>,
}

impl Locks {
    /// The lock was asked for at `asked` and granted until `until`; the client knows since `now`. `floor` is the highest token that was known
    /// when it was asked for.
    pub fn granted(&mut self, token: u64, floor: u64, now: u64, until: u64, verdict: &mut Verdict) {
        verdict.check(token > floor, || format!("K1: token {token} was granted after token {floor}"));
        verdict.check(self.holds.iter().all(|hold| hold.token != token), || {
            format!("K1: token {token} was granted twice")
        });
        let hold = Hold { token, from: now, until };
        for other in &self.holds {
            let apart = hold.until <= hold.from || hold.from >= other.until || other.from >= hold.until;
            verdict.check(apart, || {
                format!("K1: two clients hold the lock at the same time: {other:?} and {hold:?}")
            });
        }
        self.holds.push(hold);
    }

    /// The holder gives it back: from now on it does not believe that it holds it.
    pub fn released(&mut self, token: u64, now: u64) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.token == token) {
            hold.until = hold.until.min(now);
        }
    }

    /// The highest token that a client was told.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.holds.iter().map(|hold| hold.token).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_holds_are_noticed() {
        let (mut locks, mut verdict) = (Locks::default(), Verdict::default());
        locks.granted(1, 0, 10, 20, &mut verdict);
        locks.released(1, 15);
        locks.granted(2, 1, 15, 30, &mut verdict);
        assert!(verdict.complaint().is_none());
        locks.granted(3, 2, 29, 40, &mut verdict);
        assert!(verdict.complaint().is_some_and(|what| what.starts_with("K1")));
    }
}
