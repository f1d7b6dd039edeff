//! What an operator may set: one table, from which the flags, the environment variables, the configuration file and `--print-config` follow.
//!
//! Invariant: a setting has the same name and the same syntax wherever it comes from; a flag outweighs the environment, which outweighs the file, which
//! outweighs the default. A wrong value is named with its source and the way out, before anything is opened.

mod sources;
mod table;
mod values;

pub use sources::{Given, Source, given, misspelt, print};
pub use table::{Setting, TABLE};
pub use values::{is_any_host, time};

use crate::identity::Contact;
use std::path::PathBuf;
use std::time::Duration;
use storage::machine::Notify;

/// Slots that are kept for lagging peers in any case, when rows are on disk.
const DISK_LOG_KEEP: u64 = 64;
/// The same in bytes: whichever is less.
const DISK_LOG_KEEP_BYTES: usize = 8 << 20;
/// Bytes in one slot, when rows are on disk.
const DISK_BATCH_BYTES: usize = 256 << 10;

/// How hard a node remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is said before it is on the disk.
    Fsync,
    /// Nothing is written; a node that restarts comes back as a new member.
    Memory,
}

/// Where rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// All in memory.
    Memory,
    /// On disk; memory holds what is used.
    Disk,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Everything that was set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the node's data is.
    pub dir: PathBuf,
    /// Where clients connect; `None`: the address that the cluster knows, or the default.
    pub bind: Option<String>,
    /// Where peers connect.
    pub peer_bind: Option<String>,
    /// Where probes and Prometheus connect, if anywhere.
    pub http: Option<String>,
    /// What clients are told.
    pub announce: Option<String>,
    /// What peers are told.
    pub peer_announce: Option<String>,
    /// The clients' password.
    pub requirepass: Option<String>,
    /// What all members know and nobody else.
    pub cluster_secret: Option<String>,
    /// Members that an empty node asks to be added.
    pub join: Vec<String>,
    /// An empty node waits to be invited, instead of founding a cluster of one.
    pub wait_for_invitation: bool,
    /// Fsync or memory.
    pub durability: Durability,
    /// Where rows are.
    pub store: StoreKind,
    /// Memory for rows that were read from the disk.
    pub store_cache: u64,
    /// The master lease of a cluster that is formed.
    pub lease: Duration,
    /// How long a client's request is held.
    pub request_timeout: Duration,
    /// How long a silent member keeps its vote.
    pub down_after: Duration,
    /// Whether clients of other machines are refused while there is no password.
    pub is_protected: bool,
    /// Free bytes below which writes are refused.
    pub disk_reserve: u64,
    /// Bytes of snapshots a second that go to peers, at most; 0: no limit.
    pub snapshot_rate: u64,
    /// Open connections, at most.
    pub maxclients: usize,
    /// Bytes of one argument.
    pub bulk_bytes_max: usize,
    /// Bytes of one request.
    pub query_bytes_max: usize,
    /// Bytes of replies that wait for one client.
    pub output_bytes_max: usize,
    /// Which keyspace notifications clients get.
    pub notify: Notify,
    /// `slowlog-log-slower-than`.
    pub slower_than_us: i64,
    /// `slowlog-max-len`.
    pub slow_max: usize,
    /// `latency-monitor-threshold`.
    pub latency_ms: u64,
    /// `readonly-max-age-ms`.
    pub stale_ms_max: u64,
    /// `tracking-table-max-keys`.
    pub tracked_keys_max: usize,
    /// The file that these come from, if there is one.
    pub config_file: Option<PathBuf>,
    /// Which lines the log has.
    pub log: String,
    /// How they look.
    pub log_format: LogFormat,
}

/// A value, or the pair of them, that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError(pub String);

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingError {}

