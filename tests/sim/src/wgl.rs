//! Is a history linearizable? Wing and Gong's search with Lowe's memory, for one register at a time.
//!
//! An operation whose outcome is unknown may take effect at any time after it was asked for, or never.

use crate::history::{Operation, State};
use crate::machine::{Request, mix};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// What a register holds after an operation, if the operation could have been answered so.
fn step(held: u64, operation: &Operation) -> Option<u64> {
    let (after, answer) = match operation.request {
        Request::Put(value) => (value, 1),
        Request::CompareAndSet(expected, value) if held == expected => (value, 1),
        Request::CompareAndSet(..) => (held, 0),
        Request::Increment => (held.wrapping_add(1), held.wrapping_add(1)),
        Request::Append(value) => (mix(held, value), mix(held, value)),
        Request::Get => (held, held),
        Request::Acquire(_) | Request::Release(_) => return None,
    };
    match operation.state {
        State::Done(told) if told != answer => None,
        _ => Some(after),
    }
}

/// Whether the operations on one register, at most 128, have an order that explains every answer.
///
/// # Panics
/// When there are more operations than that.
#[must_use]
pub fn is_linearizable(operations: &[&Operation]) -> bool {
    assert!(operations.len() <= 128, "the workload limits the operations per register");
    let done: u128 = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| matches!(operation.state, State::Done(_)))
        .fold(0, |mask, (index, _)| mask | (1 << index));
    let mut seen: HashSet<(u128, u64), BuildHasherDefault<DefaultHasher>> = HashSet::default();
    let mut stack: Vec<(u128, u64)> = vec![(0, 0)];
    while let Some((mask, held)) = stack.pop() {
        if mask & done == done {
            return true;
        }
        let open = |index: &usize| mask & (1 << index) == 0;
        let horizon = (0..operations.len()).filter(open).map(|i| operations[i].returned).min().unwrap_or(0);
        for index in (0..operations.len()).filter(open) {
            let operation = operations[index];
            if operation.invoked > horizon {
                continue;
            }
            let Some(after) = step(held, operation) else { continue };
            let next = (mask | (1 << index), after);
            if seen.insert(next) {
                stack.push(next);
            }
        }
    }
    false
}

/// Checks every register of a history. The first one that has no explanation, with its operations.
#[must_use]
pub fn first_broken(
    history: &[Operation],
    mut is_moot: impl FnMut(&Operation) -> bool,
) -> Option<(u16, Vec<&Operation>)> {
    let mut registers: BTreeMap<u16, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        let on_register = !matches!(operation.request, Request::Acquire(_) | Request::Release(_));
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
    registers.into_iter().find(|(_, operations)| !is_linearizable(operations))
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

    fn check(operations: &[Operation]) -> bool {
        first_broken(operations, |_| false).is_none()
    }

    #[test]
    fn a_read_may_see_a_concurrent_write_or_not() {
        let write = done(Request::Put(7), 1, 4, 1);
        assert!(check(&[write.clone(), done(Request::Get, 2, 3, 0)]));
        assert!(check(&[write.clone(), done(Request::Get, 2, 3, 7)]));
        assert!(!check(&[write, done(Request::Get, 2, 3, 8)]));
    }

    #[test]
    fn a_read_after_a_write_sees_it() {
        let write = done(Request::Put(7), 1, 2, 1);
        assert!(check(&[write.clone(), done(Request::Get, 3, 4, 7)]));
        assert!(!check(&[write, done(Request::Get, 3, 4, 0)]));
    }

    #[test]
    fn two_reads_do_not_see_time_go_back() {
        let write = done(Request::Put(7), 1, 9, 1);
        let (new, old) = (done(Request::Get, 2, 3, 7), done(Request::Get, 4, 5, 0));
        assert!(!check(&[write, new, old]));
    }

    #[test]
    fn an_unknown_write_may_take_effect_late_or_never() {
        let write = unknown(Request::Put(7), 1);
        assert!(check(&[write.clone(), done(Request::Get, 2, 3, 0)]));
        assert!(check(&[write.clone(), done(Request::Get, 2, 3, 0), done(Request::Get, 8, 9, 7)]));
        assert!(!check(&[write, done(Request::Get, 2, 3, 7), done(Request::Get, 8, 9, 0)]));
    }

    #[test]
    fn an_unknown_write_has_no_effect_before_it_was_asked_for() {
        assert!(!check(&[done(Request::Get, 1, 2, 7), unknown(Request::Put(7), 3)]));
    }

    #[test]
    fn increments_count_once() {
        let twice = [done(Request::Increment, 1, 2, 1), done(Request::Increment, 3, 4, 1)];
        assert!(!check(&twice));
        let lost = [unknown(Request::Increment, 1), done(Request::Increment, 3, 4, 2)];
        assert!(check(&lost));
        assert!(!check(&lost[1..]));
    }

    #[test]
    fn compare_and_set_has_one_winner() {
        let both = [done(Request::CompareAndSet(0, 1), 1, 5, 1), done(Request::CompareAndSet(0, 2), 2, 6, 1)];
        assert!(!check(&both));
        let one = [done(Request::CompareAndSet(0, 1), 1, 5, 1), done(Request::CompareAndSet(0, 2), 2, 6, 0)];
        assert!(check(&one));
    }

    #[test]
    fn appends_show_their_order() {
        let (first, second) = (mix(0, 1), mix(mix(0, 1), 2));
        let good = [done(Request::Append(1), 1, 2, first), done(Request::Append(2), 3, 4, second)];
        assert!(check(&good));
        let bad = [done(Request::Append(2), 1, 2, second), done(Request::Append(1), 3, 4, first)];
        assert!(!check(&bad));
    }
}
