//! Faults that a test may ask a running node for. Off unless the node was started with `WARLOCK_TEST_FAULTS=1`.
//!
//! One switch for the whole process: all links of a node are cut, or none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::warn;

/// The variable that allows it.
const VARIABLE: &str = "WARLOCK_TEST_FAULTS";

static CUT_OFF: AtomicBool = AtomicBool::new(false);

/// Whether everything from and to the other nodes is to be dropped.
#[must_use]
pub fn is_cut_off() -> bool {
    CUT_OFF.load(Relaxed)
}

/// `CUT-OFF`: this node hears no other node and is not heard, as if its network were gone; its clients still reach it. `HEAL` ends it.
///
/// # Errors
/// When the node was not started for tests, or `what` is neither.
pub fn set(what: &str) -> Result<(), String> {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Err(format!("ERR this node was not started for tests ({VARIABLE}=1); nothing was done"));
    }
    let is_cut_off = match what.to_ascii_uppercase().as_str() {
        "CUT-OFF" => true,
        "HEAL" => false,
        _ => return Err("ERR WARLOCK DEBUG takes CUT-OFF or HEAL".to_string()),
    };
    warn!(is_cut_off, "a test switched this node's links to the other nodes");
    CUT_OFF.store(is_cut_off, Relaxed);
    Ok(())
}
