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
/// The same while more comes than is removed. Nobody who looks at a key needs the sweep, but who waits for a lock whose holder is gone does.
const SWEEP_BEHIND_EVERY: Duration = Duration::from_millis(5);
/// What is overdue by more than this has piled up.
const BEHIND_MS: u64 = 250;
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
    pub(super) fn clock_ms(&self, core: &Core<MachineBackend>, now: Now) -> u64 {
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

/// What there is to remove.
struct Due {
    /// The commands that do it. One must not wait for the other: where locks are taken all the time, some page is always due.
    commands: Vec<Bytes>,
    /// More has come than was removed, for a while.
    is_behind: bool,
}

impl Due {
    fn of(machine: &Machine<AnyStore>, cluster_ms: u64) -> Result<Due, StoreError> {
        let first_ms = machine.next_deadline_ms()?.filter(|due| *due <= cluster_ms);
        let reap = machine.has_garbage()?.then(|| storage::commands::reap(SWEEP_KEYS));
        let commands = first_ms.map(|_| payload()).into_iter().chain(reap).collect();
        Ok(Due { commands, is_behind: first_ms.is_some_and(|due| cluster_ms - due > BEHIND_MS) })
    }

    /// How long until the next look.
    fn pause(&self) -> Duration {
        if self.is_behind { SWEEP_BEHIND_EVERY } else { SWEEP_EVERY }
    }
}

/// Runs until the task is dropped.
pub(super) async fn sweep(node: Rc<Running>) {
    let mut pause = SWEEP_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        pause = SWEEP_EVERY;
        let now = clock::now();
        let mut core = node.core.borrow_mut();
        node.note_ledger_time(&core, now);
        if !core.node.can_lease_read(now) {
            continue;
        }
        let cluster_ms = core.node.leader().cluster_ms(now);
        match Due::of(&core.backend.machine, cluster_ms) {
            Ok(due) if due.commands.is_empty() => continue,
            Ok(due) => {
                pause = due.pause();
                for payload in due.commands {
                    core.submit(payload, Ticket { connection: 0, place: 0 }, now);
                }
            }
            // Told before the next turn, which is the last.
            Err(error) => core.backend.failure = Some(error),
        }
        node.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use storage::machine::{Stamp, encode_command};

    /// Locks that come and go leave a page every time, so something is always due. What FLUSHDB left behind goes all the same.
    #[test]
    fn garbage_goes_while_locks_are_taken() {
        let (mut machine, mut slot, mut now_ms) = (Machine::in_memory(), 0, 1_000_000);
        let mut apply = |machine: &mut Machine<AnyStore>, at_ms: u64, payload: Bytes| {
            slot += 1;
            machine.apply(&Stamp { slot, index: 0, at_ms }, &payload);
            machine.finish_slot(slot).unwrap();
        };
        apply(&mut machine, now_ms, encode_command(0, &["SET", "k", "v"]));
        for token in 1..=100 {
            if token == 50 {
                apply(&mut machine, now_ms, encode_command(0, &["FLUSHDB"]));
                assert!(machine.has_garbage().unwrap());
            }
            apply(&mut machine, now_ms, encode_command(0, &["LOCK.ACQUIRE", "l", "me", "9000"]));
            apply(&mut machine, now_ms, encode_command(0, &["LOCK.RELEASE", "l", &token.to_string()]));
            now_ms += 50;
            let due = Due::of(&machine, now_ms).unwrap();
            assert_eq!(due.pause(), SWEEP_EVERY);
            due.commands.into_iter().for_each(|payload| apply(&mut machine, now_ms, payload));
        }
        assert!(!machine.has_garbage().unwrap());
        // More than sweeps at the usual pace take away.
        assert_eq!(Due::of(&machine, now_ms + 2_000).unwrap().pause(), SWEEP_BEHIND_EVERY);
    }
}
