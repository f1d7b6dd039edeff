//! Warlock beside its peers: every system is up, and each round visits every cell of the plan and in it every system, one after the other, so that
//! whatever else the machine does falls on all of them alike.

use crate::floor::{self, Floor};
use crate::load::{self, Count, Plan, Work};
use crate::progress::Progress;
use crate::systems::{System, Which};
use crate::wire::Protocol;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is measured at once: a work, a shape, a length of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// What the requests are.
    pub work: Work,
    /// How many connections.
    pub connections: usize,
    /// How many requests each sends at once.
    pub pipeline: usize,
    /// How long values are.
    pub value_bytes: usize,
}

impl Cell {
    /// For tables and JSON.
    #[must_use]
    pub fn name(&self) -> String {
        let work = match self.work {
            Work::Fill => "fill".to_string(),
            Work::Mix(0) => "set".to_string(),
            Work::Mix(100) => "get".to_string(),
            Work::Mix(80) => "mixed".to_string(),
            Work::Mix(reads) => format!("mix{reads}"),
            Work::Lock => "lock".to_string(),
            Work::Native => "native".to_string(),
        };
        let value = if self.value_bytes == 16 { String::new() } else { format!(" {} B", self.value_bytes) };
        format!("{work} {}x{}{value}", self.connections, self.pipeline)
    }

    /// Whether a system knows the work.
    fn is_for(&self, which: Which) -> bool {
        self.work != Work::Native || which == Which::Warlock
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often each cell is measured on each system.
    pub rounds: usize,
    /// How long each time.
    pub window: Duration,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Operations per second.
    pub rate: f64,
    /// Latency, median.
    pub p50_us: f64,
    /// Latency that one in a hundred exceeds.
    pub p99_us: f64,
    /// Latency that one in a thousand exceeds.
    pub p999_us: f64,
    /// Processor time per operation of all the system's processes.
    pub server_cpu_us: f64,
    /// Processor time per operation of this client.
    pub client_cpu_us: f64,
}

impl Sample {
    /// From what was counted.
    #[must_use]
    pub fn of(count: &Count) -> Sample {
        let per_operation = |time: Duration| time.as_secs_f64() * 1e6 / (count.operations.max(1) as f64);
        Sample {
            rate: count.rate(),
            p50_us: count.latency(0.5),
            p99_us: count.latency(0.99),
            p999_us: count.latency(0.999),
            server_cpu_us: per_operation(count.server_cpu),
            client_cpu_us: per_operation(count.client_cpu),
        }
    }
}

/// Every measurement of one cell on one system.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The cell.
    pub cell: Cell,
    /// Its name.
    pub name: String,
    /// The system's name.
    pub system: &'static str,
    /// By round.
    pub samples: Vec<Sample>,
}

/// Our client beside redis-benchmark, against the same Redis, in turn.
#[derive(Clone, Debug, Serialize)]
pub struct ClientCheck {
    /// The cell.
    pub name: String,
    /// Our client's rate.
    pub ours: f64,
    /// redis-benchmark's rate.
    pub redis_benchmark: f64,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The machine's limits, by round.
    pub floors: Vec<Floor>,
    /// The measurements.
    pub series: Vec<Series>,
    /// Resident bytes at the end, by system.
    pub resident: Vec<(&'static str, u64)>,
    /// Whether the client is fast enough to measure servers.
    pub client: Vec<ClientCheck>,
}

/// The middle value.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values.get(middle).copied(),
        _ => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
    }
}

impl Results {
    /// The middle of what `pick` takes from the samples of a cell on a system.
    #[must_use]
    pub fn median(&self, cell: Cell, which: Which, pick: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.samples((cell, which))?.iter().map(pick))
    }

    /// The middle of each round's ratio of what `pick` takes from the samples of two cells and systems: what disturbed a round disturbed both.
    #[must_use]
    pub fn ratio(
        &self,
        ours: (Cell, Which),
        theirs: (Cell, Which),
        pick: impl Fn(&Sample) -> f64,
    ) -> Option<f64> {
        let pairs = self.samples(ours)?.iter().zip(self.samples(theirs)?);
        median(pairs.map(|(ours, theirs)| pick(ours) / pick(theirs)))
    }

    /// The middle of each round's median latency, in floors of the same round.
    #[must_use]
    pub fn floors_of(&self, place: (Cell, Which)) -> Option<f64> {
        let pairs = self.samples(place)?.iter().zip(&self.floors);
        median(pairs.map(|(sample, floor)| sample.p50_us / floor.sum()))
    }

    fn samples(&self, (cell, which): (Cell, Which)) -> Option<&[Sample]> {
        let series = self.series.iter().find(|one| one.cell == cell && one.system == which.name())?;
        Some(&series.samples)
    }
}

