//! All connections of a node, and the way from an answer to its connection.

use crate::breath::{Breath, Standing};
use crate::config::Tunable;
use crate::connection::{self, Connection};
use crate::engine::{Answer, Engine, Ticket};
use crate::pubsub::Subscriptions;
use crate::resp::Limits;
use crate::stats::{Stats, unix_time};
use crate::tracking::{Change, Notice, Tracking};
use bytes::Bytes;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use storage::machine::{Class, Interest, Notify};
use storage::reply::Reply;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

/// What the face allows its clients.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Open connections, at most.
    pub clients_max: usize,
    /// Limits of the protocol.
    pub limits: Limits,
    /// The password, if one is asked for.
    pub password: Option<String>,
    /// Replies that wait for one slow client, in bytes, at most.
    pub output_bytes_max: usize,
    /// Whether clients from other machines are refused while there is no password.
    pub is_protected: bool,
    /// Which keyspace notifications this node's clients get.
    pub notify: Notify,
    /// From how many microseconds on a command is slow; negative: never.
    pub slower_than_us: i64,
    /// How many slow commands are remembered.
    pub slow_max: usize,
    /// From how many milliseconds on LATENCY takes a sample; 0: never.
    pub latency_ms: u64,
    /// How old the state may be that a READONLY connection reads.
    pub stale_ms_max: u64,
    /// How many keys are remembered for clients that cache; 0: no limit.
    pub tracked_keys_max: usize,
    /// The file that CONFIG REWRITE writes, if the node was started with one.
    pub config_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        // A command travels through the log as one record, and a record must fit into a segment of the journal.
        let limits = Limits { bulk_bytes_max: 16 << 20, request_bytes_max: 32 << 20, ..Limits::default() };
        Settings {
            clients_max: 10_000,
            limits,
            password: None,
            output_bytes_max: 64 << 20,
            is_protected: true,
            notify: Notify::default(),
            slower_than_us: 10_000,
            slow_max: 128,
            latency_ms: 0,
            stale_ms_max: 1_000,
            tracked_keys_max: 1_000_000,
            config_file: None,
        }
    }
}

/// As Redis says it, but for the ways out.
const PROTECTED: &[u8] = b"-DENIED Warlock is running in protected mode because protected mode is enabled and no password is set for \
the default user. In this mode connections are only accepted from the loopback interface. If you want to connect from external computers to \
Warlock you may adopt one of the following solutions: 1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from \
the loopback interface by connecting to Warlock from the same host the server is running, however MAKE SURE Warlock is not publicly accessible \
from internet if you do so. 2) Set a password with --requirepass on every node. 3) Start the nodes with --protected-mode no, if the network \
is trusted. NOTE: You only need to do one of the above things in order for the server to start accepting connections from the outside.\r\n";

/// Until when clients are held, and whether reads are, too.
#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    is_for_all: bool,
}

/// The Redis face of one node.
pub struct Face {
    /// What was behind it first.
    engine: Rc<dyn Engine>,
    /// What is behind it since then.
    successor: OnceCell<Rc<dyn Engine>>,
    /// What clients may do.
    pub settings: Settings,
    /// What CONFIG SET changes.
    pub tunable: RefCell<Tunable>,
    /// The same when the node was started.
    pub initial: Tunable,
    /// What is counted.
    pub stats: RefCell<Stats>,
    connections: RefCell<BTreeMap<u64, Rc<Connection>>>,
    next_id: Cell<u64>,
    pause: Cell<Option<Pause>>,
    /// Who listens to what.
    pub subscriptions: RefCell<Subscriptions>,
    /// Who has copies of what.
    pub tracking: RefCell<Tracking>,
    /// Connections that see every command.
    monitors: RefCell<Vec<u64>>,
    /// Connections with replies of this turn.
    answered: RefCell<Vec<Rc<Connection>>>,
    /// When an attack was last written to the log.
    warned: Cell<Option<Instant>>,
    /// How many requests are still taken before the node's next turn, and who waits for it.
    breath: Breath,
    /// When the clock was last looked at: clocks cost, and requests are short.
    looked_at: Cell<Instant>,
}

