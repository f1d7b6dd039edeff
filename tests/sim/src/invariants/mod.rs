//! What must hold at every step. One file per law; each complaint begins with the law's id.
//!
//! The observer sees everything: what is said on the wire (once it leaves a node), what is applied, what clients are told. It never influences
//! a run.

pub mod acknowledged;
pub mod ballots;
pub mod bounds;
pub mod chosen;
pub mod freshness;
pub mod holds;
pub mod locks;
pub mod phase1;
pub mod promises;
pub mod silence;
pub mod time;
pub mod views;

use acknowledged::Acknowledged;
use ballots::Ballots;
use chosen::Chosen;
use consensus::message::P1b;
use consensus::{Config, Durable, Envelope, Message, NodeId, Slot, View};
use freshness::Freshness;
use holds::Holds;
use locks::Locks;
use phase1::Phase1;
use promises::Promises;
use silence::Silence;
use std::sync::Arc;
use time::ClusterTime;
use views::Views;

/// The first broken law of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Option<String>);

impl Verdict {
    /// A law is broken. Only the first complaint counts.
    pub fn fail(&mut self, complaint: impl FnOnce() -> String) {
        if self.0.is_none() {
            self.0 = Some(complaint());
        }
    }

    /// Complains unless `holds`.
    pub fn check(&mut self, holds: bool, complaint: impl FnOnce() -> String) {
        if !holds {
            self.fail(complaint);
        }
    }

    /// The complaint, if there is one.
    #[must_use]
    pub fn complaint(&self) -> Option<&String> {
        self.0.as_ref()
    }
}

/// All laws that span nodes.
#[derive(Debug)]
pub struct Observer {
    /// What was broken first.
    pub verdict: Verdict,
    /// A1, A3.
    pub promises: Promises,
    /// A4.
    pub silence: Silence,
    /// L2.
    pub ballots: Ballots,
    /// A2, C1, L1, R1.
    pub chosen: Chosen,
    /// L1.
    pub phase1: Phase1,
    /// V1.
    pub views: Views,
    /// E1.
    pub acknowledged: Acknowledged,
    /// E2, E3.
    pub time: ClusterTime,
    /// Reads miss nothing that was acknowledged before.
    pub freshness: Freshness,
    /// K1.
    pub locks: Locks,
    /// The laws of the machine that ships.
    pub holds: Holds,
}

impl Observer {
    /// An observer of a new cluster.
    #[must_use]
    pub fn new(first: &Arc<View>, config: &Config, check_time: bool, has_locks: bool) -> Observer {
        let rate = (1_000_000 + config.drift_ppm) * (1_000_000 + config.pull_ppm) / 1_000_000;
        let pace = check_time.then(|| (rate, time::slack_us(config)));
        Observer {
            verdict: Verdict::default(),
            promises: Promises::default(),
            silence: Silence::default(),
            ballots: Ballots::default(),
            chosen: Chosen::default(),
            phase1: Phase1::default(),
            views: Views::new(first),
            acknowledged: Acknowledged::new(first, has_locks),
            time: ClusterTime::new(config, check_time),
            freshness: Freshness::default(),
            locks: Locks::default(),
            holds: Holds::new(pace),
        }
    }

    /// A message leaves a node in its life `life`; `durable` is what its disk holds for certain.
    pub fn said(&mut self, now: u64, life: u64, envelope: &Envelope, durable: &Durable, snapshot: u64) {
        let verdict = &mut self.verdict;
        let node = envelope.from.node;
        match &envelope.message {
            Message::P1a { ballot, .. } => self.ballots.asked(node, life, *ballot, durable.round, verdict),
            Message::P1b(p1b) => {
                let P1b { ballot, promised, view, watermark, .. } = &**p1b;
                self.promises.said(node, *promised, verdict);
                self.promises.durable(node, *promised, durable.promise, verdict);
                if promised == ballot {
                    self.silence.promised(node, *ballot, now, verdict);
                }
                verdict.check(promised >= ballot, || format!("A1: {node} answered {ballot} with {promised}"));
                let held = durable.decided_through(snapshot);
                verdict.check(*watermark <= held, || {
                    format!("A1: {node} reports watermark {watermark}, but only {held} is durable there")
                });
                self.views.seen(view, verdict);
            }
            Message::P2a { pvalue, commit, .. } => {
                verdict.check(pvalue.ballot.leader == node, || {
                    format!("L1: {node} proposes in another leader's ballot {}", pvalue.ballot)
                });
                self.ballots.used(node, life, pvalue.ballot, verdict);
                self.chosen.proposed(pvalue, &mut self.views, verdict);
                self.chosen.announced(*commit, &mut self.views, verdict);
            }
            Message::Commit { commit } => self.chosen.announced(*commit, &mut self.views, verdict),
            Message::P2b { ballot, slot, promised, granted, .. } => {
                self.promises.said(node, *promised, verdict);
                if *granted {
                    self.silence.granted(node, *ballot);
                }
                if promised == ballot {
                    self.promises.accepted(node, *ballot, *slot, durable, snapshot, verdict);
                    self.chosen.voted(node, *ballot, *slot, &mut self.views, verdict);
                    if let Slot::Data(slot) = *slot
                        && self.chosen.starts_view(*ballot, Slot::Data(slot))
                    {
                        self.promises.started(node, *ballot, slot, durable, snapshot, verdict);
                    }
                }
            }
            Message::Heartbeat(heartbeat) => {
                self.ballots.used(node, life, heartbeat.ballot, verdict);
                self.views.seen(&heartbeat.view, verdict);
                self.chosen.announced(heartbeat.commit, &mut self.views, verdict);
            }
            Message::Release { ballot, .. } => {
                self.ballots.released(node, *ballot);
                self.silence.released(*ballot);
            }
            Message::HeartbeatAnswer { ballot, promised, granted, .. } => {
                self.promises.said(node, *promised, verdict);
                if *granted {
                    self.silence.granted(node, *ballot);
                }
                verdict.check(!granted || promised == ballot, || {
                    format!("M1: {node} grants {ballot} although it promised {promised}")
                });
            }
            Message::ViewIs(view) => self.views.seen(view, verdict),
            Message::Adopted(adopted) => self.phase1.adopted(adopted, verdict),
            _ => {}
        }
    }

    /// The newest chosen view that anybody spoke of.
    #[must_use]
    pub fn newest_view(&self) -> &Arc<View> {
        self.views.newest()
    }

    /// Where a slot's votes are counted, for a message.
    #[must_use]
    pub fn is_voter(&self, view: u64, node: NodeId) -> bool {
        self.views.get(view).is_some_and(|view| view.is_voter(node))
    }

    /// Forgets what lies far back, for long runs.
    pub fn forget_below(&mut self, slot: u64) {
        self.chosen.forget_below(Slot::Data(slot));
        self.acknowledged.forget_below(slot);
        self.time.forget_below(slot);
    }
}
