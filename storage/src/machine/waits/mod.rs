//! Commands that wait: for a lock, an element, a task.
//!
//! A command that cannot be served now leaves a *wait*: rows, part of the replicated state like any others. Whoever makes it servable serves it,
//! in the same transaction: the waiting command runs again, and if it has a reply now, the wait is over and the reply is an
//! [`Event::Served`]. So every node serves the same waits in the same order, over a fail-over and a snapshot, and nobody polls.
//!
//! Invariants:
//! * P1: a wait ends once: served, its time over, or cancelled; and with one event.
//! * P2: the waits on a key are served in the order in which they came. Nobody overtakes, but a command whose wait lets others pass ([`Wait::lets_pass`]);
//!   and whoever gets a lock gets it with all its requests that wait for it, which is no overtaking: it would have the lock without them.
//! * P3: a wait whose time is over is never served.
//! * P4: a wait has its row, one row in the line of each of its keys, one for who waits, one timer if it has a deadline, and for a lock one for its
//!   owner and one for its session; nothing else refers to it. `Meta::waiting` says how many there are.
//! * P5: a wait for a lock that is to go with a session ends with that session.
//!
//! # How to add a command that waits
//!
//! ```text
//! fn blpop(txn, stamp, args) -> Reply {
//!     for key in keys_to_look_at { if let Some(item) = pop(txn, key) {
//!         txn.undo_with(|| Undo::Command(encode_command(db, &["LPUSH", key, item])));   // if the reply cannot be delivered any more
//!         return reply(key, item);
//!     } }
//!     txn.wait(Wait { waits_for: WaitFor::List, db, keys: &keys, timeout_ms, on_timeout: Reply::NullArray, lets_pass: false })
//! }
//! ```
//!
//! * The handler first tries; only then it waits. It runs again, with the same arguments, when one of its keys was written or removed; the call of `wait`
//!   then says that it still waits, and changes nothing. It must not have changed anything before. With several keys it looks only at [`Txn::served_key`] then.
//! * `wait` gives `on_timeout` at once where waiting is impossible: inside EXEC, LOCK.DO or a script, as in Redis. So return what it gives.
//! * A handler that must not overtake others asks [`Txn::is_awaited`] before it helps itself.
//! * `lets_pass`: true if the key holds something that this command cannot use but the next in line might (a list, for BZPOPMIN).
//!   False if there is nothing for anybody: then the line is not looked at any further.
//! * Its entry in the table has [`Flag::Blocks`](crate::commands::Flag::Blocks): the connection holds back what comes behind it.
//!
//! # When the client is gone
//!
//! Its node cancels the wait through the log ([`commands::unwait`](crate::commands::unwait)). If it was served in between, or the reply was on its
//! way, the node runs the command that [`Txn::undo_with`] was given. A node that was restarted cancels the waits of its former lives, the master those
//! of a node that it does not hear ([`commands::forget_waits`](crate::commands::forget_waits)). What was granted to a node that died
//! before it could tell its client stays granted: a lock until its time is over, an element for ever, as with a Redis that dies between POP and reply.

mod look;
mod rows;
mod run;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use look::check_rows;
pub(crate) use look::{is_waiting, waiting_nodes};
pub(crate) use rows::{Timer, WaitRow};
pub(crate) use run::Run;

use super::events::{Caller, Event, Undo};
use super::payload;
use super::txn::Txn;
use crate::commands::LockWanted;
use crate::planted::{self, Bug};
use crate::reply::Reply;
use crate::row::{RowKey, RowKeyRef, RowValue, SmallBytes};
use crate::store::{Order, Rows};
use std::ops::ControlFlow;

/// What somebody waits for. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WaitFor {
    /// A lock.
    Lock = 1,
    /// An item of a list.
    List = 2,
    /// A member of a sorted set.
    SortedSet = 3,
    /// An entry of a stream.
    Stream = 4,
    /// A task of a queue.
    Task = 5,
    /// The others at a barrier.
    Barrier = 6,
}

impl WaitFor {
    fn from_number(number: u8) -> Option<WaitFor> {
        use WaitFor::{Barrier, List, Lock, SortedSet, Stream, Task};
        [Lock, List, SortedSet, Stream, Task, Barrier].into_iter().find(|known| *known as u8 == number)
    }
}

/// How a command waits.
pub struct Wait<'a> {
    /// For what.
    pub waits_for: WaitFor,
    /// The database.
    pub db: u8,
    /// In the lines of which keys.
    pub keys: &'a [&'a [u8]],
    /// How long; nothing: for ever.
    pub timeout_ms: Option<u64>,
    /// The reply when that time is over.
    pub on_timeout: Reply,
    /// Whether those behind it may be served although it was not.
    pub lets_pass: bool,
}

