//! The master removes keys whose time has passed, through the log.

use super::Running;
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::host::core::Core;
use bytes::Bytes;
use consensus::Now;
use server::Ticket;
use std::rc::Rc;
use std::time::Duration;
use storage::machine::Machine;
use storage::store::{AnyStore, StoreError};

/// How often the master looks for keys whose time has passed.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// Keys that one sweep removes, at most.
const SWEEP_KEYS: u32 = 1_000;

impl Running {
    /// Notes when the log's time moves on.
    fn note_ledger_time(&self, core: &Core<MachineBackend>, now: Now) {
        if self.ledger_time.get().0 != core.ledger.cluster_ms() {
            self.ledger_time.set((core.ledger.cluster_ms(), now.at));
        }
    }

    /// What cluster time is by now, as far as this node knows: the log's time stands still while nobody writes. The master asks its clock,
    /// others count from when they saw the log's time change.
    pub(super) fn clock_ms(&self, core: &Core<MachineBackend>) -> u64 {
        let now = clock::now();
        if core.node.can_lease_read(now) {
            return core.node.leader().cluster_ms(now);
        }
        let (ledger_ms, seen_at) = self.ledger_time.get();
        let passed_ms = now.at.0.saturating_sub(seen_at.0) / 1_000;
        if ledger_ms == core.ledger.cluster_ms() {
            ledger_ms.saturating_add(passed_ms)
        } else {
            core.ledger.cluster_ms()
        }
    }
}

/// The command that removes keys whose time has passed.
pub(super) fn payload() -> Bytes {
    storage::commands::sweep(SWEEP_KEYS)
}

/// What there is to remove, as a command.
fn due(machine: &Machine<AnyStore>, cluster_ms: u64) -> Result<Option<Bytes>, StoreError> {
    if machine.next_deadline_ms()?.is_some_and(|due| due <= cluster_ms) {
        return Ok(Some(payload()));
    }
    Ok(machine.has_garbage()?.then(|| storage::commands::reap(SWEEP_KEYS)))
}

/// Runs until the task is dropped.
pub(super) async fn sweep(node: Rc<Running>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let now = clock::now();
        let mut core = node.core.borrow_mut();
        node.note_ledger_time(&core, now);
        if !core.node.can_lease_read(now) {
            continue;
        }
        let cluster_ms = core.node.leader().cluster_ms(now);
        match due(&core.backend.machine, cluster_ms) {
            Ok(None) => continue,
            Ok(Some(payload)) => core.submit(payload, Ticket { connection: 0, place: 0 }, now),
            // Told before the next turn, which is the last.
            Err(error) => core.backend.failure = Some(error),
        }
        node.wake.notify_one();
    }
}
