//! Faults, and the operators who change the cluster during them.

use crate::disk::Disk;
use crate::host::Fate;
use crate::network::{NODES_MAX, Parcel};
use crate::rng::Rng;
use crate::swarm::{Faults, MS, SECOND};
use crate::workload::Keys;
use crate::world::{Event, World};
use bytes::Bytes;
use consensus::planted::Bug;
use consensus::{Address, Change, Message, NodeId, Record, RoleId, ViewState};
use std::time::Duration;

/// Members that are added in one run, at most.
const ADDS_MAX: u64 = 12;

/// What the nemesis and the operators remember.
#[derive(Debug)]
pub struct Nemesis {
    /// How operations are spread over registers.
    pub keys: Keys,
    /// Lost members and the contact of the one that replaces each.
    replacing: Vec<(NodeId, Bytes)>,
    /// The node whose wall clock may be set forward.
    stepped: NodeId,
    /// The liveness phase has asked its last requests.
    pub asked_last: bool,
    tickets: u64,
    adds: u64,
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Split,
    OneWay,
    Bridge,
    Unheard,
    Clog,
    Crash,
    CrashMany,
    CrashAll,
    Pause,
    Stall,
    WallStep,
    Rate,
    Add,
    Remove,
    Replace,
    Lease,
    Transfer,
}

fn weights(faults: &Faults) -> [(Strike, u64); 17] {
    [
        (Strike::Split, faults.split),
        (Strike::OneWay, faults.one_way),
        (Strike::Bridge, faults.bridge),
        (Strike::Unheard, faults.unheard),
        (Strike::Clog, faults.clog),
        (Strike::Crash, faults.crash),
        (Strike::CrashMany, faults.crash_many),
        (Strike::CrashAll, faults.crash_all),
        (Strike::Pause, faults.pause),
        (Strike::Stall, faults.stall),
        (Strike::WallStep, faults.wall_step),
        (Strike::Rate, faults.rate),
        (Strike::Add, faults.add),
        (Strike::Remove, faults.remove),
        (Strike::Replace, faults.replace),
        (Strike::Lease, faults.lease),
        (Strike::Transfer, faults.transfer),
    ]
}

impl Nemesis {
    /// Draws what is drawn once per run.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Nemesis {
        let stepped = NodeId(rng.between(1, 3));
        Nemesis {
            keys: Keys::default(),
            replacing: Vec::new(),
            stepped,
            asked_last: false,
            tickets: 0,
            adds: 0,
        }
    }
}

