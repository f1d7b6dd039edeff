//! Clients of this node that wait: for their command to run, or for a read to be allowed.
//!
//! Commands are numbered here, without gaps, in the order in which clients sent them. What comes while earlier commands are on their way is
//! gathered for a moment (see [`Waiters::take_submitted`]), so that a busy node makes few large batches of many small requests. Each waits at most the request timeout; then its client hears
//! whether it certainly did not run or may have run, never silence.

use super::gathering::Gathering;
use bytes::Bytes;
use consensus::{Message, Now, Time};
use server::{Answer, Ticket};
use std::collections::VecDeque;
use std::time::Duration;

/// Everybody that waits.
pub struct Waiters {
    timeout: Duration,
    /// The number of the first command in `commands`.
    first_seq: u64,
    /// By number; `None`: already answered.
    commands: VecDeque<(Option<Ticket>, Time)>,
    /// The last of them, which have not left yet.
    gathered: Vec<Bytes>,
    gathering: Gathering,
    /// Commands before this one have been given up already.
    expired_below: u64,
    first_read: u64,
    reads: VecDeque<(Option<Ticket>, Time)>,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            timeout: Duration::from_secs(10),
            first_seq: 1,
            commands: VecDeque::new(),
            gathered: Vec::new(),
            gathering: Gathering::default(),
            expired_below: 1,
            first_read: 1,
            reads: VecDeque::new(),
        }
    }
}

impl Waiters {
    /// How long whoever comes from now on may wait.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// A command came.
    pub fn submit(&mut self, payload: Bytes, ticket: Ticket, now: Now) {
        self.commands.push_back((Some(ticket), now.at.plus(self.timeout)));
        self.gathered.push(payload);
        self.gathering.came(self.gathered.len(), self.commands.len(), now);
    }

    /// The commands that came since the last call, and the number of the first, when it is time to send them on ([`Gathering`]).
    pub fn take_submitted(&mut self, now: Now) -> Option<(u64, Vec<Bytes>)> {
        let on_the_way = self.commands.len() - self.gathered.len();
        if !self.gathering.leaves(self.gathered.len(), on_the_way, self.timeout, now) {
            return None;
        }
        let payloads = std::mem::take(&mut self.gathered);
        Some((self.first_seq + on_the_way as u64, payloads))
    }

    /// The number of the last command that came, if it has not left.
    #[must_use]
    pub fn last_gathered(&self) -> Option<u64> {
        (!self.gathered.is_empty()).then(|| self.first_seq + self.commands.len() as u64 - 1)
    }

    /// Whether commands are held back for company that is expected within microseconds: the node looks again at once instead of going to sleep.
    #[must_use]
    pub fn expects_company(&self) -> bool {
        !self.gathered.is_empty() && self.gathered.len() == self.commands.len()
    }

    /// A reader came; the result names it.
    pub fn read(&mut self, ticket: Ticket, now: Now) -> u64 {
        self.reads.push_back((Some(ticket), now.at.plus(self.timeout)));
        self.first_read + self.reads.len() as u64 - 1
    }

    /// For how long a command's client has waited.
    #[must_use]
    pub fn waited(&self, seq: u64, now: Now) -> Option<Duration> {
        let (_, deadline) = self.commands.get(usize::try_from(seq.checked_sub(self.first_seq)?).ok()?)?;
        Some(self.timeout.saturating_sub(deadline.since(now.at)))
    }

    /// The connection that waits for a command.
    #[must_use]
    pub fn client_of(&self, seq: u64) -> Option<u64> {
        let (ticket, _) = self.commands.get(usize::try_from(seq.checked_sub(self.first_seq)?).ok()?)?;
        ticket.map(|ticket| ticket.connection)
    }

    /// A command of ours ran: who waits for its reply.
    pub fn executed(&mut self, seq: u64) -> Option<Ticket> {
        self.take_command(seq)
    }

