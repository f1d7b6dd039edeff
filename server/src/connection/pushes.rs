//! What a client did not ask for: messages, MONITOR, losses of locks, and notices that its copies are old.
//!
//! Anybody can push at any time: what is pushed waits apart from the connection's state, which may be in use. It goes to the output behind every reply that
//! is there already, also behind those that wait for another one before them (I2 of `tracking`): a client that is told first that its copy of a key is
//! old, and then gets a reply that was read before, would keep the old value for ever.
//!
//! Notices go before other pushes and before any later reply, however slowly the client reads. Others wait until it has read some. Of both, a client
//! that does not read gets only so much, and is closed then.

use super::{Connection, State};
use crate::resp::Protocol;
use bytes::Bytes;
use storage::reply::Reply;

/// How much of what was pushed is put into the output before the client has read some.
const PUSH_AHEAD_BYTES: usize = 64 << 10;

/// A notice that copies are old.
pub(super) struct Old {
    /// Of which keys; nothing: of all.
    keys: Option<Vec<Bytes>>,
    /// It is another connection that has the copies.
    is_redirected: bool,
}

impl Old {
    /// As this client can understand it, if it can.
    fn message(self, state: &State) -> Option<Reply> {
        let keys = self.keys.map(|keys| Reply::Array(keys.into_iter().map(Reply::Bulk).collect()));
        let keys = keys.unwrap_or(Reply::Null);
        if state.protocol == Protocol::Resp3 {
            return Some(Reply::Push(vec![Reply::bulk(b"invalidate"), keys]));
        }
        let is_understood = self.is_redirected && state.subscribed.count() > 0;
        is_understood
            .then(|| Reply::Push(vec![Reply::bulk(b"message"), Reply::bulk(b"__redis__:invalidate"), keys]))
    }
}

impl Connection {
    /// Sends something that the client did not ask for. A client that does not read is closed when too much waits for it.
    pub fn push(&self, reply: Reply) {
        if self.has_room_for(reply.bytes_at_most()) {
            self.pushed.borrow_mut().push_back(reply);
            self.wake();
        }
    }

    /// Tells that copies of keys are old; nothing: of all keys. `is_redirected`: another connection has them.
    pub fn tell_old(&self, keys: Option<Vec<Bytes>>, is_redirected: bool) {
        let bytes = keys.iter().flatten().map(|key| key.len() + 16).sum::<usize>() + 64;
        if self.has_room_for(bytes) {
            self.old.borrow_mut().push_back((Old { keys, is_redirected }, bytes));
            self.wake();
        }
    }

    fn has_room_for(&self, more: usize) -> bool {
        let bytes = self.pushed_bytes.get() + more;
        let has_room = bytes <= self.face.tunable.borrow().push_bytes_max;
        if has_room {
            self.pushed_bytes.set(bytes);
        } else {
            self.overflow();
        }
        has_room
    }

    /// Whether something waits to be moved to the output.
    pub(super) fn has_pushed(&self) -> bool {
        !self.pushed.borrow().is_empty() || !self.old.borrow().is_empty()
    }

    /// Whether some of that could be moved now ([`Connection::take_pushed`]).
    pub(super) fn can_push(&self, state: &State) -> bool {
        let has_room = state.places.reply_bytes() < PUSH_AHEAD_BYTES;
        !self.old.borrow().is_empty() || (has_room && !self.pushed.borrow().is_empty())
    }

    fn overflow(&self) {
        self.pushed.borrow_mut().clear();
        self.old.borrow_mut().clear();
        self.face.stats.borrow_mut().overflowed += 1;
        self.kill();
    }

    fn taken(&self, bytes: usize) {
        self.pushed_bytes.set(self.pushed_bytes.get().saturating_sub(bytes));
    }

    /// Moves what was pushed to the output, as long as the client keeps up.
    pub(super) fn take_pushed(&self, state: &mut State) {
        let notices = self.old.take();
        if !notices.is_empty() && !self.is_killed.get() {
            let tunable = self.face.tunable.borrow();
            if state.places.reply_bytes() > tunable.output_bytes_max.saturating_add(tunable.push_bytes_max) {
                drop(tunable);
                return self.overflow();
            }
        }
        for (old, bytes) in notices {
            self.taken(bytes);
            if let Some(message) = old.message(state) {
                state.places.put_pushed(&message, state.protocol);
            }
        }
        let mut pushed = self.pushed.borrow_mut();
        while state.places.reply_bytes() < PUSH_AHEAD_BYTES
            && let Some(reply) = pushed.pop_front()
        {
            self.taken(reply.bytes_at_most());
            state.places.put_pushed(&reply, state.protocol);
        }
    }

    /// Sends something that the client did not ask for, if its protocol has room for it.
    pub fn push_to_resp3(&self, message: Vec<Reply>) {
        if self.look(|state| state.protocol == Protocol::Resp3).unwrap_or(false) {
            self.push(Reply::Push(message));
        }
    }
}
