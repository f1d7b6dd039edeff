//! The thread that gives sealed layers to the engine, one after the other.
//!
//! The node's thread never waits for this one: it asks whether there is room for another layer, and is woken when one has arrived.
//!
//! An engine that has lost its own threads (a full disk ends them) may keep a commit waiting for ever. So nobody waits for ever here: whoever has
//! seen no layer arrive for a minute takes the store for failed, and the thread that is stuck is left behind.

use super::Attachment;
use crate::store::StoreError;
use crate::store::tree::Tree;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An engine that takes no layer for so long has failed. A busy one, on a slow disk, takes one in seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Layers that it got.
    done: u64,
    /// The newest boundary that is durable, until it is told.
    durable: Option<u64>,
    failed: Option<StoreError>,
    /// Somebody was told that there is no room: since when, and how many layers the engine had got by then.
    awaited: Option<(Instant, u64)>,
    /// The engine took nothing for too long: nobody waits for it any more.
    is_stuck: bool,
    /// Nobody wants the rest.
    is_over: bool,
    has_ended: bool,
}

impl Progress {
    fn take_for_stuck(&mut self, patience: Duration) {
        self.is_stuck = true;
        self.failed.get_or_insert_with(|| {
            StoreError::new(format!(
                "the engine has taken no rows for {patience:?}; look whether the disk is full or broken, and start the node again"
            ))
        });
    }
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

    /// Waits while `must_wait`, and the engine goes on.
    fn wait_while(
        &self,
        patience: Duration,
        must_wait: impl Fn(&Progress) -> bool,
    ) -> MutexGuard<'_, Progress> {
        let mut progress = self.lock();
        while must_wait(&progress) && !progress.is_stuck {
            let done = progress.done;
            let (after, timeout) =
                self.changed.wait_timeout(progress, patience).unwrap_or_else(PoisonError::into_inner);
            progress = after;
            if timeout.timed_out() && progress.done == done && must_wait(&progress) {
                progress.take_for_stuck(patience);
            }
        }
        progress
    }
}

/// Tells the end of the thread, also if the engine panics.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        progress.has_ended = true;
        progress.failed.get_or_insert_with(|| StoreError::new("the store's thread has ended"));
        drop(progress);
        self.0.changed.notify_all();
    }
}

/// See the module's description.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wake: Arc<dyn Fn() + Send + Sync>,
    patience: Duration,
}

impl Writer {
    /// Starts a thread that gives layers to `put`, which returns when the engine has one, durably if it is to be synced.
    pub(super) fn start(
        put: impl FnMut(Job) -> Result<(), StoreError> + Send + 'static,
        wake: Arc<dyn Fn() + Send + Sync>,
        patience: Duration,
    ) -> Result<Writer, StoreError> {
        let (sender, jobs) = channel();
        let shared = Arc::new(Shared::default());
        let (theirs, waker) = (shared.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || write(put, &jobs, &theirs, &*waker))
            .map_err(|error| StoreError::new(format!("cannot start the store's thread: {error}")))?;
        Ok(Writer { jobs: Some(sender), shared, thread: Some(thread), wake, patience })
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

    /// Whether fewer than `most` layers wait. If not, the next one that arrives wakes the node.
    pub(super) fn has_room(&self, most: usize) -> Result<bool, StoreError> {
        let progress = &mut *self.shared.lock();
        if progress.waiting < most {
            progress.awaited = None;
        } else {
            let (now, done) = (Instant::now(), progress.done);
            let (since, _) = *progress.awaited.get_or_insert((now, done));
            match progress.awaited {
                Some((_, before)) if before != done => progress.awaited = Some((now, done)),
                _ if now - since >= self.patience => progress.take_for_stuck(self.patience),
                _ => {}
            }
        }
        progress.failed.clone().map_or(Ok(progress.waiting < most), Err)
    }

    /// Waits until the engine has every layer.
    pub(super) fn wait_for_all(&self) -> Result<(), StoreError> {
        let progress = self
            .shared
            .wait_while(self.patience, |progress| progress.waiting > 0 && progress.failed.is_none());
        progress.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        let mut progress = self.shared.lock();
        progress.is_over = true;
        drop(progress);
        let progress = self.shared.wait_while(self.patience, |progress| !progress.has_ended);
        let has_ended = progress.has_ended;
        drop(progress);
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            // It panics only if the engine does, and then there is nothing to add to its message.
            let _ = thread.join();
        }
    }
}

