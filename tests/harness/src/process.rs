//! Child processes that never outlive this one.
//!
//! The kernel sends the children SIGKILL when the *thread* that started them ends, so one thread that lives as long as the process starts
//! all of them: then no way to end this process leaves one behind.

use rustix::process::{Pid, Signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

type Job = (Command, Sender<io::Result<Child>>);

fn starter() -> Sender<Job> {
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (send, jobs) = channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(send)
    });
    starter.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Starts a process that dies with this one.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec; it makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    let (answer, answered) = channel();
    starter().send((command, answer)).map_err(|_| io::ErrorKind::BrokenPipe)?;
    answered.recv().map_err(|_| io::ErrorKind::BrokenPipe)?
}

/// Sends a signal to a child that has not been waited for.
///
/// # Errors
/// When the system refuses.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::kill_process(pid, signal)?)
}
