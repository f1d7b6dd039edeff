//! A cluster of real processes.

use crate::client::{Client, Reply};
use crate::patience::wait_for;
use crate::{ports, process};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Lines of each node's log that are shown when a test fails.
const LOG_LINES_SHOWN: usize = 30;
/// How long a look at one node may take, when others can be looked at instead.
const GLANCE: Duration = Duration::from_secs(2);

/// Where the binary is: `WARLOCK_BIN`, or beside the running test in the build directory. Tests of the package `warlock` itself give
/// `env!("CARGO_BIN_EXE_warlock")` instead.
///
/// # Panics
/// When there is none; the message says how to build it.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WARLOCK_BIN") {
        return path.into();
    }
    let executable = std::env::current_exe().expect("this process has a path");
    executable
        .ancestors()
        .skip(1)
        .take(3)
        .map(|directory| directory.join("warlock"))
        .find(|path| path.is_file())
        .expect("no warlock beside this test: run 'cargo build', or set WARLOCK_BIN")
}

/// What kind of cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary; see [`binary`].
    pub binary: PathBuf,
    /// How many nodes.
    pub nodes: u16,
    /// The lease, when it is not the default.
    pub lease_ms: Option<u64>,
    /// More arguments of `warlock server`.
    pub flags: Vec<String>,
    /// More environment variables.
    pub env: Vec<(String, String)>,
    /// Where each node runs, when that is not here: its IP address, and the network namespace that has it.
    pub places: Vec<(String, String)>,
}

impl Options {
    /// A cluster of `nodes` with default settings.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, nodes: u16) -> Options {
        Options {
            binary: binary.into(),
            nodes,
            lease_ms: None,
            flags: Vec::new(),
            env: Vec::new(),
            places: Vec::new(),
        }
    }
}

#[derive(Default)]
struct Node {
    child: Option<Child>,
    is_stopped: bool,
}

/// A running cluster; node numbers begin at 1. All of it ends with this value, whatever happens.
pub struct Cluster {
    options: Options,
    base: u16,
    /// The nodes begin without directories.
    is_unformed: bool,
    nodes: Vec<Node>,
    directory: tempfile::TempDir,
    _ports: TcpListener,
}

impl Cluster {
    /// Starts `nodes` nodes with default settings; see [`with`](Self::with).
    #[must_use]
    pub fn start(binary: impl Into<PathBuf>, nodes: u16) -> Cluster {
        Cluster::with(Options::new(binary, nodes))
    }

    /// Starts a cluster and waits for a master and for every node. A majority elects a master while the last node still makes its files, and who kills
    /// that one finds a directory in which nothing was begun.
    #[must_use]
    pub fn with(options: Options) -> Cluster {
        let mut cluster = Cluster::form(options);
        for node in cluster.all() {
            cluster.run(node);
        }
        for node in cluster.all() {
            cluster.wait_for_answer(node);
        }
        cluster.wait_for_master();
        cluster
    }

