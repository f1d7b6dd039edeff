//! The numbers to reach, as ratios against the peer in the same run, and whether they were.

use crate::compare::{Cell, Results, Sample};
use crate::load::Work;
use crate::systems::Which;
use serde::Serialize;

const SET: Work = Work::Mix(0);
const GET: Work = Work::Mix(100);
const MIXED: Work = Work::Mix(80);

fn cell(work: Work, connections: usize, pipeline: usize) -> Cell {
    Cell { work, connections, pipeline, value_bytes: 16 }
}

/// A goal and what came out.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Of what.
    pub name: String,
    /// The bound.
    pub goal: f64,
    /// Whether the value must not exceed the bound (else it must reach it).
    pub is_ceiling: bool,
    /// What was measured.
    pub value: f64,
    /// Whether that is good enough.
    pub is_met: bool,
}

/// Against whom; then set 1×1 (p50, at most), and at least: set 50×1, set 50×16, get 50×1, get 50×16, mixed 50×1, lock 50×1.
const TABLE: [(Which, [f64; 7]); 3] = [
    (Which::Etcd, [0.33, 12.0, 20.0, 17.0, 60.0, 20.0, 13.0]),
    (Which::ZooKeeper, [0.5, 6.5, 13.0, 9.0, 25.0, 9.0, 7.0]),
    (Which::RedisAlways, [2.0, 0.8, 0.6, 0.87, 0.67, 1.2, 0.9]),
];

/// Every goal that these results can speak about.
#[must_use]
pub fn judge(results: &Results) -> Vec<Verdict> {
    let columns = [
        cell(SET, 1, 1),
        cell(SET, 50, 1),
        cell(SET, 50, 16),
        cell(GET, 50, 1),
        cell(GET, 50, 16),
        cell(MIXED, 50, 1),
        cell(Work::Lock, 50, 1),
    ];
    let mut verdicts = Vec::new();
    let mut add = |name: String, goal: f64, is_ceiling: bool, value: Option<f64>| {
        if let Some(value) = value {
            let is_met = if is_ceiling { value <= goal } else { value >= goal };
            verdicts.push(Verdict { name, goal, is_ceiling, value, is_met });
        }
    };
    let ours = Which::Warlock;
    for (peer, goals) in TABLE {
        for (place, (column, goal)) in columns.iter().zip(goals).enumerate() {
            let is_latency = place == 0;
            let pick = |sample: &Sample| if is_latency { sample.p50_us } else { sample.rate };
            let ratio = results.ratio((*column, ours), (*column, peer), pick);
            let measure = if is_latency { "p50" } else { "rate" };
            add(format!("{} {measure} vs {}", column.name(), peer.name()), goal, is_latency, ratio);
        }
    }
    add("set 1x1 p50 vs the floor".into(), 1.7, true, results.floors_of((columns[0], ours)));
    for (column, goal) in [(columns[1], 30.0), (columns[2], 6.0)] {
        let cpu = results.median(column, ours, |sample| sample.server_cpu_us);
        add(format!("{} server CPU, us per operation", column.name()), goal, true, cpu);
    }
    let large = Cell { value_bytes: 1_024, ..columns[1] };
    let cost = results.ratio((columns[1], ours), (large, ours), |sample| sample.rate);
    add("set 50x1 with 1 KiB, cost vs 16 B".into(), 1.3, true, cost);
    verdicts
}
