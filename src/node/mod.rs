//! A running node: opens its directory, starts the roles, the links and the Redis face, and runs turns until it is told to stop.
//!
//! Parts: `open` from a directory to roles · `turns` the loop · `peers` links to the other members · `admin` what an operator asks · `change` of the
//! member set · `compare` the members' data · `courier` of snapshots · `backup` · `answers` to other nodes' hosts · `report` what the node tells · `rows` on disk · `sweep` keys whose time has passed. All of it runs on the node's one thread.

mod admin;
mod answers;
mod backup;
pub mod change;
mod compare;
mod courier;
mod doors;
mod metrics;
mod open;
mod peers;
mod report;
mod room;
mod rows;
mod sweep;
mod turns;
mod waits;

pub use admin::HELP;
pub use answers::unreachable;
pub use doors::{Doors, open_probes};
pub use open::{first_ledger, journal_id};
pub use peers::member_contact;

use crate::disk::Disk;
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::host::core::Core;
use crate::host::durability::Fatal;
use crate::host::links;
use crate::host::outbox::Outbox;
use crate::http;
use crate::identity::{Contact, IdentityError, NodeIdentity};
use crate::settings::Settings;
use crate::snapshots::Snapshots;
use bytes::Bytes;
use consensus::{AdminError, NodeId, Now, Time};
use courier::Courier;
use room::Room;
use server::{Answer, Engine, Face, Facts, Ticket};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;
use storage::journal;
use storage::machine::{Interest, View};
use storage::reply::Reply;
use storage::snapshot::SnapshotError;
use tokio::sync::{Notify, oneshot};
use tracing::info;

