//! The signals that ask us to end, from the first moment to the last: what came while nobody looked is not lost.
//!
//! The handlers write a byte for each into a socket, with where it came from: Ctrl-C and Ctrl-\ reach the whole foreground group of a terminal, so a
//! command in that group has it already.

use rustix::process::Signal;
use std::io::{self, Write};
use std::os::unix::net::UnixStream as Socket;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

const ALL: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];
/// Those that have a key.
const TYPED: [Signal; 2] = [Signal::INT, Signal::QUIT];
/// In a byte: the kernel sent it, not a process.
const BY_KERNEL: u8 = 0x80;

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Which.
    pub signal: Signal,
    /// From a key of the terminal, to everybody in its foreground.
    pub is_typed: bool,
}

/// Those that came and were not looked at yet.
#[derive(Debug)]
pub struct Signals(UnixStream);

impl Signals {
    /// From now on they end nothing by themselves. Must be called on a runtime. SIGHUP stays ignored under nohup, here and in the command.
    pub fn listen() -> io::Result<Signals> {
        let (reader, writer) = Socket::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        for signal in ALL.into_iter().filter(|signal| *signal != Signal::HUP || !is_ignored(Signal::HUP)) {
            let writer = writer.try_clone()?;
            let number = u8::try_from(signal.as_raw()).unwrap_or_default();
            // SAFETY: the handler makes one system call that does not block, and allocates nothing; the registry keeps errno.
            unsafe {
                signal_hook_registry::register_sigaction(signal.as_raw(), move |info| {
                    // Zero and below are processes: kill, sigqueue, tgkill.
                    let by = if info.si_code > 0 { BY_KERNEL } else { 0 };
                    let _ = (&writer).write(&[number | by]);
                })
            }?;
        }
        Ok(Signals(UnixStream::from_std(reader)?))
    }

    /// The next one. May be dropped and called again.
    pub async fn next(&mut self) -> Arrived {
        let byte = match self.0.read_u8().await {
            Ok(byte) => byte,
            // The handlers hold the other end for as long as the process lives.
            Err(_) => std::future::pending().await,
        };
        let number = i32::from(byte & !BY_KERNEL);
        let signal = ALL.into_iter().find(|signal| signal.as_raw() == number).unwrap_or(Signal::TERM);
        Arrived { signal, is_typed: byte & BY_KERNEL != 0 && TYPED.contains(&signal) }
    }
}

/// Whether whoever started us wants this signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}
