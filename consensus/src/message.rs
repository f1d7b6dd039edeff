//! Everything roles say to each other, and who says it. One sentence per field.
//!
//! | message | from → to | durable first | answer |
//! | --- | --- | --- | --- |
//! | `Probe` | leader → acceptors | | `ProbeAnswer` |
//! | `P1a` | scout → acceptors | the ballot (L2) | `P1b`, `Refused` |
//! | `P1b` | acceptor → scout | the promise (A1), the view of the ballot (A6) | |
//! | `P2a` | commander → acceptors | | `P2b` |
//! | `P2b` | acceptor → commander | the accepted value (A2), the view of the ballot (A6), the longest lease (A4) | |
//! | `Commit` | leader → acceptors | | |
//! | `Heartbeat` | leader → acceptors | | `HeartbeatAnswer` |
//! | `HeartbeatAnswer` | acceptor → leader | a raised promise, the view of the ballot (A6), the longest lease (A4) | |
//! | `Release` | leader → acceptors, successor's leader | | |
//! | `Request` | replica → master's leader | the incarnation | a decision, `OutOfOrder` |
//! | `ReadIndex` | replica → master's leader | | `ReadIndexAt` |
//! | `Progress` | replica → master's leader | | |
//! | `Fetch` | replica → replica | | `Log`, `SnapshotChunk` |
//! | `SnapshotFetch` | replica → replica | | `SnapshotChunk` |
//! | `ViewIs` | acceptor → the replica of a node that is behind; leader → the replica of a member that left; any role → its siblings | the view, by who told a sibling | |
//! | `MayIStop` | a removed node's replica → leaders | | `Dismissed` |
//! | `Reconfigure`, `Transfer` | host → master's leader | | `AdminAnswer` |
//!
//! The rest stays inside one node: what scouts and commanders tell their leader, what an acceptor tells the replica and the
//! leader beside it, and what the host tells its replica. [`Message::is_local`] says which; a node takes those from itself only.

mod address;
mod phase1;
mod pulse;

pub use address::{Address, Envelope, RoleId, Targets};
pub use phase1::{Adopted, ClockReport, P1b};
pub use pulse::{Echo, Heartbeat, MasterAlive};