impl World {
    /// The next fault, and when the one after it comes.
    pub(crate) fn strike(&mut self) {
        if self.healed_at.is_some() {
            return;
        }
        let next = self.rng.between(MS, 2 * self.swarm.fault_every);
        self.at(next, Event::Strike);
        let table = weights(&self.swarm.faults);
        let total: u64 = table.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return;
        }
        let mut drawn = self.rng.between(1, total);
        for (strike, weight) in table {
            if drawn <= weight {
                self.trace.note(self.now, || format!("nemesis: {strike:?}"));
                self.do_strike(strike);
                return;
            }
            drawn -= weight;
        }
    }

    fn do_strike(&mut self, strike: Strike) {
        match strike {
            Strike::Split | Strike::OneWay | Strike::Bridge | Strike::Unheard => self.cut(strike),
            Strike::Clog => {
                let links = (0..NODES_MAX).map(|_| self.rng.bits() & self.rng.bits()).collect();
                self.hold(links, true);
            }
            Strike::Crash => {
                let id = self.some_host();
                // Now and then long enough to be moved to down.
                let is_long = self.rng.chance(200_000);
                let delay =
                    if is_long { self.rng.between(3, 7) * SECOND } else { self.rng.skewed(MS, 3 * SECOND) };
                self.crash(id, Some(delay));
            }
            Strike::CrashMany | Strike::CrashAll => {
                let mask = if strike == Strike::CrashAll { u64::MAX } else { self.rng.mask() };
                let ids: Vec<NodeId> =
                    self.hosts.keys().filter(|id| mask >> id.0 & 1 == 1).copied().collect();
                for id in ids {
                    let delay = self.rng.skewed(MS, 3 * SECOND);
                    self.crash(id, Some(delay));
                }
            }
            Strike::Pause => {
                let (id, until) = (self.some_host(), self.until(5 * MS, 2_500 * MS));
                self.stats.pauses += 1;
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.paused_until = until;
                }
            }
            Strike::Stall => {
                let (id, until) = (self.some_host(), self.until(20 * MS, 2_500 * MS));
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.stalled_until = until;
                }
            }
            Strike::WallStep => self.step_wall(),
            Strike::Rate => {
                let (id, now) = (self.some_host(), self.now);
                let bound = self.config.drift_ppm;
                let rate = i64::try_from(self.rng.between(0, 2 * bound)).unwrap_or(0)
                    - i64::try_from(bound).unwrap_or(0);
                if let Some(host) = self.hosts.get_mut(&id) {
                    host.clock.change_rate(now, rate);
                }
                self.wake(id);
            }
            Strike::Add | Strike::Remove | Strike::Lease | Strike::Transfer => self.administrate(strike),
            Strike::Replace => self.lose_disk(),
        }
    }

    /// A clock that runs faster than before makes deadlines come earlier.
    fn wake(&mut self, id: NodeId) {
        if let Some(host) = self.hosts.get_mut(&id) {
            let life = host.life;
            if let Some(process) = host.process.as_mut() {
                process.timer = u64::MAX;
                self.at(0, Event::Timer(id, life));
            }
        }
    }

    fn until(&mut self, shortest: u64, longest: u64) -> u64 {
        let end = SECOND + self.swarm.safety;
        (self.now + self.rng.skewed(shortest, longest)).min(end.max(self.now))
    }

    /// A node that is up; often the master, whose faults matter most.
    fn some_host(&mut self) -> NodeId {
        if self.rng.chance(300_000)
            && let Some(master) = self.master()
        {
            return master;
        }
        let up: Vec<NodeId> = self.hosts.values().filter(|h| h.process.is_some()).map(|h| h.id).collect();
        self.rng.pick(&up).copied().unwrap_or(NodeId(1))
    }

    fn hold(&mut self, links: Vec<u64>, clogs: bool) {
        self.stats.cuts += 1;
        let number = self.network.hold(links, clogs);
        let delay = self.rng.skewed(10 * MS, 4 * SECOND);
        self.at(delay, Event::Undo(number));
    }

    /// A cut or a clog ends.
    pub(crate) fn undo(&mut self, number: u64) {
        let parcels = self.network.undo(number);
        self.let_go(parcels);
    }

    fn cut(&mut self, strike: Strike) {
        let side = self.rng.mask();
        let id = self.some_host().0;
        let links: Vec<u64> = (0..NODES_MAX as u64)
            .map(|from| match strike {
                Strike::Split => {
                    if side >> from & 1 == 1 {
                        !side
                    } else {
                        side
                    }
                }
                Strike::OneWay => {
                    if side >> from & 1 == 1 {
                        !side
                    } else {
                        0
                    }
                }
                Strike::Bridge if from == id => 0,
                Strike::Bridge => (if side >> from & 1 == 1 { !side } else { side }) & !(1 << id),
                _ => {
                    if from == id {
                        u64::MAX
                    } else {
                        0
                    }
                }
            })
            .collect();
        self.hold(links, false);
    }

    fn step_wall(&mut self) {
        let forward = self.rng.coin();
        let id = if forward && self.swarm.check_time { self.nemesis.stepped } else { self.some_host() };
        let by = i64::try_from(self.rng.skewed(1, 3_600_000)).unwrap_or(0);
        if let Some(host) = self.hosts.get_mut(&id) {
            host.clock.step_wall(if forward { by } else { -by });
        }
    }

    /// Somebody asks the node that it takes for the master.
    fn request(&mut self, message: impl FnOnce(u64) -> Message) {
        let askers: Vec<NodeId> =
            self.hosts.values().filter(|host| host.serves()).map(|host| host.id).collect();
        let Some(asker) = self.rng.pick(&askers).copied() else { return };
        let master = self.hosts.get(&asker).and_then(|host| host.ready()).and_then(|p| p.node.master());
        let to = match master {
            Some(master) if !self.rng.chance(50_000) => master,
            _ => self.some_host(),
        };
        self.nemesis.tickets += 1;
        let message = message(self.nemesis.tickets);
        self.trace.note(self.now, || format!("{asker} asks {to}: {message:?}"));
        let from = Address { node: asker, role: RoleId::Host };
        self.send(Parcel { from, to, role: RoleId::Leader, message });
    }

    fn administrate(&mut self, strike: Strike) {
        let view = self.observer.newest_view().clone();
        let members: Vec<NodeId> = view.members.keys().copied().collect();
        let some = self.rng.pick(&members).copied();
        let voters = view.voters().count();
        let change = match strike {
            Strike::Add if self.nemesis.adds < ADDS_MAX => {
                self.nemesis.adds += 1;
                let contact = Bytes::from(format!("added{}", self.nemesis.adds));
                Change::Add { contact, observer: self.rng.chance(200_000) }
            }
            Strike::Remove => {
                let least = if self.swarm.check_time || self.rng.chance(700_000) { 3 } else { 2 };
                let Some(id) = some.filter(|id| voters > least || !view.is_voter(*id)) else { return };
                if !self.nemesis.replacing.is_empty() && view.is_voter(id) {
                    return;
                }
                Change::Remove(id)
            }
            Strike::Lease => Change::Lease(Duration::from_millis(self.rng.between(150, 1_200))),
            Strike::Transfer => {
                let to = if self.rng.coin() { None } else { some };
                self.request(|ticket| Message::Transfer { to, ticket });
                return;
            }
            _ => return,
        };
        self.request(|ticket| Message::Reconfigure { change, ticket });
    }

    /// A member's disk is lost. It never comes back; operators replace it.
    fn lose_disk(&mut self) {
        let view = self.observer.newest_view().clone();
        let voters: Vec<NodeId> = view.voters().filter(|id| self.hosts.contains_key(id)).collect();
        let Some(id) = self.rng.pick(&voters).copied() else { return };
        let lost = self.hosts.values().filter(|h| h.fate == Fate::Wiped && view.is_voter(h.id)).count();
        if (lost + 1) * 2 >= view.voters().count() || self.nemesis.adds >= ADDS_MAX {
            return;
        }
        if self.hosts.get(&id).is_none_or(|host| host.fate != Fate::Fine) {
            return;
        }
        self.stats.wipes += 1;
        self.crash(id, None);
        let Some(host) = self.hosts.get_mut(&id) else { return };
        host.disk.wipe();
        host.older = None;
        self.trace.note(self.now, || format!("{id} loses its disk"));
        if self.config.has_bug(Bug::WipedNodeVotes) {
            let known = ViewState { current: view, established: true, previous: None };
            host.disk = Disk::with(vec![Record::View(known)]);
            self.at(50 * MS, Event::Start(id));
            return;
        }
        host.fate = Fate::Wiped;
        self.nemesis.adds += 1;
        let contact = Bytes::from(format!("added{}", self.nemesis.adds));
        self.nemesis.replacing.push((id, contact));
    }

    /// Operators replace lost members, one step at a time, for as long as it takes.
    pub(crate) fn operators(&mut self) {
        self.at(300 * MS, Event::Operators);
        let view = self.observer.newest_view().clone();
        let Some((lost, contact)) = self.nemesis.replacing.first().cloned() else { return };
        if !view.is_member(lost) {
            self.nemesis.replacing.remove(0);
            return;
        }
        let is_added = view.members.values().any(|member| member.contact == contact);
        let change = if is_added || self.rng.chance(200_000) {
            Change::Remove(lost)
        } else {
            Change::Add { contact, observer: false }
        };
        self.request(|ticket| Message::Reconfigure { change, ticket });
    }

    /// Whether no lost member waits for its replacement.
    pub(crate) fn nothing_to_replace(&self) -> bool {
        self.nemesis.replacing.is_empty()
    }

    /// What a role tells the host of a node.
    pub(crate) fn told(&mut self, id: NodeId, message: Message) {
        if let Message::AdminAnswer { ticket, result } = message {
            self.trace.note(self.now, || format!("{id} is told about {ticket}: {result:?}"));
        }
    }
}
