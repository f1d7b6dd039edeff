//! The results as tables.

use crate::compare::{Results, Sample, Series, median};
use crate::floor::Floor;
use crate::goals::Verdict;
use crate::systems::Which;
use std::fmt::Write;

/// Everything a person wants to read.
#[must_use]
pub fn text(results: &Results, verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    let floor = |pick: fn(&Floor) -> f64| median(results.floors.iter().map(pick)).unwrap_or(f64::NAN);
    let _ = writeln!(
        out,
        "floor: sync of an appended record {:.0} us (in a growing file {:.0} us) + loopback round trip {:.0} us = {:.0} us\n",
        floor(|floor| floor.sync_us),
        floor(|floor| floor.growing_sync_us),
        floor(|floor| floor.round_trip_us),
        floor(Floor::sum)
    );
    let _ = writeln!(
        out,
        "{:17} {:13} {:>9} {:>7} {:>8} {:>8} {:>9} {:>10} {:>10} {:>8}",
        "", "", "ops/s", "spread", "p50 us", "p99 us", "p99.9 us", "server us", "client us", "warlock"
    );
    let mut last = "";
    for series in &results.series {
        let of = |pick: fn(&Sample) -> f64| median(series.samples.iter().map(pick)).unwrap_or(f64::NAN);
        let peer = Which::ALL.into_iter().find(|which| which.name() == series.system);
        let ratio = peer.filter(|peer| *peer != Which::Warlock).and_then(|peer| {
            results.ratio((series.cell, Which::Warlock), (series.cell, peer), |sample| sample.rate)
        });
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:7.2}x"));
        let name = if last == series.name { "" } else { &series.name };
        last = &series.name;
        let _ = writeln!(
            out,
            "{name:17} {:13} {:9.0} {:6.0}% {:8.0} {:8.0} {:9.0} {:10.1} {:10.1} {ratio:>8}",
            series.system,
            of(|sample| sample.rate),
            spread(series) * 100.0,
            of(|sample| sample.p50_us),
            of(|sample| sample.p99_us),
            of(|sample| sample.p999_us),
            of(|sample| sample.server_cpu_us),
            of(|sample| sample.client_cpu_us),
        );
    }
    out += "\nresident memory, all processes:";
    for (name, bytes) in &results.resident {
        let _ = write!(out, "  {name} {} MiB", bytes >> 20);
    }
    out += "\n\n";
    for check in &results.client {
        let _ = writeln!(
            out,
            "client check, {} on redis-memory: ours {:.0}/s, redis-benchmark {:.0}/s ({:.2}x)",
            check.name,
            check.ours,
            check.redis_benchmark,
            check.ours / check.redis_benchmark
        );
    }
    out += "\ngoals\n";
    for Verdict { name, goal, is_ceiling, value, is_met } in verdicts {
        let sign = if *is_ceiling { "<=" } else { ">=" };
        let verdict = if *is_met { "met" } else { "MISSED" };
        let _ = writeln!(out, "  {name:40} {sign} {goal:5.2}  {value:7.2}  {verdict}");
    }
    let met = verdicts.iter().filter(|verdict| verdict.is_met).count();
    let _ = writeln!(out, "  {met} of {} met", verdicts.len());
    out
}

/// From the slowest to the fastest round, as a share of the middle one.
fn spread(series: &Series) -> f64 {
    let rates = || series.samples.iter().map(|sample| sample.rate);
    let (low, high) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    (high - low) / median(rates()).unwrap_or(f64::NAN)
}
