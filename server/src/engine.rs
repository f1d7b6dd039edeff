//! What the Redis face needs from the node behind it.

use bytes::Bytes;
use std::time::Duration;
use storage::machine::{Interest, View};
use storage::reply::Reply;

/// Names a place in one connection's sequence of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The connection.
    pub connection: u64,
    /// The place.
    pub place: u64,
}

/// What comes back for a ticket.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The command ran; this is its encoded reply.
    Ran(Bytes),
    /// The read may be done now.
    ReadNow,
    /// A reply that the node itself makes.
    Reply(Reply),
    /// No master took it in time: it certainly did not run.
    NotDone,
    /// It was sent on, and no answer came in time: it may or may not have run.
    Uncertain,
}

/// What INFO, ROLE and HELLO tell.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// This node's member id.
    pub node: u64,
    /// What the node is: `master`, `member`, `learner`, `removed`.
    pub role: &'static str,
    /// The master's client address, if one is known.
    pub master: Option<String>,
    /// The number of the cluster configuration.
    pub view: u64,
    /// The master's ballot, as far as the node knows.
    pub ballot: String,
    /// The last applied slot.
    pub applied: u64,
    /// Commands and reads that wait on this node.
    pub waiting: usize,
    /// What clients have put into the node's mailbox: commands, and reads that could not be answered on the spot.
    pub mailed: u64,
    /// Bytes that the journal would have to replay.
    pub journal_bytes: u64,
    /// How many members vote.
    pub voters: usize,
    /// The address for clients.
    pub address: String,
}

/// The node behind the face. Everything happens on the node's one thread, so nothing here blocks.
pub trait Engine {
    /// Requests that have come are taken now, until [`Engine::end_requests`] and in one go: one look at the clock is enough for all of them. A lease read needs a
    /// clock that was looked at after its request came, and nothing is applied in between.
    fn begin_requests(&self) {}

    /// No more requests are taken.
    fn end_requests(&self) {}

    /// Runs `read` on the machine if a linearizable read is allowed at this instant. False: it is not, and nothing was run.
    fn read_now(&self, read: &mut dyn FnMut(&View<'_>)) -> bool;

    /// Runs `read` on the machine, for a ticket that got [`Answer::ReadNow`].
    fn read(&self, read: &mut dyn FnMut(&View<'_>));

    /// How old this node's state is at most; nothing: nobody vouches for it.
    fn age(&self) -> Option<Duration>;

    /// Asks for [`Answer::ReadNow`].
    fn read_later(&self, ticket: Ticket);

    /// Replicates a command; the answer comes when it ran.
    fn write(&self, payload: Bytes, ticket: Ticket);

    /// Reads behind the command that came last, whoever sent it, if that is still here: the answer is [`Answer::Reply`]. False: it is not, and nothing will come. `payload` is a
    /// reading command, encoded like one that writes.
    fn read_behind(&self, payload: Bytes, ticket: Ticket) -> bool {
        let _ = (payload, ticket);
        false
    }

    /// Lets the log remove keys whose time has passed, and its time go on; the answer comes when it has.
    fn expire(&self, ticket: Ticket);

    /// The connection is gone: what it waits for is cancelled.
    fn closed(&self, connection: u64);

    /// Ends the wait of a connection, as if its time were over or with an error; the answer comes as always. False: it does not wait.
    fn unblock(&self, connection: u64, as_error: bool) -> bool;

    /// Runs an administrative command (`WARLOCK …`); the answer comes when it is done.
    fn admin(&self, words: Vec<Bytes>, ticket: Ticket);

    /// Chooses what is told of what happens to keys, from now on.
    fn listen(&self, interest: Interest);

    /// Asks for a turn of the node soon; the node calls [`Face::breathe`](crate::Face::breathe) before it.
    fn nudge(&self);

    /// Another engine takes this one's place: it gets the requests that were held for it, in their order.
    fn hand_over(&self, _to: &dyn Engine) {}

    /// What is known now.
    fn facts(&self) -> Facts;
}
