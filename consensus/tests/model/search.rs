//! The search itself: breadth first, each state once.
//!
//! Every state is checked before its successors are looked for, and the first broken rule ends the search with a shortest way to it.

use super::Model;
use super::state::Numbers;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// Each state's fingerprint, and the one of the state from which it was reached first.
type Seen = Numbers<u64>;

/// What the search found.
pub struct Report {
    pub name: &'static str,
    pub states: usize,
    pub transitions: usize,
    pub depth: usize,
    pub node_states: usize,
    /// For each ballot, in how many states it has chosen something.
    pub chosen: Vec<usize>,
    /// In how many states a node knows view 2 to be established.
    pub established: usize,
    /// In how many states some node has dropped values below a watermark.
    pub watermarked: usize,
    /// The broken rule, and how it came to that.
    pub violation: Option<(String, Vec<String>)>,
    /// The whole space was searched.
    pub complete: bool,
}

impl Model {
    /// Breadth first, so that a violation is found by a shortest way.
    pub fn search(&mut self, states_max: usize, mut progress: impl FnMut(usize)) -> Report {
        let mut report = Report {
            name: self.setup.name,
            states: 0,
            transitions: 0,
            depth: 0,
            node_states: 0,
            chosen: vec![0; self.ballots.len()],
            established: 0,
            watermarked: 0,
            violation: None,
            complete: false,
        };
        let initial = self.initial();
        let mut seen = Seen::default();
        seen.insert(initial.fingerprint(), 0);
        let mut layer = VecDeque::from([initial]);
        let mut next_layer = VecDeque::new();
        let mut next = Vec::new();
        loop {
            let Some(state) = layer.pop_front() else {
                if next_layer.is_empty() {
                    report.complete = true;
                    break;
                }
                report.depth += 1;
                std::mem::swap(&mut layer, &mut next_layer);
                continue;
            };
            report.states += 1;
            if report.states.is_multiple_of(1_000_000) {
                progress(report.states);
            }
            if let Some(broken) = self.check(&state, &mut report) {
                report.violation = Some((broken, self.trace(&seen, state.fingerprint())));
                break;
            }
            if report.states >= states_max {
                break;
            }
            let parent = state.fingerprint();
            next.clear();
            self.successors(&state, &mut |_, state| next.push(state));
            report.transitions += next.len();
            for state in next.drain(..) {
                if let Entry::Vacant(vacant) = seen.entry(state.fingerprint()) {
                    vacant.insert(parent);
                    next_layer.push_back(state);
                }
            }
        }
        report.node_states = self.hosts.len();
        report
    }

    fn trace(&mut self, seen: &Seen, last: u64) -> Vec<String> {
        let mut path = vec![last];
        while let Some(parent) = path.last().and_then(|at| seen.get(at)).filter(|parent| **parent != 0) {
            path.push(*parent);
        }
        let mut state = self.initial();
        let mut lines = Vec::new();
        for wanted in path.into_iter().rev().skip(1) {
            let mut found = None;
            self.successors(&state, &mut |action, next| {
                if found.is_none() && next.fingerprint() == wanted {
                    found = Some((action, next));
                }
            });
            let (action, next) = found.expect("a known state follows");
            lines.push(self.tell(&action));
            state = next;
        }
        lines
    }
}
