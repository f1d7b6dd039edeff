//! A long run that watches memory. Written next.

/// Placeholder.
///
/// # Errors
/// Never.
pub fn run(_commands: u64) -> Result<(), String> {
    Ok(())
}