impl Settings {
    /// Reads every given value and checks them against each other.
    ///
    /// # Errors
    /// Names the setting, where its value comes from, and what would be right.
    pub fn new(given: &[Given]) -> Result<Settings, SettingError> {
        let mut settings = Settings::blank();
        for Given { setting, text, source } in given {
            (setting.set)(&mut settings, text).map_err(|problem| {
                let shown = if setting.is_secret { "…" } else { text };
                SettingError(format!("{} = \"{shown}\" ({}): {problem}", setting.name, source.of(setting)))
            })?;
        }
        settings.check().map_err(SettingError)?;
        Ok(settings)
    }

    /// Before the table's defaults have filled it.
    fn blank() -> Settings {
        Settings {
            dir: PathBuf::new(),
            bind: None,
            peer_bind: None,
            http: None,
            announce: None,
            peer_announce: None,
            requirepass: None,
            cluster_secret: None,
            join: Vec::new(),
            wait_for_invitation: false,
            durability: Durability::Fsync,
            store: StoreKind::Memory,
            store_cache: 0,
            lease: Duration::ZERO,
            request_timeout: Duration::ZERO,
            down_after: Duration::ZERO,
            is_protected: true,
            disk_reserve: 0,
            snapshot_rate: 0,
            maxclients: 0,
            bulk_bytes_max: 0,
            query_bytes_max: 0,
            output_bytes_max: 0,
            notify: Notify::default(),
            slower_than_us: 0,
            slow_max: 0,
            latency_ms: 0,
            stale_ms_max: 0,
            tracked_keys_max: 0,
            config_file: None,
            log: String::new(),
            log_format: LogFormat::Text,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.request_timeout <= self.lease {
            return Err(format!(
                "request-timeout ({:?}) must be longer than lease ({:?}): a fail-over takes at least a lease, and requests are held over it; \
                 raise request-timeout or shorten lease",
                self.request_timeout, self.lease
            ));
        }
        if self.bulk_bytes_max > self.query_bytes_max {
            return Err(format!(
                "proto-max-bulk-len ({}) must not exceed client-query-buffer-limit ({}): an argument is part of a request",
                self.bulk_bytes_max, self.query_bytes_max
            ));
        }
        if self.is_memory() && self.is_on_disk() {
            return Err(
                "durability is memory, which writes nothing, and store is disk; leave one of them out".into(),
            );
        }
        if self.is_guest() && self.cluster_secret.is_none() {
            return Err(
                "wait-for-invitation and join need cluster-secret: without it anybody who reaches the peer port could take the node over; \
                 give every node of the cluster the same secret (WARLOCK_CLUSTER_SECRET, or in the file)"
                    .into(),
            );
        }
        if self.is_guest() {
            let told =
                [("bind", &self.bind, &self.announce), ("peer-bind", &self.peer_bind, &self.peer_announce)];
            for (name, bind, announced) in told {
                if bind.as_ref().is_some_and(|bind| bind.ends_with(":0")) && announced.is_none() {
                    return Err(format!(
                        "{name} leaves the port to the system (0), but a node that waits for an invitation must say where it is; give {name} a port, or {}announce",
                        name.trim_end_matches("bind")
                    ));
                }
            }
        }
        self.check_doors()
    }

    /// One socket cannot be two doors. What is not given is not compared: a node that has data knows its addresses.
    fn check_doors(&self) -> Result<(), String> {
        let derived = self.bind.is_some().then(|| self.peer_listen());
        let doors = [
            ("bind", self.bind.clone()),
            ("peer-bind", derived.or(self.peer_bind.clone())),
            ("http", self.http.clone()),
        ];
        for (place, (name, address)) in doors.iter().enumerate() {
            let Some(address) = address else { continue };
            let twin = doors[..place]
                .iter()
                .find(|(_, other)| other.as_ref().is_some_and(|other| is_same_door(other, address)));
            if let Some((other, taken)) = twin {
                let taken = taken.as_deref().unwrap_or_default();
                return Err(format!(
                    "{other} ({taken}) and {name} ({address}) are the same port; give each its own"
                ));
            }
        }
        Ok(())
    }

    /// An empty node becomes part of a cluster only by invitation.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.wait_for_invitation || !self.join.is_empty()
    }

