//! Real processes, real disks, real signals: what a cluster must survive.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    directory: tempfile::TempDir,
    base: u16,
    nodes: Vec<Option<Child>>,
}

/// Ports that nobody uses now, each given out once: node N needs base + N and base + 100 + N.
fn free_base(nodes: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = u16::try_from(std::process::id() % 1_000).unwrap() * 10;
    let candidates =
        std::iter::repeat_with(|| 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed) * 10) % 20_000);
    candidates
        .take(2_000)
        .find(|base| (1..=nodes).all(|n| is_free(base + n) && is_free(base + 100 + n)))
        .expect("some ports are free")
}

impl Cluster {
    fn start(nodes: u16) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let base = free_base(nodes);
        let formed = Command::new(env!("CARGO_BIN_EXE_warlock"))
            .args(["form", "--nodes", &nodes.to_string(), "--base-port", &base.to_string(), "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(formed.success());
        let mut cluster = Cluster { directory, base, nodes: (0..nodes).map(|_| None).collect() };
        for node in 1..=nodes {
            cluster.run(node);
        }
        cluster.wait_for_master();
        cluster
    }

    fn path(&self, node: u16) -> PathBuf {
        self.directory.path().join(format!("n{node}"))
    }

    fn run(&mut self, node: u16) {
        let child = Command::new(env!("CARGO_BIN_EXE_warlock"))
            .arg("server")
            .arg("--dir")
            .arg(self.path(node))
            .env("WARLOCK_LOG", "warn")
            .spawn()
            .unwrap();
        self.nodes[usize::from(node) - 1] = Some(child);
    }

    fn kill(&mut self, node: u16) {
        let mut child = self.nodes[usize::from(node) - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn signal(&self, node: u16, signal: &str) {
        let child = self.nodes[usize::from(node) - 1].as_ref().unwrap();
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn client(&self, node: u16) -> Client {
        Client::connect(self.base + node)
    }

    fn running(&self) -> Vec<u16> {
        (1..).zip(&self.nodes).filter(|(_, child)| child.is_some()).map(|(node, _)| node).collect()
    }

    fn wait_for_master(&self) -> u16 {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for node in self.running() {
                if let Some(mut client) = Client::try_connect(self.base + node) {
                    let info = client.ask(&["INFO", "warlock"]).unwrap_or_default();
                    if info.contains("warlock_role:master\r\n") {
                        return node;
                    }
                }
            }
            std::thread::yield_now();
        }
        panic!("no master after {PATIENCE:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A Redis client that fits on a page, so that the tests see bytes and not a library's opinion of them.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn try_connect(port: u16) -> Option<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Client { stream: BufReader::new(stream) })
    }

    fn connect(port: u16) -> Client {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(client) = Client::try_connect(port) {
                return client;
            }
            std::thread::yield_now();
        }
        panic!("nobody listens on {port}");
    }

    fn send(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn receive(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_string();
        match line.strip_prefix('$') {
            Some("-1") => Ok("(nil)".into()),
            Some(length) => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            None => Ok(line),
        }
    }

    fn ask(&mut self, words: &[&str]) -> std::io::Result<String> {
        self.send(words)?;
        self.receive()
    }
}

/// Counts up through one node until told to stop: how often it was acknowledged, how often nobody knows.
fn count_up(port: u16, key: String, stop: Arc<AtomicBool>) -> (u64, u64) {
    let (mut acknowledged, mut unknown) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Some(mut client) = Client::try_connect(port) else { continue };
        while !stop.load(Ordering::Relaxed) {
            match client.ask(&["INCR", &key]) {
                Ok(reply) if reply.starts_with(':') => acknowledged += 1,
                Ok(reply) if reply.starts_with("-UNCERTAIN") => unknown += 1,
                Ok(reply) if reply.starts_with("-CLUSTERDOWN") => {}
                Ok(reply) => panic!("unexpected reply {reply}"),
                Err(_) => {
                    unknown += 1;
                    break;
                }
            }
        }
    }
    (acknowledged, unknown)
}

#[test]
fn no_acknowledged_write_is_lost_or_done_twice_when_each_node_dies_in_turn() {
    let mut cluster = Cluster::start(3);
    let stop = Arc::new(AtomicBool::new(false));
    let counters: Vec<_> = (1..=3u16)
        .map(|node| {
            let (port, key, stop) = (cluster.base + node, format!("counter{node}"), stop.clone());
            std::thread::spawn(move || count_up(port, key, stop))
        })
        .collect();
    let mut probe_count = 0;
    for node in 1..=3 {
        // Some progress between the blows, seen from another node.
        let mut witness = cluster.client(node % 3 + 1);
        for _ in 0..20 {
            assert!(witness.ask(&["INCR", "probe"]).unwrap().starts_with(':'));
            probe_count += 1;
        }
        cluster.kill(node);
        // A request through a surviving node is held and answered, not failed, while a new master is found.
        assert!(witness.ask(&["INCR", "probe"]).unwrap().starts_with(':'));
        probe_count += 1;
        cluster.run(node);
        cluster.client(node).ask(&["PING"]).unwrap();
        cluster.wait_for_master();
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes: Vec<(u64, u64)> = counters.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut client = cluster.client(1);
    assert_eq!(client.ask(&["GET", "probe"]).unwrap(), probe_count.to_string());
    for (node, (acknowledged, unknown)) in (1..=3).zip(outcomes) {
        let value: u64 = client.ask(&["GET", &format!("counter{node}")]).unwrap().parse().unwrap();
        assert!(value >= acknowledged, "counter{node}: {acknowledged} acknowledged, but only {value} there");
        assert!(
            value <= acknowledged + unknown,
            "counter{node}: {value}, but only {acknowledged} + {unknown} asked"
        );
        assert!(acknowledged > 0);
    }
}

#[test]
fn everything_is_there_after_all_nodes_were_killed_at_once() {
    let mut cluster = Cluster::start(3);
    let mut client = cluster.client(1);
    for n in 0..200 {
        client.send(&["SET", &format!("key{n}"), &format!("value{n}")]).unwrap();
    }
    for _ in 0..200 {
        assert_eq!(client.receive().unwrap(), "+OK");
    }
    for node in 1..=3 {
        cluster.kill(node);
    }
    for node in 1..=3 {
        cluster.run(node);
    }
    cluster.wait_for_master();
    for node in 1..=3 {
        let mut client = cluster.client(node);
        for n in 0..200 {
            assert_eq!(client.ask(&["GET", &format!("key{n}")]).unwrap(), format!("value{n}"));
        }
    }
}

#[test]
fn a_master_that_slept_past_its_lease_serves_no_stale_read() {
    let cluster = Cluster::start(3);
    let master = cluster.wait_for_master();
    let other = master % 3 + 1;
    let (mut at_master, mut at_other) = (cluster.client(master), cluster.client(other));
    assert_eq!(at_master.ask(&["SET", "k", "old"]).unwrap(), "+OK");
    cluster.signal(master, "-STOP");
    // Held until the lease has passed and another master is found.
    assert_eq!(at_other.ask(&["SET", "k", "new"]).unwrap(), "+OK");
    at_master.send(&["GET", "k"]).unwrap();
    cluster.signal(master, "-CONT");
    assert_eq!(at_master.receive().unwrap(), "new");
}

#[test]
fn a_pipeline_sees_its_own_writes_on_every_node() {
    let cluster = Cluster::start(3);
    for node in 1..=3 {
        let mut client = cluster.client(node);
        for n in 0..50 {
            client.send(&["SET", "p", &n.to_string()]).unwrap();
            client.send(&["GET", "p"]).unwrap();
        }
        for n in 0..50 {
            assert_eq!(client.receive().unwrap(), "+OK");
            assert_eq!(client.receive().unwrap(), n.to_string());
        }
    }
}

#[test]
fn the_mastership_moves_on_request_and_when_the_master_is_told_to_stop() {
    let mut cluster = Cluster::start(3);
    let master = cluster.wait_for_master();
    let heir = master % 3 + 1;
    let mut client = cluster.client(heir % 3 + 1);
    assert_eq!(client.ask(&["SET", "a", "1"]).unwrap(), "+OK");
    // Right after the start the heir may not have reported how far it is.
    let start = Instant::now();
    loop {
        let reply = client.ask(&["WARLOCK", "TRANSFER-MASTER", &format!("n{heir}")]).unwrap();
        if reply == "+OK" {
            break;
        }
        assert!(reply.starts_with("-TRYAGAIN") && start.elapsed() < PATIENCE, "{reply}");
    }
    assert_eq!(client.ask(&["INCR", "a"]).unwrap(), ":2");
    assert_eq!(cluster.wait_for_master(), heir);
    assert_eq!(client.ask(&["WARLOCK", "SNAPSHOT"]).unwrap(), "+Background saving started");
    assert!(client.ask(&["WARLOCK", "NONSENSE"]).unwrap().starts_with("-ERR unknown"));
    cluster.signal(heir, "-TERM");
    assert_eq!(client.ask(&["INCR", "a"]).unwrap(), ":3");
    let status = cluster.nodes[usize::from(heir) - 1].take().unwrap().wait().unwrap();
    assert!(status.success(), "a node that is told to stop exits with 0: {status}");
}

#[test]
fn large_values_pass_and_too_large_ones_are_refused_without_harm() {
    let cluster = Cluster::start(3);
    let large = "x".repeat(6 << 20);
    let mut client = cluster.client(1);
    for key in ["a", "b", "c", "d", "e", "f"] {
        client.send(&["SET", key, &large]).unwrap();
    }
    for _ in 0..6 {
        assert_eq!(client.receive().unwrap(), "+OK");
    }
    assert_eq!(cluster.client(2).ask(&["STRLEN", "f"]).unwrap(), format!(":{}", large.len()));
    let mut rude = cluster.client(3);
    rude.stream.get_mut().write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$900000000\r\n").unwrap();
    assert_eq!(rude.receive().unwrap(), "-ERR Protocol error: invalid bulk length");
    assert_eq!(cluster.client(3).ask(&["GET", "none"]).unwrap(), "(nil)");
}

#[test]
fn a_transaction_sees_changes_on_other_nodes_and_through_a_fail_over() {
    let mut cluster = Cluster::start(3);
    let master = cluster.wait_for_master();
    let (here, there) = (master % 3 + 1, (master + 1) % 3 + 1);
    let (mut one, mut other) = (cluster.client(here), cluster.client(there));
    let exec = |client: &mut Client, value: &str| {
        assert_eq!(client.ask(&["MULTI"]).unwrap(), "+OK");
        assert_eq!(client.ask(&["SET", "owner", value]).unwrap(), "+QUEUED");
        client.ask(&["EXEC"]).unwrap()
    };
    assert_eq!(one.ask(&["WATCH", "owner"]).unwrap(), "+OK");
    assert_eq!(other.ask(&["SET", "owner", "other"]).unwrap(), "+OK");
    assert_eq!(exec(&mut one, "one"), "*-1", "another node changed the key");
    // Watched before the fail-over, changed after it.
    assert_eq!(one.ask(&["WATCH", "owner"]).unwrap(), "+OK");
    cluster.kill(master);
    assert_eq!(other.ask(&["SET", "owner", "other"]).unwrap(), "+OK");
    assert_eq!(exec(&mut one, "one"), "*-1", "the same value counts, too");
    // Watched before another one, and not changed.
    cluster.run(master);
    cluster.client(master).ask(&["PING"]).unwrap();
    let master = cluster.wait_for_master();
    let mut here = cluster.client(master % 3 + 1);
    assert_eq!(here.ask(&["WATCH", "owner"]).unwrap(), "+OK");
    cluster.kill(master);
    assert_eq!(exec(&mut here, "here"), "*1");
    assert_eq!(here.receive().unwrap(), "+OK");
    assert_eq!(here.ask(&["GET", "owner"]).unwrap(), "here");
}

#[test]
fn keys_expire_on_an_idle_cluster() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(1);
    assert_eq!(client.ask(&["SET", "short", "life", "PX", "100"]).unwrap(), "+OK");
    let start = Instant::now();
    while client.ask(&["GET", "short"]).unwrap() != "(nil)" {
        assert!(start.elapsed() < PATIENCE, "the key does not expire");
    }
}

#[test]
fn a_directory_that_is_no_node_or_is_in_use_is_refused_with_the_way_out() {
    let run = |path: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_warlock"))
            .arg("server")
            .arg("--dir")
            .arg(path)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("something"), "else").unwrap();
    assert!(run(directory.path()).contains("holds no node"));
    let empty = tempfile::tempdir().unwrap();
    assert!(run(empty.path()).contains("holds no node"), "an empty directory is no reason to begin anew");
    let cluster = Cluster::start(1);
    let message = run(&cluster.path(1));
    assert!(message.contains("lock"), "{message}");
    let mut cluster = cluster;
    cluster.kill(1);
    std::fs::remove_dir_all(cluster.path(1).join("journal")).unwrap();
    let message = run(&cluster.path(1));
    assert!(message.contains("journal"), "{message}");
}