    /// Nobody waits for the reply of this command any more.
    #[must_use]
    pub fn is_answered(&self, seq: u64) -> bool {
        let index = seq.checked_sub(self.first_seq).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.commands.get(index)).is_none_or(|(ticket, _)| ticket.is_none())
    }

    /// How long whoever comes now may wait.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// These reads may be done.
    pub fn readable(&mut self, reads: &[u64], answers: &mut Vec<(Ticket, Answer)>) {
        for read in reads {
            let index = read.checked_sub(self.first_read).and_then(|index| usize::try_from(index).ok());
            let waiting = index.and_then(|index| self.reads.get_mut(index));
            if let Some(ticket) = waiting.and_then(|(ticket, _)| ticket.take()) {
                answers.push((ticket, Answer::ReadNow));
            }
        }
        while self.reads.front().is_some_and(|(ticket, _)| ticket.is_none()) {
            self.reads.pop_front();
            self.first_read += 1;
        }
    }

    /// The replica gave a command up.
    pub fn abandoned(&mut self, seq: u64, certain: bool, answers: &mut Vec<(Ticket, Answer)>) {
        if let Some(ticket) = self.take_command(seq) {
            answers.push((ticket, if certain { Answer::NotDone } else { Answer::Uncertain }));
        }
    }

    /// Gives up what has waited too long: what to tell the replica.
    pub fn expire(&mut self, now: Now, answers: &mut Vec<(Ticket, Answer)>) -> Vec<Message> {
        let mut messages = Vec::new();
        let skip = usize::try_from(self.expired_below.saturating_sub(self.first_seq)).unwrap_or(0);
        let mut expired = self.expired_below.max(self.first_seq);
        for (ticket, until) in self.commands.iter().skip(skip) {
            if *until > now.at {
                break;
            }
            if ticket.is_some() {
                messages.push(Message::Abandon { seq: expired });
            }
            expired += 1;
        }
        self.expired_below = expired;
        while let Some((ticket, until)) = self.reads.front().copied() {
            if until > now.at && ticket.is_some() {
                break;
            }
            self.reads.pop_front();
            self.first_read += 1;
            if let Some(ticket) = ticket {
                answers.push((ticket, Answer::NotDone));
            }
        }
        messages
    }

    /// When something has waited too long.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let skip = usize::try_from(self.expired_below.saturating_sub(self.first_seq)).unwrap_or(0);
        let command = self.commands.get(skip).map(|(_, until)| *until);
        let read = self.reads.front().map(|(_, until)| *until);
        let gathered = (!self.gathered.is_empty()).then(|| self.gathering.until(self.timeout));
        [command, read, gathered].into_iter().flatten().min()
    }

    /// The numbers below `seq` that somebody waits for.
    #[must_use]
    pub fn waiting_below(&self, seq: u64) -> Vec<u64> {
        let numbers = (self.first_seq..seq).zip(&self.commands);
        numbers.filter(|(_, (ticket, _))| ticket.is_some()).map(|(number, _)| number).collect()
    }

    /// How many clients wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands.len() + self.reads.len()
    }

    fn take_command(&mut self, seq: u64) -> Option<Ticket> {
        let index = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        let ticket = self.commands.get_mut(index)?.0.take();
        self.gathering.answered();
        while self.commands.front().is_some_and(|(ticket, _)| ticket.is_none()) {
            self.commands.pop_front();
            self.first_seq += 1;
        }
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { at: Time(seconds * 1_000_000), wall_ms: 0 }
    }

    fn ticket(place: u64) -> Ticket {
        Ticket { connection: 1, place }
    }

    #[test]
    fn commands_are_numbered_without_gaps_and_answered_once() {
        let mut waiters = Waiters::default();
        waiters.submit(Bytes::from_static(b"a"), ticket(0), at(0));
        waiters.submit(Bytes::from_static(b"b"), ticket(1), at(0));
        assert_eq!(
            waiters.take_submitted(at(0)).map(|(first, payloads)| (first, payloads.len())),
            Some((1, 2))
        );
        assert_eq!(waiters.take_submitted(at(0)), None);
        assert!(!waiters.is_answered(2));
        assert_eq!(waiters.executed(2), Some(ticket(1)));
        assert!(waiters.is_answered(2) && !waiters.is_answered(1));
        assert_eq!(waiters.executed(2), None);
        assert_eq!(waiters.executed(1), Some(ticket(0)));
        waiters.submit(Bytes::from_static(b"c"), ticket(2), at(0));
        assert_eq!(waiters.take_submitted(at(0)).map(|(first, _)| first), Some(3));
    }

    #[test]
    fn what_comes_while_much_is_on_its_way_is_gathered_but_not_for_long() {
        let mut waiters = Waiters::default();
        let taken = |waiters: &mut Waiters, micros| {
            let taken = waiters.take_submitted(Now { at: Time(micros), wall_ms: 0 });
            taken.map(|(first, payloads)| (first, payloads.len()))
        };
        for place in 0..8 {
            waiters.submit(Bytes::from_static(b"a"), ticket(place), at(0));
        }
        assert_eq!(taken(&mut waiters, 0), Some((1, 8)));
        for place in 8..11 {
            waiters.submit(Bytes::from_static(b"b"), ticket(place), at(0));
            assert_eq!(taken(&mut waiters, 1_999), None);
        }
        assert!(!waiters.expects_company(), "what is on its way wakes the node when it ends");
        assert_eq!(waiters.deadline(), Some(Time(2_000)));
        assert_eq!(taken(&mut waiters, 2_000), Some((9, 3)));
        waiters.submit(Bytes::from_static(b"c"), ticket(11), at(0));
        for seq in 1..12 {
            assert!(waiters.executed(seq).is_some());
        }
        assert_eq!(taken(&mut waiters, 100), None);
        assert!(waiters.expects_company(), "and nothing would wake the node");
        assert_eq!(taken(&mut waiters, 200), Some((12, 1)));
        assert!(!waiters.expects_company());
    }

    #[test]
    fn what_waits_too_long_is_given_up_once_and_never_in_silence() {
        let (mut waiters, mut answers) = (Waiters::default(), Vec::new());
        waiters.submit(Bytes::from_static(b"a"), ticket(0), at(0));
        assert!(waiters.take_submitted(at(0)).is_some());
        let read = waiters.read(ticket(1), at(1));
        assert_eq!(waiters.deadline(), Some(Time(10_000_000)));
        assert_eq!(waiters.expire(at(10), &mut answers), [Message::Abandon { seq: 1 }]);
        assert_eq!(waiters.expire(at(10), &mut answers), []);
        waiters.abandoned(1, false, &mut answers);
        assert_eq!(waiters.expire(at(11), &mut answers), []);
        assert_eq!(answers, [(ticket(0), Answer::Uncertain), (ticket(1), Answer::NotDone)]);
        waiters.readable(&[read], &mut answers);
        assert_eq!(answers.len(), 2);
    }
}
