//! What the command line says: its help, and the errors that people meet first. `TRYCMD=overwrite cargo test --test cli` writes it anew; read the
//! difference.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, Reply, wait_for};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

#[test]
fn help_and_errors_are_as_written() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd").env("NO_COLOR", "1").run();
}

/// The exit code, and everything that was said.
fn run(arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(WARLOCK).args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), said.into_owned())
}

/// A command of ours that talks; it ends with the test.
struct Talk {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    fn start(arguments: &[&str]) -> Talk {
        let mut command = Command::new(WARLOCK);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Talk { process, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        self.lines.next().expect("it says nothing more").unwrap()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_needs_no_node_asks_none_and_says_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let nobody = ["admin", "-n", "127.0.0.1:1"];
    let (code, said) = run(&[&nobody[..], &["help"]].concat());
    assert!(code == 0 && said.contains("TRANSFER-MASTER"), "{code}: {said}");
    let (code, said) = run(&[&nobody[..], &["backup", &path("b")]].concat());
    assert!(code == 3 && said.contains("no node can be reached"), "{code}: {said}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left of it");
    let (code, said) = run(&[&nobody[..], &["backup", &path("none/b")]].concat());
    assert!(code == 1 && said.contains(&path("none/b")) && !said.contains("snapshot"), "{code}: {said}");
    let (code, said) = run(&["recover", "--force-new-cluster", "--yes", "--dir", &path("none")]);
    assert!(code == 1 && said.contains(&format!("{} does not exist", path("none"))), "{code}: {said}");
}

/// The master's address first.
fn from_master(cluster: &Cluster) -> (u16, String) {
    let master = cluster.master();
    let others = cluster.all().into_iter().filter(|node| *node != master);
    let nodes: Vec<String> = [master].into_iter().chain(others).map(|node| cluster.address(node)).collect();
    (master, nodes.join(","))
}

#[test]
fn an_error_at_a_live_node_names_the_thing_and_the_way_out() {
    let flags = ["--requirepass", "right", "--request-timeout", "2s"].map(String::from).to_vec();
    let mut cluster = Cluster::form(Options { flags, ..Options::new(WARLOCK, 3) });
    for node in cluster.all() {
        cluster.run(node);
    }
    let address = cluster.address(1);
    wait_for("a node that serves", || {
        (run(&["cli", "-n", &address, "--password", "right", "exists", "k"]).0 == 0).then_some(())
    });
    let check = |arguments: &[&str], code: i32, words: &[&str]| {
        let (ended, said) = run(arguments);
        assert_eq!(ended, code, "{arguments:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
        }
    };
    // The port of peers, and that of probes.
    let (peer, http) = (cluster.peer_address(1), cluster.http_address(1));
    check(&["cli", "-n", &peer, "ping"], 3, &[&peer, "is this the port for clients?"]);
    check(&["cli", "-n", &http, "ping"], 3, &[&http, "is this the port for clients?"]);
    // The password.
    check(
        &["cli", "-n", &address, "--password", "wrong", "ping"],
        3,
        &["WRONGPASS", "--password or WARLOCK_REQUIREPASS"],
    );
    check(&["cli", "-n", &address, "ping"], 3, &["NOAUTH", "--password or WARLOCK_REQUIREPASS"]);
    // A directory that is in use, and a port.
    let (directory, pid) = (cluster.path(1).display().to_string(), cluster.pid(1).unwrap().to_string());
    check(
        &["server", "--dir", &directory],
        1,
        &["in use", &format!("process {pid}"), &directory, "stop that process"],
    );
    let new = cluster.root().join("new").display().to_string();
    check(
        &["server", "--dir", &new, "--bind", &address],
        1,
        &[&address, "another process uses the port", "--bind"],
    );
    check(
        &["form", "--dir", &cluster.root().display().to_string()],
        1,
        &["already holds a node", "another directory"],
    );

    // No quorum.
    cluster.kill(2);
    cluster.kill(3);
    let one = ["-n", &address, "--password", "right"];
    let with = |words: &[&'static str]| -> Vec<String> {
        let (command, rest) = words.split_first().unwrap();
        [&[*command], &one[..], rest].concat().iter().map(ToString::to_string).collect()
    };
    let says = |words: &[&'static str], code: i32, expected: &[&str]| {
        let arguments = with(words);
        check(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), code, expected);
    };
    wait_for("a node that knows it is alone", || (cluster.http(1, "/readyz")?.0 == 503).then_some(()));
    says(&["cli", "get", "k"], 1, &["CLUSTERDOWN", "certainly not done"]);
    says(&["status"], 0, &["no master that answers", "2 members do not answer"]);
    says(&["lock", "--wait", "0s", "k", "--", "true"], 125, &["CLUSTERDOWN"]);
    assert!(cluster.http(1, "/readyz").unwrap().1.contains("is a majority of the nodes running?"));
}

#[test]
fn the_clients_of_a_dead_node_go_on_with_another() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let (master, nodes) = from_master(&cluster);
    let mut cli = Talk::start(&["cli", "-n", &nodes]);
    cli.say("set greeting hello");
    assert_eq!(cli.hear(), "OK");
    let mut watch = Talk::start(&["elect", "-n", &nodes, "job", "--watch"]);
    let mut other = cluster.client(cluster.all().into_iter().find(|node| *node != master).unwrap());
    // The first leader begins when the watcher listens already, so that it is a push that tells of it.
    let mut client = cluster.client(master);
    wait_for("a watcher that listens", || is_heard(&mut client, 1).then_some(()));
    let token = lead(&mut other, "first");
    assert_eq!(watch.hear(), format!("{token} first"));

