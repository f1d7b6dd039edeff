//! The memory of the measured node: limited by the kernel where it lets us, and watched all the time.
//!
//! Two things are counted, and both must stay below the limit. The *resident* memory is what `VmRSS` in /proc says: anonymous pages and mapped pages of files together;
//! `VmHWM` is its peak, kept by the kernel, so nothing falls between two looks. The *cage*, a memory cgroup, also counts the pages of files that the kernel caches for the node;
//! it can only be filled, not overrun: a node that needs more is killed, and the demo fails.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A limit on the memory of processes, kept by the kernel.
pub struct Cage {
    directory: PathBuf,
}

impl Cage {
    /// Nothing where the system does not let us make one.
    pub fn new(limit_bytes: u64) -> Option<Cage> {
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, limit)| {
            let directory = PathBuf::from(root).join(format!("warlock-disk-demo-{}", std::process::id()));
            fs::create_dir(&directory).ok()?;
            let cage = Cage { directory };
            fs::write(cage.directory.join(limit), limit_bytes.to_string()).ok()?;
            Some(cage)
        })
    }

    /// From now on it counts what this process uses.
    pub fn take_in(&self, pid: u32) {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string()).unwrap_or_else(|error| {
            panic!("the node cannot be put into {}: {error}", self.directory.display())
        });
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// A line of /proc/PID/status, in MB; 0 when there is no such process.
fn status_megabytes(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("0");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0).div_ceil(1024)
}

/// CPU that a process used so far.
pub fn cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    // utime and stime are the 14th and 15th field, the 12th and 13th behind the name; in hundredths of a second.
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// What was seen so far, in MB.
#[derive(Default)]
pub struct Seen {
    resident: AtomicU64,
    anonymous_peak: AtomicU64,
    peak: AtomicU64,
}

impl Seen {
    fn look(&self, pid: u32) {
        self.resident.store(status_megabytes(pid, "VmRSS"), Relaxed);
        self.anonymous_peak.fetch_max(status_megabytes(pid, "RssAnon"), Relaxed);
        self.peak.fetch_max(status_megabytes(pid, "VmHWM"), Relaxed);
    }

    /// For a progress bar.
    pub fn note(&self) -> String {
        format!("{} MB resident, {} at most", self.resident.load(Relaxed), self.peak.load(Relaxed))
    }

    /// The most that was resident.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// The most of it that belonged to no file, as far as the looks caught it.
    pub fn anonymous_peak(&self) -> u64 {
        self.anonymous_peak.load(Relaxed)
    }
}

/// Looks at a process until it is dropped, and kills it when more is resident than the limit.
pub struct Watch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `seen` may have been fed by another watch before: a node has more than one life.
    pub fn start(pid: u32, limit: Option<u64>, seen: Arc<Seen>) -> Watch {
        let is_over = Arc::new(AtomicBool::new(false));
        let theirs = is_over.clone();
        let look = move || {
            while !theirs.load(Relaxed) {
                seen.look(pid);
                if let Some(limit) = limit.filter(|limit| seen.peak() > *limit) {
                    eprintln!("\nFAILED: {} MB were resident, and {limit} are allowed", seen.peak());
                    // Its clients then fail, and the demo with them, which leaves nothing behind.
                    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                        let _ = kill_process(pid, Signal::KILL);
                    }
                    return;
                }
                thread::sleep(LOOK_EVERY);
            }
        };
        Watch { is_over, thread: Some(thread::spawn(look)) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
