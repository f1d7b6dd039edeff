//! The thread that gives sealed layers to the engine, one after the other.

use super::Attachment;
use super::engine::Engine;
use crate::store::StoreError;
use crate::store::tree::Tree;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a writer of rows is held up when the engine begins to fall behind: short beside a lease.
const BRAKE: Duration = Duration::from_millis(25);

/// A layer on its way.
pub(super) struct Job {
    pub(super) rows: Tree,
    pub(super) attachment: Attachment,
    pub(super) is_synced: bool,
}

#[derive(Default)]
struct Progress {
    /// Layers that the engine does not have yet.
    waiting: usize,
    /// The newest boundary that is durable, until it is told.
    durable: Option<u64>,
    failed: Option<StoreError>,
    /// Nobody wants the rest.
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's description.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Writer {
    pub(super) fn start(
        engine: Arc<Engine>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Writer, StoreError> {
        let (sender, jobs) = channel();
        let shared = Arc::new(Shared::default());
        let (theirs, waker) = (shared.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || write(&engine, &jobs, &theirs, &*waker))
            .map_err(|error| StoreError::new(format!("cannot start the store's thread: {error}")))?;
        Ok(Writer { jobs: Some(sender), shared, thread: Some(thread), wake })
    }

    pub(super) fn wake(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.wake.clone()
    }

    /// How many layers the engine does not have yet.
    pub(super) fn waiting(&self) -> Result<usize, StoreError> {
        let progress = self.shared.lock();
        progress.failed.clone().map_or(Ok(progress.waiting), Err)
    }

    pub(super) fn take_durable(&self) -> Option<u64> {
        self.shared.lock().durable.take()
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), StoreError> {
        self.shared.lock().waiting += 1;
        match &self.jobs {
            Some(jobs) if jobs.send(job).is_ok() => Ok(()),
            _ => Err(StoreError::new("the store's thread has ended")),
        }
    }

    /// Waits until fewer than `most` layers wait; a moment from half of it on.
    pub(super) fn wait_for_room(&self, known: usize, most: usize) -> Result<(), StoreError> {
        if known * 2 < most {
            return Ok(());
        }
        let mut progress = self.shared.lock();
        if progress.waiting < most && progress.waiting * 2 >= most && progress.failed.is_none() {
            let result = self.shared.changed.wait_timeout(progress, BRAKE);
            progress = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        while progress.waiting >= most && progress.failed.is_none() {
            progress = self.shared.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It panics only if the engine does, and then there is nothing to add to its message.
            let _ = thread.join();
        }
    }
}

fn write(engine: &Engine, jobs: &Receiver<Job>, shared: &Shared, wake: &dyn Fn()) {
    for Job { rows, attachment, is_synced } in jobs {
        if shared.lock().is_over {
            return;
        }
        let written = engine.commit(&rows, &attachment);
        drop(rows);
        let outcome = written.and_then(|()| if is_synced { engine.sync() } else { Ok(()) });
        let mut progress = shared.lock();
        let is_failed = outcome.is_err();
        match outcome {
            Ok(()) => {
                progress.waiting -= 1;
                if is_synced {
                    progress.durable = Some(attachment.slot);
                }
            }
            Err(error) => progress.failed = Some(error),
        }
        drop(progress);
        shared.changed.notify_all();
        if is_synced || is_failed {
            wake();
        }
        if is_failed {
            return;
        }
    }
}
