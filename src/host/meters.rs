//! What the core measures about itself, for operators: how long writes take, how long the disk takes, how large slots are.
//!
//! Only the node's thread touches it, so counting costs an addition.

use consensus::NodeId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Seconds, from a fast disk to a fail-over.
const SECONDS: &[f64] =
    &[0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Commands in a slot.
const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// How often values fell below each bound.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The upper bounds, in order; one more bucket holds the rest.
    pub bounds: &'static [f64],
    /// Values in each bucket.
    pub counts: Vec<u64>,
    /// Their sum.
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }
}

/// The measurements of one node's life.
#[derive(Debug)]
pub struct Meters {
    /// From a client's write to its answer, on this node.
    pub commit: Histogram,
    /// From handing a batch to the journal until it is durable.
    pub sync: Histogram,
    /// Commands in an applied slot.
    pub batch: Histogram,
    /// Commands that this node applied.
    pub applied_commands: u64,
    /// Commands and reads that were put into the node's mailbox.
    pub mailed: u64,
    /// Masters that this node saw come.
    pub master_changes: u64,
    master: Option<NodeId>,
    syncing: VecDeque<(u64, Instant)>,
}

impl Default for Meters {
    fn default() -> Self {
        Meters {
            commit: Histogram::new(SECONDS),
            sync: Histogram::new(SECONDS),
            batch: Histogram::new(SIZES),
            applied_commands: 0,
            mailed: 0,
            master_changes: 0,
            master: None,
            syncing: VecDeque::new(),
        }
    }
}

impl Meters {
    /// The journal has this batch.
    pub fn appended(&mut self, batch: u64) {
        self.syncing.push_back((batch, Instant::now()));
    }

    /// Everything up to this batch is durable since then.
    pub fn synced(&mut self, through: u64, at: Instant) {
        while let Some((_, since)) = self.syncing.front().filter(|(batch, _)| *batch <= through) {
            self.sync.observe(at.saturating_duration_since(*since).as_secs_f64());
            self.syncing.pop_front();
        }
    }

    /// Batches that the journal has and that are not durable yet.
    #[must_use]
    pub fn syncing_len(&self) -> usize {
        self.syncing.len()
    }

    /// The master that this node knows now.
    pub fn master_is(&mut self, master: Option<NodeId>) {
        if master.is_some() && master != self.master {
            self.master_changes += 1;
            self.master = master;
        }
    }

    /// A slot with this many commands was applied.
    pub fn applied(&mut self, commands: usize) {
        self.applied_commands += commands as u64;
        self.batch.observe(commands as f64);
    }

    /// A client's write was answered after this long.
    pub fn answered(&mut self, after: Duration) {
        self.commit.observe(after.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_bucket_that_is_not_below_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 7.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.counts, [2, 1, 1]);
        assert!((histogram.sum - 10.0).abs() < 1e-9);
    }

    #[test]
    fn one_completion_may_cover_several_batches() {
        let mut meters = Meters::default();
        (1..=3).for_each(|batch| meters.appended(batch));
        meters.synced(2, Instant::now());
        assert_eq!(meters.sync.counts.iter().sum::<u64>(), 2);
        meters.synced(3, Instant::now());
        assert_eq!(meters.sync.counts.iter().sum::<u64>(), 3);
    }
}
