//! LOCK.CHECK, LOCK.INFO, LOCK.LIST: looking at locks changes nothing.

use super::acquire::{Ask, mode};
use super::{number, token};
use crate::commands::args::is;
use crate::commands::glob::{glob_matches, glob_work};
use crate::commands::number::integer;
use crate::commands::{Args, errors};
use crate::machine::locks::Hold;
use crate::machine::waits::WaitFor;
use crate::machine::{Kind, View};
use crate::reply::Reply;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Locks that LOCK.LIST tells if nobody says how many.
const COUNT_DEFAULT: usize = 1_000;

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

/// LOCK.CHECK key token
pub(super) fn check(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let token = token(args[1])?;
    let lock = view.lock(args.db, args[0])?;
    Ok(Reply::flag(lock.is_some_and(|lock| lock.position(token, view.now_ms()).is_some())))
}

fn describe(hold: &Hold, now_ms: u64) -> Reply {
    let left = hold.deadline_ms.map_or(Reply::Integer(-1), |ms| number(ms.saturating_sub(now_ms)));
    let mut fields = vec![
        (text("owner"), Reply::bulk(&hold.owner)),
        (text("token"), number(hold.token)),
        (text("count"), number(hold.count)),
        (text("age"), number(now_ms.saturating_sub(hold.since_ms))),
        (text("ttl"), left),
        (text("client"), Reply::bulk(&hold.address)),
        (text("data"), Reply::bulk(&hold.data)),
    ];
    if hold.session != 0 {
        fields.push((text("session"), number(hold.session)));
    }
    Reply::Map(fields)
}

/// LOCK.INFO key
pub(super) fn info(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let now_ms = view.now_ms();
    let lock = view.lock(args.db, args[0])?;
    let held = lock.iter().flat_map(|lock| lock.held(now_ms));
    let holders: Vec<Reply> = held.map(|hold| describe(hold, now_ms)).collect();
    let mode = match &lock {
        None => "free",
        Some(_) if holders.is_empty() => "delayed",
        Some(lock) => mode(lock),
    };
    let mut waiters = Vec::new();
    view.each_wait(args.db, args[0], WaitFor::Lock, &mut |wait, words, client| {
        let words = words.get(1..).unwrap_or_default();
        if words.len() >= 3
            && let Ok(ask) = Ask::parse(&Args::new(args.db, words))
        {
            let left = wait.deadline_ms.map_or(Reply::Integer(-1), |ms| number(ms.saturating_sub(now_ms)));
            waiters.push(Reply::Map(vec![
                (text("owner"), Reply::bulk(ask.owner)),
                (text("mode"), text(if ask.is_shared { "shared" } else { "exclusive" })),
                (text("age"), number(now_ms.saturating_sub(wait.since_ms))),
                (text("patience"), left),
                (text("client"), Reply::bulk(&client.address)),
            ]));
        }
    });
    let last = view.last_end(args.db, args[0]).map_or(Reply::Null, |ended| {
        Reply::Map(vec![
            (text("how"), text(ended.how.name())),
            (text("token"), number(ended.token)),
            (text("owner"), Reply::bulk(&ended.owner)),
            (text("age"), number(now_ms.saturating_sub(ended.at_ms))),
        ])
    });
    Ok(Reply::Map(vec![
        (text("mode"), text(mode)),
        (text("holders"), Reply::Array(holders)),
        (text("waiters"), Reply::Array(waiters)),
        (text("last"), last),
    ]))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    All,
    Held,
    Waited,
}

/// LOCK.LIST [MATCH glob] [HELD|WAITED] [COUNT n]
pub(super) fn list(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let (mut pattern, mut only, mut count) = (&b"*"[..], Only::All, COUNT_DEFAULT);
    let mut rest = args.from(0);
    while let Some(option) = rest.next() {
        if is(option, "HELD") {
            only = Only::Held;
        } else if is(option, "WAITED") {
            only = Only::Waited;
        } else if is(option, "MATCH") {
            pattern = rest.next().ok_or(errors::SYNTAX)?;
        } else if is(option, "COUNT") {
            let value = integer(rest.next().ok_or(errors::SYNTAX)?)?;
            count = usize::try_from(value).ok().filter(|count| *count > 0).ok_or(errors::SYNTAX)?;
        } else {
            return Err(errors::SYNTAX);
        }
    }
    let now_ms = view.now_ms();
    let waited = view.waited_keys(args.db, WaitFor::Lock);
    let mut found: BTreeMap<Vec<u8>, Reply> = BTreeMap::new();
    let mut tell = |key: &[u8]| {
        if found.len() >= count {
            return ControlFlow::Break(());
        }
        let waiters = waited.get(key).copied().unwrap_or(0);
        let lock = view.lock(args.db, key).ok().flatten();
        let holders = lock.as_ref().map_or(0, |lock| lock.held(now_ms).count());
        let is_wanted = match only {
            Only::All => holders > 0 || waiters > 0,
            Only::Held => holders > 0,
            Only::Waited => waiters > 0,
        };
        view.work.spend(glob_work(pattern, key));
        if is_wanted && glob_matches(pattern, key) {
            let mode = if holders == 0 { "free" } else { lock.as_ref().map_or("free", mode) };
            let row = Reply::Map(vec![
                (text("key"), Reply::bulk(key)),
                (text("mode"), text(mode)),
                (text("holders"), Reply::count(holders)),
                (text("waiters"), Reply::count(waiters)),
            ]);
            found.insert(key.to_vec(), row);
        }
        ControlFlow::Continue(())
    };
    for key in waited.keys() {
        // It stops by itself when there are enough.
        let _ = tell(key);
    }
    if only != Only::Waited {
        view.each_key(args.db, 0, &mut |_, key, header| {
            if header.kind == Kind::Lock { tell(key) } else { ControlFlow::Continue(()) }
        });
    }
    Ok(Reply::Array(found.into_values().collect()))
}
