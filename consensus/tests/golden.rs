//! Golden scripts: whole conversations of a small cluster, one situation per file.
//!
//! A script under `tests/scripts` gives commands; what follows `---` is generated. `make golden` writes it anew; read every changed line
//! before you keep it. The commands are listed in [`Command`]; the nodes run through the real [`Node`](warlock_consensus::Node).
//!
//! In the output, `n1 → n2,n3 …` is a message when it leaves its node (so an acceptor's answer is already durable), everything else
//! happens on the node named. A value stands by its payload (`a+b` is a batch), `7:a@1.2.n3` is `a` accepted for slot 7 in ballot 1.2.n3.
//! Heartbeats, progress reports and what roles of one node tell each other are left out unless the script is `verbose`.
//! The runner itself checks agreement (R1) and that no two nodes serve from a lease at once (M1).
#![cfg(not(feature = "planted-bugs"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "golden/disk.rs"]
mod disk;
#[path = "golden/log.rs"]
mod log;
#[path = "golden/words.rs"]
mod words;
#[path = "golden/world/mod.rs"]
mod world;

use bytes::Bytes;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use warlock_consensus::{Change, Config, Message, NodeId};
use world::{Filter, Settings, World};

/// What a script can do. Nodes are numbers; several in one argument are written `2/3`, and so are kinds of messages.
#[derive(goldenscript::Command)]
enum Command {
    /// Founds a cluster: `nodes=3`, settings of the engine, `lease=`, `chunk=` (bytes of a snapshot in one message), and `master=1`
    /// to let that node be elected first, without a word.
    Cluster(#[arg(optional)] Vec<(String, String)>),

    // ---- clients and administrators ----
    /// Clients of a node want these executed.
    Submit {
        node: Id,
        payloads: Vec<String>,
    },
    /// The client of a node's n-th command does not wait any more.
    Abandon {
        node: Id,
        seq: u64,
    },
    /// A linearizable read comes to a node; the answer shows everything executed.
    Read {
        node: Id,
        name: String,
    },
    /// How old a local read on this node may be.
    Age(Id),
    /// Asks a node to hand its mastership over.
    Transfer {
        node: Id,
        to: Option<Id>,
    },
    /// Asks a node to change the member set: `add n4`, `observe n4`, `promote 4`, `remove 4`, `down 4 5`, `lease 2s`.
    Reconfigure {
        node: Id,
        change: String,
        what: Vec<String>,
    },

    // ---- nodes and disks ----
    /// Starts a new member that knows of the configuration what another node knows.
    Join {
        node: Id,
        #[arg(key)]
        from: Id,
    },
    /// Nodes crash; `keep=n` of the unsynced records survive.
    Crash {
        nodes: Vec<Id>,
        #[arg(key, optional)]
        keep: usize,
    },
    Restart(Vec<Id>),
    /// A node is lost with its disk.
    Wipe(Id),
    /// `disk 2 hold`: what node 2 writes waits for `sync`; `disk 2 auto`: it is durable at once, as from the start.
    Disk {
        node: Id,
        mode: String,
    },
    /// What nodes wrote becomes durable, and what waited for it leaves.
    Sync(Vec<Id>),
    /// Nodes take a snapshot and compact their journal.
    Snapshot(Vec<Id>),

    // ---- the network ----
    /// Delivers everything, until nobody says anything more. Time does not pass.
    Stabilize,
    /// Delivers only what is picked: between the nodes named, or from, to, of a kind. `flights=1`: what is under way now.
    Deliver {
        #[arg(optional)]
        among: Vec<Id>,
        #[arg(key)]
        from: Option<Ids>,
        #[arg(key)]
        to: Option<Ids>,
        #[arg(key)]
        kind: Option<Kinds>,
        #[arg(key)]
        slot: Option<u64>,
        #[arg(key)]
        text: Option<String>,
        #[arg(key)]
        flights: Option<usize>,
    },
    /// From now on, such messages wait.
    Hold {
        #[arg(key)]
        from: Option<Ids>,
        #[arg(key)]
        to: Option<Ids>,
        #[arg(key)]
        kind: Option<Kinds>,
        #[arg(key)]
        slot: Option<u64>,
        #[arg(key)]
        text: Option<String>,
    },
    /// From now on, such messages are lost.
    Lose {
        #[arg(key)]
        from: Option<Ids>,
        #[arg(key)]
        to: Option<Ids>,
        #[arg(key)]
        kind: Option<Kinds>,
        #[arg(key)]
        slot: Option<u64>,
        #[arg(key)]
        text: Option<String>,
    },
    /// These nodes are cut off from all others.
    Cut(Vec<Id>),
    /// Ends every `hold`, `lose` and `cut`.
    Heal,
    /// Loses such messages that are under way.
    Drop {
        #[arg(key)]
        from: Option<Ids>,
        #[arg(key)]
        to: Option<Ids>,
        #[arg(key)]
        kind: Option<Kinds>,
        #[arg(key)]
        slot: Option<u64>,
        #[arg(key)]
        text: Option<String>,
    },
    /// Such messages that are under way arrive twice.
    Duplicate {
        #[arg(key)]
        from: Option<Ids>,
        #[arg(key)]
        to: Option<Ids>,
        #[arg(key)]
        kind: Option<Kinds>,
        #[arg(key)]
        slot: Option<u64>,
        #[arg(key)]
        text: Option<String>,
    },

    // ---- time ----
    /// Time passes; what is due happens, and messages arrive at once. `[+5ms]` counts from the beginning of the command.
    Tick(Span),
    /// Time passes until this node tries to lead; the others do nothing meanwhile.
    Campaign(Id),

    // ---- looking ----
    Status(#[arg(optional)] Vec<Id>),
    /// From now on shows every message; `verbose off` ends it.
    Verbose(Option<String>),
}

/// A node by its number.
#[derive(Clone, Copy)]
struct Id(NodeId);

impl FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|number| Id(NodeId(number)))
    }
}

