//! Where records go: the journal on the disk, or nowhere (`--durability memory`).
//!
//! In memory mode nothing is written and everything counts as durable at once. That is safe only because a node that restarts comes back
//! under a new id: what it promised under the old one, nobody asks for any more.

use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::journal::{AppendError, Completion, Failure, Journal, SubmitError, Then};

/// How long a wait goes on before it looks whether the disk is full.
const GLANCE: Duration = Duration::from_millis(20);

/// A node's log of records.
pub enum Log {
    /// On the disk.
    Disk(Journal),
    /// Nowhere.
    Memory(MemoryLog),
}

/// Counts what a journal would hold.
pub struct MemoryLog {
    submitted: u64,
    told: u64,
    bytes: u64,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Log {
    /// A log that keeps nothing; `wake` is called when something counts as durable.
    #[must_use]
    pub fn memory(wake: Arc<dyn Fn() + Send + Sync>) -> Log {
        Log::Memory(MemoryLog { submitted: 0, told: 0, bytes: 0, wake })
    }

    /// Takes a batch; its number.
    ///
    /// # Errors
    /// When the journal cannot take it.
    pub fn append(&mut self, records: Vec<Bytes>) -> Result<u64, SubmitError> {
        match self {
            Log::Disk(journal) => journal.append(records),
            Log::Memory(memory) => {
                memory.bytes += weight(&records);
                Ok(memory.submit())
            }
        }
    }

    /// The same; `then` is called on another thread as soon as the batch is durable, and says whether this one has to be woken.
    ///
    /// # Errors
    /// When the journal cannot take it.
    pub fn append_then(&mut self, records: Vec<Bytes>, then: Then) -> Result<u64, SubmitError> {
        match self {
            Log::Disk(journal) => journal.append_then(records, then),
            Log::Memory(_) => {
                then(); // it is as durable as it ever gets; this thread is woken anyway
                self.append(records)
            }
        }
    }

    /// Wakes this thread for the next outcome that [`Log::poll`] does not find from here on.
    pub fn watch(&self) {
        if let Log::Disk(journal) = self {
            journal.watch();
        }
    }

    /// Replaces everything before by `records`.
    ///
    /// # Errors
    /// When the journal cannot take it.
    pub fn checkpoint(&mut self, records: Vec<Bytes>) -> Result<u64, SubmitError> {
        match self {
            Log::Disk(journal) => journal.checkpoint(records),
            Log::Memory(memory) => {
                memory.bytes = weight(&records);
                Ok(memory.submit())
            }
        }
    }

    /// The next outcome, if there is one: of all batches up to a number.
    pub fn poll(&mut self) -> Option<Completion> {
        match self {
            Log::Disk(journal) => journal.poll(),
            Log::Memory(memory) => (memory.told < memory.submitted).then(|| {
                memory.told = memory.submitted;
                Completion { through: memory.told, result: Ok(()), at: Instant::now() }
            }),
        }
    }

    /// Waits for the next outcome, but not for room; only when something is under way.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn wait(&mut self) -> Result<(u64, Result<(), AppendError>), Arc<Failure>> {
        match self {
            Log::Disk(journal) => loop {
                if let Some(completion) = journal.wait_for(GLANCE) {
                    return Ok((completion.through, completion.result));
                }
                if let Some(failure) = journal.disk_full() {
                    return Err(failure);
                }
            },
            Log::Memory(memory) => {
                memory.told = memory.submitted;
                Ok((memory.told, Ok(())))
            }
        }
    }

    /// Why nothing gets durable now, if the disk is full.
    #[must_use]
    pub fn disk_full(&self) -> Option<Arc<Failure>> {
        match self {
            Log::Disk(journal) => journal.disk_full(),
            Log::Memory(_) => None,
        }
    }

    /// Bytes that wait for the disk.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        match self {
            Log::Disk(journal) => journal.queued_bytes(),
            Log::Memory(_) => 0,
        }
    }

    /// Bytes since the last checkpoint, about.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        match self {
            Log::Disk(journal) => journal.live_bytes(),
            Log::Memory(memory) => memory.bytes,
        }
    }
}

impl MemoryLog {
    fn submit(&mut self) -> u64 {
        self.submitted += 1;
        (self.wake)();
        self.submitted
    }
}

fn weight(records: &[Bytes]) -> u64 {
    records.iter().map(|record| record.len() as u64).sum()
}
