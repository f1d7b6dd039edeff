//! What a run is made of, drawn from its seed.
//!
//! Swarm testing: each run has a random subset of the faults and random limits, so that some runs are all about one thing and others mix
//! everything.

use crate::rng::Rng;
use consensus::Config;
use consensus::planted::Bug;
use std::time::Duration;

/// A millisecond of true time.
pub const MS: u64 = 1_000;
/// A second of true time.
pub const SECOND: u64 = 1_000_000;

/// How messages travel. Chances are per million, times in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    /// Lost.
    pub loss: u64,
    /// Delivered twice.
    pub duplicate: u64,
    /// The shortest delay.
    pub delay_min: u64,
    /// The longest usual delay.
    pub delay_max: u64,
    /// Delayed far longer.
    pub late: u64,
    /// The longest delay of those.
    pub late_max: u64,
}

/// Which faults happen, each as a weight among the others (0: never).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Two halves that do not hear each other.
    pub split: u64,
    /// Some links lose everything in one direction.
    pub one_way: u64,
    /// Two halves joined by one node that hears both.
    pub bridge: u64,
    /// A node that hears but is not heard.
    pub unheard: u64,
    /// Links that hold everything back and let it go later.
    pub clog: u64,
    /// One node crashes.
    pub crash: u64,
    /// Several crash at the same instant.
    pub crash_many: u64,
    /// All crash.
    pub crash_all: u64,
    /// A process is stopped while its clock runs on.
    pub pause: u64,
    /// A disk does not finish its syncs.
    pub stall: u64,
    /// A wall clock is set.
    pub wall_step: u64,
    /// A clock changes its rate.
    pub rate: u64,
    /// A member is added.
    pub add: u64,
    /// A member is removed.
    pub remove: u64,
    /// A node loses its disk and is replaced.
    pub replace: u64,
    /// The lease changes.
    pub lease: u64,
    /// The mastership is handed over.
    pub transfer: u64,
}

/// Everything that is drawn from the seed before a run starts.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Members of the first view.
    pub nodes: u64,
    /// The first view's lease.
    pub lease: Duration,
    /// The engine's limits.
    pub config: Config,
    /// Between nodes.
    pub wire: Wire,
    /// Between the roles of a node.
    pub local: Wire,
    /// Which faults happen.
    pub faults: Faults,
    /// The mean time between two faults.
    pub fault_every: u64,
    /// How long the safety phase lasts.
    pub safety: u64,
    /// How long a disk sync takes, at most.
    pub sync_max: u64,
    /// Per million syncs, one takes a hundred times as long.
    pub sync_slow: u64,
    /// Per million syncs: the node crashes after the sync, before anything is sent.
    pub crash_after_sync: u64,
    /// Slots between two snapshots.
    pub snapshot_every: u64,
    /// How long a snapshot takes to become durable, at most.
    pub snapshot_time: u64,
    /// Bytes in one piece of a snapshot.
    pub chunk: usize,
    /// How long the machine takes to say that it applied, at most.
    pub apply_delay: u64,
    /// How many clients there are.
    pub clients: u64,
    /// A client's pause between two operations, at most.
    pub think: u64,
    /// A client gives up after this.
    pub patience: u64,
    /// Registers in use at a time.
    pub keys: u64,
    /// Operations per register, at most; then a new one is used.
    pub ops_per_key: u64,
    /// Per million operations of clients: which are reads.
    pub reads: u64,
    /// Per million reads: which may be stale.
    pub stale_reads: u64,
    /// The wall clocks' errors at the start, in milliseconds, at most.
    pub wall_error: u64,
    /// Wall clocks are stepped on one node only, so that cluster time can be checked (E3).
    pub check_time: bool,
    /// Clients take locks of the machine that ships instead of writing registers. Not drawn: the run is asked for.
    pub has_locks: bool,
}

