//! One line that says how far it is; nothing when nobody looks.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// The line.
pub struct Progress {
    steps: usize,
    done: usize,
    start: Instant,
    is_seen: bool,
}

const WIDTH: usize = 30;

impl Progress {
    /// Of so many steps.
    #[must_use]
    pub fn new(steps: usize) -> Progress {
        Progress {
            steps: steps.max(1),
            done: 0,
            start: Instant::now(),
            is_seen: std::io::stderr().is_terminal(),
        }
    }

    /// The next step begins.
    pub fn step(&mut self, what: &str) {
        if self.is_seen {
            let full = WIDTH * self.done / self.steps;
            let left = match self.done {
                0 => String::new(),
                done => {
                    let each = self.start.elapsed().as_secs_f64() / done as f64;
                    format!("{:4.0} s left", each * (self.steps - done) as f64)
                }
            };
            let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
            eprint!("\r\x1b[2K[{bar}] {}/{} {left}  {what}", self.done, self.steps);
            let _ = std::io::stderr().flush();
        }
        self.done = (self.done + 1).min(self.steps);
    }

    /// The line goes away.
    pub fn finish(&self) {
        if self.is_seen {
            eprint!("\r\x1b[2K");
        }
    }
}