use crate::types::{Ballot, NodeId, Slot, Time, Watermark};
use crate::value::{Command, Origin, Value};
use crate::view::{Change, Refusal, ViewState};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A value with its place and the ballot in which it was proposed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PValue {
    /// The place.
    pub slot: Slot,
    /// The ballot in which it was proposed or accepted.
    pub ballot: Ballot,
    /// The value.
    pub value: Arc<Value>,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    // ---- phase 1 ----
    /// Would you promise this ballot? Changes nothing, so a node that hears no majority disturbs nobody.
    Probe {
        /// The ballot that the asker would use.
        ballot: Ballot,
    },
    /// What an acceptor would do.
    ProbeAnswer {
        /// The ballot asked about.
        ballot: Ballot,
        /// The acceptor's promise.
        promised: Ballot,
        /// How long it is still bound to another master; zero: it would promise.
        wait: Duration,
    },
    /// Promise this ballot, and say what you accepted.
    P1a {
        /// The scout's ballot.
        ballot: Ballot,
        /// Report accepted values from this data slot on (an answer is one page).
        from_slot: u64,
        /// The configuration in which the ballot counts: whoever promises in a view must be able to find it again.
        view: ViewState,
    },
    /// A promise (`promised == ballot`) or a refusal for ever (`promised > ballot`).
    P1b(Box<P1b>),
    /// Bound to another master: no promise now. Nothing was changed.
    Refused {
        /// The scout's ballot.
        ballot: Ballot,
        /// How long the acceptor is still bound.
        wait: Duration,
    },

    // ---- phase 2 ----
    /// Accept this value.
    P2a {
        /// What, where, in which ballot.
        pvalue: PValue,
        /// What the leader knows to be decided.
        commit: Watermark,
        /// The sender's clock when it sent this: the start of the lease that the answer grants.
        sent_at: Time,
        /// How long the answer binds the acceptor.
        lease: Duration,
        /// Acceptors without which the others are a majority: they need not hurry to make it durable.
        may_wait: Arc<[NodeId]>,
    },
    /// Accepted (`promised == ballot`) or pre-empted (`promised > ballot`).
    P2b {
        /// The commander's ballot.
        ballot: Ballot,
        /// The commander's slot.
        slot: Slot,
        /// The acceptor's promise.
        promised: Ballot,
        /// Echo of the request's send time.
        sent_at: Time,
        /// Whether this answer grants the lease.
        granted: bool,
    },

    /// What the leader knows to be decided, when no P2a is at hand to carry it.
    Commit {
        /// What is decided.
        commit: Watermark,
    },

    // ---- the master's pulse ----
    /// The leader of `ballot` is alive.
    Heartbeat(Box<Heartbeat>),
    /// The acceptor heard it.
    HeartbeatAnswer {
        /// The heartbeat's ballot.
        ballot: Ballot,
        /// The heartbeat's number.
        seq: u64,
        /// Echo of the heartbeat's send time.
        sent_at: Time,
        /// The acceptor's promise; above `ballot`: pre-empted.
        promised: Ballot,
        /// Whether this answer grants the lease.
        granted: bool,
        /// Which life of the node answers.
        life: u64,
    },
    /// The leader of `ballot` gives its lease up.
    Release {
        /// The released ballot. Nothing more is granted in it, and its leader serves nothing more in it.
        ballot: Ballot,
        /// Who should lead next; it scouts at once.
        successor: NodeId,
    },

    // ---- commands, reads, progress ----
    /// Execute these commands, in this order; all of one origin.
    Request {
        /// The commands, by rising number.
        commands: Vec<Command>,
    },
    /// A command's predecessor has not arrived: send again from `expected` on.
    OutOfOrder {
        /// Whose commands.
        origin: Origin,
        /// The number that the leader waits for.
        expected: u64,
        /// The ballot of the leader that says so.
        ballot: Ballot,
    },
    /// Up to where must I have applied, to answer a read that came before this was sent?
    ReadIndex {
        /// The asking replica and its life, so that an answer to an earlier life is not taken.
        reader: Origin,
        /// The number of the request.
        seq: u64,
    },
    /// Up to here.
    ReadIndexAt {
        /// The asking replica.
        reader: Origin,
        /// The number of the request.
        seq: u64,
        /// The slot.
        slot: u64,
    },
    /// A replica tells the master how far it is.
    Progress {
        /// The master's ballot as the replica knows it.
        ballot: Ballot,
        /// Applied up to here.
        applied: u64,
        /// Decisions are durable on the node up to here.
        durable: u64,
    },

    // ---- catching up ----
    /// Send me the decided values from this slot on.
    Fetch {
        /// The first slot that is missing.
        from_slot: u64,
    },
    /// Decided values.
    Log {
        /// The slot of the first value.
        first: u64,
        /// Consecutive values.
        values: Vec<Arc<Value>>,
        /// The sender knows decisions up to here.
        decided: u64,
    },
    /// Send me a piece of this snapshot.
    SnapshotFetch {
        /// The last slot that the snapshot covers.
        slot: u64,
        /// From this byte on.
        offset: u64,
    },
    /// A piece of a snapshot. Also the answer to a `Fetch` below the floor.
    SnapshotChunk {
        /// The last slot that the snapshot covers.
        slot: u64,
        /// Where the piece begins.
        offset: u64,
        /// How long the whole snapshot is.
        total: u64,
        /// The piece.
        data: Bytes,
    },
    /// The configuration, as far as the sender knows it to be decided.
    ViewIs(ViewState),
    /// A removed node's replica → the leaders of the new view: do you still need my acceptor?
    MayIStop,
    /// Leader → a removed node's replica: a majority of this view holds everything without you.
    Dismissed(ViewState),

    // ---- administration ----
    /// Change the member set. Any role of the master's node may have asked; the answer goes back to it.
    Reconfigure {
        /// What to change.
        change: Change,
        /// Comes back in the answer.
        ticket: u64,
    },
    /// Hand the mastership over.
    Transfer {
        /// To this voter, or to the one that is best in step.
        to: Option<NodeId>,
        /// Comes back in the answer.
        ticket: u64,
    },
    /// What became of a `Reconfigure` or `Transfer`.
    AdminAnswer {
        /// From the request.
        ticket: u64,
        /// Under way or done (with the view in which it is), or why not.
        result: Result<u64, AdminError>,
    },

    // ---- inside one node ----
    /// Scout → leader: a quorum promised.
    Adopted(Box<Adopted>),
    /// Scout or commander → leader: an acceptor promised a higher ballot.
    Preempted {
        /// The ballot that was pre-empted.
        ballot: Ballot,
        /// The higher one.
        promised: Ballot,
    },
    /// Scout → leader: enough acceptors are bound to another master that this ballot cannot win now.
    ScoutRefused {
        /// The scout's ballot.
        ballot: Ballot,
        /// How long to wait at least.
        wait: Duration,
    },
    /// Commander → leader: a majority accepted.
    Decided {
        /// What, where, in which ballot.
        pvalue: PValue,
        /// The acceptors that answered, each with the send time of the request it answered and granted a lease for.
        grants: Vec<(NodeId, Time)>,
    },
    /// Leader → replica: decided in the leader's ballot.
    Decision {
        /// The slot.
        slot: u64,
        /// The value.
        value: Arc<Value>,
    },
    /// Acceptor → replica: decided by `commit`, accepted here in exactly its ballot, and in the journal.
    Learn {
        /// What the master says is decided.
        commit: Watermark,
        /// Values that this node accepted and that `commit` covers.
        entries: Vec<(u64, Arc<Value>)>,
    },
    /// Acceptor → leader, replica: a master was heard.
    MasterAlive(Box<MasterAlive>),
    /// Replica → acceptor: decisions are durable on this node up to here; values below may be dropped.
    Durable {
        /// The slot.
        slot: u64,
    },
    /// Acceptor → replica: make decisions durable up to here as soon as they are known; a promise or a view's start waits for it.
    WriteDown {
        /// The slot.
        slot: u64,
    },
    /// Leader → replica: get the decisions up to here, `holder` has them.
    CatchUp {
        /// The slot.
        slot: u64,
        /// Who reported it, said once per reign.
        holder: Option<NodeId>,
    },
    /// Host → replica → leader: the machine has applied up to here.
    Applied {
        /// The slot.
        slot: u64,
        /// Cluster time after it.
        stamp_ms: u64,
        /// This node's commands with lower numbers have run.
        executed_below: u64,
    },
    /// Host → replica: execute these. The host numbers them without gaps from 1 in each life of the node.
    Submit {
        /// Number of the first payload.
        first_seq: u64,
        /// What to execute, in order.
        payloads: Vec<Bytes>,
    },
    /// Host → replica: the client does not wait any more for this command.
    Abandon {
        /// Its number.
        seq: u64,
    },
    /// Host → replica: tell me when a linearizable read may be answered.
    Read {
        /// The host's name for it, given back in [`HostCall::ReadReady`](crate::role::HostCall::ReadReady).
        read: u64,
    },
    /// Host → replica: a snapshot that covers `slot` is durable here.
    SnapshotTaken {
        /// The slot.
        slot: u64,
    },
    /// Host → replica: a fetched snapshot is durable and the machine stands at `slot`.
    Installed {
        /// The slot.
        slot: u64,
        /// Cluster time there.
        stamp_ms: u64,
        /// This node's commands with lower numbers have run.
        executed_below: u64,
        /// The configuration as of that slot, if the snapshot knows one.
        view: Option<ViewState>,
    },
    /// Host → replica: the fetched snapshot was damaged; fetch again.
    InstallFailed {
        /// The slot.
        slot: u64,
    },
}

/// Why an administrative request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AdminError {
    /// This node is not the master; perhaps that one is.
    NotMaster(Option<NodeId>),
    /// Another change or a transfer is under way: try again.
    Busy,
    /// It makes no sense in the current view.
    Refused(String),
    /// A majority of the new voters is not heard or not in step: it could cost the quorum.
    NotInStep,
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> Self {
        AdminError::Refused(refusal.to_string())
    }
}

impl Message {
    /// Whether this message is only ever said inside one node; from another node it is dropped.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(
            self,
            Message::Adopted(_)
                | Message::Preempted { .. }
                | Message::ScoutRefused { .. }
                | Message::Decided { .. }
                | Message::Decision { .. }
                | Message::Learn { .. }
                | Message::MasterAlive(_)
                | Message::Durable { .. }
                | Message::WriteDown { .. }
                | Message::CatchUp { .. }
                | Message::Applied { .. }
                | Message::Submit { .. }
                | Message::Abandon { .. }
                | Message::Read { .. }
                | Message::SnapshotTaken { .. }
                | Message::Installed { .. }
                | Message::InstallFailed { .. }
        )
    }
}
