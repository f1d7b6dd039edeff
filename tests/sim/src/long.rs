//! The flat-memory run: three nodes, hardly any faults, millions of commands in large batches. What a node keeps must not grow.

use crate::rng::Rng;
use crate::swarm::{Faults, MS, SECOND, Swarm, Wire};
use crate::world::World;
use bytes::Bytes;
use consensus::{Config, Message, NodeId};
use std::time::{Duration, Instant};

/// Commands that one node submits at once.
const BATCH: u64 = 500;
/// Batches on their way per node.
const AHEAD: u64 = 8;
/// Nodes that submit.
const NODES: u64 = 3;
/// A reply is kept until its origin has seen it, so what may be on its way bounds the replies.
const REPLIES_MAX: u64 = NODES * BATCH * (AHEAD + 1);
/// How much the second half may exceed the first.
const GROWTH_PERCENT: u64 = 20;
/// Below this, growth is noise.
const NOISE: u64 = 64;

const REPLIES: &str = "replies in the ledger";

/// What the nodes keep, at most over all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    log: u64,
    accepted: u64,
    replies: u64,
    records: u64,
    rss_kib: u64,
}

impl Kept {
    fn max(self, other: Kept) -> Kept {
        Kept {
            log: self.log.max(other.log),
            accepted: self.accepted.max(other.accepted),
            replies: self.replies.max(other.replies),
            records: self.records.max(other.records),
            rss_kib: self.rss_kib.max(other.rss_kib),
        }
    }

    fn rows(&self) -> [(&'static str, u64); 5] {
        [
            ("decided values in the log", self.log),
            ("accepted values", self.accepted),
            (REPLIES, self.replies),
            ("journal records", self.records),
            ("resident memory in KiB", self.rss_kib),
        ]
    }
}

fn swarm() -> Swarm {
    let mut swarm = Swarm::draw(&mut Rng::new(1), None);
    let gentle =
        Wire { loss: 200, duplicate: 200, delay_min: 100, delay_max: 500, late: 200, late_max: 20 * MS };
    swarm.nodes = NODES;
    swarm.lease = Duration::from_secs(1);
    swarm.config = Config { log_keep: 256, ..Config::default() };
    swarm.wire = gentle;
    swarm.local = Wire { delay_min: 1, delay_max: 20, ..Wire::default() };
    swarm.faults = Faults::default();
    (swarm.sync_max, swarm.sync_slow, swarm.crash_after_sync) = (500, 0, 0);
    (swarm.snapshot_every, swarm.snapshot_time, swarm.apply_delay) = (512, 50 * MS, 0);
    swarm.clients = 0;
    swarm.check_time = true;
    swarm
}

/// Drives `commands` through three nodes and prints what they keep.
///
/// # Errors
/// When a law is broken, nothing moves, or the second half keeps clearly more than the first.
pub fn run(commands: u64) -> Result<(), String> {
    let begin = Instant::now();
    let mut world = World::new(1, Rng::new(1), swarm(), None);
    world.has_no_step_limit = true;
    let payload = Bytes::from_static(&[2; 19]);
    let (mut first_half, mut second_half) = (Kept::default(), Kept::default());
    let (mut submitted, mut shown, mut rounds) = (0, 0, 0_u64);
    let report_every = (commands / 10).max(1);
    loop {
        for id in (1..=NODES).map(NodeId) {
            submitted += submit(&mut world, id, &payload, commands - submitted);
        }
        world.run_until(world.now + MS);
        if let Some(complaint) = world.observer.verdict.complaint() {
            return Err(complaint.clone());
        }
        rounds += 1;
        let done = executed(&world);
        if rounds.is_multiple_of(64) {
            world.observer.forget_below(world.observer.acknowledged.slot().saturating_sub(600));
            let kept = keeps(&world);
            let half = if done < commands / 2 { &mut first_half } else { &mut second_half };
            *half = half.max(kept);
            if done >= shown + report_every {
                shown = done;
                println!("{done:>10} commands, {:>5.1} s: {:?}", begin.elapsed().as_secs_f64(), kept);
            }
        }
        if done >= commands {
            break;
        }
        if world.now > (commands / 1_000 + 600) * SECOND {
            return Err(format!("no progress: {done} of {commands} commands ran"));
        }
    }
    let mut grown = Vec::new();
    for ((what, first), (_, second)) in first_half.rows().into_iter().zip(second_half.rows()) {
        println!("{what:<28} at most {first:>8} in the first half, {second:>8} in the second");
        let bound = if what == REPLIES { REPLIES_MAX } else { first + first * GROWTH_PERCENT / 100 + NOISE };
        if second > bound {
            grown.push(what);
        }
    }
    println!("{commands} commands in {:.1} s", begin.elapsed().as_secs_f64());
    if grown.is_empty() { Ok(()) } else { Err(format!("memory: {} grew", grown.join(", "))) }
}

fn submit(world: &mut World, id: NodeId, payload: &Bytes, left: u64) -> u64 {
    let Some(process) = world.hosts.get_mut(&id).and_then(|host| host.process.as_mut()) else { return 0 };
    let count = BATCH.min(left);
    if process.is_booting || process.node.replica().pending_len() as u64 >= BATCH * AHEAD || count == 0 {
        return 0;
    }
    let first_seq = process.next_seq;
    process.next_seq += count;
    let payloads = (0..count).map(|_| payload.clone()).collect();
    world.mail(id, 0, Message::Submit { first_seq, payloads });
    count
}

fn executed(world: &World) -> u64 {
    let done = world.hosts.values().filter_map(|host| host.ready()).map(|process| {
        let below = process.ledger.executed_below(process.node.origin());
        below.saturating_sub(1)
    });
    done.sum()
}

fn keeps(world: &World) -> Kept {
    let mut kept = Kept { rss_kib: resident_kib(), ..Kept::default() };
    for host in world.hosts.values() {
        let Some(process) = host.ready() else { continue };
        kept = kept.max(Kept {
            log: process.node.replica().log_len() as u64,
            accepted: process.node.acceptor().accepted_len() as u64,
            replies: process.ledger.replies_kept() as u64,
            records: host.disk.records() as u64,
            rss_kib: 0,
        });
    }
    kept
}

/// This process's resident memory; 0 where the system does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse().ok()).unwrap_or(0)
}
