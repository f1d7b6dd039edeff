//! The table. A new setting is one row here and one field of [`Settings`](super::Settings).

use super::values::{address, dialable, optional, secret, size, size_between, switch, time_between, whole};
use super::{Durability, LogFormat, Settings, StoreKind};
use std::path::PathBuf;
use std::time::Duration;
use storage::machine::Notify;

/// A request travels through the log as one record, and a record must fit into a segment of the journal (64 MiB) with room to spare.
const QUERY_BYTES_MOST: u64 = 48 << 20;

/// Slower, a piece of a snapshot takes so long that the peer that waits for it asks another.
const SNAPSHOT_RATE_LEAST: u64 = 64 << 10;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// `--name`, `name = …` in the file.
    pub name: &'static str,
    /// What stands for its value in `--help`.
    pub value: &'static str,
    /// When nobody says anything. Empty: not set.
    pub default: &'static str,
    /// A sentence or two.
    pub about: &'static str,
    /// As a flag it needs no value.
    pub is_switch: bool,
    /// Not to be shown.
    pub is_secret: bool,
    /// Reads a value.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Setting {
    const BASE: Setting = Setting {
        name: "",
        value: "",
        default: "",
        about: "",
        is_switch: false,
        is_secret: false,
        set: |_, _| Ok(()),
    };

    /// The environment variable: `WARLOCK_` and the name in capitals.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("WARLOCK_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

