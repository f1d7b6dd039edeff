//! Clients that take locks: shared and exclusive, waiting and not, with and without a session; that renew, give back, forget to, and now and then take a lock
//! away from somebody.

use super::ask::{Ask, number};
use crate::history::State;
use crate::machine::Request;
use crate::world::World;
use storage::reply::Reply;

/// How many locks there are.
const LOCKS: u64 = 2;

/// What a client knows of its locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder {
    /// The lock and the token that it holds, as far as it knows.
    held: Option<(u8, u64)>,
    /// Its session.
    session: Option<u64>,
}

impl World {
    /// The next request of a client.
    pub(crate) fn lock_turn(&mut self, index: usize) {
        let holder = self.clients[index].holder;
        let rng = &mut self.rng;
        let key = u8::try_from(rng.between(1, LOCKS)).unwrap_or(1);
        let ask = match (rng.between(0, 99), holder.held, holder.session) {
            (0..2, ..) => Ask::Revoke(key),
            (2..4, ..) => Ask::Delete(key),
            (4, ..) => Ask::Flush,
            (5..15, _, None) => Ask::Open(rng.between(30, 1_500)),
            (5..15, _, Some(id)) => Ask::Alive(id),
            (15..18, _, Some(id)) => Ask::Close(id),
            (18..50, Some((key, token)), _) => Ask::Release { key, token },
            (50..65, Some((key, token)), _) => Ask::Renew { key, token, ttl_ms: rng.between(5, 800) },
            (65..70, Some((key, token)), _) => Ask::Do { key, token },
            _ => {
                let session = holder.session.filter(|_| rng.chance(400_000)).unwrap_or(0);
                let is_open = session > 0 && rng.coin();
                Ask::Acquire {
                    key,
                    owner: index,
                    ttl_ms: if is_open { 0 } else { rng.between(5, 800) },
                    is_shared: rng.chance(400_000),
                    wait_ms: if rng.chance(300_000) { 0 } else { rng.between(1, 1_500) },
                    delay_ms: if rng.chance(700_000) { 0 } else { rng.between(1, 300) },
                    session,
                }
            }
        };
        if let Ask::Release { token, .. } = ask {
            self.observer.holds.disbelieve(token, self.now);
            self.clients[index].holder.held = None;
        }
        if let Ask::Renew { token, ttl_ms, .. } = ask {
            self.observer.holds.renews(token, ttl_ms, self.now);
        }
        self.ask(index, 0, Request::Lock(ask), false);
    }

    /// A client is told a reply.
    pub(crate) fn lock_answered(&mut self, operation: usize, reply: &Reply) {
        self.trace.note(self.now, || format!("operation {operation} is answered: {reply:?}"));
        let told = number(reply);
        if !self.history.finish(operation, State::Done(told)) {
            return;
        }
        let Some(asked) = self.history.get(operation) else { return };
        let (client, request, asked_at) = (asked.client, asked.request, asked.invoked_at);
        let Request::Lock(ask) = request else { return };
        let holder = &mut self.clients[client].holder;
        match ask {
            Ask::Acquire { key, .. } if told > 0 => {
                holder.held = Some((key, told));
                self.stats.locks += 1;
                self.observer.holds.believes(ask, told, asked_at, self.now, &mut self.observer.verdict);
            }
            Ask::Renew { token, .. } if !reply.is_error() => {
                self.observer.holds.believes(ask, token, asked_at, self.now, &mut self.observer.verdict);
            }
            Ask::Renew { token, .. } | Ask::Do { token, .. } if reply.is_error() => {
                holder.held = None;
                self.observer.holds.disbelieve(token, self.now);
            }
            Ask::Open(_) if told > 0 => holder.session = Some(told),
            Ask::Alive(_) if reply.is_error() => holder.session = None,
            Ask::Close(_) => holder.session = None,
            _ => {}
        }
        self.next_turn(client, operation);
    }
}