    /// Nothing is kept on disk.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.durability == Durability::Memory
    }

    /// Rows are on disk.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        self.store == StoreKind::Disk
    }

    /// The cluster knows this node under `contact`, and that cannot be changed.
    ///
    /// # Errors
    /// When something else is to be announced.
    pub fn check_announced(&self, contact: &Contact) -> Result<(), String> {
        let pairs = [
            ("announce", &self.announce, &contact.client),
            ("peer-announce", &self.peer_announce, &contact.peer),
        ];
        for (name, wanted, known) in pairs {
            if wanted.as_ref().is_some_and(|wanted| wanted != known) {
                return Err(format!(
                    "{name} is {}, but the cluster knows this node as {known}; an address is fixed when a node joins: leave {name} out, or, to move the \
                     node, WARLOCK ADD it at its new address with an empty directory and WARLOCK REMOVE the old member",
                    wanted.as_deref().unwrap_or_default()
                ));
            }
        }
        Ok(())
    }

    /// Where clients reach a node that is new: what is announced, else where it listens.
    #[must_use]
    pub fn client_address(&self) -> String {
        self.announce.clone().unwrap_or_else(|| self.client_bind())
    }

    /// The same for peers.
    #[must_use]
    pub fn peer_address(&self) -> String {
        self.peer_announce.clone().unwrap_or_else(|| self.peer_listen())
    }

    /// Where a new node listens for clients.
    #[must_use]
    pub fn client_bind(&self) -> String {
        self.bind.clone().unwrap_or_else(|| "127.0.0.1:6379".into())
    }

    /// Where a new node listens for peers: as with Redis Cluster, 10,000 above the clients' port unless told.
    #[must_use]
    pub fn peer_listen(&self) -> String {
        self.peer_bind.clone().unwrap_or_else(|| {
            let bind = self.client_bind();
            let (host, port) = bind.rsplit_once(':').unwrap_or(("127.0.0.1", "6379"));
            let port: u16 = port.parse().unwrap_or(0);
            let peer_port =
                if port == 0 { 0 } else { port.checked_add(10_000).unwrap_or_else(|| port - 10_000) };
            format!("{host}:{peer_port}")
        })
    }

    /// What the Redis face allows its clients.
    #[must_use]
    #[allow(clippy::needless_update)] // the face may get settings that are not the operator's
    pub fn face(&self) -> server::Settings {
        let defaults = server::Settings::default();
        server::Settings {
            clients_max: self.maxclients,
            limits: server::resp::Limits {
                bulk_bytes_max: self.bulk_bytes_max,
                request_bytes_max: self.query_bytes_max,
                ..defaults.limits
            },
            password: self.requirepass.clone(),
            output_bytes_max: self.output_bytes_max,
            is_protected: self.is_protected,
            notify: self.notify,
            slower_than_us: self.slower_than_us,
            slow_max: self.slow_max,
            latency_ms: self.latency_ms,
            stale_ms_max: self.stale_ms_max,
            tracked_keys_max: self.tracked_keys_max,
            config_file: self.config_file.clone(),
            ..defaults
        }
    }

    /// The engine's limits and intervals.
    #[must_use]
    pub fn engine(&self) -> consensus::Config {
        let config = consensus::Config { down_after: self.down_after, ..consensus::Config::default() };
        if self.is_on_disk() {
            // Who chose the disk has little memory: what is kept for peers that lag is bounded by the host, in bytes, not by this number of slots.
            consensus::Config {
                log_keep: DISK_LOG_KEEP,
                log_keep_bytes: DISK_LOG_KEEP_BYTES,
                batch_bytes_max: DISK_BATCH_BYTES,
                ..config
            }
        } else {
            config
        }
    }
}

/// Whether two listeners would fight for one port.
fn is_same_door(one: &str, other: &str) -> bool {
    let (Some((host, port)), Some((other_host, other_port))) = (one.rsplit_once(':'), other.rsplit_once(':'))
    else {
        return false;
    };
    let is_same_host = host == other_host || is_any_host(one) || is_any_host(other);
    is_same_host && port == other_port && port != "0"
}

#[cfg(test)]
mod tests;
