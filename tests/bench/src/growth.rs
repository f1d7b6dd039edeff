//! How Warlock's speed changes when one thing grows: nodes, connections, values, keys, the share of reads.
//!
//! One cluster serves a whole section unless the section is about the cluster itself. Rounds are interleaved here too: each visits every point.

use crate::compare::{Cell, SETTLE, Sample, settle};
use crate::load::{self, Plan, Work};
use crate::progress::Progress;
use crate::systems::{System, start_warlock};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Leaves out what takes long: ten million keys.
    pub is_quick: bool,
    /// How often each point is measured.
    pub rounds: usize,
    /// How long each time.
    pub window: Duration,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// What grows.
    pub section: &'static str,
    /// How large it was.
    pub x: u64,
    /// What was done.
    pub line: &'static str,
    /// What came out.
    pub sample: Sample,
    /// Resident bytes of all nodes then.
    pub resident: u64,
}

const SET: Work = Work::Mix(0);
const GET: Work = Work::Mix(100);
const KEYS: u64 = 10_000;

/// What is to be measured on one cluster.
struct Section {
    name: &'static str,
    nodes: u16,
    keys: u64,
    /// x, the line it belongs to, and the load.
    points: Vec<(u64, &'static str, Cell)>,
}

fn cell(work: Work, connections: usize, pipeline: usize, value_bytes: usize) -> Cell {
    Cell { work, connections, pipeline, value_bytes }
}

fn sections(is_quick: bool) -> Vec<Section> {
    let small = |work, connections, pipeline| cell(work, connections, pipeline, 16);
    let mut sections = Vec::new();
    for nodes in [3_u16, 5, 7] {
        let x = u64::from(nodes);
        let points = vec![
            (x, "set 50x1", small(SET, 50, 1)),
            (x, "set 50x16", small(SET, 50, 16)),
            (x, "get 50x1", small(GET, 50, 1)),
        ];
        sections.push(Section { name: "nodes", nodes, keys: KEYS, points });
    }
    let connections = [1, 8, 64, 512, 4_096].into_iter().flat_map(|connections: usize| {
        let x = connections as u64;
        [(x, "set", small(SET, connections, 1)), (x, "get", small(GET, connections, 1))]
    });
    sections.push(Section { name: "connections", nodes: 3, keys: KEYS, points: connections.collect() });
    for value_bytes in [16, 1 << 10, 64 << 10, 1 << 20] {
        let x = value_bytes as u64;
        let points = vec![
            (x, "set 50x1", cell(SET, 50, 1, value_bytes)),
            (x, "get 50x1", cell(GET, 50, 1, value_bytes)),
        ];
        // As many keys as fit into 64 MiB.
        sections.push(Section { name: "values", nodes: 3, keys: ((64 << 20) / x).min(KEYS), points });
    }
    for keys in [1_000, 1_000_000, 10_000_000] {
        if keys > 1_000_000 && is_quick {
            continue;
        }
        let points = vec![
            (keys, "set 50x1", small(SET, 50, 1)),
            (keys, "set 50x16", small(SET, 50, 16)),
            (keys, "get 50x16", small(GET, 50, 16)),
        ];
        sections.push(Section { name: "keys", nodes: 3, keys, points });
    }
    let reads = [0, 20, 40, 60, 80, 100]
        .into_iter()
        .map(|share: u8| (u64::from(share), "50x1", small(Work::Mix(share), 50, 1)));
    sections.push(Section { name: "reads", nodes: 3, keys: KEYS, points: reads.collect() });
    sections
}

/// Runs all of it.
///
/// # Errors
/// When a cluster does not start or fails under load.
pub fn run(
    directory: &Path,
    binary: &Path,
    only: &[String],
    effort: Effort,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Vec<Point>> {
    let mut sections = sections(effort.is_quick);
    sections.retain(|section| only.is_empty() || only.iter().any(|name| name == section.name));
    if sections.is_empty() {
        return Err(io::Error::other(
            "there is no such section; there are nodes, connections, values, keys, reads",
        ));
    }
    let steps = sections.iter().map(|section| 1 + section.points.len() * effort.rounds).sum();
    let mut progress = Progress::new(steps);
    let mut points = Vec::new();
    for (place, section) in sections.iter().enumerate() {
        progress.step(&format!("{}: starting", section.name));
        let data = directory.join(format!("{}-{place}", section.name));
        std::fs::create_dir_all(&data)?;
        let system = start_warlock(&data, binary, section.nodes)?;
        fill(&system, section, stopped)?;
        settle(&system, Instant::now() + SETTLE, stopped);
        for _ in 0..effort.rounds {
            for (x, line, cell) in &section.points {
                progress.step(&format!("{} {x}: {line}", section.name));
                let plan = plan(*cell, section.keys, effort.window);
                let count = load::drive(system.protocol, system.address, &plan, &system.usage, stopped)
                    .map_err(|error| {
                        io::Error::new(error.kind(), format!("{} {x}, {line}: {error}", section.name))
                    })?;
                let (sample, resident) = (Sample::of(&count), system.usage.resident());
                points.push(Point { section: section.name, x: *x, line, sample, resident });
            }
        }
        drop(system);
        std::fs::remove_dir_all(&data)?;
    }
    progress.finish();
    Ok(points)
}

fn plan(cell: Cell, keys: u64, window: Duration) -> Plan {
    let Cell { work, connections, pipeline, value_bytes } = cell;
    Plan { work, connections, pipeline, value_bytes, keys, warm_up: window / 4, window }
}

fn fill(system: &System, section: &Section, stopped: &dyn Fn() -> bool) -> io::Result<()> {
    let Some((_, _, Cell { value_bytes, .. })) = section.points.first() else { return Ok(()) };
    let (connections, pipeline) = if *value_bytes > 4_096 { (8, 1) } else { (50, 64) };
    let fill = cell(Work::Fill, connections, pipeline, *value_bytes);
    let plan = plan(fill, section.keys, Duration::ZERO);
    load::drive(system.protocol, system.address, &plan, &system.usage, stopped)
        .map_err(|error| io::Error::new(error.kind(), format!("{}, filling: {error}", section.name)))
        .map(drop)
}

/// Points as lines of text.
#[must_use]
pub fn text(points: &[Point]) -> String {
    let mut out = format!(
        "{:12} {:>9} {:10} {:>9} {:>9} {:>9} {:>10} {:>9}\n",
        "", "", "", "ops/s", "p50 us", "p99 us", "server us", "RSS MiB"
    );
    for Point { section, x, line, sample, resident } in points {
        out += &format!(
            "{section:12} {x:>9} {line:10} {:9.0} {:9.0} {:9.0} {:10.1} {:9}\n",
            sample.rate,
            sample.p50_us,
            sample.p99_us,
            sample.server_cpu_us,
            resident >> 20
        );
    }
    out
}