/// A byte as MONITOR shows it.
fn show_byte(line: &mut String, byte: u8) {
    match byte {
        b'\'' => line.push('\''),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        byte => line.extend(byte.escape_ascii().map(char::from)),
    }
}

impl Face {
    /// A face before `engine`.
    #[must_use]
    pub fn new(engine: Rc<dyn Engine>, settings: Settings) -> Rc<Face> {
        let tunable = Tunable {
            clients_max: settings.clients_max,
            password: settings.password.clone(),
            is_protected: settings.is_protected,
            output_bytes_max: settings.output_bytes_max,
            push_bytes_max: 32 << 20,
            slower_than_us: settings.slower_than_us,
            slow_max: settings.slow_max,
            stale_ms_max: settings.stale_ms_max,
            latency_ms: settings.latency_ms,
            notify: settings.notify,
            tracked_keys_max: settings.tracked_keys_max,
        };
        let face = Rc::new(Face {
            engine,
            successor: OnceCell::new(),
            settings,
            tunable: RefCell::new(tunable.clone()),
            initial: tunable,
            stats: RefCell::default(),
            connections: RefCell::default(),
            next_id: Cell::new(1),
            pause: Cell::new(None),
            subscriptions: RefCell::default(),
            tracking: RefCell::default(),
            monitors: RefCell::default(),
            answered: RefCell::default(),
            warned: Cell::new(None),
            breath: Breath::default(),
            looked_at: Cell::new(Instant::now()),
        });
        face.listen_to_keys();
        face
    }