/// Why a node does not run.
#[derive(Debug)]
pub enum NodeError {
    /// The directory is no node's.
    Identity(IdentityError),
    /// The journal cannot be opened.
    Journal(journal::OpenError),
    /// The snapshots cannot be read.
    Snapshot(SnapshotError),
    /// An address cannot be used.
    Address {
        /// Which setting says where to listen.
        setting: &'static str,
        /// Where.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// A file cannot be used.
    Io(PathBuf, io::Error),
    /// The cluster took this member out.
    Removed(PathBuf, NodeId),
    /// A setting makes no sense here.
    Setting(String),
    /// The journal or the store failed while running.
    Failed(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Identity(error) => write!(f, "{error}"),
            NodeError::Journal(error) => write!(f, "{error}"),
            NodeError::Snapshot(error) => write!(f, "{error}"),
            NodeError::Address { setting, address, error } => match error.kind() {
                io::ErrorKind::AddrInUse => write!(
                    f,
                    "cannot listen on {address}: another process uses the port; stop it, or give this node another address with --{setting}"
                ),
                _ => write!(
                    f,
                    "cannot listen on {address}: {error}; give an address of this machine with --{setting} (and, if others reach the node \
                     under another one, --announce and --peer-announce)"
                ),
            },
            NodeError::Io(path, error) => write!(f, "cannot use {}: {error}", path.display()),
            NodeError::Removed(path, node) => write!(
                f,
                "{} is {node}, which was removed from its cluster; to use the machine again, empty the directory, start it with \
                 --wait-for-invitation and WARLOCK ADD it as a new member",
                path.display()
            ),
            NodeError::Setting(what) => write!(f, "{what}"),
            NodeError::Failed(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<Fatal> for NodeError {
    fn from(fatal: Fatal) -> Self {
        NodeError::Failed(fatal.to_string())
    }
}

/// What lies behind the Redis face.
struct Running {
    me: Weak<Running>,
    identity: NodeIdentity,
    contact: Contact,
    core: RefCell<Core<MachineBackend>>,
    snapshots: RefCell<Snapshots>,
    courier: RefCell<Courier>,
    /// Rows on disk.
    disk: Option<Disk>,
    wake: Arc<Notify>,
    /// Somebody may wait for a member.
    view_changed: Notify,
    /// Somebody may wait for a snapshot.
    snapshot_taken: Notify,
    face: OnceCell<Rc<Face>>,
    outboxes: RefCell<BTreeMap<NodeId, Rc<Outbox>>>,
    /// Who waits for the master's answer to an administrative request.
    asked: RefCell<BTreeMap<u64, oneshot::Sender<Result<u64, AdminError>>>>,
    /// Who waits for a command of the node's own.
    own: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
    /// Names the next of both; begins at random, so that an answer to an earlier life is not taken.
    next_admin: Cell<u64>,
    /// Clients' requests that this node does not take.
    refused: RefCell<Vec<(Ticket, Reply)>>,
    /// The ledger's time, and when this node first saw it.
    ledger_time: Cell<(u64, Time)>,
    is_admitting: Cell<bool>,
    is_removed: Cell<bool>,
    /// On the disk.
    room: Cell<Room>,
    is_dismissed: Cell<bool>,
    /// While a connection's requests are taken: when that began.
    requests_at: Cell<Option<Now>>,
}

/// Runs a node until `stop` is ready, behind `doors` if they are open already, and behind a `face` if it has clients already. Must be called
/// inside a `LocalSet` or a `LocalRuntime`.
///
/// # Errors
/// When it cannot start, or its disk fails.
pub async fn run(
    settings: Settings,
    mut identity: NodeIdentity,
    doors: Option<Doors>,
    face: Option<Rc<Face>>,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let config = settings.engine();
    config.validate().map_err(NodeError::Setting)?;
    if let Some(secret) = &settings.cluster_secret {
        identity.secret.clone_from(secret);
    }
    let wake = Arc::new(Notify::new());
    let (core, snapshots, disk) = open::open(&settings, config, &identity, &wake)?;
    let contact = peers::member_contact(core.node.replica().view(), identity.node)
        .ok_or_else(|| NodeError::Removed(settings.dir.clone(), identity.node))?;
    settings.check_announced(&contact).map_err(NodeError::Setting)?;
    let Doors { clients, peers, probes } = match doors {
        Some(doors) => doors,
        None => {
            // Port 0 was settled when the node was made.
            let given = |bind: &Option<String>| bind.clone().filter(|bind| !bind.ends_with(":0"));
            let clients = given(&settings.bind).unwrap_or_else(|| contact.client.clone());
            Doors::open(&clients, &given(&settings.peer_bind).unwrap_or_else(|| contact.peer.clone())).await?
        }
    };
    let probes = match probes {
        Some(probes) => Some(probes),
        None => open_probes(&settings).await?,
    };
    let incarnation = core.records().incarnation;
    info!(node = %identity.node, clients = contact.client, peers = contact.peer, "node started");
    let node = Rc::new_cyclic(|me| Running {
        me: me.clone(),
        contact,
        core: RefCell::new(core),
        snapshots: RefCell::new(snapshots),
        courier: RefCell::new(Courier::new(settings.snapshot_rate, Instant::now())),
        disk,
        wake,
        view_changed: Notify::new(),
        snapshot_taken: Notify::new(),
        face: OnceCell::new(),
        outboxes: RefCell::default(),
        asked: RefCell::default(),
        own: RefCell::default(),
        next_admin: Cell::new(rand::random()),
        refused: RefCell::default(),
        ledger_time: Cell::default(),
        is_admitting: Cell::new(false),
        is_removed: Cell::new(false),
        room: Cell::default(),
        is_dismissed: Cell::new(false),
        requests_at: Cell::new(None),
        identity,
    });
    let has_clients = face.is_some();
    let face = face.unwrap_or_else(|| Face::new(node.clone(), settings.face()));
    let _ = node.face.set(face.clone());
    if has_clients {
        face.go_on_with(node.clone());
    }
    let me = node.link_identity(incarnation);
    let deliver = {
        let node = node.clone();
        Rc::new(move |mut letters| {
            node.lose_what_has_no_room(&mut letters);
            node.core.borrow_mut().deliver(letters);
            node.wake.notify_one();
        })
    };
    let listening = tokio::task::spawn_local(links::listen(peers, me.clone(), deliver, node.answerer()));
    let serving = tokio::task::spawn_local(face.listen(clients));
    let sweeping = tokio::task::spawn_local(sweep::sweep(node.clone()));
    let forgetting = {
        let node = node.clone();
        tokio::task::spawn_local(async move { node.forget_waits().await })
    };
    let probing = probes.map(|probes| tokio::task::spawn_local(http::listen(probes, node.clone())));
    let watching = (!settings.is_memory()).then(|| {
        tokio::task::spawn_local(room::watch(node.clone(), settings.dir.clone(), settings.disk_reserve))
    });
    let view = node.core.borrow().node.replica().view().clone();
    node.link(&view, &me);
    let outcome = node.turns(&me, &serving, stop).await;
    for task in [listening, serving, sweeping, forgetting].into_iter().chain(probing).chain(watching) {
        task.abort();
    }
    outcome
}
const REMOVED: &str =
    "CLUSTERDOWN this node was removed from its cluster; nothing was done, connect to another node";

impl Running {
    /// The time that counts for what a client wants.
    fn now(&self) -> Now {
        self.requests_at.get().unwrap_or_else(clock::now)
    }

    /// Answers at the end of the next turn: the connection that asks is busy asking.
    fn refuse(&self, ticket: Ticket, why: &'static str) {
        self.refused.borrow_mut().push((ticket, Reply::error(why)));
        self.wake.notify_one();
    }
}

impl Engine for Running {
    fn begin_requests(&self) {
        self.requests_at.set(Some(clock::now()));
    }

    fn end_requests(&self) {
        self.requests_at.set(None);
    }

    fn read_now(&self, read: &mut dyn FnMut(&View<'_>)) -> bool {
        let (core, now) = (self.core.borrow(), self.now());
        let may_read = core.node.can_lease_read(now);
        if may_read {
            read(&core.backend.machine.view(core.ledger.cluster_ms()).with_clock(self.clock_ms(&core, now)));
        }
        may_read
    }

    fn read(&self, read: &mut dyn FnMut(&View<'_>)) {
        let core = self.core.borrow();
        read(
            &core
                .backend
                .machine
                .view(core.ledger.cluster_ms())
                .with_clock(self.clock_ms(&core, clock::now())),
        );
    }

    fn age(&self) -> Option<std::time::Duration> {
        let (core, now) = (self.core.borrow(), clock::now());
        if core.node.can_lease_read(now) {
            Some(std::time::Duration::ZERO)
        } else {
            core.node.replica().age(now)
        }
    }

    fn read_later(&self, ticket: Ticket) {
        if self.is_removed.get() {
            return self.refuse(ticket, REMOVED);
        }
        if self.core.borrow().falls_behind() {
            return self.refuse(ticket, room::TOO_FAR_BEHIND);
        }
        self.core.borrow_mut().read_later(ticket, clock::now());
        self.wake.notify_one();
    }

    fn write(&self, payload: Bytes, ticket: Ticket) {
        if self.is_removed.get() {
            return self.refuse(ticket, REMOVED);
        }
        if let Some(why) = self.room.get().refusal() {
            return self.refuse(ticket, why);
        }
        self.core.borrow_mut().submit(payload, ticket, self.now());
        self.wake.notify_one();
    }

    fn read_behind(&self, payload: Bytes, ticket: Ticket) -> bool {
        self.core.borrow_mut().read_behind(payload, ticket)
    }

    fn expire(&self, ticket: Ticket) {
        if self.is_removed.get() {
            return self.refuse(ticket, REMOVED);
        }
        // Also while the disk is nearly full: the reader waits for it.
        self.core.borrow_mut().submit(sweep::payload(), ticket, clock::now());
        self.wake.notify_one();
    }

    fn closed(&self, connection: u64) {
        if self.core.borrow_mut().client_gone(connection, clock::now()) {
            self.wake.notify_one();
        }
    }

    fn unblock(&self, connection: u64, as_error: bool) -> bool {
        let is_waiting = self.core.borrow_mut().unblock(connection, as_error, clock::now());
        if is_waiting {
            self.wake.notify_one();
        }
        is_waiting
    }

    fn admin(&self, words: Vec<Bytes>, ticket: Ticket) {
        self.start_admin(words, ticket);
    }

    fn listen(&self, interest: Interest) {
        let mut core = self.core.borrow_mut();
        let origin = core.node.origin();
        let me = Some((origin.node.0, origin.incarnation));
        core.backend.machine.listen(Interest { me, ..interest });
    }

    fn nudge(&self) {
        self.wake.notify_one();
    }

    fn facts(&self) -> Facts {
        self.known_facts()
    }
}
