//! LOCK.ACQUIRE: who gets a lock, and who waits.

use super::ttl;
use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::sessions::{live_session, session_id};
use crate::commands::{Args, errors};
use crate::machine::locks::{Hold, Lock};
use crate::machine::waits::{Client, Wait, WaitFor};
use crate::machine::{Place, Stamp, Txn, Undo};
use crate::planted::{self, Bug};
use crate::reply::{Granted, Reply};
use crate::row::SmallBytes;

/// Holders that one lock can have, at most; more have to wait. They are all in one row.
const SHARED_MAX: usize = 4_096;

/// What is asked for.
pub(super) struct Ask<'a> {
    pub(super) owner: &'a [u8],
    ttl: &'a [u8],
    pub(super) is_shared: bool,
    wait_ms: u64,
    delay_ms: Option<u64>,
    session: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

impl<'a> Ask<'a> {
    /// From what follows the key.
    pub(super) fn parse(args: &Args<'a>) -> Result<Ask<'a>, Reply> {
        let mut ask = Ask {
            owner: args[1],
            ttl: args[2],
            is_shared: false,
            wait_ms: 0,
            delay_ms: None,
            session: None,
            data: None,
        };
        let mut rest = args.from(3);
        while let Some(option) = rest.next() {
            if is(option, "SHARED") {
                ask.is_shared = true;
                continue;
            }
            let value = rest.next().ok_or(errors::SYNTAX)?;
            let time = || u64::try_from(integer(value)?).map_err(|_| errors::invalid_expire("lock.acquire"));
            if is(option, "WAIT") {
                ask.wait_ms = time()?;
            } else if is(option, "DELAY") {
                ask.delay_ms = Some(time()?);
            } else if is(option, "SESSION") {
                ask.session = Some(value);
            } else if is(option, "DATA") {
                ask.data = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(ask)
    }
}

/// What a request that waits for a lock is found by.
pub(crate) struct LockWanted<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) session: Option<u64>,
}

impl<'a> LockWanted<'a> {
    /// From the whole command.
    pub(crate) fn parse(command: &'a [&'a [u8]]) -> Option<LockWanted<'a>> {
        let words = command.get(1..).filter(|words| words.len() >= 3)?;
        let ask = Ask::parse(&Args::new(0, words)).ok()?;
        let session = ask.session.and_then(|id| session_id(id).ok());
        Some(LockWanted { owner: ask.owner, session })
    }
}

/// LOCK.ACQUIRE key owner ttl-ms [SHARED] [WAIT ms] [DELAY ms] [SESSION id] [DATA text]
pub(super) fn acquire(txn: &mut Txn<'_>, stamp: &Stamp, args: &Args<'_>) -> Result<Reply, Reply> {
    let ask = Ask::parse(args)?;
    let session = ask.session.map(|id| live_session(txn, id)).transpose()?.unwrap_or(0);
    // With a session, a hold need not have a time of its own.
    let ttl_ms = match ask.ttl {
        b"0" if session != 0 => None,
        text => Some(ttl(text, stamp.at_ms, "lock.acquire")?),
    };
    let (place, lock) = txn.lock(args.db, args[0])?;
    let mut lock = lock.unwrap_or_else(|| Lock { is_shared: ask.is_shared, holds: Vec::new() });
    let mine = lock.holds.iter().position(|hold| *hold.owner == *ask.owner && hold.is_held(stamp.at_ms));
    if let Some(index) = mine {
        return again(txn, args, &ask, (ttl_ms, session), (&place, lock, index));
    }
    let is_free = match lock.holds.len() {
        0 => true,
        count => lock.is_shared && ask.is_shared && !lock.is_delayed() && count < SHARED_MAX,
    };
    let is_free = is_free || planted::has(Bug::GrantWhileHeld) && ask.delay_ms.unwrap_or(0) % 3 == 1;
    let may_overtake =
        planted::has(Bug::Overtaking) || planted::has(Bug::SharedStarves) && ask.is_shared && lock.is_shared;
    if !is_free || !may_overtake && txn.is_awaited(args.db, args[0], WaitFor::Lock) {
        return Ok(txn.wait(Wait {
            waits_for: WaitFor::Lock,
            db: args.db,
            keys: &[args[0]],
            timeout_ms: Some(ask.wait_ms),
            on_timeout: Reply::Null,
            lets_pass: false,
        }));
    }
    let (caller, client) = txn.sender();
    let hold = Hold {
        token: txn.next_token(),
        owner: SmallBytes::new(ask.owner),
        count: 1,
        since_ms: stamp.at_ms,
        deadline_ms: ttl_ms.map(|ttl_ms| stamp.at_ms + ttl_ms),
        delay_ms: ask.delay_ms.unwrap_or(0),
        session,
        caller,
        client: client.id,
        address: client.address,
        data: SmallBytes::new(ask.data.unwrap_or_default()),
        is_over: false,
    };
    txn.tell_lock(args.db, args[0], &hold, None);
    let reply = granted(txn, args, lock.is_shared, &hold);
    if lock.holds.is_empty() {
        txn.put_first(&place, lock.is_shared, &hold);
    } else {
        lock.holds.push(hold);
        txn.put_lock(&place, &lock);
    }
    txn.bind(session, &place);
    Ok(reply)
}