/// The connection that sent a command, for commands that remember it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its number on the caller's node.
    pub id: u64,
    /// Where it comes from.
    pub address: SmallBytes,
}

/// Told to those whose node was not heard of, or lost its memory.
const CUT_OFF: Reply = Reply::error(
    "TRYAGAIN the node was cut off from the cluster while the command waited; it was not done, try again",
);
const UNBLOCKED: Reply = Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK");

impl<'m> Txn<'m> {
    /// Says whose command this transaction is, and gives it room for what it says.
    pub(crate) fn set_caller(
        &mut self,
        caller: Caller,
        client: Client,
        payload: &'m [u8],
        events: Vec<Event>,
    ) {
        self.run = Run { caller, client, payload, events, ..Run::default() };
    }

    /// Says over which connection a command inside a transaction came.
    pub(crate) fn set_client(&mut self, client: Client) {
        self.run.client = client;
    }

    /// Says something besides the reply, if the command does not fail.
    pub(crate) fn tell(&mut self, event: Event) {
        self.run.events.push(event);
    }

    /// Who sent the command, and over which connection, if the command's entry says that it wants to know.
    #[must_use]
    pub fn sender(&self) -> (Caller, Client) {
        (self.run.caller, self.run.client.clone())
    }

    /// Whether this is a command that waited and runs again.
    #[must_use]
    pub fn runs_again(&self) -> bool {
        self.run.is_serving
    }

    /// The key that a command which waited runs again for.
    #[must_use]
    pub fn served_key(&self) -> Option<&[u8]> {
        self.run.serving_key.as_ref().filter(|_| self.run.is_serving).map(|(_, key)| &key[..])
    }

    /// Lets the command wait; see the module's description. The result is the handler's reply.
    pub fn wait(&mut self, wait: Wait<'_>) -> Reply {
        if self.run.is_serving {
            self.run.lets_pass = wait.lets_pass;
            return Reply::Waiting(None);
        }
        let is_possible = self.run.depth == 1 && self.run.caller != Caller::NOBODY;
        if !is_possible || wait.timeout_ms == Some(0) {
            return wait.on_timeout;
        }
        let meta = self.meta_mut();
        meta.waits += 1;
        meta.waiting += 1;
        let number = meta.waits;
        let deadline_ms = wait.timeout_ms.map(|ms| self.stamp.at_ms.saturating_add(ms));
        let mut keys: Vec<Vec<u8>> = wait.keys.iter().map(|key| key.to_vec()).collect();
        keys.sort();
        keys.dedup();
        let row = WaitRow {
            number,
            since_ms: self.stamp.at_ms,
            deadline_ms,
            caller: self.run.caller,
            waits_for: wait.waits_for,
            db: wait.db,
            keys,
            on_timeout: wait.on_timeout,
            payload: self.run.payload.to_vec(),
        };
        for key in &row.keys {
            self.put_row(rows::line_row(row.db, key, number), RowValue::new(&[row.waits_for as u8]));
        }
        self.put_row(rows::caller_row(row.caller), RowValue::new(&number.to_be_bytes()));
        if let Some(deadline_ms) = deadline_ms {
            self.put_row(Timer::Wait(number).row(deadline_ms), RowValue::EMPTY);
        }
        finders(&row).into_iter().for_each(|finder| self.put_row(finder, RowValue::EMPTY));
        self.put_row(rows::wait_row(number).to_owned(), row.value());
        Reply::Waiting(deadline_ms)
    }

    /// Whether somebody waits for this at a key whose time is not over, so that a newcomer has to wait, too. Never true for the command whose turn it is.
    #[must_use]
    pub fn is_awaited(&self, db: u8, key: &[u8], waits_for: WaitFor) -> bool {
        if self.meta().waiting == 0 || self.run.is_serving {
            return false;
        }
        let mut found = false;
        let visit = &mut |row: RowKeyRef<'_>, value: &RowValue| {
            let number = rows::parse_line(row).filter(|(of, _)| *of == key).map(|(_, number)| number);
            let is_it = value.first() == Some(&(waits_for as u8));
            let wait = number.filter(|_| is_it).and_then(|number| self.wait_of(number));
            found = wait.is_some_and(|wait| wait.deadline_ms.is_none_or(|ms| ms > self.stamp.at_ms));
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if let Err(error) = self.scan(&rows::line_from(db, key, 0), Order::Ascending, visit) {
            self.poison(error);
        }
        found
    }

