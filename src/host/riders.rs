//! Reads behind a write of the same connection, in one pipeline: they ride along with it instead of waiting for its answer.
//!
//! A read behind a write must see it, and must not see the writes behind itself. So it is done on this node alone, when the command that it rides on is
//! applied, before the next one is: the log gives it its place, and carries nothing of it.
//!
//! The command may be another connection's, as long as it came after the own write. If it is given up, its riders are, too, although that write may have run.
//!
//! * Q1: a read rides only on a command that has not left this node when the read comes. What others were told before that is in the log before
//!   the command, so the read sees it: it is linearizable. (A command that has left may have its place already, and others theirs behind it.)
//! * Q2: each gets exactly one answer. If its command is answered in another way than by being applied here, the read was certainly not done.

use bytes::Bytes;
use consensus::{CommandId, Machine, Origin, Stamp};
use server::{Answer, Ticket};
use std::collections::{BTreeMap, VecDeque};
use storage::reply::Reply;

/// A reply from this size on counts as a large one,
const LARGE_BYTES: usize = 64 << 10;
/// and a connection gets no more when its large ones in a slot have so many bytes: nobody asks here whether there is room for them.
const LARGE_BYTES_MAX: usize = 16 << 20;
const TOO_LARGE: Reply = Reply::error(
    "TRYAGAIN the replies to the reads behind this write are too large together; nothing was read, ask again",
);

/// Something that can be looked at between two commands of a slot.
pub trait Peek: Machine {
    /// What a reading command finds behind the last command; nothing changes.
    fn peek(&mut self, stamp: &Stamp, payload: &Bytes) -> Reply;
}

struct Rider {
    /// The number of the command that it rides on.
    seq: u64,
    payload: Bytes,
    ticket: Ticket,
}

/// See the module's description.
#[derive(Default)]
pub struct Riders {
    /// By the number of the command.
    riding: VecDeque<Rider>,
    arrived: Vec<(Ticket, Answer)>,
    /// Bytes of large replies among them, by connection.
    large: BTreeMap<u64, usize>,
}

impl Riders {
    /// A read rides on the command `seq`, the last one that came.
    pub fn mount(&mut self, seq: u64, payload: Bytes, ticket: Ticket) {
        self.riding.push_back(Rider { seq, payload, ticket });
    }

    /// Command `seq` was just applied.
    fn arrive(&mut self, seq: u64, mut peek: impl FnMut(&Bytes) -> Reply) {
        while let Some(rider) = self.pop_if(|rider| rider.seq <= seq) {
            let answer =
                if rider.seq == seq { Answer::Reply(self.look(&rider, &mut peek)) } else { Answer::NotDone };
            self.arrived.push((rider.ticket, answer));
        }
    }

    fn look(&mut self, rider: &Rider, peek: &mut impl FnMut(&Bytes) -> Reply) -> Reply {
        let connection = rider.ticket.connection;
        if self.large.get(&connection).is_some_and(|bytes| *bytes >= LARGE_BYTES_MAX) {
            return TOO_LARGE;
        }
        let reply = peek(&rider.payload);
        let bytes = reply.bytes_at_most();
        if bytes >= LARGE_BYTES {
            *self.large.entry(connection).or_default() += bytes;
        }
        reply
    }

    /// Those whose command is answered, and that were not done (Q2).
    pub fn leave_behind(&mut self, is_answered: impl Fn(u64) -> bool) {
        while let Some(rider) = self.pop_if(|rider| is_answered(rider.seq)) {
            self.arrived.push((rider.ticket, Answer::NotDone));
        }
    }

    fn pop_if(&mut self, is_due: impl Fn(&Rider) -> bool) -> Option<Rider> {
        if self.riding.front().is_some_and(is_due) { self.riding.pop_front() } else { None }
    }

    /// What is to be told.
    pub fn take_arrived(&mut self, answers: &mut Vec<(Ticket, Answer)>) {
        answers.append(&mut self.arrived);
        self.large.clear();
    }
}

/// A machine that lets the riders of this node's commands look around.
pub struct Riding<'a, B> {
    /// What applies commands.
    pub machine: &'a mut B,
    /// Who rides.
    pub riders: &'a mut Riders,
    /// Whose commands they ride on.
    pub origin: Origin,
}

