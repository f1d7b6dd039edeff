//! One run: the safety phase with every fault, healing, and the liveness phase.

use crate::host::Fate;
use crate::rng::Rng;
use crate::stats::Stats;
use crate::swarm::{MS, SECOND, Swarm, Wire};
use crate::trace::Tail;
use crate::wgl;
use crate::world::{Event, World};
use consensus::planted::Bug;
use consensus::{Condition, NodeId};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// The law that was broken, if any.
    pub violation: Option<String>,
    /// The hash of everything that happened.
    pub hash: u64,
    /// What was exercised.
    pub stats: Stats,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static CATCHING: RefCell<bool> = const { RefCell::new(false) };
}

/// Panics of the engine inside a run are caught and become its violation; others are printed as usual.
pub fn install_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if CATCHING.with(|catching| *catching.borrow()) {
            let place = info.location().map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let what =
                text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
            PANIC.with(|panic| *panic.borrow_mut() = Some(format!("{what}{place}")));
        } else {
            before(info);
        }
    }));
}

/// What a run is about, besides its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Clients take locks of the machine that ships instead of writing registers.
    pub has_locks: bool,
    /// A rule of the engine to drop.
    pub bug: Option<Bug>,
    /// A rule of locks to drop.
    pub lock_bug: Option<storage::planted::Bug>,
}

impl Plan {
    /// The same without a bug.
    #[must_use]
    pub fn sound(self) -> Plan {
        Plan { bug: None, lock_bug: None, ..self }
    }
}

/// Runs one seed of the registers' workload. With `tail`, events are written there.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>, tail: Option<Tail>) -> Report {
    run_plan(seed, Plan { bug, ..Plan::default() }, tail)
}

/// Runs one seed.
#[must_use]
pub fn run_plan(seed: u64, plan: Plan, tail: Option<Tail>) -> Report {
    CATCHING.with(|catching| *catching.borrow_mut() = true);
    storage::planted::plant(plan.lock_bug);
    let result = catch_unwind(AssertUnwindSafe(|| run_unguarded(seed, plan, tail)));
    storage::planted::plant(None);
    CATCHING.with(|catching| *catching.borrow_mut() = false);
    result.unwrap_or_else(|_| {
        let what = PANIC.with(|panic| panic.borrow_mut().take());
        let violation = Some(format!("panic: {}", what.unwrap_or_else(|| "unknown".to_string())));
        Report { seed, violation, hash: 0, stats: Stats { runs: 1, ..Stats::default() } }
    })
}

/// Runs seeds from 0 on, on all processors, until one notices the bug of `plan`: how many were needed, and the law that broke.
#[must_use]
pub fn first_catch(plan: Plan, seeds_max: u64) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let best: Mutex<Option<(u64, String)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let known = best.lock().ok().and_then(|best| best.as_ref().map(|(seed, _)| *seed));
                    if seed >= seeds_max || known.is_some_and(|known| known < seed) {
                        return;
                    }
                    let Some(violation) = run_plan(seed, plan, None).violation else { continue };
                    if run_plan(seed, plan.sound(), None).violation.is_some() {
                        continue; // not this bug's doing
                    }
                    if let Ok(mut best) = best.lock()
                        && best.as_ref().is_none_or(|(known, _)| seed < *known)
                    {
                        *best = Some((seed, violation));
                    }
                }
            });
        }
    });
    best.into_inner().ok().flatten().map(|(seed, violation)| (seed + 1, violation))
}

fn run_unguarded(seed: u64, plan: Plan, tail: Option<Tail>) -> Report {
    let mut rng = Rng::new(seed);
    let mut swarm = Swarm::draw(&mut rng, plan.bug);
    swarm.has_locks = plan.has_locks;
    let safety_end = SECOND + swarm.safety;
    let mut world = World::new(seed, rng, swarm, tail);
    world.trace.note(0, || format!("{:?}", world.swarm));
    world.run_until(safety_end);
    if world.observer.verdict.complaint().is_none() {
        world.heal();
        let bound = world.liveness_bound();
        world.run_until(safety_end + bound);
        world.check_settled(bound);
    }
    world.check_history();
    world.finish(seed)
}

