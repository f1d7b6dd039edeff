//! The master removes keys whose time has passed, through the log.

use super::Running;
use crate::host::clock;
use server::Ticket;
use std::rc::Rc;
use std::time::Duration;

/// How often the master looks for keys whose time has passed.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// Keys that one sweep removes, at most.
const SWEEP_KEYS: u32 = 1_000;

/// Runs until the task is dropped.
pub(super) async fn sweep(node: Rc<Running>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let now = clock::now();
        let mut core = node.core.borrow_mut();
        if !core.node.can_lease_read(now) {
            continue;
        }
        let cluster_ms = core.node.leader().cluster_ms(now);
        let is_due =
            core.backend.machine.next_deadline_ms().is_ok_and(|due| due.is_some_and(|due| due <= cluster_ms));
        let payload = if is_due {
            storage::commands::sweep(SWEEP_KEYS)
        } else if core.backend.machine.has_garbage().unwrap_or(false) {
            storage::commands::reap(SWEEP_KEYS)
        } else {
            continue;
        };
        core.submit(payload, Ticket { connection: 0, place: 0 }, now);
        node.wake.notify_one();
    }
}
