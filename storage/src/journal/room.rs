//! A full disk, as the journal's thread meets it: it waits, keeps what comes meanwhile in order, and tries again.
//!
//! Invariant: nothing behind a batch that waits for room is written before it, unless a checkpoint takes the place of all of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::error::{AppendError, Failure};
use super::writer::{Request, Writer};

/// What the handle reads while the thread works.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    /// Bytes that wait for the thread.
    queued_bytes: AtomicU64,
    /// Bytes that the next open would replay.
    live_bytes: AtomicU64,
    /// Whether `full` holds something: looked at often, so without the lock.
    is_full: AtomicBool,
    full: Mutex<Option<Arc<Failure>>>,
    /// The host wants to be woken for the next completion, whatever it is.
    is_watched: AtomicBool,
}

impl Gauges {
    pub(super) fn add_to_queue(&self, bytes: u64) {
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take_from_queue(&self, bytes: u64) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set_live_bytes(&self, bytes: u64) {
        self.live_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// From here on either the next completion wakes the host, or the host's next `poll` finds it.
    pub(super) fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // before the host polls; the other side: `take_watch`
    }

    /// Behind a completion: whether the host has to be woken for it.
    pub(super) fn take_watch(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_watched.load(Ordering::Relaxed) && self.is_watched.swap(false, Ordering::Relaxed)
    }

    pub(super) fn disk_full(&self) -> Option<Arc<Failure>> {
        if !self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if that is news.
    fn there_is_no_room(&self, failure: Failure) -> bool {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(failure));
        !self.is_full.swap(true, Ordering::Relaxed)
    }

    pub(super) fn there_is_room(&self) {
        if self.is_full.load(Ordering::Relaxed) {
            *self.full.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.is_full.store(false, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Waits a while for room; requests that come meanwhile keep their order.
    ///
    /// # Errors
    /// When the handle is gone: what waits will never be written, and nothing behind it may be.
    pub(super) fn wait_for_room(&mut self, failure: Failure) -> Result<(), AppendError> {
        if self.gauges.there_is_no_room(failure) {
            (self.wake)();
        }
        let until = Instant::now() + self.try_again_after;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.requests.recv_timeout(left) {
                Ok(request) => self.backlog.push_back(request),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    let gone = std::io::Error::other("the journal was closed while it waited for room");
                    return self.or_poison(Err(Failure::of("finish", &self.live.path.clone())(gone)));
                }
            }
        }
    }

    /// Whether a checkpoint waits behind what finds no room. If so, everything in front of it is dropped: it says what they say, and
    /// its completion is theirs.
    pub(super) fn make_way_for_a_checkpoint(&mut self) -> bool {
        let Some(place) = self.backlog.iter().rposition(Request::is_checkpoint) else { return false };
        for request in self.backlog.drain(..place) {
            self.gauges.take_from_queue(request.bytes());
        }
        true
    }
}
