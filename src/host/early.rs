//! What a role may say before its records are durable.
//!
//! The rule without exceptions is that what a role says leaves after everything that this role asked to persist. It is stronger than the
//! protocol needs: most messages claim nothing about this node's disk. Letting those go lets a follower apply what is decided while its disk is busy
//! with what is proposed, keeps reads alive on a node whose disk is full, and lets its master hand over.
//!
//! Safe, because none of them says or implies that something is durable here:
//! * requests to others: `Request` (its incarnation is durable since the start of this life), `ReadIndex`, `Fetch`, `SnapshotFetch`;
//! * decisions, which are durable on a majority without this node: `Applied`, `Learn`, `Log`. What the replica writes down because of a `Learn`
//!   comes after the accepted value in the same journal;
//! * `MasterAlive`: what a master said. Whoever uses a ballot or a view because of it persists that first, in the same journal;
//! * the answer to a heartbeat, only if the promise, the lease and the view behind it are durable. Then a restart remembers all that the
//!   answer binds this acceptor to (A1, A4, A6).

use consensus::Message;

/// Whether `message` may leave although records of its role are not durable yet; `is_promise_durable`: all that an answer to a heartbeat claims is on the
/// disk.
#[must_use]
pub fn may_leave_early(message: &Message, is_promise_durable: bool) -> bool {
    match message {
        Message::Request { .. }
        | Message::ReadIndex { .. }
        | Message::Fetch { .. }
        | Message::SnapshotFetch { .. }
        | Message::Applied { .. }
        | Message::Learn { .. }
        | Message::Log { .. }
        | Message::MasterAlive(_) => true,
        Message::HeartbeatAnswer { .. } => is_promise_durable,
        _ => false,
    }
}
