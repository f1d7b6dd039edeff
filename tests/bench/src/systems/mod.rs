//! The servers that are compared, each started on free loopback ports with fresh data and stopped when dropped.

mod etcd;
mod redis;
mod warlock;
mod zookeeper;

use crate::processes::{Process, Usage};
use crate::wire::Protocol;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

pub use warlock::start as start_warlock;

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// Three durable nodes.
    Warlock,
    /// One node that keeps nothing.
    RedisMemory,
    /// One node that syncs every write.
    RedisAlways,
    /// Three nodes.
    Etcd,
    /// Three nodes.
    ZooKeeper,
}

impl Which {
    /// All of them; the order in which a round visits them.
    pub const ALL: [Which; 5] =
        [Which::Warlock, Which::RedisAlways, Which::ZooKeeper, Which::Etcd, Which::RedisMemory];

    /// For tables, JSON and the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Which::Warlock => "warlock",
            Which::RedisMemory => "redis-memory",
            Which::RedisAlways => "redis-always",
            Which::Etcd => "etcd",
            Which::ZooKeeper => "zookeeper",
        }
    }

    /// The Debian package that brings it, and a file of it.
    fn package(self) -> Option<(&'static str, &'static str)> {
        match self {
            Which::Warlock => None,
            Which::RedisMemory | Which::RedisAlways => Some(("redis-server", "/usr/bin/redis-server")),
            Which::Etcd => Some(("etcd-server", "/usr/bin/etcd")),
            Which::ZooKeeper => Some(("zookeeperd", "/usr/share/java/zookeeper.jar")),
        }
    }

    /// Whether it can be started here; installs it first if it is missing and this user may.
    ///
    /// # Errors
    /// When it is missing, with the way out.
    pub fn ensure(self) -> Result<(), String> {
        let Some((package, file)) = self.package() else { return Ok(()) };
        if Path::new(file).exists() {
            return Ok(());
        }
        if rustix::process::getuid().is_root() {
            eprintln!("installing {package}");
            let mut install = std::process::Command::new("apt-get");
            install.args(["install", "-y", "--no-install-recommends", package]);
            // The package must not start a server of its own beside ours.
            install.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
            let _ = install.stdout(std::process::Stdio::null()).status();
        }
        match Path::new(file).exists() {
            true => Ok(()),
            false => Err(format!("{} is missing ({file}); install the package {package}", self.name())),
        }
    }

    /// Starts it with its data below `directory`, and waits until it serves.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(self, directory: &Path, binary: &Path) -> io::Result<System> {
        let directory = directory.join(self.name());
        std::fs::create_dir_all(&directory)?;
        match self {
            Which::Warlock => warlock::start(&directory, binary, 3),
            Which::RedisMemory => redis::start(&directory, false),
            Which::RedisAlways => redis::start(&directory, true),
            Which::Etcd => etcd::start(&directory),
            Which::ZooKeeper => zookeeper::start(&directory),
        }
    }
}

/// A system that serves.
pub struct System {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where clients go: its master.
    pub address: SocketAddr,
    /// What its processes use.
    pub usage: Usage,
    _processes: Vec<Process>,
}

impl System {
    fn new(protocol: Protocol, address: SocketAddr, processes: Vec<Process>) -> System {
        System {
            protocol,
            address,
            usage: Usage::of(processes.iter().map(Process::id)),
            _processes: processes,
        }
    }
}

/// How long a system may take to serve; a JVM on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks until one of `addresses` answers `question` with `wanted`; gives its place.
fn find_master(what: &str, addresses: &[SocketAddr], question: &[u8], wanted: &str) -> io::Result<usize> {
    let start = Instant::now();
    let mut last = String::new();
    while start.elapsed() < PATIENCE {
        for (place, address) in addresses.iter().enumerate() {
            match ask(*address, question, wanted) {
                Ok(answer) if answer.contains(wanted) => return Ok(place),
                Ok(answer) => last = answer,
                Err(error) => last = error.to_string(),
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let last: String = last.chars().take(200).collect();
    Err(io::Error::other(format!("{what}: no master after {PATIENCE:?}; last heard: {last:?}")))
}

fn ask(address: SocketAddr, question: &[u8], wanted: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    stream.write_all(question)?;
    let (mut text, mut piece) = (String::new(), [0; 16 << 10]);
    // Until the server closes, falls silent, or said what is wanted.
    while let Ok(got) = stream.read(&mut piece) {
        text += &String::from_utf8_lossy(&piece[..got]);
        if got == 0 || text.contains(wanted) {
            break;
        }
    }
    Ok(text)
}

/// Who is master of a Warlock cluster, and in which ballot, by the word of one node.
///
/// # Errors
/// When it does not say.
pub fn reign(address: SocketAddr) -> io::Result<String> {
    let text = ask(address, b"INFO warlock\r\n", "warlock_waiting:")?;
    let field = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
    match (field("warlock_master:"), field("warlock_ballot:")) {
        (Some(master), Some(ballot)) => Ok(format!("{} in ballot {}", master.trim(), ballot.trim())),
        _ => Err(io::Error::other(format!("{address} does not say who is master: {text:?}"))),
    }
}

/// `count` ports that nobody uses.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<io::Result<_>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
