//! Far more than a cluster can do: thousands of connections, each with a deep pipeline.
//!
//! It must degrade by queueing and nothing else: every request is answered, memory stays within limits, the pulse of the master's lease gets through (no
//! election), and when the crowd is gone everything is as it was before.

use crate::compare::{Cell, SETTLE, Sample, settle};
use crate::load::{self, Plan, Work};
use crate::progress::Progress;
use crate::systems::{System, reign, start_warlock};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 10_000;

/// How much.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many connections.
    pub connections: usize,
    /// How many requests each sends at once.
    pub pipeline: usize,
    /// For how long.
    pub window: Duration,
}

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Which.
    pub name: &'static str,
    /// What came out.
    pub sample: Sample,
    /// The most that all nodes together had in memory so far, in bytes.
    pub resident_max: u64,
    /// Who was master, and in which ballot, at its end.
    pub reign: String,
}

/// Before, during and after.
///
/// # Errors
/// When the cluster does not start, a request fails or is never answered, or somebody else was elected.
pub fn run(
    directory: &Path,
    binary: &Path,
    crowd: Crowd,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Vec<Phase>> {
    let small = Cell { work: Work::Mix(20), connections: 50, pipeline: 1, value_bytes: 16 };
    let large = Cell { connections: crowd.connections, pipeline: crowd.pipeline, ..small };
    let mut progress = Progress::new(4);
    progress.step("starting");
    let system = start_warlock(directory, binary, 3)?;
    let fill = Plan { work: Work::Fill, ..plan(small, Duration::ZERO) };
    load::drive(system.protocol, system.address, &fill, &system.usage, stopped)?;
    settle(&system, Instant::now() + SETTLE, stopped);
    let first = reign(system.address)?;
    let mut phases = Vec::new();
    for (name, cell, window) in [
        ("before", small, Duration::from_secs(3)),
        ("crowd", large, crowd.window),
        ("after", small, Duration::from_secs(3)),
    ] {
        progress.step(name);
        let phase = phase(&system, name, cell, window, stopped)?;
        if phase.reign != first {
            let error = format!("{name}: there was an election: before {first}, now {}", phase.reign);
            return Err(io::Error::other(error));
        }
        phases.push(phase);
    }
    progress.finish();
    Ok(phases)
}

fn phase(
    system: &System,
    name: &'static str,
    cell: Cell,
    window: Duration,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Phase> {
    let count = load::drive(system.protocol, system.address, &plan(cell, window), &system.usage, stopped)
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    let (sample, resident_max) = (Sample::of(&count), system.usage.resident_max());
    Ok(Phase { name, sample, resident_max, reign: reign(system.address)? })
}

fn plan(cell: Cell, window: Duration) -> Plan {
    let Cell { work, connections, pipeline, value_bytes } = cell;
    Plan { work, connections, pipeline, value_bytes, keys: KEYS, warm_up: window / 4, window }
}

/// Phases as lines of text.
#[must_use]
pub fn text(crowd: Crowd, phases: &[Phase]) -> String {
    let mut out = format!(
        "80 % writes of 16 bytes; the crowd: {} connections with {} requests each at once\n{:8} {:>9} {:>9} {:>9} {:>10} {:>10}  {}\n",
        crowd.connections, crowd.pipeline, "", "ops/s", "p50 us", "p99 us", "server us", "RSS max", "master"
    );
    for Phase { name, sample, resident_max, reign } in phases {
        out += &format!(
            "{name:8} {:9.0} {:9.0} {:9.0} {:10.1} {:7} MiB  {reign}\n",
            sample.rate,
            sample.p50_us,
            sample.p99_us,
            sample.server_cpu_us,
            resident_max >> 20
        );
    }
    out + "every request was answered; no election\n"
}
