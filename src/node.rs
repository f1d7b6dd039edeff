//! A running node: opens its directory, starts the roles, the links and the Redis face, and runs turns until it is told to stop.

use crate::codec;
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::host::core::{Core, Fatal, Todo};
use crate::host::handshake::Identity;
use crate::host::links::{self, Outbox};
use crate::identity::{Contact, IdentityError, NodeIdentity};
use crate::snapshots::Snapshots;
use bytes::Bytes;
use consensus::{
    Address, Condition, Config, Durable, Ledger, Message, Node, NodeId, RoleId, Standing, ViewState,
};
use server::{Answer, Engine, Face, Facts, Settings, Ticket};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::journal::{self, Journal};
use storage::machine::{Machine, View};
use storage::reply::Reply;
use storage::snapshot::SnapshotError;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tracing::{error, info};

/// How often the master looks for keys whose time has passed.
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// Keys that one sweep removes, at most.
const SWEEP_KEYS: u32 = 1_000;
/// How long an administrative request waits for the master's answer.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long a stopping master waits for a successor.
const HAND_OVER: Duration = Duration::from_secs(2);

/// What a node needs to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its data is.
    pub directory: PathBuf,
    /// What clients may do.
    pub settings: Settings,
    /// The engine's limits and intervals.
    pub config: Config,
}

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
    Address(String, io::Error),
    /// A file cannot be used.
    Io(PathBuf, io::Error),
    /// A setting makes no sense.
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
            NodeError::Address(address, error) => {
                write!(f, "cannot listen on {address}: {error}; is another process using it?")
            }
            NodeError::Io(path, error) => write!(f, "cannot use {}: {error}", path.display()),
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
    identity: NodeIdentity,
    contact: Contact,
    core: RefCell<Core<MachineBackend>>,
    snapshots: RefCell<Snapshots>,
    wake: Arc<Notify>,
    face: OnceCell<Rc<Face>>,
    outboxes: RefCell<BTreeMap<NodeId, Rc<Outbox>>>,
    admin: RefCell<Vec<(Vec<Bytes>, Ticket)>>,
    /// Administrative requests that wait for the master's answer.
    asked: RefCell<BTreeMap<u64, (Ticket, Instant)>>,
    /// Names the next of them; begins at random, so that an answer to an earlier life is not taken.
    next_admin: Cell<u64>,
    is_removed: RefCell<bool>,
}

/// Runs a node until `stop` is ready. Must be called inside a `LocalSet`.
///
/// # Errors
/// When it cannot start, or its disk fails.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    options.config.validate().map_err(NodeError::Setting)?;
    let identity = NodeIdentity::read(&options.directory).map_err(NodeError::Identity)?;
    let wake = Arc::new(Notify::new());
    let (core, snapshots) = open(&options, &identity, &wake)?;
    let contact = member_contact(&core.node.replica().view().clone(), identity.node)
        .unwrap_or_else(|| Contact { peer: "127.0.0.1:0".into(), client: "127.0.0.1:0".into() });
    let clients = bind(&contact.client).await?;
    let peers = bind(&contact.peer).await?;
    let incarnation = core.records().incarnation;
    info!(node = %identity.node, clients = contact.client, peers = contact.peer, "node started");
    let node = Rc::new(Running {
        contact,
        core: RefCell::new(core),
        snapshots: RefCell::new(snapshots),
        wake,
        face: OnceCell::new(),
        outboxes: RefCell::default(),
        admin: RefCell::default(),
        asked: RefCell::default(),
        next_admin: Cell::new(rand::random()),
        is_removed: RefCell::new(false),
        identity,
    });
    let face = Face::new(node.clone(), options.settings);
    let _ = node.face.set(face.clone());
    let me = node.link_identity(incarnation);
    let deliver = {
        let node = node.clone();
        Rc::new(move |letters| {
            node.core.borrow_mut().deliver(letters);
            node.wake.notify_one();
        })
    };
    let listening = tokio::task::spawn_local(links::listen(peers, me.clone(), deliver));
    let serving = tokio::task::spawn_local(face.listen(clients));
    let sweeping = tokio::task::spawn_local(sweep(node.clone()));
    let view = node.core.borrow().node.replica().view().clone();
    node.link(&view, &me);
    let outcome = node.turns(&me, &serving, stop).await;
    for task in [listening, serving, sweeping] {
        task.abort();
    }
    outcome
}

async fn bind(address: &str) -> Result<TcpListener, NodeError> {
    TcpListener::bind(address).await.map_err(|error| NodeError::Address(address.to_string(), error))
}

