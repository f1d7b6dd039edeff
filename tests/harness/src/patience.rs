//! Waiting for something that no event announces.

use std::time::{Duration, Instant};

/// How long a test waits before it calls something broken. Generous: a busy machine is slow, and a broken rule stays broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Looks again and again until there is something.
///
/// # Panics
/// When there is nothing after [`PATIENCE`]; the message names `what`.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, look)
}

/// [`wait_for`] with another patience.
///
/// # Panics
/// When there is nothing after `patience`.
pub fn wait_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience, "waited {patience:?} for {what}, in vain");
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
