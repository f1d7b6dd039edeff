//! A follower's way to the disk: what it says when, and who has to be woken for it. A real journal and a real socket to the master.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::backend::MachineBackend;
use super::core::Core;
use super::log::Log;
use super::outbox::Outbox;
use crate::codec::{self, Letter};
use bytes::{Bytes, BytesMut};
use consensus::message::Heartbeat;
use consensus::{
    Address, Ballot, Body, Command, CommandId, Config, Durable, Ledger, Message, Node, NodeId, Now, Origin,
    PValue, RoleId, Slot, Standing, Time, Value, View, ViewState, Watermark,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use storage::journal::{Journal, Options};
use storage::machine::Machine;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

const MASTER: NodeId = NodeId(1);
const ME: NodeId = NodeId(2);
const BALLOT: Ballot = Ballot { view: 1, round: 1, leader: MASTER };
/// What is not in a hurry waits so long at most.
const PATIENCE: Duration = Duration::from_millis(5);

/// Held by a test whose disk hangs. The others wait for it, too: it is the same for all.
static DISK: Mutex<()> = Mutex::new(());

fn wait_for_the_disk() -> Duration {
    drop(DISK.lock().unwrap_or_else(PoisonError::into_inner));
    Duration::ZERO
}

fn at(millis: u64) -> Now {
    Now { at: Time(1_000 * millis), wall_ms: 1_000_000 + millis }
}

/// Node 2 of three, and the master's end of its link.
struct Follower {
    core: Core<MachineBackend>,
    master: TcpStream,
    input: BytesMut,
    wakes: Arc<AtomicUsize>,
    _link: TcpStream,
    _dir: tempfile::TempDir,
}

impl Follower {
    async fn start() -> Follower {
        let dir = tempfile::tempdir().unwrap();
        let wakes = Arc::new(AtomicUsize::new(0));
        let wake = {
            let wakes = wakes.clone();
            move || {
                wakes.fetch_add(1, Ordering::SeqCst);
            }
        };
        let options = Options {
            create: true,
            segment_bytes: 1 << 20,
            delay: wait_for_the_disk,
            ..Options::new(dir.path().join("journal"), [7; 16])
        };
        let journal = Journal::open(options, |_| Ok(()), wake).unwrap();
        let members = (1..=3).map(|id| (NodeId(id), Bytes::new()));
        let view = View::first(members, Duration::from_secs(1));
        let durable = Durable { view: Some(ViewState::first(view.clone())), ..Durable::default() };
        let config = Arc::new(Config::default());
        let recovered = Node::recover(ME, &config, durable.clone(), Standing::default(), 1, at(0));
        let parts = (Ledger::new(Arc::new(view)), MachineBackend::new(Machine::in_memory()));
        let mut core = Core::new(recovered, parts, config, Log::Disk(journal), durable).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let master = listener.accept().await.unwrap().0;
        let outbox = Rc::new(Outbox::default());
        outbox.shortcut.open(&link).unwrap();
        core.connect(BTreeMap::from([(MASTER, outbox)]));
        let mut follower = Follower { core, master, input: BytesMut::new(), wakes, _link: link, _dir: dir };
        // The ballot is promised and a lease is granted, so that answers are about values only.
        follower.beat(0, at(0));
        follower.propose(1, 0, false, at(1));
        assert_eq!(follower.answer().await, 1);
        follower
    }

    fn tell(&mut self, role: RoleId, message: Message, now: Now) {
        let from = Address { node: MASTER, role: RoleId::Leader };
        self.core.deliver(vec![Letter { from, role, message }]);
        drop(self.core.turn(now).unwrap());
    }

    fn propose(&mut self, slot: u64, decided: u64, may_wait: bool, now: Now) {
        let origin = Origin { node: MASTER, incarnation: 1 };
        let command = Command {
            id: CommandId { origin, seq: slot },
            low: slot,
            payload: Bytes::from_static(b"nonsense"),
        };
        let value = Value { made_in: BALLOT, stamp_ms: slot, body: Body::Commands(vec![command]) };
        let message = Message::P2a {
            pvalue: PValue { slot: Slot::Data(slot), ballot: BALLOT, value: Arc::new(value) },
            commit: Watermark { ballot: BALLOT, slot: decided },
            sent_at: now.at,
            lease: Duration::from_secs(1),
            may_wait: if may_wait { [ME].into() } else { Arc::default() },
        };
        self.tell(RoleId::Acceptor, message, now);
    }

    fn beat(&mut self, decided: u64, now: Now) {
        let heartbeat = Heartbeat {
            ballot: BALLOT,
            seq: now.at.0,
            sent_at: now.at,
            commit: Watermark { ballot: BALLOT, slot: decided },
            view: self.core.node.leader().view().clone(),
            cluster_ms: 1,
            echo: None,
            read_index: 0,
        };
        self.tell(RoleId::Acceptor, Message::Heartbeat(Box::new(heartbeat)), now);
    }

    /// The slot of the next answer that reaches the master.
    async fn answer(&mut self) -> u64 {
        loop {
            if let Some(letter) = codec::take_frame(&mut self.input).unwrap() {
                match letter.message {
                    Message::P2b { slot: Slot::Data(slot), .. } => return slot,
                    other => panic!("not an answer to a proposal: {other:?}"),
                }
            }
            let more =
                tokio::time::timeout(Duration::from_secs(20), self.master.read_buf(&mut self.input)).await;
            assert!(more.expect("an answer comes").unwrap() > 0, "the link is closed");
        }
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn what_is_decided_is_applied_while_the_disk_is_busy_and_nobody_is_woken_for_the_answer() {
    let mut follower = Follower::start().await;
    let before = follower.wakes();
    for slot in 2..20 {
        follower.propose(slot, slot - 1, false, at(slot));
        assert_eq!(follower.core.ledger.applied(), slot - 1, "applied in the turn that heard of it");
        assert_eq!(follower.answer().await, slot, "without another turn");
    }
    assert_eq!(follower.wakes(), before, "the journal's thread sends the answers itself");
}

#[tokio::test]
async fn what_may_wait_goes_to_the_disk_together_and_soon() {
    let mut follower = Follower::start().await;
    for slot in 2..5 {
        follower.propose(slot, slot - 1, true, at(slot));
        assert_eq!(
            follower.core.durability.deadline(),
            Some(at(2).at.plus(PATIENCE)),
            "from the first of them on"
        );
        assert_eq!(follower.core.ledger.applied(), slot - 1);
    }
    let files = follower.core.journal_bytes();
    drop(follower.core.turn(at(6)).unwrap());
    assert_eq!(follower.core.journal_bytes(), files, "not yet");
    drop(follower.core.turn(at(7)).unwrap());
    for slot in 2..5 {
        assert_eq!(follower.answer().await, slot);
    }
    assert_ne!(follower.core.durability.deadline(), Some(at(2).at.plus(PATIENCE)));
}

#[tokio::test]
async fn what_may_wait_leaves_with_what_may_not() {
    let mut follower = Follower::start().await;
    follower.propose(2, 1, true, at(2));
    follower.propose(3, 2, false, at(3));
    assert_eq!([follower.answer().await, follower.answer().await], [2, 3]);
}

#[tokio::test]
async fn who_says_something_that_counts_on_it_does_not_wait() {
    let mut follower = Follower::start().await;
    follower.propose(2, 1, true, at(2));
    // The same proposal again, for everybody: its answer waits for the record that is not in the journal yet.
    follower.propose(2, 1, false, at(3));
    assert_eq!(follower.answer().await, 2);
}

#[tokio::test]
async fn a_heartbeat_is_answered_while_something_may_wait() {
    let mut follower = Follower::start().await;
    follower.propose(2, 1, true, at(2));
    follower.beat(1, at(3));
    assert_eq!(follower.core.durability.deadline(), Some(at(2).at.plus(PATIENCE)), "and that waits on");
}

#[tokio::test]
async fn what_waits_for_a_disk_that_hangs_is_bounded() {
    let mut follower = Follower::start().await;
    follower.core.durability.backlog_bytes_max = 10_000;
    let disk = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    for slot in 2..1_000 {
        follower.propose(slot, slot - 1, false, at(slot));
    }
    assert!(follower.core.falls_behind());
    let taken = follower.core.ledger.applied();
    assert!((50..500).contains(&taken), "{taken} slots were taken");
    assert!(follower.core.disk_silent_for() > Duration::ZERO);
    drop(disk);
    for slot in 2..=taken {
        assert_eq!(follower.answer().await, slot, "what was taken is answered");
    }
    // Without a turn: who asks sees that the disk has answered, which the journal's thread tells right behind the answers.
    let asked = std::time::Instant::now();
    while follower.core.disk_silent_for() > Duration::ZERO {
        assert!(asked.elapsed() < Duration::from_secs(20), "the disk has answered");
        std::thread::yield_now();
    }
}
