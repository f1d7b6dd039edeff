//! Spare files: segments of tomorrow, allocated ahead by a thread of their own so that a commit does not wait for it.
//!
//! One spare is held back for checkpoints (`CHECKPOINT_RESERVE`): on a full disk a checkpoint is what makes room, so it must
//! not need room first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::directory::{Directory, is_fully_allocated};
use super::error::Failure;
use super::format::FileName;

/// Spares that appends leave for checkpoints.
pub(super) const CHECKPOINT_RESERVE: usize = 1;
/// Spares that are kept ready: the reserve, and one for the next roll.
const READY_WANTED: usize = CHECKPOINT_RESERVE + 1;

/// The pool of spares, owned by the writer.
pub(super) struct Spares {
    directory: Directory,
    segment_bytes: u32,
    ready: Vec<u64>,
    ready_max: usize,
    next_number: u64,
    /// Files asked for and not yet answered.
    outstanding: usize,
    requests: Option<Sender<u64>>,
    results: Receiver<(u64, Result<(), Failure>)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spares {
    /// Takes over the spares that an earlier process left; files that do not have the wanted size are removed.
    pub(super) fn open(
        directory: Directory,
        segment_bytes: u32,
        ready_max: usize,
        found: &[u64],
    ) -> Result<Spares, Failure> {
        let (request_sender, requests) = channel::<u64>();
        let (result_sender, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("journal-spares".into())
            .spawn({
                let (directory, stop) = (directory.clone(), Arc::clone(&stop));
                move || {
                    for number in requests {
                        let result = directory.prepare_spare(number, segment_bytes, &stop);
                        if result_sender.send((number, result)).is_err() {
                            return;
                        }
                    }
                }
            })
            .map_err(Failure::of("start a thread for", &directory.path))?;
        let mut spares = Spares {
            directory,
            segment_bytes,
            ready: Vec::new(),
            ready_max: ready_max.max(READY_WANTED),
            next_number: found.last().map_or(1, |last| last + 1),
            outstanding: 0,
            requests: Some(request_sender),
            results,
            stop,
            thread: Some(thread),
        };
        for &number in found {
            let path = spares.directory.file(FileName::Spare(number));
            let metadata = std::fs::metadata(&path).map_err(Failure::of("inspect", &path))?;
            if is_fully_allocated(&metadata, segment_bytes) && spares.ready.len() < spares.ready_max {
                spares.ready.push(number);
            } else {
                spares.directory.remove(&path)?;
            }
        }
        spares.order_ahead();
        Ok(spares)
    }

    /// Waits until `count` spares are ready. An error that says that the disk is full leaves everything as it was, and comes
    /// only from an attempt that began after this call: what failed earlier in the background proves nothing about now.
    pub(super) fn ensure(&mut self, count: usize) -> Result<(), Failure> {
        let mut ordered = false;
        loop {
            while let Ok((number, result)) = self.results.try_recv() {
                match self.take_in(number, result) {
                    Err(failure) if failure.is_disk_full() && !ordered => {}
                    other => other?,
                }
            }
            if self.ready.len() >= count {
                return Ok(());
            }
            if self.outstanding == 0 {
                self.order();
                ordered = true;
            }
            let Ok((number, result)) = self.results.recv() else {
                let gone = io::Error::other("the thread that prepares segments is gone");
                return Err(Failure::of("prepare a segment in", &self.directory.path)(gone));
            };
            match self.take_in(number, result) {
                Err(failure) if failure.is_disk_full() && !ordered => {}
                other => other?,
            }
        }
    }

    /// A spare that leaves at least `reserve` others.
    pub(super) fn take(&mut self, reserve: usize) -> Result<u64, Failure> {
        loop {
            self.ensure(reserve + 1)?;
            if let Some(number) = self.ready.pop() {
                self.order_ahead();
                return Ok(number);
            }
        }
    }

    /// Adds a spare that was taken but not used, or that was a segment until now.
    pub(super) fn put_back(&mut self, number: u64) {
        self.ready.push(number);
    }

    /// Makes a spare of a segment that is no longer needed, or removes it when there are enough (`kept` others were made in
    /// the same round). The caller syncs the directory and only then gives the spare to `put_back`.
    pub(super) fn retire(&mut self, segment: u64, kept: usize) -> Result<Option<u64>, Failure> {
        let path = self.directory.file(FileName::Segment(segment));
        let metadata = std::fs::metadata(&path).map_err(Failure::of("inspect", &path))?;
        if self.ready.len() + kept >= self.ready_max || !is_fully_allocated(&metadata, self.segment_bytes) {
            self.directory.remove(&path)?;
            return Ok(None);
        }
        let number = self.take_number();
        match self.directory.rename(&path, &self.directory.file(FileName::Spare(number))) {
            Ok(()) => Ok(Some(number)),
            // No room for another name: the room of the file is worth more than the file.
            Err(failure) if failure.is_disk_full() => self.directory.remove(&path).map(|()| None),
            Err(failure) => Err(failure),
        }
    }

    fn take_in(&mut self, number: u64, result: Result<(), Failure>) -> Result<(), Failure> {
        self.outstanding -= 1;
        result.map(|()| self.ready.push(number))
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    fn order(&mut self) {
        let number = self.take_number();
        // A thread that is gone shows at the next `ensure`.
        if self.requests.as_ref().is_some_and(|requests| requests.send(number).is_ok()) {
            self.outstanding += 1;
        }
    }

    fn order_ahead(&mut self) {
        while self.ready.len() + self.outstanding < READY_WANTED {
            self.order();
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic by itself, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