/// `1/2`.
#[derive(Clone)]
struct Ids(BTreeSet<NodeId>);

impl FromStr for Ids {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split('/').map(|one| one.parse().map(NodeId)).collect::<Result<_, _>>().map(Ids)
    }
}

/// `p2a/p2b`.
#[derive(Clone)]
struct Kinds(BTreeSet<String>);

impl FromStr for Kinds {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Kinds(text.split('/').map(ToString::to_string).collect()))
    }
}

/// `500ms` or `2s`.
#[derive(Clone, Copy)]
struct Span(Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
        let number: u64 = number.parse().map_err(|_| format!("{text} is not a time"))?;
        match unit {
            "ms" => Ok(Span(Duration::from_millis(number))),
            "s" => Ok(Span(Duration::from_secs(number))),
            _ => Err(format!("{text} is not a time in ms or s")),
        }
    }
}

fn filter(
    from: &Option<Ids>,
    to: &Option<Ids>,
    kind: &Option<Kinds>,
    slot: &Option<u64>,
    text: &Option<String>,
) -> Filter {
    Filter {
        text: text.clone(),
        from: from.as_ref().map(|ids| ids.0.clone()),
        to: to.as_ref().map(|ids| ids.0.clone()),
        kinds: kind.as_ref().map(|kinds| kinds.0.clone()),
        slot: *slot,
        ..Filter::default()
    }
}

fn change(kind: &str, what: &[String]) -> Result<Change, Box<dyn Error>> {
    let contact = || Bytes::from(what[0].clone());
    let node = || what[0].parse().map(|Id(node)| node);
    Ok(match kind {
        "add" => Change::Add { contact: contact(), observer: false },
        "observe" => Change::Add { contact: contact(), observer: true },
        "promote" => Change::Promote(node()?),
        "remove" => Change::Remove(node()?),
        "down" => {
            let nodes = what.iter().map(|one| one.parse().map(|Id(node)| node));
            Change::Down(nodes.collect::<Result<_, _>>()?)
        }
        "lease" => Change::Lease(what[0].parse::<Span>()?.0),
        _ => return Err(format!("unknown change {kind}").into()),
    })
}

#[derive(Default)]
struct Runner {
    world: Option<World>,
}