    /// Room for nodes that are not formed, and starts nothing: what [`run`](Self::run) starts gets its addresses by flags and has no data.
    #[must_use]
    pub fn unformed(options: Options) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (base, guard) = ports::reserve(options.nodes);
        let nodes = (0..options.nodes).map(|_| Node::default()).collect();
        Cluster { options, base, is_unformed: true, nodes, directory, _ports: guard }
    }

    /// Makes the nodes' directories and starts nothing.
    #[must_use]
    pub fn form(options: Options) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (base, guard) = ports::reserve(options.nodes);
        let mut form = Command::new(&options.binary);
        form.args(["form", "--nodes", &options.nodes.to_string(), "--base-port", &base.to_string(), "--dir"])
            .arg(directory.path());
        if !options.places.is_empty() {
            let hosts: Vec<&str> = options.places.iter().map(|(host, _)| host.as_str()).collect();
            form.args(["--host", &hosts.join(",")]);
        }
        if let Some(lease_ms) = options.lease_ms {
            form.args(["--lease-ms", &lease_ms.to_string()]);
        }
        let formed = form.output().unwrap_or_else(|error| panic!("cannot run {form:?}: {error}"));
        assert!(formed.status.success(), "{form:?}: {}", String::from_utf8_lossy(&formed.stderr));
        let nodes = (0..options.nodes).map(|_| Node::default()).collect();
        Cluster { options, base, is_unformed: false, nodes, directory, _ports: guard }
    }

    /// The numbers of all nodes.
    #[must_use]
    pub fn all(&self) -> Vec<u16> {
        (1..=self.options.nodes).collect()
    }

    /// The numbers of the nodes that run and are not stopped.
    #[must_use]
    pub fn running(&self) -> Vec<u16> {
        (1..)
            .zip(&self.nodes)
            .filter(|(_, node)| node.child.is_some() && !node.is_stopped)
            .map(|(number, _)| number)
            .collect()
    }

    /// Where clients reach a node.
    #[must_use]
    pub fn address(&self, node: u16) -> String {
        format!("{}:{}", self.host(node), self.port(node))
    }

    fn host(&self, node: u16) -> &str {
        self.options.places.get(usize::from(node) - 1).map_or("127.0.0.1", |(host, _)| host)
    }

    /// The port where clients reach a node.
    #[must_use]
    pub fn port(&self, node: u16) -> u16 {
        self.base + node
    }

    /// Where peers reach a node.
    #[must_use]
    pub fn peer_address(&self, node: u16) -> String {
        format!("{}:{}", self.host(node), self.base + 100 + node)
    }

    /// The addresses of all nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.all().into_iter().map(|node| self.address(node)).collect()
    }

    /// A node's data directory.
    #[must_use]
    pub fn path(&self, node: u16) -> PathBuf {
        self.directory.path().join(format!("n{node}"))
    }

    /// The directory of everything.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    // ---- processes ----

    /// Starts a node that does not run, and returns at once.
    ///
    /// # Panics
    /// When it runs already, or cannot be started.
    pub fn run(&mut self, node: u16) {
        let mut command = match self.options.places.get(usize::from(node) - 1) {
            None => Command::new(&self.options.binary),
            Some((_, namespace)) => {
                let mut command = Command::new("ip"); // becomes the node: it keeps the pid
                command.args(["netns", "exec", namespace]).arg(&self.options.binary);
                command
            }
        };
        command.arg("server").arg("--dir").arg(self.path(node));
        command.arg("--http").arg(self.http_address(node)).args(&self.options.flags);
        if self.is_unformed {
            command.args(["--bind", &self.address(node), "--peer-bind", &self.peer_address(node)]);
        }
        command.env("WARLOCK_LOG", "info").envs(self.options.env.iter().map(|(name, value)| (name, value)));
        let log = File::options().create(true).append(true).open(self.log_path(node)).expect("a log file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
        let place = self.node(node);
        assert!(place.child.is_none(), "node {node} runs already");
        let child = process::spawn(command);
        *place = Node { child: Some(child.expect("the binary can be started")), is_stopped: false };
    }

    /// Where probes of a node connect.
    #[must_use]
    pub fn http_address(&self, node: u16) -> String {
        format!("{}:{}", self.host(node), self.base + 200 + node)
    }

    /// What a node answers a probe: the status and the body. Nothing when it does not take the connection.
    #[must_use]
    pub fn http(&self, node: u16, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.http_address(node)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_string()))
    }

    /// Other environment variables, for what is started from now on.
    pub fn set_env(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        self.options.env = env.into_iter().collect();
    }

    /// Other arguments of `warlock server`, for what is started from now on.
    pub fn set_flags(&mut self, flags: &[&str]) {
        self.options.flags = flags.iter().map(ToString::to_string).collect();
    }

    /// kill -9.
    pub fn kill(&mut self, node: u16) {
        let mut child = self.take(node);
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child can be waited for");
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// When the node does not end.
    pub fn terminate(&mut self, node: u16) -> ExitStatus {
        self.signal(node, Signal::TERM);
        self.wait_for_exit(node)
    }

    /// Waits until a node ends by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_for_exit(&mut self, node: u16) -> ExitStatus {
        let mut child = self.take(node);
        wait_for(&format!("node {node} to end"), || child.try_wait().expect("a child can be waited for"))
    }

    /// Starts a node that must refuse to start; what it said.
    ///
    /// # Panics
    /// When it starts, or calls its end a success.
    pub fn refusal(&mut self, node: u16) -> String {
        let before = self.log(node).len();
        self.run(node);
        let status = self.wait_for_exit(node);
        let said = self.log(node).split_off(before);
        assert!(!status.success(), "node {node} calls this a success: {said}");
        said
    }

    /// SIGSTOP: the node stands still until [`cont`](Self::cont).
    pub fn stop(&mut self, node: u16) {
        self.signal(node, Signal::STOP);
        self.node(node).is_stopped = true;
    }

    /// SIGCONT.
    pub fn cont(&mut self, node: u16) {
        self.signal(node, Signal::CONT);
        self.node(node).is_stopped = false;
    }

    /// Sends any signal.
    ///
    /// # Panics
    /// When the node does not run.
    pub fn signal(&mut self, node: u16, signal: Signal) {
        let child = self.node(node).child.as_ref().expect("the node runs");
        process::signal(child, signal).expect("a child can be signalled");
    }

    /// The process of a running node.
    #[must_use]
    pub fn pid(&self, node: u16) -> Option<u32> {
        self.nodes.get(usize::from(node) - 1)?.child.as_ref().map(Child::id)
    }

    // ---- what it says ----

    /// A new connection to a node, as soon as it listens.
    #[must_use]
    pub fn client(&self, node: u16) -> Client {
        Client::connect(&self.address(node))
    }

    /// Waits until a node answers anything at all.
    fn wait_for_answer(&self, node: u16) {
        wait_for(&format!("node {node} to answer"), || self.glance(node, &["PING"]));
    }

    /// What a node answers soon.
    fn glance(&self, node: u16, request: &[&str]) -> Option<Reply> {
        let mut client = Client::try_connect(&self.address(node)).ok()?;
        client.set_patience(GLANCE).ok()?;
        client.ask(request).ok()
    }

    /// Waits until a running node says that it is the master; its number.
    ///
    /// # Panics
    /// When none does.
    #[must_use = "or call it as a statement with `let _`, when only the waiting matters"]
    pub fn master(&self) -> u16 {
        let running = self.running();
        wait_for("a master", || running.iter().copied().find(|node| self.is_master(*node)))
    }

    /// Waits until there is a master.
    pub fn wait_for_master(&self) {
        let _ = self.master();
    }

    /// Whether a node says that it is the master.
    #[must_use]
    pub fn is_master(&self, node: u16) -> bool {
        let info = self.glance(node, &["INFO", "warlock"]);
        info.is_some_and(|info| info.text().is_some_and(|text| text.contains("warlock_role:master\r\n")))
    }

    /// Waits until the master says that the data of every running node is the same at one slot.
    ///
    /// # Panics
    /// When it is not in time.
    pub fn wait_for_agreement(&self) {
        let running = self.running();
        wait_for(&format!("nodes {running:?} to agree on one checksum"), || {
            let answer = self.client(self.master()).ask(&["WARLOCK", "CHECKSUM"]).ok()?;
            let result = answer.field("result")?.text()?;
            assert!(result != "different", "the nodes' data differ: {answer}");
            let nodes = answer.field("nodes")?.items();
            let summed = nodes.iter().filter(|node| matches!(node.field("checksum"), Some(Reply::Bulk(_))));
            (summed.count() >= running.len()).then_some(())
        });
    }

    /// All that a node has said on its standard output and error.
    #[must_use]
    pub fn log(&self, node: u16) -> String {
        fs::read(self.log_path(node))
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn log_path(&self, node: u16) -> PathBuf {
        self.directory.path().join(format!("n{node}.log"))
    }

    fn node(&mut self, node: u16) -> &mut Node {
        let count = self.options.nodes;
        let index = usize::from(node).wrapping_sub(1);
        self.nodes.get_mut(index).unwrap_or_else(|| panic!("there is no node {node}, only 1 to {count}"))
    }

    fn take(&mut self, node: u16) -> Child {
        let place = self.node(node);
        place.is_stopped = false;
        place.child.take().unwrap_or_else(|| panic!("node {node} does not run"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            return;
        }
        for node in self.all() {
            let log = self.log(node);
            let lines: Vec<&str> = log.lines().collect();
            let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
            eprintln!("--- the end of the log of node {node} ---\n{}", lines[shown..].join("\n"));
        }
    }
}
