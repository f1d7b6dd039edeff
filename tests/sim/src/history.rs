//! What clients asked and were told, in the order in which it happened.

use crate::machine::Request;
use consensus::CommandId;

/// What a client knows of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It still waits.
    Waiting,
    /// It was told this.
    Done(u64),
    /// It gave up, or its node died: the operation may have run, and may still run.
    Unknown,
    /// It certainly did not run, or was a read without an answer.
    Never,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Which client.
    pub client: usize,
    /// On which register.
    pub key: u16,
    /// What it asked.
    pub request: Request,
    /// When it asked, as a place in the order of everything that clients did.
    pub invoked: u64,
    /// When it was told, in the same order.
    pub returned: u64,
    /// True time when it asked.
    pub invoked_at: u64,
    /// What it knows.
    pub state: State,
    /// The command's name, once a node took it.
    pub id: Option<CommandId>,
    /// What was acknowledged when it asked (a slot).
    pub floor: u64,
    /// Answered from a state that may be old: not part of the linearizable history.
    pub is_stale: bool,
}

/// All operations of a run.
#[derive(Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    clock: u64,
}

impl History {
    /// A client asks. The operation's place in the history.
    pub fn invoke(
        &mut self,
        client: usize,
        key: u16,
        request: Request,
        now: u64,
        floor: u64,
        is_stale: bool,
    ) -> usize {
        self.clock += 1;
        self.operations.push(Operation {
            client,
            key,
            request,
            invoked: self.clock,
            returned: u64::MAX,
            invoked_at: now,
            state: State::Waiting,
            id: None,
            floor,
            is_stale,
        });
        self.operations.len() - 1
    }

    /// A client learns what became of an operation. True if that is news.
    pub fn finish(&mut self, index: usize, state: State) -> bool {
        let Some(operation) = self.operations.get_mut(index) else { return false };
        match (operation.state, state) {
            (State::Waiting, _) | (State::Unknown, State::Never) => {}
            _ => return false,
        }
        self.clock += 1;
        operation.state = state;
        if matches!(state, State::Done(_)) {
            operation.returned = self.clock;
        }
        true
    }

    /// One operation.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Operation> {
        self.operations.get(index)
    }

    /// One operation, to change.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Operation> {
        self.operations.get_mut(index)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Operation] {
        &self.operations
    }
}
