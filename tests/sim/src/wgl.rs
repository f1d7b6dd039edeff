//! Is a history linearizable? Wing and Gong's search with Lowe's memory, for one object at a time.
//!
//! An operation whose outcome is unknown may take effect at any time after it was asked for, or never.

use crate::history::{Operation, State};
use crate::machine::{Request, mix};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

/// What a register holds after an operation, if the operation could have been answered so.
fn step(held: u64, operation: &Operation) -> Option<u64> {
    let (after, answer) = match operation.request {
        Request::Put(value) => (value, 1),
        Request::CompareAndSet(expected, value) if held == expected => (value, 1),
        Request::CompareAndSet(..) => (held, 0),
        Request::Increment => (held.wrapping_add(1), held.wrapping_add(1)),
        Request::Append(value) => (mix(held, value), mix(held, value)),
        Request::Get => (held, held),
        Request::Acquire(_) | Request::Release(_) | Request::Lock(_) => return None,
    };
    match operation.state {
        State::Done(told) if told != answer => None,
        _ => Some(after),
    }
}

/// States that a search looks at before it gives up: about 150 MB.
const STATES_MAX: usize = 2_000_000;

/// What a search for an order came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is one that explains every answer.
    Found,
    /// There is none.
    None,
    /// Not after this many states: too many operations were open at once.
    TooManyStates,
}

/// When an operation was open, and whether its answer is known.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// It was asked for.
    pub invoked: u64,
    /// It was answered; `u64::MAX` when never.
    pub returned: u64,
    /// It certainly took effect.
    pub is_done: bool,
}