impl<B: Peek> Machine for Riding<'_, B> {
    fn apply(&mut self, stamp: &Stamp, id: CommandId, payload: &Bytes) -> Bytes {
        let reply = self.machine.apply(stamp, id, payload);
        if id.origin == self.origin {
            self.riders.arrive(id.seq, |payload| self.machine.peek(stamp, payload));
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::NodeId;

    /// Tells how many commands it has applied.
    struct Counter(i64);

    impl Machine for Counter {
        fn apply(&mut self, _: &Stamp, _: CommandId, _: &Bytes) -> Bytes {
            self.0 += 1;
            Bytes::new()
        }
    }

    impl Peek for Counter {
        fn peek(&mut self, _: &Stamp, _: &Bytes) -> Reply {
            Reply::Integer(self.0)
        }
    }

    const ME: Origin = Origin { node: NodeId(1), incarnation: 7 };

    fn ticket(place: u64) -> Ticket {
        Ticket { connection: 1, place }
    }

    fn apply(riders: &mut Riders, machine: &mut Counter, origin: Origin, seq: u64) -> Vec<(Ticket, Answer)> {
        let stamp = Stamp { slot: 1, index: 0, at_ms: 1 };
        Riding { machine, riders, origin: ME }.apply(&stamp, CommandId { origin, seq }, &Bytes::new());
        let mut answers = Vec::new();
        riders.take_arrived(&mut answers);
        answers
    }

    #[test]
    fn a_read_sees_the_command_that_it_rides_on_and_none_behind_it() {
        let (mut riders, mut machine) = (Riders::default(), Counter(0));
        riders.mount(1, Bytes::new(), ticket(1));
        riders.mount(1, Bytes::new(), ticket(2));
        riders.mount(2, Bytes::new(), ticket(4));
        let other = Origin { incarnation: 6, ..ME };
        assert_eq!(apply(&mut riders, &mut machine, other, 1), [], "another life's command");
        let found = |place, count| (ticket(place), Answer::Reply(Reply::Integer(count)));
        assert_eq!(apply(&mut riders, &mut machine, ME, 1), [found(1, 2), found(2, 2)]);
        assert_eq!(apply(&mut riders, &mut machine, ME, 2), [found(4, 3)]);
        assert_eq!(apply(&mut riders, &mut machine, ME, 3), []);
    }

    #[test]
    fn large_replies_are_not_made_without_end_and_only_their_connection_is_told() {
        let (mut riders, mut answers) = (Riders::default(), Vec::new());
        let large = Reply::Bulk(Bytes::from(vec![b'x'; LARGE_BYTES_MAX / 2]));
        let mine = |place| Ticket { connection: 2, place };
        for place in 0..4 {
            riders.mount(1, Bytes::new(), mine(place));
        }
        riders.mount(1, Bytes::new(), ticket(9));
        riders.arrive(1, |_| large.clone());
        riders.take_arrived(&mut answers);
        let told: Vec<bool> = answers.iter().map(|(_, answer)| *answer == Answer::Reply(TOO_LARGE)).collect();
        assert_eq!(told, [false, false, true, true, false]);
        riders.mount(2, Bytes::new(), mine(5));
        riders.arrive(2, |_| large.clone());
        assert_eq!(riders.arrived, [(mine(5), Answer::Reply(large))], "in another slot there is room again");
    }

    #[test]
    fn a_read_whose_command_is_not_applied_here_is_not_done() {
        let (mut riders, mut machine, mut answers) = (Riders::default(), Counter(0), Vec::new());
        for seq in 1..=3 {
            riders.mount(seq, Bytes::new(), ticket(seq));
        }
        riders.leave_behind(|seq| seq == 1);
        riders.take_arrived(&mut answers);
        assert_eq!(answers, [(ticket(1), Answer::NotDone)]);
        let found = Answer::Reply(Reply::Integer(1));
        let answers = apply(&mut riders, &mut machine, ME, 3);
        assert_eq!(answers, [(ticket(2), Answer::NotDone), (ticket(3), found)]);
    }
}
