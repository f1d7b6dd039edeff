//! What the measuring tools print: distributions, a progress bar, options.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The value below which `share` (0 to 1) of the sorted values lie.
#[must_use]
pub fn quantile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let index = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(index.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

/// `p50 …, p90 …, max …`
#[must_use]
pub fn distribution(mut values: Vec<Duration>) -> String {
    values.sort_unstable();
    let ms = |share| format!("{:.0} ms", quantile(&values, share).as_secs_f64() * 1e3);
    format!("p50 {}, p90 {}, max {} ({} rounds)", ms(0.5), ms(0.9), ms(1.0), values.len())
}

/// A bar on the standard error, one line that is written over.
pub fn progress(what: &str, done: usize, of: usize, note: &str) {
    let filled = done * 30 / of.max(1);
    eprint!("\r{what} [{}{}] {done}/{of} {note}    ", "#".repeat(filled), "-".repeat(30 - filled));
    if done == of {
        eprintln!();
    }
    let _ = std::io::stderr().flush();
}

/// The value of `--name` on the command line, or `default`.
///
/// # Panics
/// When it is no such value; the message names the option.
#[must_use]
pub fn option<T: std::str::FromStr>(name: &str, default: T) -> T {
    let mut words = std::env::args().skip_while(|word| word != name).skip(1);
    match words.next() {
        None => default,
        Some(text) => text.parse().unwrap_or_else(|_| panic!("{name} cannot be '{text}'")),
    }
}

/// The binary to measure: `--binary`, or what [`crate::binary`] finds.
#[must_use]
pub fn measured_binary() -> PathBuf {
    let path: PathBuf = option("--binary", PathBuf::new());
    if path.as_os_str().is_empty() { crate::binary() } else { path }
}
