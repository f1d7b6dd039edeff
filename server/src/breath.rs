//! How many requests are taken between two turns of the node, and who comes next when that was not enough.
//!
//! Node and clients share one thread: if thousands of clients send at once, the node's own business (the pulse of its lease above all) must not wait
//! until all of them were served. The rule it keeps: whoever had to wait stands in line, and nobody who comes later is served before.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Requests that are taken between two turns of the node, at most.
const BREATH: usize = 2_048;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not in line.
    #[default]
    Outside,
    /// In line.
    InLine,
    /// It was called, and may go on as long as there is breath.
    Called,
}

/// The breath that is left, and the line.
#[derive(Debug)]
pub(crate) struct Breath {
    left: Cell<usize>,
    line: RefCell<VecDeque<u64>>,
}

impl Default for Breath {
    fn default() -> Breath {
        Breath { left: Cell::new(BREATH), line: RefCell::default() }
    }
}

impl Breath {
    /// The node takes a turn.
    pub fn refill(&self) {
        self.left.set(BREATH);
    }

    /// Whether connection `id` may take a request now. If not, it stands in line.
    pub fn take(&self, id: u64, standing: &Cell<Standing>) -> bool {
        let is_first = match standing.get() {
            Standing::InLine => return false,
            Standing::Outside => !self.is_waited_for(),
            Standing::Called => true,
        };
        let left = self.left.get();
        if !is_first || left == 0 {
            standing.set(Standing::InLine);
            self.line.borrow_mut().push_back(id);
            return false;
        }
        self.left.set(left - 1);
        true
    }

    /// Who is called next, while there is breath.
    pub fn next(&self) -> Option<u64> {
        if self.left.get() == 0 { None } else { self.line.borrow_mut().pop_front() }
    }

    /// Whether somebody stands in line.
    pub fn is_waited_for(&self) -> bool {
        !self.line.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_is_served_before_who_comes_later() {
        let breath = Breath::default();
        let standings: [Cell<Standing>; 4] = Default::default();
        let take = |id: usize| breath.take(id as u64, &standings[id]);
        assert!((0..BREATH).all(|_| take(0)));
        assert!(!take(0) && !take(1) && !take(2));
        assert_eq!(breath.next(), None, "there is no breath");
        breath.refill();
        assert!(!take(3) && !take(1), "others came before");
        assert_eq!(breath.next(), Some(0));
        standings[0].set(Standing::Called);
        assert!((0..BREATH).all(|_| take(0)));
        assert!(!take(0), "it stands behind the others now");
        breath.refill();
        for id in [1, 2, 3, 0] {
            assert_eq!(breath.next(), Some(id as u64));
            standings[id].set(Standing::Called);
            assert!(take(id));
            standings[id].set(Standing::Outside);
        }
        assert!(!breath.is_waited_for() && breath.next().is_none());
        assert!(take(2), "nobody waits");
    }
}