    /// Says how this command is undone, for the case that its reply cannot be delivered. Asked only where the reply will be, and not for a part of a
    /// transaction or a script: the rest of it would stay done.
    pub fn undo_with(&mut self, undo: impl FnOnce() -> Undo) {
        let caller = self.run.caller;
        if self.run.depth == 1 && caller != Caller::NOBODY && self.interest.is_mine(caller) {
            self.run.undo = Some(undo());
        }
    }

    /// A key was written or removed: those who wait at it may be served.
    pub(crate) fn touch(&mut self, db: u8, key: &[u8]) {
        let is = |known: &(u8, Vec<u8>)| known.0 == db && known.1 == key;
        if self.meta().waiting > 0
            && !self.run.touched.back().is_some_and(is)
            && !self.run.serving_key.as_ref().is_some_and(is)
        {
            self.run.touched.push_back((db, key.to_vec()));
        }
    }

    /// Forgets what was touched, for a planted bug.
    pub(crate) fn untouch(&mut self) {
        self.run.touched.clear();
    }

    /// The same for all keys of a database.
    pub(crate) fn touch_database(&mut self, db: u8) {
        if self.meta().waiting > 0 {
            self.run.touched_databases |= 1 << (db % 16);
        }
    }

    /// Serves those who wait at touched keys. To be called once, after the command itself, if it did not fail.
    pub(crate) fn serve(&mut self, reply: &Reply) {
        if let Some(undo) = self.run.undo.take()
            && !matches!(reply, Reply::Waiting(_))
        {
            self.run.events.push(Event::Undo { caller: self.run.caller, undo });
        }
        loop {
            let databases = std::mem::take(&mut self.run.touched_databases);
            for db in (0..16).filter(|db| databases >> db & 1 == 1) {
                self.touch_lines(db);
            }
            let Some((db, key)) = self.run.touched.pop_front() else { return };
            if self.meta().waiting == 0 {
                self.run.touched.clear();
                return;
            }
            self.run.serving_key = Some((db, key.clone()));
            self.serve_line(db, &key);
            self.run.serving_key = None;
        }
    }

    fn touch_lines(&mut self, db: u8) {
        let lines = self.rows(&rows::lines_of(db), usize::MAX);
        for (row, _) in lines {
            if let Some((key, _)) = rows::parse_line(row.borrow()) {
                self.touch(db, key);
            }
        }
    }

