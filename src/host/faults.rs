//! Faults that a test may ask a running node for. Off unless the node was started with `WARLOCK_TEST_FAULTS=1`.
//!
//! One switch for the whole process: all links of a node are cut, or none; one error of its wall clock; and one slowness each of its journal's and its rows' disk.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tracing::warn;

/// The variable that allows it.
const VARIABLE: &str = "WARLOCK_TEST_FAULTS";

static CUT_OFF: AtomicBool = AtomicBool::new(false);
static WALL_ERROR_MS: AtomicI64 = AtomicI64::new(0);
static JOURNAL_DELAY_MS: AtomicU64 = AtomicU64::new(0);
static ENGINE_DELAY_MS: AtomicU64 = AtomicU64::new(0);

/// Whether everything from and to the other nodes is to be dropped.
#[must_use]
pub fn is_cut_off() -> bool {
    CUT_OFF.load(Relaxed)
}

/// By how much the wall clock is wrong on purpose.
pub(super) fn wall_error_ms() -> i64 {
    WALL_ERROR_MS.load(Relaxed)
}

/// By how much longer each write of the journal takes.
pub fn journal_delay() -> Duration {
    Duration::from_millis(JOURNAL_DELAY_MS.load(Relaxed))
}

/// By how much longer the engine of rows on disk needs for each layer.
pub fn engine_delay() -> Duration {
    Duration::from_millis(ENGINE_DELAY_MS.load(Relaxed))
}

/// `CUT-OFF`: this node hears no other node and is not heard, as if its network were gone; its clients still reach it. `HEAL` ends it. `CLOCK ms` sets
/// the wall clock that this node reads, as if somebody had set the machine's: so many milliseconds ahead of the true one, or behind it. `ENGINE ms` makes the disk of its rows slow:
/// so many milliseconds more for each layer (of about 4 MB). `JOURNAL ms` does the same to each write of its journal.
///
/// # Errors
/// When the node was not started for tests, or `what` is none of them.
pub fn set(what: &[&str]) -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Err(format!("ERR this node was not started for tests ({VARIABLE}=1); nothing was done"));
    }
    const USAGE: &str = "ERR WARLOCK DEBUG takes CUT-OFF, HEAL, CLOCK ms, ENGINE ms or JOURNAL ms";
    let is_cut_off = match what {
        [clock, ms] if clock.eq_ignore_ascii_case("CLOCK") => {
            let error_ms: i64 = ms.parse().map_err(|_| USAGE.to_string())?;
            warn!(error_ms, "a test set this node's wall clock");
            WALL_ERROR_MS.store(error_ms, Relaxed);
            return Ok(());
        }
        [engine, ms] if engine.eq_ignore_ascii_case("ENGINE") => {
            let delay_ms: u64 = ms.parse().map_err(|_| USAGE.to_string())?;
            warn!(delay_ms, "a test made the disk of this node's rows slow");
            ENGINE_DELAY_MS.store(delay_ms, Relaxed);
            return Ok(());
        }
        [journal, ms] if journal.eq_ignore_ascii_case("JOURNAL") => {
            let delay_ms: u64 = ms.parse().map_err(|_| USAGE.to_string())?;
            warn!(delay_ms, "a test made this node's journal slow");
            JOURNAL_DELAY_MS.store(delay_ms, Relaxed);
            return Ok(());
        }
        [word] if word.eq_ignore_ascii_case("CUT-OFF") => true,
        [word] if word.eq_ignore_ascii_case("HEAL") => false,
        _ => return Err(USAGE.to_string()),
    };
    warn!(is_cut_off, "a test switched this node's links to the other nodes");
    CUT_OFF.store(is_cut_off, Relaxed);
    Ok(())
}