    /// What is behind it now.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &**self.successor.get().unwrap_or(&self.engine)
    }

    /// Puts another engine behind the face, once: connections stay, and what the first engine holds of their requests goes to the other one.
    pub fn go_on_with(&self, engine: Rc<dyn Engine>) {
        if self.successor.set(engine).is_ok() {
            self.listen_to_keys();
            self.engine.hand_over(self.engine());
        }
    }

    /// Takes connections until the task is dropped.
    pub async fn listen(self: Rc<Face>, listener: TcpListener) {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            self.stats.borrow_mut().accepted += 1;
            if let Some(why) = self.refusal(address.ip()) {
                self.stats.borrow_mut().refused += 1;
                // The client need not read it.
                let _ = stream.try_write(why);
                continue;
            }
            self.serve(stream, address.to_string());
        }
    }

    /// Why a client from `from` is not served.
    fn refusal(&self, from: IpAddr) -> Option<&'static [u8]> {
        let tunable = self.tunable.borrow();
        if tunable.is_protected && tunable.password.is_none() && !from.to_canonical().is_loopback() {
            return Some(PROTECTED);
        }
        let is_full = self.connections.borrow().len() >= tunable.clients_max;
        is_full.then_some(b"-ERR max number of clients reached\r\n")
    }

    fn serve(self: &Rc<Face>, stream: TcpStream, address: String) {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let local = stream.local_addr().map(|local| local.to_string()).unwrap_or_default();
        let connection = Rc::new(Connection::new(id, address, local, self.clone()));
        self.connections.borrow_mut().insert(id, connection.clone());
        let face = self.clone();
        tokio::task::spawn_local(async move {
            connection::serve(stream, &connection).await;
            face.connections.borrow_mut().remove(&id);
            face.is_done(&connection);
            face.set_monitor(id, false);
            connection.unsubscribe();
            face.engine().closed(id);
        });
    }

    /// An answer came; its connection, if it is still there, sends it in its turn.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        if let Some(connection) = self.connection(ticket.connection) {
            self.look_at_clock();
            connection.answer(ticket.place, answer);
            connection.wake();
        }
    }

    /// The same between [`Face::begin_turn`] and [`Face::end_turn`], where the replies of each connection leave together.
    pub fn answer_in_turn(&self, ticket: Ticket, answer: Answer) {
        if let Some(connection) = self.connection(ticket.connection) {
            connection.answer(ticket.place, answer);
            if !connection.is_answered.replace(true) {
                self.answered.borrow_mut().push(connection);
            }
        }
    }

    /// A connection, if it is still there.
    #[must_use]
    pub fn connection(&self, id: u64) -> Option<Rc<Connection>> {
        self.connections.borrow().get(&id).cloned()
    }

    /// Says something to a connection that it did not ask for, if it is still there and speaks RESP3.
    pub fn push(&self, connection: u64, message: Vec<Reply>) {
        if let Some(connection) = self.connection(connection) {
            connection.push_to_resp3(message);
        }
    }

    /// Closes every connection once its replies are sent.
    pub fn close_all(&self) {
        self.all().iter().for_each(|connection| connection.close());
    }

    /// Whether a connection is still there.
    #[must_use]
    pub fn is_connected(&self, connection: u64) -> bool {
        self.connections.borrow().contains_key(&connection)
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.connections.borrow().len()
    }

    /// All connections, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().values().cloned().collect()
    }

    /// Tells the node what its clients want to know of what happens to keys and locks.
    pub fn listen_to_keys(&self) {
        let notify = self.tunable.borrow().notify;
        let changes = !self.tracking.borrow().is_idle();
        let locks = self.subscriptions.borrow().hear_locks();
        self.engine().listen(Interest { notify, changes, locks, me: None });
    }

    /// Changes who listens to what. The node is told if somebody may listen to locks now, or nobody any more.
    pub fn subscribe(&self, change: impl FnOnce(&mut Subscriptions)) {
        let was_heard = self.subscriptions.borrow().hear_locks();
        change(&mut self.subscriptions.borrow_mut());
        if self.subscriptions.borrow().hear_locks() != was_heard {
            self.listen_to_keys();
        }
    }

    /// Keys were looked for in vain by a client of this node.
    pub fn missed(&self, misses: &[(u8, Bytes)]) {
        let notify = self.tunable.borrow().notify;
        for (db, key) in misses {
            for (channel, message) in notify.messages(Class::Miss, "keymiss", *db, key) {
                self.publish(&channel, &message);
            }
        }
    }

    /// A message for those who listen.
    pub fn publish(&self, channel: &Bytes, message: &Bytes) {
        self.subscriptions.borrow().publish(channel, message, &mut |listener, push| {
            if let Some(connection) = self.connection(listener) {
                connection.push(push);
            }
        });
    }

    // ---- CLIENT TRACKING ----

    /// What the log changed, before the answers of the same turn are given.
    pub fn begin_turn(&self, changes: Vec<Change>) {
        self.look_at_clock();
        if !changes.is_empty() {
            let notices = self.tracking.borrow_mut().begin_turn(changes);
            self.tell_old(notices);
        }
    }

    /// The turn's answers are given.
    pub fn end_turn(&self) {
        let notices = self.tracking.borrow_mut().end_turn();
        self.tell_old(notices);
        for connection in self.answered.take() {
            connection.is_answered.set(false);
            if !connection.send_replies() {
                connection.wake();
            }
        }
    }

    /// The state was exchanged for another: every copy may be old.
    pub fn all_changed(&self) {
        self.begin_turn(vec![Change { key: None, author: None }]);
        self.end_turn();
    }

    /// Drops what is too much in the table. To be called after a reply, so that no notice comes before it.
    pub fn shrink_tracking(&self) {
        let keys_max = self.tunable.borrow().tracked_keys_max;
        let notices = self.tracking.borrow_mut().shrink(keys_max);
        self.tell_old(notices);
    }

    /// A connection tracks no more.
    pub fn stop_tracking(&self, connection: u64) {
        let is_tracking = self.tracking.borrow().of(connection).is_some();
        if is_tracking {
            self.tracking.borrow_mut().stop(connection);
            self.listen_to_keys();
        }
    }

    fn tell_old(&self, notices: Vec<Notice>) {
        for Notice { client, keys } in notices {
            let redirect = self.tracking.borrow().of(client).and_then(|tracker| tracker.redirect);
            let listener = self.connection(redirect.unwrap_or(client));
            match (listener, redirect) {
                (Some(listener), _) => listener.tell_old(keys, redirect.is_some()),
                (None, Some(target)) => {
                    self.tracking.borrow_mut().broken(client);
                    let target = Reply::Integer(i64::try_from(target).unwrap_or(i64::MAX));
                    self.push(client, vec![Reply::bulk(b"tracking-redir-broken"), target]);
                }
                (None, None) => {}
            }
        }
    }

    /// A connection spoke HTTP. The log gets one line a minute of it, as in Redis.
    pub(crate) fn warn_of_attack(&self, address: &str) {
        let now = Instant::now();
        if self.warned.get().is_none_or(|last| now - last >= Duration::from_secs(60)) {
            self.warned.set(Some(now));
            warn!(
                client = address,
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Warlock. This is likely due to an \
                 attacker attempting to use Cross Protocol Scripting to compromise it. Connection aborted."
            );
        }
    }

    // ---- time ----

    /// Time goes on.
    pub(crate) fn look_at_clock(&self) {
        self.looked_at.set(Instant::now());
    }

    /// The time when the clock was last looked at.
    pub(crate) fn now(&self) -> Instant {
        self.looked_at.get()
    }

    // ---- turns ----

    /// The node takes a turn: behind it, so many requests more are taken.
    pub fn breathe(&self) {
        self.breath.refill();
        self.call_next();
    }

    /// Whether a connection may take a request now. If not, the node has been asked for a turn, and the connection will be called.
    pub(crate) fn take_breath(&self, connection: &Connection) -> bool {
        let may_take = self.breath.take(connection.id, &connection.standing);
        if !may_take {
            self.engine().nudge();
        }
        may_take
    }

    /// A connection has taken what it could, or is gone: if it had been called, the next one is.
    pub(crate) fn is_done(&self, connection: &Connection) {
        if connection.standing.get() != Standing::Called {
            return;
        }
        connection.standing.set(Standing::Outside);
        if !self.call_next() && self.breath.is_waited_for() {
            self.engine().nudge();
        }
    }

    fn call_next(&self) -> bool {
        while let Some(id) = self.breath.next() {
            if let Some(connection) = self.connection(id) {
                connection.standing.set(Standing::Called);
                connection.wake();
                return true;
            }
        }
        false
    }

    // ---- CLIENT PAUSE ----

    /// Holds writes, or everything, for so long. A longer or wider pause that is under way stays.
    pub fn pause(self: &Rc<Face>, time: Duration, is_for_all: bool) {
        let now = Instant::now();
        let mut pause = Pause { until: now + time, is_for_all };
        if let Some(old) = self.pause.get().filter(|old| old.until > now) {
            pause.until = pause.until.max(old.until);
            pause.is_for_all |= old.is_for_all;
        }
        self.pause.set(Some(pause));
        let face = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep_until(pause.until.into()).await;
            face.wake_all();
        });
    }

    /// Ends it.
    pub fn unpause(&self) {
        self.pause.set(None);
        self.wake_all();
    }

    /// Whether a command has to wait.
    #[must_use]
    pub fn is_paused(&self, is_write: bool) -> bool {
        self.pause.get().is_some_and(|pause| (is_write || pause.is_for_all) && pause.until > Instant::now())
    }

    fn wake_all(&self) {
        self.all().iter().for_each(|connection| connection.wake());
    }

    // ---- MONITOR ----

    /// Shows every command to a connection, or no more.
    pub fn set_monitor(&self, connection: u64, is_on: bool) {
        let mut monitors = self.monitors.borrow_mut();
        monitors.retain(|known| *known != connection);
        if is_on {
            monitors.push(connection);
        }
    }

    /// Shows a command to those who watch.
    pub fn show<'a>(&self, db: u8, address: &str, words: impl Iterator<Item = &'a [u8]>) {
        if self.monitors.borrow().is_empty() {
            return;
        }
        let now = unix_time();
        let mut line = format!("{}.{:06} [{db} {address}]", now.as_secs(), now.subsec_micros());
        for word in words {
            line += " \"";
            word.iter().for_each(|byte| show_byte(&mut line, *byte));
            line.push('"');
        }
        let line = Reply::Simple(Bytes::from(line));
        for monitor in self.monitors.borrow().iter() {
            if let Some(connection) = self.connection(*monitor) {
                connection.push(line.clone());
            }
        }
    }
}