    cluster.kill(master);
    cluster.wait_for_master();
    cli.say("get greeting");
    assert_eq!(cli.hear(), "hello");
    other.must(&["LOCK.RELEASE", "job", &token.to_string()]);
    let token = lead(&mut other, "second");
    assert_eq!(watch.hear(), format!("{token} second"));
}

#[test]
fn a_cluster_in_one_process_serves_stops_cleanly_and_finds_its_data_again() {
    let (base, _guard) = harness::ports::reserve(3);
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("dev").display().to_string();
    for round in 1..=2 {
        let mut dev = Talk::start(&["dev", "--base-port", &base.to_string(), "--dir", &dir]);
        let mut table = Vec::new();
        while !table.last().is_some_and(|line: &String| line.starts_with("Ctrl-C stops")) {
            table.push(dev.hear());
        }
        assert_eq!(table.iter().filter(|line| line.contains(" master ")).count(), 1, "{table:#?}");
        let mut client = Client::connect(&format!("127.0.0.1:{}", base + 3));
        assert_eq!(client.must(&["INCR", "rounds"]), Reply::Integer(round));
        let pid = dev.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert_eq!(dev.hear(), format!("stopped; the data is kept in {dir}"));
        assert!(dev.process.wait().unwrap().success());
    }
}

/// Whoever closed our output has heard enough: commands end without a word, and without leaving something half done.
#[test]
fn a_closed_output_is_no_error() {
    let cluster = Cluster::start(WARLOCK, 1);
    let home = tempfile::tempdir().unwrap();
    let (node, dir) = (cluster.address(1), home.path().join("formed").display().to_string());
    let mut client = cluster.client(1);
    lead(&mut client, "first");
    let on_nodes = |words: &[&'static str]| [&[words[0], "-n", &node], &words[1..]].concat().join(" ");
    let commands = [
        on_nodes(&["admin", "members"]),
        on_nodes(&["bench", "--requests", "100"]),
        on_nodes(&["cli", "get", "nothing"]),
        on_nodes(&["cli", "subscribe", "news"]),
        on_nodes(&["elect", "job", "--watch"]),
        on_nodes(&["status", "--json", "--watch"]),
        on_nodes(&["status"]),
        format!("form --nodes 2 --dir {dir}"),
        "server --print-config".to_string(),
    ];
    for command in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(WARLOCK).args(command.split(' ')).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{command}: {output:?}");
    }
    assert!(home.path().join("formed/n2").exists());

    // What it has to say beside the output is lost; what it does is not.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let busy = Command::new(WARLOCK)
        .args(["lock", "-n", &node, "job", "--wait", "0s", "--", "true"])
        .stderr(writer)
        .status()
        .unwrap();
    assert_eq!(busy.code(), Some(124), "somebody else holds it");

    // Who closes it later is noticed although there is nothing to say.
    let (reader, writer) = std::io::pipe().unwrap();
    let mut watch =
        Command::new(WARLOCK).args(["elect", "-n", &node, "job", "--watch"]).stdout(writer).spawn().unwrap();
    let leader = BufReader::new(reader).lines().next().unwrap().unwrap();
    assert!(leader.ends_with(" first"), "{leader}");
    assert!(watch.wait().unwrap().success());

    // Output that is lost for another reason is an error.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(WARLOCK).args(["admin", "help"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("cannot write to standard output"),
        "{output:?}"
    );
}

/// A node whose log nobody reads any more goes on.
#[test]
fn a_closed_log_stops_no_node() {
    let (base, _guard) = harness::ports::reserve(1);
    let (home, address) = (tempfile::tempdir().unwrap(), format!("127.0.0.1:{}", base + 1));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut node = Command::new(WARLOCK)
        .args(["server", "--bind", &address, "--dir", &home.path().join("n1").display().to_string()])
        .stderr(writer)
        .spawn()
        .unwrap();
    assert_eq!(Client::connect(&address).must(&["SET", "a", "1"]), "+OK");
    assert!(Command::new("kill").args(["-TERM", &node.id().to_string()]).status().unwrap().success());
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

fn is_heard(client: &mut Client, listeners: i64) -> bool {
    let heard = client.must(&["PUBSUB", "NUMSUB", "__lock__:job"]);
    heard.items().last().and_then(Reply::integer) == Some(listeners)
}

fn lead(client: &mut Client, value: &str) -> i64 {
    let held = client.must(&["LOCK.ACQUIRE", "job", value, "60000", "DATA", value]);
    held.field("token").or_else(|| held.items().first()).and_then(Reply::integer).unwrap()
}