    fn serve_line(&mut self, db: u8, key: &[u8]) {
        let mut from = 0;
        if planted::has(Bug::WaiterSkipped) {
            from = self.next_in_line(db, key, from).map_or(0, |wait| wait.number + 1);
        }
        while let Some(wait) = self.next_in_line(db, key, from) {
            from = wait.number + 1;
            let is_late = wait.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.stamp.at_ms);
            if is_late && !planted::has(Bug::LateServed) {
                // P3.
                let reply = wait.on_timeout.clone();
                self.end_wait(&wait, reply, None);
                continue;
            }
            let reply = self.run_again(&wait);
            if reply.is_error() && self.wait_of(wait.number).is_none() {
                // P5: it found its session's time to be over, and ended with it.
                continue;
            }
            let has_lock = matches!(reply, Reply::Granted(_));
            if !matches!(reply, Reply::Waiting(_)) {
                let undo = self.run.undo.take();
                self.end_wait(&wait, reply, undo);
            } else if !self.run.lets_pass {
                return;
            }
            if has_lock {
                self.serve_owner(&wait);
            }
        }
    }

    /// P2: who was served has a lock now, so its other requests that wait for it have it, too, as if they were made now. One that is still not served
    /// (it wants the lock for itself, and its owner shares it) keeps its place.
    fn serve_owner(&mut self, served: &WaitRow) {
        let Some(command) = payload::decode_command(&served.payload) else { return };
        let Some((wanted, key)) = LockWanted::parse(command.args()).zip(served.keys.first()) else { return };
        let range = rows::owned_behind(served.db, key, wanted.owner, served.number);
        for (row, _) in self.rows(&range, usize::MAX) {
            let number = rows::parse_owner(row.borrow(), served.db, key, wanted.owner);
            let Some(wait) = number.and_then(|number| self.wait_of(number)) else { continue };
            if wait.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.stamp.at_ms) {
                // P3.
                let reply = wait.on_timeout.clone();
                self.end_wait(&wait, reply, None);
                continue;
            }
            let reply = self.run_again(&wait);
            if matches!(reply, Reply::Granted(_)) {
                let undo = self.run.undo.take();
                self.end_wait(&wait, reply, undo);
            }
        }
    }

    /// Runs a waiting command as its caller.
    fn run_again(&mut self, wait: &WaitRow) -> Reply {
        let Some(command) = payload::decode_command(&wait.payload) else {
            return Reply::error("ERR malformed log entry");
        };
        let me = (self.run.caller, std::mem::take(&mut self.run.client), self.run.depth);
        self.run.caller = wait.caller;
        self.run.client = command.client();
        self.run.depth = 0;
        self.run.is_serving = true;
        self.run.undo = None;
        let reply = self.execute(command.db, command.args());
        self.run.is_serving = false;
        (self.run.caller, self.run.client, self.run.depth) = me;
        reply
    }

    fn next_in_line(&self, db: u8, key: &[u8], from: u64) -> Option<WaitRow> {
        let mut next = None;
        let visit = &mut |row: RowKeyRef<'_>, _: &RowValue| {
            next = rows::parse_line(row).filter(|(of, _)| *of == key).map(|(_, number)| number);
            if next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if let Err(error) = self.scan(&rows::line_from(db, key, from), Order::Ascending, visit) {
            self.poison(error);
        }
        self.wait_of(next?)
    }

    fn wait_of(&self, number: u64) -> Option<WaitRow> {
        WaitRow::parse(number, &self.row(rows::wait_row(number))?)
    }

    /// P1, P4: takes all rows of a wait away, and tells its caller.
    fn end_wait(&mut self, wait: &WaitRow, reply: Reply, undo: Option<Undo>) {
        if planted::has(Bug::ServedTwice) && undo.is_some() {
            self.run.events.push(Event::Served { caller: wait.caller, reply, undo });
            return;
        }
        for key in &wait.keys {
            self.remove_row(rows::line_row(wait.db, key, wait.number));
        }
        self.remove_row(rows::caller_row(wait.caller));
        if let Some(deadline_ms) = wait.deadline_ms {
            self.remove_row(Timer::Wait(wait.number).row(deadline_ms));
        }
        finders(wait).into_iter().for_each(|finder| self.remove_row(finder));
        self.remove_row(rows::wait_row(wait.number).to_owned());
        let meta = self.meta_mut();
        meta.waiting = meta.waiting.saturating_sub(1);
        self.run.events.push(Event::Served { caller: wait.caller, reply, undo });
    }

    /// Ends a wait without serving it. Those behind it may have waited only because of it.
    fn drop_wait(&mut self, wait: &WaitRow, reply: Reply) {
        self.end_wait(wait, reply, None);
        wait.keys.iter().for_each(|key| self.touch(wait.db, key));
    }

    /// A wait's time is over.
    pub(crate) fn time_out(&mut self, number: u64) {
        if let Some(wait) = self.wait_of(number) {
            let reply = wait.on_timeout.clone();
            self.drop_wait(&wait, reply);
        }
    }

    /// P5: a session has ended, and with it the waits that were to go with it.
    pub(super) fn end_waits_of(&mut self, session: u64, reply: &Reply) {
        for (row, _) in self.rows(&rows::of_session(session), usize::MAX) {
            if let Some(wait) = self.wait_of(row.borrow().second()) {
                self.drop_wait(&wait, reply.clone());
            }
        }
    }

    /// Ends the wait of `caller`, if it still waits; as if its time were over, or with an error.
    pub(crate) fn unwait(&mut self, caller: Caller, as_error: bool) -> bool {
        let number = self.row(rows::caller_row(caller).borrow()).and_then(|value| number_in(&value));
        let wait = number.and_then(|number| self.wait_of(number));
        let Some(wait) = wait else { return false };
        let reply = if as_error { UNBLOCKED } else { wait.on_timeout.clone() };
        self.drop_wait(&wait, reply);
        true
    }

    /// Ends up to `limit` waits of a node's lives before `incarnation`; says how many.
    pub(crate) fn forget_waits(&mut self, node: u64, incarnation: u64, limit: usize) -> usize {
        let found = self.rows(&rows::callers_before(node, incarnation), limit);
        for (row, value) in &found {
            match number_in(value).and_then(|number| self.wait_of(number)) {
                Some(wait) => self.drop_wait(&wait, CUT_OFF),
                None => self.remove_row(row.clone()),
            }
        }
        found.len()
    }
}

/// P4: the rows by which a wait for a lock is found besides its line: by its owner, and by its session.
fn finders(wait: &WaitRow) -> Vec<RowKey> {
    if wait.waits_for != WaitFor::Lock {
        return Vec::new();
    }
    let Some(command) = payload::decode_command(&wait.payload) else { return Vec::new() };
    let Some((wanted, key)) = LockWanted::parse(command.args()).zip(wait.keys.first()) else {
        return Vec::new();
    };
    let mut found = vec![rows::owner_row(wait.db, key, wanted.owner, wait.number)];
    found.extend(wanted.session.map(|session| rows::session_row(session, wait.number)));
    found
}

fn number_in(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}