impl Swarm {
    /// Draws a run.
    #[must_use]
    pub fn draw(rng: &mut Rng, bug: Option<Bug>) -> Swarm {
        let lease_ms = rng.between(200, 1_000);
        let mut config = draw_config(rng, lease_ms, bug);
        let nodes = [3, 3, 3, 4, 5, 5, 6, 7];
        let nodes = rng.pick(&nodes).copied().unwrap_or(3);
        let calm = rng.chance(50_000);
        let wire = draw_wire(rng, calm, 1);
        // Back-off ends a duel only if it may grow beyond the time that an election takes: a few round trips.
        config.backoff_max = config.backoff_max.max(Duration::from_micros(8 * wire.delay_max));
        let is_local_calm = calm || rng.coin();
        let mut local = draw_wire(rng, is_local_calm, 4);
        local.delay_max = local.delay_min + rng.skewed(0, 3 * MS);
        local.late_max = local.late_max.min(300 * MS);
        let faults = if calm { Faults::default() } else { draw_faults(rng) };
        Swarm {
            nodes,
            lease: Duration::from_millis(lease_ms),
            config,
            wire,
            local,
            faults,
            fault_every: rng.between(60, 900) * MS,
            safety: rng.between(4 * SECOND, 15 * SECOND),
            sync_max: rng.skewed(50, 20 * MS),
            sync_slow: if rng.coin() { 0 } else { rng.skewed(0, 50_000) },
            crash_after_sync: if calm || rng.coin() { 0 } else { rng.skewed(0, 3_000) },
            snapshot_every: rng.skewed(2, 120),
            snapshot_time: rng.skewed(MS, 600 * MS),
            chunk: usize::try_from(rng.skewed(40, 2_000)).unwrap_or(100),
            apply_delay: if rng.coin() { 0 } else { rng.skewed(0, 30 * MS) },
            clients: rng.between(2, 7),
            think: rng.skewed(MS, 150 * MS),
            patience: rng.between(300, 3_000) * MS,
            keys: rng.between(1, 4),
            ops_per_key: rng.between(10, 60),
            reads: rng.between(100_000, 700_000),
            stale_reads: rng.between(0, 500_000),
            wall_error: if rng.coin() { rng.between(0, 50) } else { rng.between(0, 5_000) },
            check_time: rng.chance(700_000),
            has_locks: false,
        }
    }
}

fn draw_config(rng: &mut Rng, lease_ms: u64, bug: Option<Bug>) -> Config {
    let ms = Duration::from_millis;
    let window = rng.skewed(1, 24);
    let durable_every = rng.skewed(1, 24);
    let backoff_min = rng.skewed(5, lease_ms / 2);
    let drift = [0, 200, 2_000, 20_000, 50_000, 90_000];
    #[cfg(not(feature = "planted-bugs"))]
    let _ = bug;
    let config = Config {
        heartbeats_per_lease: u32::try_from(rng.between(2, 6)).unwrap_or(5),
        resend: ms(rng.between(20, 150)),
        backoff_min: ms(backoff_min),
        backoff_max: ms(backoff_min + rng.between(50, 2_000)),
        window,
        batch_commands_max: usize::try_from(rng.skewed(1, 12)).unwrap_or(1),
        batch_bytes_max: usize::try_from(rng.skewed(60, 2_000)).unwrap_or(100),
        queue_max: usize::try_from(rng.skewed(4, 200)).unwrap_or(100),
        pending_max: 256,
        accept_ahead_max: window + durable_every + rng.skewed(0, 40),
        log_keep: rng.skewed(0, 60),
        log_keep_bytes: 4_000,
        page_bytes_max: usize::try_from(rng.skewed(100, 4_000)).unwrap_or(1_000),
        durable_every,
        durable_after: ms(rng.between(10, 300)),
        retry: ms(rng.between(40, 400)),
        source_silent_max: ms(2_000),
        down_after: ms(lease_ms + rng.between(200, 2_500)),
        in_step: rng.skewed(1, 40),
        catch_up_max: ms(rng.between(300, 3_000)),
        drift_ppm: rng.pick(&drift).copied().unwrap_or(2_000),
        pull_ppm: rng.skewed(0, 20_000),
        #[cfg(feature = "planted-bugs")]
        bug,
    };
    debug_assert!(config.validate().is_ok(), "the swarm draws valid limits only");
    config
}

fn draw_wire(rng: &mut Rng, calm: bool, part: u64) -> Wire {
    let delay_min = rng.skewed(10, 2 * MS) / part;
    let delay_max = delay_min + rng.skewed(10, 40 * MS) / part;
    if calm {
        return Wire { delay_min, delay_max, ..Wire::default() };
    }
    let some = |rng: &mut Rng, max: u64| if rng.coin() { 0 } else { rng.skewed(0, max) / part };
    Wire {
        loss: some(rng, 200_000),
        duplicate: some(rng, 200_000),
        delay_min,
        delay_max,
        late: some(rng, 100_000),
        late_max: rng.skewed(10 * MS, 3 * SECOND),
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    let mut weight = |max: u64| if rng.chance(400_000) { rng.between(1, max) } else { 0 };
    Faults {
        split: weight(10),
        one_way: weight(6),
        bridge: weight(6),
        unheard: weight(6),
        clog: weight(10),
        crash: weight(12),
        crash_many: weight(5),
        crash_all: weight(3),
        pause: weight(8),
        stall: weight(6),
        wall_step: weight(4),
        rate: weight(4),
        add: weight(6),
        remove: weight(6),
        replace: weight(5),
        lease: weight(3),
        transfer: weight(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_configuration_is_valid() {
        for seed in 0..2_000 {
            let swarm = Swarm::draw(&mut Rng::new(seed), None);
            assert_eq!(swarm.config.validate(), Ok(()));
            assert!((3..=7).contains(&swarm.nodes));
            assert!((200..=1_000).contains(&swarm.lease.as_millis()));
        }
    }
}