fn member_contact(view: &ViewState, node: NodeId) -> Option<Contact> {
    view.current.members.get(&node).and_then(|member| Contact::from_bytes(&member.contact))
}

/// Puts the node together from its directory.
fn open(
    options: &Options,
    identity: &NodeIdentity,
    wake: &Arc<Notify>,
) -> Result<(Core<MachineBackend>, Snapshots), NodeError> {
    let directory = options.directory.join("journal");
    let mut id = identity.cluster;
    for (byte, part) in id[8..].iter_mut().zip(identity.node.0.to_be_bytes()) {
        *byte ^= part; // another member's journal is foreign, too
    }
    let mut journal_options = journal::Options::new(&directory, id);
    // What clients may have in flight bounds it; refusing a batch would stop the node.
    journal_options.queue_bytes_max = u64::MAX;
    // The first start makes the journal; from then on a missing one is an error, not a node without memory.
    let marker = options.directory.join("started");
    journal_options.create = !marker.exists();
    let mut durable = Durable { view: Some(identity.view.clone()), ..Durable::default() };
    let replay = |bytes: &[u8]| {
        durable.apply(codec::record_from_bytes(bytes)?);
        Ok(())
    };
    let (journal_wake, snapshot_wake) = (wake.clone(), wake.clone());
    let journal = Journal::open(journal_options, replay, move || journal_wake.notify_one())
        .map_err(NodeError::Journal)?;
    mark_started(&marker).map_err(|error| NodeError::Io(marker.clone(), error))?;
    let path = options.directory.join("snapshots");
    let snapshots =
        Snapshots::open(path.clone(), identity.cluster, Arc::new(move || snapshot_wake.notify_one()))
            .map_err(|error| NodeError::Io(path, error))?;
    let (standing, ledger, machine) = match snapshots.newest().map_err(NodeError::Snapshot)? {
        Some(loaded) => {
            let stamp_ms = loaded.ledger.cluster_ms();
            let standing = Standing { slot: loaded.slot, stamp_ms, view: Some(loaded.view) };
            (standing, loaded.ledger, loaded.machine)
        }
        None => (Standing::default(), Ledger::new(identity.view.current.clone()), Machine::default()),
    };
    if durable.decided_through(standing.slot) < durable.decided {
        // Its acceptor would have forgotten values that it accepted: the same as a lost disk.
        return Err(NodeError::Failed(format!(
            "the journal of {} continues behind slot {}, but the newest usable snapshot ends at slot {}: a snapshot is damaged or missing; \
             remove this node from its cluster, empty its directory and add it again as a new member",
            options.directory.display(),
            durable.decided,
            standing.slot
        )));
    }
    let config = Arc::new(options.config.clone());
    let recovered =
        Node::recover(identity.node, &config, durable.clone(), standing, rand::random(), clock::now());
    let backend = MachineBackend { machine, failure: None };
    let core = Core::new(recovered, (ledger, backend), config, journal, durable)?;
    Ok((core, snapshots))
}

