//! Room on the disk: while too little is free, this node refuses its clients' writes and goes on with reads.
//!
//! It looks ahead instead of failing in the middle: the journal has its next segments allocated already, so what is under way when the room gets short still
//! has a place. Writes are taken again as soon as there is room.

use super::Running;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tracing::{debug, error, info};

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a client hears.
pub(super) const NO_ROOM: &str = "MISCONF the disk of this node is nearly full (disk-reserve); nothing was written. Reads go on, and writes again as soon as \
                                  there is room; other nodes may have some";

/// Looks again and again until the task is dropped.
pub(super) async fn watch(node: Rc<Running>, directory: PathBuf, reserve: u64) {
    loop {
        match rustix::fs::statvfs(&directory) {
            Ok(disk) => {
                let free = disk.f_bavail.saturating_mul(disk.f_frsize);
                let is_low = free < reserve;
                if node.is_disk_low.replace(is_low) != is_low {
                    if is_low {
                        error!(free, reserve, "the disk is nearly full; writes are refused");
                    } else {
                        info!(free, "there is room on the disk again; writes are taken");
                    }
                }
            }
            Err(error) => debug!(%error, "cannot tell how much room the disk has"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