/// The same owner once more. What the newer request says replaces what was said before, but the hold does not become shorter.
fn again(
    txn: &mut Txn<'_>,
    args: &Args<'_>,
    ask: &Ask<'_>,
    (ttl_ms, session): (Option<u64>, u64),
    (place, mut lock, index): (&Place<'_>, Lock, usize),
) -> Result<Reply, Reply> {
    if lock.is_shared && !ask.is_shared {
        return Err(Reply::error(
            "ERR this owner holds the lock shared; release it before you ask for it exclusively: two who wait for each other's share would wait for ever",
        ));
    }
    let until_ms = ttl_ms.map(|ttl_ms| txn.stamp.at_ms + ttl_ms);
    let (caller, client) = txn.sender();
    let hold = &mut lock.holds[index];
    hold.count += if planted::has(Bug::CountForgotten) { 0 } else { 1 };
    // A hold never becomes shorter by asking once more.
    hold.deadline_ms = hold.deadline_ms.zip(until_ms).map(|(before_ms, until_ms)| before_ms.max(until_ms));
    hold.delay_ms = ask.delay_ms.unwrap_or(hold.delay_ms);
    if let Some(data) = ask.data {
        hold.data = SmallBytes::new(data);
    }
    // Who asked last is told of the loss: the connection that asked before may be gone. Inside of commands that do not say whose they are, nobody is known.
    if client != Client::default() {
        (hold.caller, hold.client, hold.address) = (caller, client.id, client.address);
    }
    let before = hold.session;
    if session != 0 {
        hold.session = session;
    }
    txn.put_lock(place, &lock);
    if session != 0 && session != before {
        if !lock.holds.iter().any(|hold| hold.session == before) {
            txn.unbind(before, place);
        }
        txn.bind(session, place);
    }
    Ok(granted(txn, args, lock.is_shared, &lock.holds[index]))
}

fn granted(txn: &mut Txn<'_>, args: &Args<'_>, is_shared: bool, hold: &Hold) -> Reply {
    txn.undo_with(|| Undo::Release { db: args.db, key: SmallBytes::new(args[0]), token: hold.token });
    Reply::Granted(Granted {
        token: hold.token,
        left_ms: hold.deadline_ms.map(|ms| ms.saturating_sub(txn.stamp.at_ms)),
        is_shared,
        count: hold.count,
    })
}

/// As it is told to clients.
pub(super) fn mode(lock: &Lock) -> &'static str {
    if lock.is_shared { "shared" } else { "exclusive" }
}