impl World {
    /// Everything works again: links, disks, clocks; and everybody who can comes back.
    fn heal(&mut self) {
        self.healed_at = Some(self.now);
        self.trace.note(self.now, || "everything is healed".to_string());
        let delay_max = self.swarm.wire.delay_max.min(10 * MS);
        self.swarm.wire = Wire { delay_min: 10, delay_max, ..Wire::default() };
        self.swarm.local = Wire { delay_min: 1, delay_max: 100, ..Wire::default() };
        self.swarm.sync_slow = 0;
        self.swarm.sync_max = self.swarm.sync_max.min(5 * MS);
        let parcels = self.network.heal();
        self.let_go(parcels);
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            // Setting everybody's wall clock would be a step on a majority, which E3 does not promise to survive.
            if let Some(host) = self.hosts.get_mut(&id).filter(|_| !self.swarm.check_time) {
                host.clock.set_wall(self.now, 0);
            }
            self.at(0, Event::Start(id));
        }
        self.at(200 * MS, Event::Look);
    }

    /// How long the cluster may take to do everything that is asked of it.
    fn liveness_bound(&self) -> u64 {
        let lease = self.observer.newest_view().lease.max(self.swarm.lease);
        let of = |duration: std::time::Duration| u64::try_from(duration.as_micros()).unwrap_or(0);
        15 * of(lease) + 4 * of(self.config.backoff_max) + 2 * of(self.config.catch_up_max) + 10 * SECOND
    }

    /// Whether the newest view, and the one before it, can still find their majorities.
    fn has_quorum(&self) -> bool {
        let alive: BTreeSet<NodeId> =
            self.hosts.values().filter(|host| host.fate != Fate::Wiped).map(|host| host.id).collect();
        let newest = self.observer.newest_view();
        let before = self.observer.views.get(newest.number.saturating_sub(1));
        newest.is_majority(&alive) && before.is_none_or(|view| view.is_majority(&alive))
    }

    /// The liveness phase looks around.
    pub(crate) fn look(&mut self) {
        if self.nemesis_last_requests() {
            self.last_requests();
        }
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in ids {
            let view =
                self.hosts.get(&id).and_then(|host| host.ready()).map(|p| p.node.replica().view().clone());
            let Some(view) = view else { continue };
            for member in view
                .current
                .members
                .keys()
                .filter(|m| !self.hosts.contains_key(m))
                .copied()
                .collect::<Vec<_>>()
            {
                self.add_host(member, view.clone());
            }
        }
        self.is_settled = self.unsettled().is_none();
        self.at(50 * MS, Event::Look);
    }

    /// True once: when a master is there for the first time after healing.
    fn nemesis_last_requests(&mut self) -> bool {
        let is_first = !self.nemesis.asked_last && self.master().is_some();
        self.nemesis.asked_last |= is_first;
        is_first
    }

    /// The node that holds the master lease now.
    pub(crate) fn master(&self) -> Option<NodeId> {
        let leads = |host: &&crate::host::Host| {
            let now = host.clock.read(self.now);
            host.ready().is_some_and(|process| process.node.leader().is_master(now))
        };
        self.hosts.values().find(leads).map(|host| host.id)
    }

    /// What the liveness phase still waits for.
    fn unsettled(&self) -> Option<String> {
        let Some(master) = self.master() else { return Some("there is no master".to_string()) };
        if !self.nemesis.asked_last {
            return Some("nothing was asked yet".to_string());
        }
        if !self.all_answered() {
            return Some(format!("clients wait: {}", self.who_waits()));
        }
        if !self.nothing_to_replace() {
            return Some("a lost member is not replaced".to_string());
        }
        let view = self.observer.newest_view();
        for (id, member) in &view.members {
            if !matches!(member.condition, Condition::Valid | Condition::Observer) {
                return Some(format!("{id} is still {:?} in view {}", member.condition, view.number));
            }
            let Some(process) = self.hosts.get(id).and_then(|host| host.ready()) else {
                return Some(format!("{id} does not run"));
            };
            let known = process.node.replica().view().current.number;
            if known != view.number {
                return Some(format!("{id} knows view {known}, not {}", view.number));
            }
            let (applied, foremost) = (process.ledger.applied(), self.observer.acknowledged.slot());
            if applied != foremost {
                return Some(format!("{id} has applied {applied} of {foremost} (the master is {master})"));
            }
        }
        None
    }

    fn check_settled(&mut self, bound: u64) {
        if self.observer.verdict.complaint().is_some() {
            return;
        }
        if !self.is_settled && !self.has_quorum() {
            self.stats.quorum_lost += 1;
            return;
        }
        if let Some(what) = self.unsettled() {
            let roles = self.describe();
            self.observer
                .verdict
                .fail(|| format!("no progress: {} ms after healing, {what}\n{roles}", bound / MS));
        }
        let view = self.observer.newest_view().clone();
        for id in view.members.keys() {
            let Some(process) = self.hosts.get(id).and_then(|host| host.ready()) else { continue };
            let verdict = &mut self.observer.verdict;
            self.observer.acknowledged.compare(*id, &process.ledger, &process.machine, verdict);
        }
    }

    fn describe(&self) -> String {
        let lines = self.hosts.values().map(|host| {
            let Some(process) = &host.process else { return format!("  {} {:?}, down", host.id, host.fate) };
            let (leader, replica) = (process.node.leader(), process.node.replica());
            format!(
                "  {} {} {} · promised {} · applied {} decided {} durable {} · log {} pending {} · master {:?} · view {} {} · leader's view {} {} · reads {} · at work {:?}",
                host.id,
                leader.state_name(),
                leader.ballot(),
                process.node.acceptor().promised(),
                process.ledger.applied(),
                replica.decided(),
                replica.durable(),
                replica.log_len(),
                replica.pending_len(),
                replica.master(),
                replica.view().current.number,
                if replica.view().established { "established" } else { "not established" },
                leader.view().current.number,
                if leader.view().established { "established" } else { "not established" },
                process.node.can_lease_read(host.clock.read(self.now)),
                process.node.at_work(),
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn check_history(&mut self) {
        if self.observer.verdict.complaint().is_some() {
            return;
        }
        let ran = &self.observer.acknowledged;
        let checked =
            wgl::check(self.history.all(), |operation| operation.id.is_none_or(|id| !ran.has_run(id)));
        self.stats.orders_given_up += checked.given_up;
        if let Some((key, operations)) = checked.broken {
            let lines: Vec<String> = operations
                .iter()
                .map(|o| {
                    let returned =
                        if o.returned == u64::MAX { "-".to_string() } else { o.returned.to_string() };
                    format!(
                        "  {:>5} .. {returned:>5}  client {} {:?} {:?}",
                        o.invoked, o.client, o.request, o.state
                    )
                })
                .collect();
            self.observer
                .verdict
                .fail(|| format!("linearizability: no order explains register {key}:\n{}", lines.join("\n")));
        }
    }

    fn finish(mut self, seed: u64) -> Report {
        let kinds = self.observer.views.kinds(&mut self.observer.verdict);
        for kind in kinds {
            self.stats.count(kind);
        }
        self.stats.events = self.steps();
        self.stats.virtual_seconds = self.now / SECOND;
        self.stats.decided = self.observer.chosen.slots();
        (_, self.stats.waits_ended, self.stats.sessions_ended) = self.observer.holds.seen;
        self.stats.nothing_decided = u64::from(self.stats.writes == 0);
        let violation = self.observer.verdict.complaint().cloned();
        Report { seed, violation, hash: self.trace.hash(), stats: self.stats }
    }
}
