//! What commands print: `say!` to standard output, `note!` to standard error.
//!
//! Whoever closed our output (`… | head -1`) has heard enough. That is no error, and no reason to leave something half done: who prints on and on ends with 0, everybody
//! else finishes and ends with its own code. Output that cannot be written for another reason, a full disk for instance, is an error. What
//! cannot be said on standard error is lost: nobody is left who could be told.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Prints a line; says whether somebody may read on.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::say::line(format_args!($($words)*)) };
}

/// Prints a line for the human, beside the output.
macro_rules! note {
    ($($words:tt)*) => { $crate::cli::say::aside(format_args!($($words)*)) };
}

pub(crate) use {note, say};

/// As `say!`.
pub fn line(words: fmt::Arguments<'_>) -> bool {
    bytes(format!("{words}\n").as_bytes())
}

/// The same, of bytes that need not be text.
pub fn bytes(bytes: &[u8]) -> bool {
    match write(bytes) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            note!("warlock: cannot write to standard output: {error}");
            std::process::exit(1);
        }
    }
}

/// Writes all of it now, so that it is known whether it could be.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// As `note!`.
pub fn aside(words: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{words}\n").as_bytes());
}

/// Whether nobody reads our output any more. Who has nothing to say for long would not notice otherwise.
pub fn is_closed() -> bool {
    let out = io::stdout();
    let mut looked_at = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    poll(&mut looked_at, Some(&now)).is_ok_and(|_| looked_at[0].revents().intersects(gone))
}
