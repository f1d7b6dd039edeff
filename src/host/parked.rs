//! Clients of this node whose command waits in the machine: for a lock, an element, a task.
//!
//! The wait itself is replicated; here is only whom to tell when it ends. A connection has at most one such command, because it holds back what
//! comes behind it.

use consensus::Time;
use server::Ticket;
use std::collections::{BTreeMap, BTreeSet};

/// See the module's description.
#[derive(Default)]
pub struct Parked {
    /// By the number of the command.
    commands: BTreeMap<u64, Entry>,
    /// The number of a connection's command.
    connections: BTreeMap<u64, u64>,
    /// When to give up hope, although the cluster said nothing.
    due: BTreeSet<(Time, u64)>,
}

struct Entry {
    ticket: Ticket,
    until: Option<Time>,
    /// The client is gone: the wait is to be cancelled.
    is_gone: bool,
}

impl Parked {
    /// The command `seq` waits, for nobody if the connection is 0; if the cluster is silent until then, its client hears that nobody knows.
    pub fn park(&mut self, seq: u64, ticket: Ticket, until: Option<Time>) {
        self.commands.insert(seq, Entry { ticket, until, is_gone: ticket.connection == 0 });
        self.connections.insert(ticket.connection, seq);
        self.due.extend(until.map(|until| (until, seq)));
    }

    /// The command does not wait any more: whom to tell. Nothing if nobody is known.
    pub fn take(&mut self, seq: u64) -> Option<Ticket> {
        let entry = self.commands.remove(&seq)?;
        if self.connections.get(&entry.ticket.connection) == Some(&seq) {
            self.connections.remove(&entry.ticket.connection);
        }
        if let Some(until) = entry.until {
            self.due.remove(&(until, seq));
        }
        Some(entry.ticket)
    }

    /// The command that a connection waits for.
    #[must_use]
    pub fn of(&self, connection: u64) -> Option<u64> {
        self.connections.get(&connection).copied()
    }

    /// The connection is gone. The command that it waited for, which is to be cancelled.
    pub fn gone(&mut self, connection: u64) -> Option<u64> {
        let seq = self.of(connection)?;
        self.commands.get_mut(&seq)?.is_gone = true;
        Some(seq)
    }

    /// The commands whose clients are gone and which still wait: a cancellation may have been lost.
    #[must_use]
    pub fn all_gone(&self) -> Vec<u64> {
        self.commands.iter().filter(|(_, entry)| entry.is_gone).map(|(seq, _)| *seq).collect()
    }

    /// Takes the commands for which there is no hope any more.
    pub fn overdue(&mut self, now: Time) -> Vec<(u64, Ticket)> {
        let mut found = Vec::new();
        while let Some((until, seq)) = self.due.first().copied() {
            if until > now {
                break;
            }
            self.due.pop_first();
            found.extend(self.take(seq).map(|ticket| (seq, ticket)));
        }
        found
    }

    /// When the next is overdue.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(until, _)| *until)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<u64> {
        self.commands.keys().copied().collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(connection: u64) -> Ticket {
        Ticket { connection, place: 1 }
    }

    #[test]
    fn a_command_is_taken_once_however_it_ends() {
        let mut parked = Parked::default();
        parked.park(5, ticket(1), Some(Time(10)));
        parked.park(6, ticket(2), None);
        assert_eq!((parked.of(1), parked.of(2), parked.deadline()), (Some(5), Some(6), Some(Time(10))));
        assert_eq!(parked.take(5), Some(ticket(1)));
        assert_eq!((parked.take(5), parked.of(1), parked.deadline()), (None, None, None));
        assert_eq!(parked.gone(2), Some(6));
        assert_eq!(parked.all_gone(), [6]);
        assert_eq!(parked.take(6), Some(ticket(2)));
        assert_eq!(parked.count(), 0);
    }

    #[test]
    fn silence_is_not_waited_for_for_ever() {
        let mut parked = Parked::default();
        parked.park(5, ticket(1), Some(Time(10)));
        parked.park(6, ticket(2), Some(Time(20)));
        assert_eq!(parked.overdue(Time(9)), []);
        assert_eq!(parked.overdue(Time(10)), [(5, ticket(1))]);
        assert_eq!(parked.all(), [6]);
    }
}
