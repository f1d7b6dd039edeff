//! Processes that this tool starts, and what they use.
//!
//! A child dies with this process, however that ends (the kernel sees to it), and is awaited when its owner is dropped: nothing that was started
//! stays, and nothing else is touched.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`; what it prints goes to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> io::Result<Process> {
        let out = File::create(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        // SAFETY: the closure runs between fork and exec and only makes one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                let killed = Some(rustix::process::Signal::KILL);
                rustix::process::set_parent_process_death_signal(killed).map_err(io::Error::from)
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))?;
        Ok(Process { child })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a set of processes uses.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    processes: Vec<u32>,
}

impl Usage {
    /// Of these processes.
    pub fn of(processes: impl IntoIterator<Item = u32>) -> Usage {
        Usage { processes: processes.into_iter().collect() }
    }

    /// Processor time so far, of all threads that live, to the nanosecond (the usual counters go in steps of 10 ms).
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let of_thread = |path: &Path| -> Option<u64> {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        let threads = self.processes.iter().filter_map(|id| fs::read_dir(format!("/proc/{id}/task")).ok());
        let nanos = threads.flatten().flatten().filter_map(|thread| of_thread(&thread.path())).sum();
        Duration::from_nanos(nanos)
    }

    /// Resident memory now, in bytes.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most resident memory so far, in bytes.
    #[must_use]
    pub fn resident_max(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> u64 {
        let of_process = |id: &u32| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let line = text.lines().find(|line| line.starts_with(field))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        self.processes.iter().filter_map(of_process).sum::<u64>() * 1_024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_dropped_is_gone_and_its_use_was_seen() {
        let log = std::env::temp_dir().join(format!("bench-peers-{}.log", std::process::id()));
        let process = Process::start(Command::new("sleep").arg("60"), &log).unwrap_or_else(|e| panic!("{e}"));
        let id = process.id();
        assert!(Usage::of([id]).resident() > 0);
        assert!(Usage::of([std::process::id()]).cpu() > Duration::ZERO);
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        let _ = fs::remove_file(log);
    }
}