/// All settings, in the order in which they are shown.
pub const TABLE: &[Setting] = &[
    Setting {
        name: "dir",
        value: "DIR",
        default: "data",
        about: "The node's data directory. One that does not exist is made.",
        set: |settings, text| {
            settings.dir = PathBuf::from(text);
            if text.is_empty() { Err("give a directory".into()) } else { Ok(()) }
        },
        ..Setting::BASE
    },
    Setting {
        name: "bind",
        value: "HOST:PORT",
        about: "Where clients connect. Not set: the address that the cluster knows for this node, or 127.0.0.1:6379 for a new node. \
                Port 0: a free one, chosen when the node is new and remembered.",
        set: |settings, text| optional(text, address).map(|address| settings.bind = address),
        ..Setting::BASE
    },
    Setting {
        name: "peer-bind",
        value: "HOST:PORT",
        about: "Where the other nodes connect. Not set: the address that the cluster knows, or the host of bind and its port + 10000 (- 10000 above \
                55535) for a new node.",
        set: |settings, text| optional(text, address).map(|address| settings.peer_bind = address),
        ..Setting::BASE
    },
    Setting {
        name: "http",
        value: "HOST:PORT",
        about: "Where probes and Prometheus find /healthz, /readyz and /metrics. Not set: nowhere.",
        set: |settings, text| optional(text, address).map(|address| settings.http = address),
        ..Setting::BASE
    },
    Setting {
        name: "announce",
        value: "HOST:PORT",
        about: "The address that clients are told, if it is not bind. Fixed when the node joins its cluster.",
        set: |settings, text| optional(text, dialable).map(|address| settings.announce = address),
        ..Setting::BASE
    },
    Setting {
        name: "peer-announce",
        value: "HOST:PORT",
        about: "The address that the other nodes are told, if it is not peer-bind. Fixed when the node joins its cluster.",
        set: |settings, text| optional(text, dialable).map(|address| settings.peer_announce = address),
        ..Setting::BASE
    },
    Setting {
        name: "requirepass",
        value: "PASSWORD",
        about: "The password that clients must give (AUTH). Not set: none.",
        is_secret: true,
        set: |settings, text| {
            optional(text, |text| Ok(text.to_string())).map(|pass| settings.requirepass = pass)
        },
        ..Setting::BASE
    },
    Setting {
        name: "cluster-secret",
        value: "SECRET",
        about: "What all nodes of the cluster know and nobody else; links between nodes need it. Not set: the one that the directory remembers, or a \
                random one for a new cluster of one.",
        is_secret: true,
        set: |settings, text| optional(text, secret).map(|secret| settings.cluster_secret = secret),
        ..Setting::BASE
    },
    Setting {
        name: "wait-for-invitation",
        value: "BOOL",
        default: "false",
        about: "An empty node waits until WARLOCK JOIN (here) or WARLOCK ADD (on a member) makes it part of a cluster. Otherwise it founds a cluster \
                of one. Means nothing to a node that has data.",
        is_switch: true,
        set: |settings, text| switch(text).map(|on| settings.wait_for_invitation = on),
        ..Setting::BASE
    },
    Setting {
        name: "join",
        value: "HOST:PEERPORT,…",
        about: "An empty node waits for an invitation, and asks these members for one again and again. Means nothing to a node that has data.",
        set: |settings, text| {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            settings.join = parts.map(dialable).collect::<Result<_, _>>()?;
            Ok(())
        },
        ..Setting::BASE
    },
    Setting {
        name: "durability",
        value: "fsync|memory",
        default: "fsync",
        about: "fsync: nothing is acknowledged before a majority has it on disk. memory: nothing is written; data lives as long as a majority does, and \
                a node that restarts comes back as a new, empty member.",
        set: |settings, text| {
            settings.durability = match text {
                "fsync" => Durability::Fsync,
                "memory" => Durability::Memory,
                _ => return Err("give fsync or memory".into()),
            };
            Ok(())
        },
        ..Setting::BASE
    },
    Setting {
        name: "store",
        value: "memory|disk",
        default: "memory",
        about: "Where rows are. memory: all of them in memory, the fastest. disk: data may be larger than memory; what is read often is kept in memory \
                (store-cache). Nodes of one cluster may differ.",
        set: |settings, text| {
            settings.store = match text {
                "memory" => StoreKind::Memory,
                "disk" => StoreKind::Disk,
                _ => return Err("give memory or disk".into()),
            };
            Ok(())
        },
        ..Setting::BASE
    },
    Setting {
        name: "store-cache",
        value: "SIZE",
        default: "64mb",
        about: "With store disk: memory for what was read from the disk. The node needs some 150mb more for what is being written.",
        set: |settings, text| {
            size_between(text, 1 << 20, 1 << 40).map(|bytes| settings.store_cache = bytes as u64)
        },
        ..Setting::BASE
    },
    Setting {
        name: "lease",
        value: "TIME",
        default: "1s",
        about: "The master lease of a cluster that this node founds; later part of the cluster's configuration. A fail-over takes a little longer than it.",
        set: |settings, text| {
            time_between(text, Duration::from_millis(50), Duration::from_secs(60))
                .map(|lease| settings.lease = lease)
        },
        ..Setting::BASE
    },
    Setting {
        name: "request-timeout",
        value: "TIME",
        default: "10s",
        about: "How long a client's request is held while there is no master, before an error tells what became of it.",
        set: |settings, text| {
            time_between(text, Duration::from_millis(100), Duration::from_secs(3_600))
                .map(|time| settings.request_timeout = time)
        },
        ..Setting::BASE
    },
    Setting {
        name: "down-after",
        value: "TIME",
        default: "30s",
        about: "A member that is silent for so long loses its vote, when that makes the majority smaller; it gets it back when it returns.",
        set: |settings, text| {
            time_between(text, Duration::from_secs(1), Duration::from_secs(86_400))
                .map(|time| settings.down_after = time)
        },
        ..Setting::BASE
    },
    Setting {
        name: "protected-mode",
        value: "yes|no",
        default: "yes",
        about: "Refuse clients of other machines while there is no password.",
        set: |settings, text| match text {
            "yes" | "no" => {
                settings.is_protected = text == "yes";
                Ok(())
            }
            _ => Err("give yes or no".into()),
        },
        ..Setting::BASE
    },
    Setting {
        name: "disk-reserve",
        value: "SIZE",
        default: "128mb",
        about: "While less than this is free on the data directory's disk, the node refuses its clients' writes (MISCONF) and reads go on. 0: never.",
        set: |settings, text| size(text).map(|bytes| settings.disk_reserve = bytes),
        ..Setting::BASE
    },
    Setting {
        name: "snapshot-rate",
        value: "SIZE",
        default: "64mb",
        about: "Bytes a second of snapshots that this node sends to members that miss too much of the log, to all of them together. 0: no limit.",
        set: |settings, text| {
            settings.snapshot_rate = size(text)?;
            if (1..SNAPSHOT_RATE_LEAST).contains(&settings.snapshot_rate) {
                return Err(
                    "give at least 64kb, or 0 for no limit: a slower copy would be old before it is complete"
                        .into(),
                );
            }
            Ok(())
        },
        ..Setting::BASE
    },
    Setting {
        name: "maxclients",
        value: "NUMBER",
        default: "10000",
        about: "Open client connections, at most.",
        set: |settings, text| match text.parse() {
            Ok(number) if number > 0 => {
                settings.maxclients = number;
                Ok(())
            }
            _ => Err("give a number above 0".into()),
        },
        ..Setting::BASE
    },
    Setting {
        name: "proto-max-bulk-len",
        value: "SIZE",
        default: "16mb",
        about: "The longest argument of a request.",
        set: |settings, text| {
            size_between(text, 1_024, QUERY_BYTES_MOST).map(|bytes| settings.bulk_bytes_max = bytes)
        },
        ..Setting::BASE
    },
    Setting {
        name: "client-query-buffer-limit",
        value: "SIZE",
        default: "32mb",
        about: "The longest request. A write travels through the log as one record, hence at most 48mb.",
        set: |settings, text| {
            size_between(text, 1_024, QUERY_BYTES_MOST).map(|bytes| settings.query_bytes_max = bytes)
        },
        ..Setting::BASE
    },
    Setting {
        name: "client-output-buffer-limit",
        value: "SIZE",
        default: "64mb",
        about: "Replies that wait for one slow client, at most; a client behind it is not read from.",
        set: |settings, text| {
            size_between(text, 1_024, 1 << 40).map(|bytes| settings.output_bytes_max = bytes)
        },
        ..Setting::BASE
    },
    Setting {
        name: "notify-keyspace-events",
        value: "LETTERS",
        about: "What this node's clients are told of what happens to keys (K or E, and any of Ag$lshzxetdmn), as in redis.conf. Give every node the same. \
                Not set: nothing.",
        set: |settings, text| match Notify::parse(text) {
            Some(notify) => {
                settings.notify = notify;
                Ok(())
            }
            None => Err("give letters of KEAg$lshzxetdmn, such as KEA or Ex".into()),
        },
        ..Setting::BASE
    },
    Setting {
        name: "slowlog-log-slower-than",
        value: "MICROSECONDS",
        default: "10000",
        about: "From how many microseconds on a command is kept for SLOWLOG; negative: never.",
        set: |settings, text| whole(text).map(|number| settings.slower_than_us = number),
        ..Setting::BASE
    },
    Setting {
        name: "slowlog-max-len",
        value: "NUMBER",
        default: "128",
        about: "How many slow commands are kept.",
        set: |settings, text| whole(text).map(|number| settings.slow_max = number),
        ..Setting::BASE
    },
    Setting {
        name: "latency-monitor-threshold",
        value: "MILLISECONDS",
        default: "0",
        about: "From how many milliseconds on LATENCY takes a sample. 0: never.",
        set: |settings, text| whole(text).map(|number| settings.latency_ms = number),
        ..Setting::BASE
    },
    Setting {
        name: "readonly-max-age-ms",
        value: "MILLISECONDS",
        default: "1000",
        about: "How old the state may be that a READONLY connection reads.",
        set: |settings, text| whole(text).map(|number| settings.stale_ms_max = number),
        ..Setting::BASE
    },
    Setting {
        name: "tracking-table-max-keys",
        value: "NUMBER",
        default: "1000000",
        about: "How many keys are remembered for clients that cache (CLIENT TRACKING). 0: no limit.",
        set: |settings, text| whole(text).map(|number| settings.tracked_keys_max = number),
        ..Setting::BASE
    },
    Setting {
        name: "log",
        value: "LEVEL",
        default: "info",
        about: "off, error, warn, info, debug or trace; or a filter such as info,warlock::host::links=debug. The log goes to standard error.",
        set: |settings, text| {
            settings.log = text.to_string();
            let hint = "give off, error, warn, info, debug or trace, or a filter such as warlock::host=debug";
            // A word alone would be taken for a part of the program, and all others would be silent.
            let is_level = |part: &str| part.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
            let parts = text.split(',').map(str::trim);
            match parts.filter(|part| !part.contains([':', '=', '['])).find(|part| !is_level(part)) {
                Some(part) => return Err(format!("'{part}' is no level; {hint}")),
                None if text.trim().is_empty() => return Err(hint.into()),
                None => {}
            }
            match tracing_subscriber::EnvFilter::try_new(text) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error}; {hint}")),
            }
        },
        ..Setting::BASE
    },
    Setting {
        name: "log-format",
        value: "text|json",
        default: "text",
        about: "Lines for people, or one JSON object a line.",
        set: |settings, text| {
            settings.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("give text or json".into()),
            };
            Ok(())
        },
        ..Setting::BASE
    },
];
