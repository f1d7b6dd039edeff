//! HRANDFIELD.
//!
//! From a small hash every field is equally likely. From a large one, a field is the first behind a random hash: O(log n), and only nearly even,
//! because the gaps between hashes are not equal.

use super::Seen;
use super::looks::all;
use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::{Args, bulk, errors};
use crate::machine::View;
use crate::reply::Reply;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Up to so many fields, all of them are looked at.
const SMALL_MAX: u64 = 512;

/// The most fields in one reply of a negative count.
const REPEATS_MAX: u64 = 1_000_000;

/// Work for one field that is picked.
const PICK: usize = 20;

/// HRANDFIELD key [count [WITHVALUES]]
pub(super) fn fields(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    if args.len() == 1 {
        let hash = Seen::find(view, args.db, args[0])?;
        let found = hash.and_then(|hash| repeated(hash, 1).pop());
        return Ok(found.map_or(Reply::Null, |(field, _)| field));
    }
    let count = integer(args[1])?;
    if count == i64::MIN {
        return Err(Reply::error(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_values = match args.len() {
        2 => false,
        3 if is(args[2], "WITHVALUES") => true,
        _ => return Err(errors::SYNTAX),
    };
    if with_values && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return Err(Reply::error("ERR value is out of range"));
    }
    let found = match Seen::find(view, args.db, args[0])? {
        None => Vec::new(),
        Some(hash) if count >= 0 => different(hash, count.unsigned_abs()),
        Some(_) if count.unsigned_abs() > REPEATS_MAX => {
            return Err(Reply::error("ERR value is out of range, at most 1000000 fields at once"));
        }
        Some(hash) => repeated(hash, count.unsigned_abs()),
    };
    if with_values && !found.is_empty() {
        return Ok(Reply::Pairs(found));
    }
    Ok(Reply::Array(found.into_iter().map(|(field, _)| field).collect()))
}

/// A number below `end`.
fn below(view: &View<'_>, end: usize) -> usize {
    // The cast is exact: the remainder is below a usize.
    (view.random() % (end.max(1) as u64)) as usize
}

/// So many fields, the same one perhaps several times.
fn repeated(hash: Seen<'_, '_>, count: u64) -> Vec<(Reply, Reply)> {
    let small = if hash.count <= SMALL_MAX { all(hash) } else { Vec::new() };
    let pick = |_| match &small[..] {
        [] => behind_random_place(hash),
        small => small.get(below(hash.view, small.len())).cloned(),
    };
    let work = &hash.view.work;
    let goes_on = |_: &u64| {
        work.spend(PICK);
        !work.is_over()
    };
    (0..count).take_while(goes_on).filter_map(pick).collect()
}

/// So many different fields, or all.
fn different(hash: Seen<'_, '_>, count: u64) -> Vec<(Reply, Reply)> {
    // Picking at random gets slow when most of them are wanted.
    if hash.count > SMALL_MAX && count.saturating_mul(3) < hash.count {
        let mut found = BTreeMap::new();
        while (found.len() as u64) < count && !hash.view.work.is_over() {
            hash.view.work.spend(PICK);
            let Some((Reply::Bulk(field), value)) = behind_random_place(hash) else { break };
            found.insert(field, value);
        }
        return found.into_iter().map(|(field, value)| (Reply::Bulk(field), value)).collect();
    }
    let mut found = all(hash);
    let keep = usize::try_from(count).unwrap_or(usize::MAX).min(found.len());
    for at in 0..keep {
        let other = at + below(hash.view, found.len() - at);
        found.swap(at, other);
    }
    found.truncate(keep);
    found
}

fn behind_random_place(hash: Seen<'_, '_>) -> Option<(Reply, Reply)> {
    let mut found = None;
    for from in [hash.view.random(), 0] {
        hash.each(from, |_, field, value| {
            found = Some((Reply::bulk(field), bulk(value)));
            ControlFlow::Break(())
        });
        if found.is_some() {
            break;
        }
    }
    found
}