fn write(
    mut put: impl FnMut(Job) -> Result<(), StoreError>,
    jobs: &Receiver<Job>,
    shared: &Shared,
    wake: &dyn Fn(),
) {
    let _ending = Ending(shared);
    for job in jobs {
        if shared.lock().is_over {
            return;
        }
        let (slot, is_synced) = (job.attachment.slot, job.is_synced);
        let outcome = put(job);
        let mut progress = shared.lock();
        let is_failed = outcome.is_err();
        match outcome {
            Ok(()) => {
                progress.waiting -= 1;
                progress.done += 1;
                if is_synced {
                    progress.durable = Some(slot);
                }
            }
            Err(error) => progress.failed = Some(error),
        }
        let is_awaited = progress.awaited.is_some();
        drop(progress);
        shared.changed.notify_all();
        if is_synced || is_failed || is_awaited {
            wake();
        }
        if is_failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test waits so long unless it fails.
    const LONG: Duration = Duration::from_secs(60);

    fn job(slot: u64) -> Job {
        Job {
            rows: Tree::default(),
            attachment: Attachment { slot, bytes: bytes::Bytes::new() },
            is_synced: true,
        }
    }

    #[test]
    fn an_engine_that_takes_nothing_is_not_waited_for_for_ever() {
        let (go_on, is_stuck) = channel::<()>();
        let put = move |job: Job| {
            if job.attachment.slot == 2 {
                // Until the test ends.
                let _ = is_stuck.recv();
            }
            Ok(())
        };
        let writer = Writer::start(put, Arc::new(|| ()), Duration::from_millis(50)).unwrap();
        writer.submit(job(1)).unwrap();
        let begin = Instant::now();
        while writer.take_durable() != Some(1) {
            assert!(begin.elapsed() < LONG, "waited for the first layer");
            std::thread::yield_now();
        }
        writer.submit(job(2)).unwrap();
        let (done, outcome) = channel();
        std::thread::spawn(move || {
            let _ = done.send(writer.wait_for_all().map_err(|error| error.to_string()));
            drop(writer);
            let _ = done.send(Ok(()));
        });
        let error = outcome.recv_timeout(LONG).expect("waited for the writer to give up").unwrap_err();
        assert!(error.contains("taken no rows"), "{error}");
        outcome.recv_timeout(LONG).expect("waited for the writer to be dropped").unwrap();
        drop(go_on);
    }

    #[test]
    fn an_engine_that_panics_or_says_no_is_told_at_once() {
        for panics in [true, false] {
            let put = move |_: Job| {
                assert!(!panics, "the engine panics");
                Err(StoreError::new("the engine says no"))
            };
            let writer = Writer::start(put, Arc::new(|| ()), LONG * 10).unwrap();
            writer.submit(job(1)).unwrap();
            let error = writer.wait_for_all().unwrap_err().to_string();
            assert!(error.contains(if panics { "has ended" } else { "says no" }), "{error}");
        }
    }

    #[test]
    fn who_finds_no_room_is_woken_by_the_next_layer_that_arrives() {
        let (go_on, held) = channel::<()>();
        let put = move |_: Job| {
            let _ = held.recv();
            Ok(())
        };
        let (woken, wakes) = channel();
        let writer = Writer::start(put, Arc::new(move || woken.send(()).unwrap_or(())), LONG * 10).unwrap();
        for slot in 1..=2 {
            writer.submit(Job { is_synced: false, ..job(slot) }).unwrap();
        }
        assert!(writer.has_room(3).unwrap());
        assert!(!writer.has_room(2).unwrap());
        go_on.send(()).unwrap();
        wakes.recv_timeout(LONG).expect("waited for the wake-up");
        assert!(writer.has_room(2).unwrap());
        // Nobody waits any more: nobody is woken.
        go_on.send(()).unwrap();
        writer.wait_for_all().unwrap();
        drop(go_on);
        drop(writer);
        assert_eq!(wakes.try_iter().count(), 0);
    }

    #[test]
    fn who_asks_for_room_again_and_again_learns_that_the_engine_is_stuck() {
        let (go_on, is_stuck) = channel::<()>();
        let put = move |_: Job| {
            let _ = is_stuck.recv();
            Ok(())
        };
        let writer = Writer::start(put, Arc::new(|| ()), Duration::from_millis(50)).unwrap();
        for slot in 1..=2 {
            writer.submit(job(slot)).unwrap();
        }
        let begin = Instant::now();
        let error = loop {
            assert!(begin.elapsed() < LONG, "waited for the writer to give up");
            match writer.has_room(2) {
                Ok(has_room) => assert!(!has_room),
                Err(error) => break error.to_string(),
            }
            std::thread::yield_now();
        };
        assert!(error.contains("taken no rows") && begin.elapsed() >= Duration::from_millis(50), "{error}");
        drop(go_on);
    }
}