/// Looks for an order of at most 128 operations that explains every answer. `step` gives the state after an operation, if the operation could
/// have been answered as it was.
///
/// # Panics
/// When there are more operations than that.
pub fn search<S: Clone + Eq + Hash>(
    spans: &[Span],
    start: S,
    step: impl Fn(&S, usize) -> Option<S>,
) -> Order {
    assert!(spans.len() <= 128, "the workload limits the operations per register");
    let done =
        spans.iter().enumerate().filter(|(_, span)| span.is_done).fold(0_u128, |mask, (i, _)| mask | 1 << i);
    // Most histories are explained by the order of the answers: those that were answered last, or never, are tried last.
    let mut latest_first: Vec<usize> = (0..spans.len()).collect();
    latest_first.sort_by_key(|index| Reverse((spans[*index].returned, spans[*index].invoked)));
    let mut seen: HashSet<(u128, S), BuildHasherDefault<DefaultHasher>> = HashSet::default();
    let mut stack = vec![(0_u128, start)];
    while let Some((mask, state)) = stack.pop() {
        if mask & done == done {
            return Order::Found;
        }
        if seen.len() > STATES_MAX {
            return Order::TooManyStates;
        }
        let is_open = |index: &&usize| mask & (1 << **index) == 0;
        let horizon = latest_first.iter().rev().find(is_open).map_or(0, |index| spans[*index].returned);
        for index in latest_first.iter().filter(is_open) {
            if spans[*index].invoked > horizon {
                continue;
            }
            let Some(after) = step(&state, *index) else { continue };
            let next = (mask | 1 << *index, after);
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
    }
    Order::None
}

fn explain(operations: &[&Operation]) -> Order {
    let span = |operation: &&Operation| Span {
        invoked: operation.invoked,
        returned: operation.returned,
        is_done: matches!(operation.state, State::Done(_)),
    };
    let spans: Vec<Span> = operations.iter().map(span).collect();
    search(&spans, 0, |held, index| step(*held, operations[index]))
}

/// What the check of a history came to.
#[derive(Debug, Default)]
pub struct Checked<'a> {
    /// The first register without an explanation, with its operations.
    pub broken: Option<(u16, Vec<&'a Operation>)>,
    /// Registers whose search was given up.
    pub given_up: u64,
}

/// Checks every register of a history.
#[must_use]
pub fn check(history: &[Operation], mut is_moot: impl FnMut(&Operation) -> bool) -> Checked<'_> {
    let mut registers: BTreeMap<u16, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        let on_register =
            !matches!(operation.request, Request::Acquire(_) | Request::Release(_) | Request::Lock(_));
        let counts = match operation.state {
            State::Done(_) => !operation.is_stale,
            State::Never => false,
            State::Unknown | State::Waiting => {
                !matches!(operation.request, Request::Get) && !is_moot(operation)
            }
        };
        if on_register && counts {
            registers.entry(operation.key).or_default().push(operation);
        }
    }
    let mut checked = Checked::default();
    for (register, operations) in registers {
        match explain(&operations) {
            Order::Found => {}
            Order::TooManyStates => checked.given_up += 1,
            Order::None => {
                checked.broken = Some((register, operations));
                break;
            }
        }
    }
    checked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(request: Request, invoked: u64, returned: u64, state: State) -> Operation {
        Operation {
            client: 0,
            key: 0,
            request,
            invoked,
            returned,
            invoked_at: 0,
            state,
            id: None,
            floor: 0,
            is_stale: false,
        }
    }

    fn done(request: Request, invoked: u64, returned: u64, told: u64) -> Operation {
        op(request, invoked, returned, State::Done(told))
    }

    fn unknown(request: Request, invoked: u64) -> Operation {
        op(request, invoked, u64::MAX, State::Unknown)
    }

    fn holds(operations: &[Operation]) -> bool {
        check(operations, |_| false).broken.is_none()
    }

    #[test]
    fn a_read_may_see_a_concurrent_write_or_not() {
        let write = done(Request::Put(7), 1, 4, 1);
        assert!(holds(&[write.clone(), done(Request::Get, 2, 3, 0)]));
        assert!(holds(&[write.clone(), done(Request::Get, 2, 3, 7)]));
        assert!(!holds(&[write, done(Request::Get, 2, 3, 8)]));
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let write = done(Request::Put(7), 1, 2, 1);
        assert!(holds(&[write.clone(), done(Request::Get, 3, 4, 7)]));
        assert!(!holds(&[write, done(Request::Get, 3, 4, 0)]));
    }

    #[test]
    fn two_reads_do_not_see_time_go_back() {
        let write = done(Request::Put(7), 1, 9, 1);
        let (new, old) = (done(Request::Get, 2, 3, 7), done(Request::Get, 4, 5, 0));
        assert!(!holds(&[write, new, old]));
    }

    #[test]
    fn an_unknown_write_may_take_effect_late_or_never() {
        let write = unknown(Request::Put(7), 1);
        assert!(holds(&[write.clone(), done(Request::Get, 2, 3, 0)]));
        assert!(holds(&[write.clone(), done(Request::Get, 2, 3, 0), done(Request::Get, 8, 9, 7)]));
        assert!(!holds(&[write, done(Request::Get, 2, 3, 7), done(Request::Get, 8, 9, 0)]));
    }

    #[test]
    fn an_unknown_write_has_no_effect_before_it_was_asked_for() {
        assert!(!holds(&[done(Request::Get, 1, 2, 7), unknown(Request::Put(7), 3)]));
    }

    #[test]
    fn increments_count_once() {
        let twice = [done(Request::Increment, 1, 2, 1), done(Request::Increment, 3, 4, 1)];
        assert!(!holds(&twice));
        let lost = [unknown(Request::Increment, 1), done(Request::Increment, 3, 4, 2)];
        assert!(holds(&lost));
        assert!(!holds(&lost[1..]));
    }

    #[test]
    fn compare_and_set_has_one_winner() {
        let both = [done(Request::CompareAndSet(0, 1), 1, 5, 1), done(Request::CompareAndSet(0, 2), 2, 6, 1)];
        assert!(!holds(&both));
        let one = [done(Request::CompareAndSet(0, 1), 1, 5, 1), done(Request::CompareAndSet(0, 2), 2, 6, 0)];
        assert!(holds(&one));
    }

    #[test]
    fn appends_show_their_order() {
        let (first, second) = (mix(0, 1), mix(mix(0, 1), 2));
        let good = [done(Request::Append(1), 1, 2, first), done(Request::Append(2), 3, 4, second)];
        assert!(holds(&good));
        let bad = [done(Request::Append(2), 1, 2, second), done(Request::Append(1), 3, 4, first)];
        assert!(!holds(&bad));
    }
}