/// What is measured: everything, or only what goals speak about, or only what is named.
///
/// # Errors
/// When a name is none.
pub fn cells(is_quick: bool, names: &[String]) -> Result<Vec<Cell>, String> {
    if names.is_empty() {
        return Ok(all_cells(is_quick));
    }
    let all = all_cells(false);
    let find = |name: &String| {
        let cell = all.iter().find(|cell| cell.name() == *name).copied();
        let known = || all.iter().map(Cell::name).collect::<Vec<_>>().join(", ");
        cell.ok_or_else(|| format!("there is no cell {name}; there are {}", known()))
    };
    names.iter().map(find).collect()
}

fn all_cells(is_quick: bool) -> Vec<Cell> {
    let works = [Work::Mix(0), Work::Mix(100), Work::Mix(80), Work::Lock, Work::Native];
    let shapes = [(1, 1), (50, 1), (50, 16)];
    let mut cells = Vec::new();
    for value_bytes in [16, 1_024] {
        for work in works {
            for (connections, pipeline) in shapes {
                let cell = Cell { work, connections, pipeline, value_bytes };
                let is_large = value_bytes > 16;
                if is_large && matches!(work, Work::Lock | Work::Native) {
                    continue; // a lock has no value
                }
                let is_small_work = matches!(work, Work::Mix(80) | Work::Lock | Work::Native);
                let has_goal = match (connections, pipeline) {
                    (1, 1) => work == Work::Mix(0) && !is_large,
                    (50, 1) => !is_large || work == Work::Mix(0),
                    _ => !is_large && !is_small_work,
                };
                if !is_quick || has_goal {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

const KEYS: u64 = 10_000;

fn plan(cell: Cell, window: Duration) -> Plan {
    let Cell { work, connections, pipeline, value_bytes } = cell;
    let warm_up = window.mul_f64(0.2).min(Duration::from_millis(250));
    Plan { work, connections, pipeline, value_bytes, keys: KEYS, warm_up, window }
}

/// Runs all of it.
///
/// # Errors
/// When a system does not start or fails under load.
pub fn run(
    directory: &Path,
    binary: &Path,
    (systems, cells): (&[Which], &[Cell]),
    effort: Effort,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Results> {
    let visits = |cell: &Cell| systems.iter().filter(|which| cell.is_for(**which)).count();
    let steps = cells.iter().map(visits).sum::<usize>() * effort.rounds + effort.rounds;
    let mut progress = Progress::new(1 + systems.len() + steps);
    let mut running: Vec<(Which, System)> = Vec::new();
    for which in systems {
        progress.step(&format!("starting {}", which.name()));
        let system = which.start(directory, binary)?;
        for value_bytes in
            cells.iter().map(|cell| cell.value_bytes).collect::<std::collections::BTreeSet<_>>()
        {
            let fill = Cell { work: Work::Fill, connections: 20, pipeline: 16, value_bytes };
            load::drive(system.protocol, system.address, &plan(fill, effort.window), &system.usage, stopped)
                .map_err(|error| named(error, *which, &fill))?;
        }
        running.push((*which, system));
    }
    progress.step("waiting until all are idle");
    let until = Instant::now() + SETTLE;
    for (_, system) in &running {
        settle(system, until, stopped);
    }
    let mut series: Vec<Series> = Vec::new();
    for cell in cells {
        for which in systems.iter().filter(|which| cell.is_for(**which)) {
            series.push(Series { cell: *cell, name: cell.name(), system: which.name(), samples: Vec::new() });
        }
    }
    let mut floors = Vec::new();
    for _ in 0..effort.rounds {
        progress.step("the floor");
        floors.push(floor::measure(directory)?);
        let mut place = 0;
        for cell in cells {
            for (which, system) in running.iter().filter(|(which, _)| cell.is_for(*which)) {
                progress.step(&format!("{} {}", which.name(), cell.name()));
                let plan = plan(*cell, effort.window);
                let protocol = if cell.work == Work::Native { Protocol::Locks } else { system.protocol };
                let count = load::drive(protocol, system.address, &plan, &system.usage, stopped)
                    .map_err(|error| named(error, *which, cell))?;
                series[place].samples.push(Sample::of(&count));
                place += 1;
            }
        }
    }
    let client = match running.iter().find(|(which, _)| *which == Which::RedisMemory) {
        Some((_, redis)) => check_client(redis, effort, stopped)?,
        None => Vec::new(),
    };
    progress.finish();
    let resident = running.iter().map(|(which, system)| (which.name(), system.usage.resident())).collect();
    Ok(Results { floors, series, resident, client })
}

/// How long systems may take to come to rest after their start.
pub const SETTLE: Duration = Duration::from_secs(15);

/// Waits until a system has done what it does after a start (compiling, preparing files): less than 2 % of a core, or it is `until`.
pub fn settle(system: &System, until: Instant, stopped: &dyn Fn() -> bool) {
    const LOOK: Duration = Duration::from_millis(250);
    while Instant::now() < until && !stopped() {
        let before = system.usage.cpu();
        std::thread::sleep(LOOK);
        if system.usage.cpu().saturating_sub(before) < LOOK / 50 {
            return;
        }
    }
}

fn named(error: io::Error, which: Which, cell: &Cell) -> io::Error {
    io::Error::new(error.kind(), format!("{} on {}: {error}", cell.name(), which.name()))
}

/// Three rounds each, in turn, of the fastest server there is: if our client keeps up with redis-benchmark there, it holds nobody back.
fn check_client(redis: &System, effort: Effort, stopped: &dyn Fn() -> bool) -> io::Result<Vec<ClientCheck>> {
    let mut checks = Vec::new();
    for pipeline in [1, 16] {
        let cell = Cell { work: Work::Mix(100), connections: 50, pipeline, value_bytes: 16 };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut requests = 20_000.0;
        for _ in 0..3 {
            let plan = plan(cell, effort.window);
            let count = load::drive(redis.protocol, redis.address, &plan, &redis.usage, stopped)?;
            ours.push(count.rate());
            requests = f64::max(requests, count.rate() * effort.window.as_secs_f64());
            theirs.extend(redis_benchmark(redis, pipeline, requests as u64));
        }
        if let (Some(ours), Some(redis_benchmark)) = (median(ours), median(theirs)) {
            checks.push(ClientCheck { name: cell.name(), ours, redis_benchmark });
        }
    }
    Ok(checks)
}

fn redis_benchmark(redis: &System, pipeline: usize, requests: u64) -> Option<f64> {
    let mut command = std::process::Command::new("redis-benchmark");
    command.args(["-p", &redis.address.port().to_string(), "-c", "50", "-d", "16", "-r", "10000", "--csv"]);
    command.args(["-P", &pipeline.to_string(), "-n", &requests.to_string()]);
    command.args(["get", "k16:__rand_int__"]);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "get k16:__rand_int__","98765.43",...
    text.lines().last()?.split("\",\"").nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_plan_has_every_cell_that_a_goal_speaks_about() {
        let names: Vec<String> = all_cells(true).iter().map(Cell::name).collect();
        let wanted = [
            "set 1x1",
            "set 50x1",
            "set 50x16",
            "get 50x1",
            "get 50x16",
            "mixed 50x1",
            "lock 50x1",
            "native 50x1",
            "set 50x1 1024 B",
        ];
        assert_eq!(names, wanted);
        assert_eq!(all_cells(false).len(), 24);
        assert!(cells(false, &["set 7x7".to_string()]).is_err());
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let cell = all_cells(true)[0];
        let of = |system, rates: [f64; 3]| {
            let sample = |rate| Sample {
                rate,
                p50_us: 10.0 * rate,
                p99_us: 0.0,
                p999_us: 0.0,
                server_cpu_us: 0.0,
                client_cpu_us: 0.0,
            };
            Series { cell, name: cell.name(), system, samples: rates.map(sample).to_vec() }
        };
        let floor = |sync_us| Floor { sync_us, growing_sync_us: 0.0, round_trip_us: 1.0 };
        let results = Results {
            floors: [4.0, 49.0, 0.0].map(floor).to_vec(),
            series: vec![
                of(Which::Warlock.name(), [1.0, 10.0, 2.0]),
                of(Which::RedisAlways.name(), [2.0, 20.0, 40.0]),
            ],
            resident: Vec::new(),
            client: Vec::new(),
        };
        let (ours, theirs) = ((cell, Which::Warlock), (cell, Which::RedisAlways));
        assert_eq!(results.ratio(ours, theirs, |sample| sample.rate), Some(0.5));
        assert_eq!(results.floors_of(ours), Some(2.0));
        assert_eq!(results.ratio(ours, (cell, Which::Etcd), |sample| sample.rate), None);
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
