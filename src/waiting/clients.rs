//! What clients of an empty node hear. Until it is a member: that there is no cluster. From then on nothing, until the member has begun: what they ask is
//! held, and the member gets it in the order in which it came.
//!
//! It is held for the moments in which a member with empty files begins, and as much as one connection may have in flight of each. How long it waits for a
//! master is the member's business, as with every other request.

use super::{NO_CLUSTER, Waiting};
use bytes::Bytes;
use server::{Answer, Engine, Facts, Ticket};
use std::time::Duration;
use storage::machine::{Interest, View};
use storage::reply::Reply;

/// A request for the member.
pub(super) enum Held {
    Read(Ticket),
    Write(Bytes, Ticket),
    Expire(Ticket),
    Admin(Vec<Bytes>, Ticket),
}

impl Held {
    fn ticket(&self) -> Ticket {
        match self {
            Held::Read(ticket) | Held::Write(_, ticket) | Held::Expire(ticket) | Held::Admin(_, ticket) => {
                *ticket
            }
        }
    }

    fn give_to(self, engine: &dyn Engine) {
        match self {
            Held::Read(ticket) => engine.read_later(ticket),
            Held::Write(payload, ticket) => engine.write(payload, ticket),
            Held::Expire(ticket) => engine.expire(ticket),
            Held::Admin(words, ticket) => engine.admin(words, ticket),
        }
    }
}

impl Waiting {
    fn is_member(&self) -> bool {
        self.identity.borrow().is_some()
    }

    fn hold_or_refuse(&self, request: Held) {
        if self.is_member() {
            self.held.borrow_mut().push(request);
        } else {
            self.answer_later(request.ticket(), Reply::error(NO_CLUSTER));
        }
    }

    /// Not now: the connection that asks is busy asking.
    fn answer_later(&self, ticket: Ticket, reply: Reply) {
        let Some(waiting) = self.me.upgrade() else { return };
        tokio::task::spawn_local(async move { waiting.answer(ticket, reply) });
    }

    fn answer(&self, ticket: Ticket, reply: Reply) {
        if let Some(face) = self.face.get() {
            face.answer(ticket, Answer::Reply(reply));
        }
    }
}

impl Engine for Waiting {
    fn age(&self) -> Option<Duration> {
        None
    }

    fn read_now(&self, _: &mut dyn FnMut(&View<'_>)) -> bool {
        false
    }

    fn read(&self, _: &mut dyn FnMut(&View<'_>)) {}

    fn read_later(&self, ticket: Ticket) {
        self.hold_or_refuse(Held::Read(ticket));
    }

    fn write(&self, payload: Bytes, ticket: Ticket) {
        self.hold_or_refuse(Held::Write(payload, ticket));
    }

    fn expire(&self, ticket: Ticket) {
        self.hold_or_refuse(Held::Expire(ticket));
    }

    fn closed(&self, _: u64) {}

    fn unblock(&self, _: u64, _: bool) -> bool {
        false // nobody waits here for long
    }

    fn admin(&self, words: Vec<Bytes>, ticket: Ticket) {
        // To form the same cluster again is no error here, and is one to a member.
        if self.is_member() && !words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"JOIN")) {
            return self.hold_or_refuse(Held::Admin(words, ticket));
        }
        let Some(waiting) = self.me.upgrade() else { return };
        tokio::task::spawn_local(async move {
            let reply = waiting.administer(&words).await.unwrap_or_else(|error| Reply::Error(error.into()));
            waiting.answer(ticket, reply);
        });
    }

    fn nudge(&self) {
        // A node without a cluster takes no turns.
        if let Some(face) = self.face.get() {
            face.breathe();
        }
    }

    fn listen(&self, _: Interest) {} // nothing happens to keys here

    fn hand_over(&self, to: &dyn Engine) {
        self.held.take().into_iter().for_each(|request| request.give_to(to));
    }

    fn facts(&self) -> Facts {
        Facts { role: "empty", address: self.settings.client_address(), ..Facts::default() }
    }
}