impl Runner {
    fn found(&mut self, options: &[(String, String)]) -> Result<(), Box<dyn Error>> {
        let mut settings = Settings { nodes: 3, lease: Duration::from_secs(1), chunk: 64 };
        let mut config = Config::default();
        let mut master = None;
        for (key, value) in options {
            let time = || value.parse::<Span>().map(|Span(time)| time);
            match key.as_str() {
                "nodes" => settings.nodes = value.parse()?,
                "lease" => settings.lease = time()?,
                "chunk" => settings.chunk = value.parse()?,
                "master" => master = Some(value.parse::<Id>()?.0),
                "window" => config.window = value.parse()?,
                "batch" => config.batch_commands_max = value.parse()?,
                "log_keep" => config.log_keep = value.parse()?,
                "log_keep_bytes" => config.log_keep_bytes = value.parse()?,
                "page_bytes" => config.page_bytes_max = value.parse()?,
                "durable_every" => config.durable_every = value.parse()?,
                "durable_after" => config.durable_after = time()?,
                "accept_ahead" => config.accept_ahead_max = value.parse()?,
                "in_step" => config.in_step = value.parse()?,
                "down_after" => config.down_after = time()?,
                "catch_up_max" => config.catch_up_max = time()?,
                "retry" => config.retry = time()?,
                _ => return Err(format!("unknown setting {key}").into()),
            }
        }
        let mut world = World::new(&settings, config);
        world.deliver(None, None);
        if let Some(master) = master {
            world.campaign(master);
            world.deliver(None, None);
            let _election = world.log.take();
            world.log.fact(master, "is master");
        }
        self.world = Some(world);
        Ok(())
    }
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        if let Command::Cluster(options) = command {
            self.found(options)?;
        }
        let world = self.world.as_mut().ok_or("the script must begin with `cluster`")?;
        let ids = |ids: &[Id]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
        match command {
            Command::Cluster(_) => {}
            Command::Submit { node, payloads } => world.submit(node.0, payloads),
            Command::Abandon { node, seq } => world.abandon(node.0, *seq),
            Command::Read { node, name } => world.read(node.0, name.clone()),
            Command::Age(node) => world.age(node.0),
            Command::Transfer { node, to } => {
                world.admin(node.0, Message::Transfer { to: to.map(|id| id.0), ticket: 1 });
            }
            Command::Reconfigure { node, change: kind, what } => {
                let change = change(kind, what)?;
                world.admin(node.0, Message::Reconfigure { change, ticket: 1 });
            }
            Command::Join { node, from } => world.join(node.0, from.0),
            Command::Crash { nodes, keep } => ids(nodes).into_iter().for_each(|id| world.crash(id, *keep)),
            Command::Restart(nodes) => ids(nodes).into_iter().for_each(|id| world.start(id)),
            Command::Wipe(node) => world.wipe(node.0),
            Command::Disk { node, mode } => world.hold_disk(node.0, mode == "hold"),
            Command::Sync(nodes) => ids(nodes).into_iter().for_each(|id| world.sync(id)),
            Command::Snapshot(nodes) => ids(nodes).into_iter().for_each(|id| world.take_snapshot(id)),
            Command::Stabilize => world.deliver(None, None),
            Command::Deliver { among, from, to, kind, slot, text, flights } => {
                let mut picked = filter(from, to, kind, slot, text);
                picked.among = (!among.is_empty()).then(|| among.iter().map(|id| id.0).collect());
                world.deliver(Some(&picked), *flights);
            }
            Command::Hold { from, to, kind, slot, text } => world.hold(filter(from, to, kind, slot, text)),
            Command::Lose { from, to, kind, slot, text } => world.lose(filter(from, to, kind, slot, text)),
            Command::Cut(nodes) => {
                let across = Some(nodes.iter().map(|id| id.0).collect());
                world.lose(Filter { across, ..Filter::default() });
            }
            Command::Heal => world.heal(),
            Command::Drop { from, to, kind, slot, text } => {
                world.drop_mail(&filter(from, to, kind, slot, text));
            }
            Command::Duplicate { from, to, kind, slot, text } => {
                world.duplicate(&filter(from, to, kind, slot, text));
            }
            Command::Tick(span) => world.tick(span.0),
            Command::Campaign(node) => world.campaign(node.0),
            Command::Status(nodes) => world.status(&ids(nodes)),
            Command::Verbose(mode) => world.is_verbose = mode.as_deref() != Some("off"),
        }
        Ok(world.log.take())
    }
}

fn scripts_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(scripts_under(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = scripts_under(&folder);
    let mut failed = Vec::new();
    for script in &scripts {
        let name = script.strip_prefix(&folder).unwrap().display().to_string();
        let run = || goldenscript::run(&mut Runner::default(), script);
        let result = std::panic::catch_unwind(run);
        if let Ok(Err(error)) = &result {
            eprintln!("{name}: {error}");
        }
        if !matches!(result, Ok(Ok(()))) {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "of {} scripts these differ or fail: {failed:?}", scripts.len());
}