fn mark_started(marker: &std::path::Path) -> io::Result<()> {
    if !marker.exists() {
        std::fs::File::create(marker)?.sync_all()?;
        if let Some(parent) = marker.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

/// The master removes keys whose time has passed, through the log.
async fn sweep(node: Rc<Running>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let now = clock::now();
        let mut core = node.core.borrow_mut();
        if !core.node.can_lease_read(now) {
            continue;
        }
        let cluster_ms = core.node.leader().cluster_ms(now);
        let is_due =
            core.backend.machine.next_deadline_ms().is_ok_and(|due| due.is_some_and(|due| due <= cluster_ms));
        let payload = if is_due {
            storage::commands::sweep(SWEEP_KEYS)
        } else if core.backend.machine.has_garbage().unwrap_or(false) {
            storage::commands::reap(SWEEP_KEYS)
        } else {
            continue;
        };
        core.submit(payload, Ticket { connection: 0, place: 0 }, now);
        node.wake.notify_one();
    }
}

impl Running {
    fn link_identity(&self, incarnation: u64) -> Identity {
        Identity {
            cluster: self.identity.cluster,
            node: self.identity.node,
            incarnation,
            secret: self.identity.secret.clone(),
        }
    }

    /// Opens links to new members and closes those to members that left.
    fn link(&self, view: &ViewState, me: &Identity) {
        let mut outboxes = self.outboxes.borrow_mut();
        let previous = view.previous.iter().flat_map(|view| view.members.iter());
        let members: BTreeMap<NodeId, Contact> = view
            .current
            .members
            .iter()
            .chain(previous)
            .filter(|(id, _)| **id != self.identity.node)
            .filter_map(|(id, member)| Some((*id, Contact::from_bytes(&member.contact)?)))
            .collect();
        outboxes.retain(|id, outbox| {
            let stays = members.contains_key(id);
            if !stays {
                outbox.close();
            }
            stays
        });
        for (id, contact) in members {
            outboxes.entry(id).or_insert_with(|| {
                let outbox = Rc::new(Outbox::default());
                tokio::task::spawn_local(links::dial(me.clone(), id, contact.peer, outbox.clone()));
                outbox
            });
        }
        self.core.borrow_mut().connect(outboxes.clone());
    }

    async fn turns(
        &self,
        me: &Identity,
        serving: &tokio::task::JoinHandle<()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), NodeError> {
        tokio::pin!(stop);
        let mut give_up_at: Option<tokio::time::Instant> = None;
        loop {
            let todo = self.core.borrow_mut().turn(clock::now())?;
            let has_more = self.handle(todo, me)?;
            // Connections that became readable get their turn first, so that what they bring joins the next one.
            tokio::task::yield_now().await;
            if has_more {
                continue;
            }
            let is_stopping = give_up_at.is_some();
            let is_quiet = !self.is_master() && self.core.borrow().waiting() == 0;
            if is_stopping && (is_quiet || give_up_at.is_some_and(|at| at <= tokio::time::Instant::now())) {
                return Ok(());
            }
            let now = clock::now();
            let until = self.core.borrow().deadline().map_or(Duration::from_secs(1), |due| due.since(now.at));
            tokio::select! {
                biased; // a busy node is always awake: what it must not miss comes first
                () = &mut stop, if !is_stopping => {
                    info!("stopping");
                    give_up_at = Some(tokio::time::Instant::now() + HAND_OVER);
                    let transfer = Message::Transfer { to: None, ticket: 0 };
                    self.core.borrow_mut().post(RoleId::Leader, transfer);
                    serving.abort(); // no new clients
                }
                () = self.wake.notified() => {}
                () = tokio::time::sleep(until) => {}
            }
        }
    }

    fn is_master(&self) -> bool {
        let view = self.core.borrow().node.leader().view().clone();
        view.current.voters().count() > 1 && self.core.borrow().node.leader().is_master(clock::now())
    }

    /// Does what a turn left to do. True: another turn is due at once.
    fn handle(&self, todo: Todo, me: &Identity) -> Result<bool, NodeError> {
        if let Some(error) = &self.core.borrow().backend.failure {
            return Err(NodeError::Failed(format!("the store failed: {error}")));
        }
        let mut has_more = false;
        if let Some(face) = self.face.get() {
            for (ticket, answer) in todo.answers {
                face.answer(ticket, answer);
            }
        }
        if let Some(view) = &todo.view {
            self.link(view, me);
        }
        if todo.removed {
            error!("this node was removed from the cluster; it serves no more");
            *self.is_removed.borrow_mut() = true;
        }
        let mut snapshots = self.snapshots.borrow_mut();
        for (to, slot, offset) in todo.snapshot_requests {
            if let Some(message) = snapshots.chunk(slot, offset) {
                self.core.borrow_mut().ask(Address { node: to, role: RoleId::Replica }, message);
                has_more = true;
            }
        }
        for (slot, offset, data) in todo.chunks {
            if let Err(error) = snapshots.keep(slot, offset, &data) {
                error!(%error, "a piece of a snapshot cannot be kept");
            }
        }
        if let Some(slot) = todo.install {
            has_more = true;
            self.install(slot, &mut snapshots)?;
        }
        let mut core = self.core.borrow_mut();
        if let Some(slot) = snapshots.finished() {
            core.snapshot_taken(slot)?;
            has_more = true;
        }
        if !core.is_checkpointing() && snapshots.is_due(core.journal_bytes()) {
            let view = core.node.replica().view().clone();
            snapshots.take(&core.ledger, &view, &core.backend.machine);
        }
        drop(core);
        drop(snapshots);
        for message in todo.admin {
            self.admin_answered(message);
        }
        self.give_up_admin();
        let asked = std::mem::take(&mut *self.admin.borrow_mut());
        for (words, ticket) in asked {
            has_more = true;
            self.run_admin(&words, ticket);
        }
        Ok(has_more)
    }

    fn install(&self, slot: u64, snapshots: &mut Snapshots) -> Result<(), NodeError> {
        let mut core = self.core.borrow_mut();
        let message = match snapshots.install(slot) {
            Ok(loaded) if loaded.slot != slot || loaded.ledger.applied() != slot => {
                error!(slot, "a fetched snapshot is of another slot; it is fetched again");
                Message::InstallFailed { slot }
            }
            Ok(loaded) => {
                info!(slot, "snapshot installed");
                let stamp_ms = loaded.ledger.cluster_ms();
                core.installed(
                    slot,
                    loaded.ledger,
                    MachineBackend { machine: loaded.machine, failure: None },
                )?;
                let executed_below = core.ledger.executed_below(core.node.origin());
                Message::Installed { slot, stamp_ms, executed_below, view: Some(loaded.view) }
            }
            Err(error) => {
                error!(slot, error, "a fetched snapshot cannot be used; it is fetched again");
                Message::InstallFailed { slot }
            }
        };
        core.post(RoleId::Replica, message);
        Ok(())
    }

    // ---- administration ----

    fn run_admin(&self, words: &[Bytes], ticket: Ticket) {
        let Some(face) = self.face.get() else { return };
        let name = words.first().map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default();
        let argument = words.get(1).map(|word| String::from_utf8_lossy(word).into_owned());
        let result = match (name.as_str(), argument) {
            ("STATUS", None) => Ok(self.status()),
            ("MEMBERS", None) => Ok(self.members()),
            ("CHECKSUM", None) => self.checksum(),
            ("SNAPSHOT", None) => {
                let core = self.core.borrow();
                let view = core.node.replica().view().clone();
                self.snapshots.borrow_mut().take(&core.ledger, &view, &core.backend.machine);
                Ok(Reply::simple("Background saving started"))
            }
            ("TRANSFER-MASTER", to) => match to.map(|text| parse_node(&text)).transpose() {
                Ok(to) => return self.ask_master(ticket, |ticket| Message::Transfer { to, ticket }),
                Err(error) => Err(error),
            },
            ("REMOVE", Some(node)) => match parse_node(&node) {
                Ok(node) => {
                    let change = consensus::Change::Remove(node);
                    return self.ask_master(ticket, |ticket| Message::Reconfigure { change, ticket });
                }
                Err(error) => Err(error),
            },
            _ => Err(format!(
                "ERR unknown or incomplete 'WARLOCK {name}'; try WARLOCK STATUS, MEMBERS, CHECKSUM, SNAPSHOT, \
                 TRANSFER-MASTER [node], REMOVE node"
            )),
        };
        let reply = result.unwrap_or_else(|error| Reply::Error(error.into()));
        face.answer(ticket, Answer::Reply(reply));
    }

    fn ask_master(&self, ticket: Ticket, message: impl FnOnce(u64) -> Message) {
        let mut core = self.core.borrow_mut();
        let Some(master) = core.node.master() else {
            drop(core);
            if let Some(face) = self.face.get() {
                let text = "CLUSTERDOWN there is no master now; nothing was done, try again";
                face.answer(ticket, Answer::Reply(Reply::error(text)));
            }
            return;
        };
        let mut asked = self.asked.borrow_mut();
        let number = self.next_admin.get();
        self.next_admin.set(number.wrapping_add(1));
        asked.insert(number, (ticket, Instant::now() + ADMIN_PATIENCE));
        core.ask(Address { node: master, role: RoleId::Leader }, message(number));
    }

    fn admin_answered(&self, message: Message) {
        let Message::AdminAnswer { ticket, result } = message else { return };
        let (Some((ticket, _)), Some(face)) = (self.asked.borrow_mut().remove(&ticket), self.face.get())
        else {
            return;
        };
        let reply = match result {
            Ok(_) => Reply::Ok,
            Err(consensus::AdminError::NotMaster(_)) => {
                Reply::error("TRYAGAIN the master is changing; nothing was done, try again")
            }
            Err(consensus::AdminError::Busy) => {
                Reply::error("TRYAGAIN another change is under way; nothing was done, try again")
            }
            Err(consensus::AdminError::NotInStep) => Reply::error(
                "TRYAGAIN a majority of the new voters, or the successor, is not heard or not in step; nothing was done",
            ),
            Err(consensus::AdminError::Refused(why)) => Reply::Error(format!("ERR not done: {why}").into()),
        };
        face.answer(ticket, Answer::Reply(reply));
    }

    fn give_up_admin(&self) {
        let now = Instant::now();
        let late: Vec<Ticket> = self
            .asked
            .borrow_mut()
            .extract_if(.., |_, (_, until)| *until <= now)
            .map(|(_, (ticket, _))| ticket)
            .collect();
        if let Some(face) = self.face.get() {
            for ticket in late {
                let text =
                    "UNCERTAIN the master did not answer in time; check WARLOCK MEMBERS before you repeat it";
                face.answer(ticket, Answer::Reply(Reply::error(text)));
            }
        }
    }

    fn status(&self) -> Reply {
        let facts = self.facts();
        let text = |text: &str| Reply::bulk(text.as_bytes());
        let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        Reply::Map(vec![
            (text("node"), text(&format!("n{}", facts.node))),
            (text("role"), text(facts.role)),
            (text("master"), facts.master.as_deref().map_or(Reply::Null, text)),
            (text("view"), number(facts.view)),
            (text("ballot"), text(&facts.ballot)),
            (text("applied"), number(facts.applied)),
            (text("waiting"), number(facts.waiting as u64)),
            (text("journal_bytes"), number(facts.journal_bytes)),
        ])
    }

    fn members(&self) -> Reply {
        let core = self.core.borrow();
        let (view, master) = (core.node.replica().view().clone(), core.node.master());
        let outboxes = self.outboxes.borrow();
        let text = |text: &str| Reply::bulk(text.as_bytes());
        let rows = view.current.members.iter().map(|(id, member)| {
            let contact = Contact::from_bytes(&member.contact);
            let condition = match member.condition {
                Condition::Valid => "valid",
                Condition::Join => "join",
                Condition::Observer => "observer",
                Condition::Down => "down",
            };
            let is_linked =
                *id == self.identity.node || outboxes.get(id).is_some_and(|outbox| outbox.is_up());
            Reply::Map(vec![
                (text("node"), text(&id.to_string())),
                (text("condition"), text(condition)),
                (text("role"), text(if master == Some(*id) { "master" } else { "member" })),
                (text("client"), text(contact.as_ref().map_or("", |contact| &contact.client))),
                (text("peer"), text(contact.as_ref().map_or("", |contact| &contact.peer))),
                (text("link"), text(if is_linked { "up" } else { "down" })),
            ])
        });
        Reply::Array(rows.collect())
    }

    fn checksum(&self) -> Result<Reply, String> {
        let core = self.core.borrow();
        let checksum = core.backend.machine.checksum().map_err(|error| format!("ERR {error}"))?;
        let text = format!("{} {checksum:?}", core.ledger.applied());
        Ok(Reply::Bulk(Bytes::from(text)))
    }
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    text.trim_start_matches('n')
        .parse()
        .map(NodeId)
        .map_err(|_| format!("ERR '{text}' is no node; WARLOCK MEMBERS lists them (n1, n2, …)"))
}

impl Engine for Running {
    fn read_now(&self, read: &mut dyn FnMut(&View<'_>)) -> bool {
        let core = self.core.borrow();
        let may_read = core.node.can_lease_read(clock::now());
        if may_read {
            read(&core.backend.machine.view(core.ledger.cluster_ms()));
        }
        may_read
    }

    fn read(&self, read: &mut dyn FnMut(&View<'_>)) {
        let core = self.core.borrow();
        read(&core.backend.machine.view(core.ledger.cluster_ms()));
    }

    fn read_later(&self, ticket: Ticket) {
        self.core.borrow_mut().read_later(ticket, clock::now());
        self.wake.notify_one();
    }

    fn write(&self, payload: Bytes, ticket: Ticket) {
        self.core.borrow_mut().submit(payload, ticket, clock::now());
        self.wake.notify_one();
    }

    fn admin(&self, words: Vec<Bytes>, ticket: Ticket) {
        self.admin.borrow_mut().push((words, ticket));
        self.wake.notify_one();
    }

    fn facts(&self) -> Facts {
        let core = self.core.borrow();
        let view = core.node.replica().view();
        let master = core.node.master();
        let role = if *self.is_removed.borrow() {
            "removed"
        } else if core.node.leader().is_master(clock::now()) {
            "master"
        } else if view.current.is_voter(self.identity.node) {
            "member"
        } else {
            "learner"
        };
        Facts {
            node: self.identity.node.0,
            role,
            master: master.and_then(|id| member_contact(view, id)).map(|contact| contact.client),
            view: view.current.number,
            ballot: core.node.leader().ballot().to_string(),
            applied: core.ledger.applied(),
            waiting: core.waiting(),
            journal_bytes: core.journal_bytes(),
            address: self.contact.client.clone(),
        }
    }
}
