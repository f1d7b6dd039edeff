//! Errors that tell what happened and the way out: to clients without a master, to nodes of other releases and clusters, to who starts a node twice.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use warlock::codec::WIRE_VERSION;

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

/// A cluster that gives up soon.
fn impatient() -> Cluster {
    let mut options = Options::new(WARLOCK, 3);
    options.flags = vec!["--request-timeout".into(), "2s".into()];
    Cluster::with(options)
}

fn must_say(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "'{word}' is missing in: {text}");
    }
}

#[test]
fn what_may_have_run_and_what_certainly_did_not_are_told_apart() {
    let mut cluster = impatient();
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let mut client = cluster.client(master);
    assert_eq!(client.must(&["INCR", "counter"]), ":1");
    // The master proposes, and nobody answers it: the command may run later.
    others.iter().for_each(|node| cluster.stop(*node));
    let mut uncertain = 0;
    let answer = client.must(&["INCR", "counter"]).to_string();
    must_say(&answer, &["-UNCERTAIN", "may or may not have run", "check before you repeat"]);
    uncertain += 1;
    // Once it knows that it is the master no more, it sends nothing on: those commands certainly never run.
    let mut refused = 0;
    wait_for("commands to be certainly not done", || {
        let answer = client.must(&["INCR", "counter"]);
        if answer.is_error("UNCERTAIN") {
            uncertain += 1;
            return None;
        }
        must_say(&answer.to_string(), &["-CLUSTERDOWN", "certainly not done", "try again"]);
        refused += 1;
        (refused == 2).then_some(())
    });
    must_say(&client.must(&["GET", "counter"]).to_string(), &["-CLUSTERDOWN", "certainly not done"]);
    must_say(&client.must(&["WARLOCK", "TRANSFER-MASTER"]).to_string(), &["nothing was done", "try again"]);
    others.iter().for_each(|node| cluster.cont(*node));
    let value = wait_for("the cluster to serve again", || client.must(&["INCR", "counter"]).integer());
    assert!(
        (2..=2 + uncertain).contains(&value),
        "{uncertain} may have run, {refused} must not have: {value}"
    );
    // A change that would cost the majority is refused before anything is done.
    cluster.kill(others[0]);
    cluster.wait_for_master();
    let mut client = cluster.client(master);
    let answer = wait_for("a refusal that says that nothing was done", || {
        let answer = client.must(&["WARLOCK", "REMOVE", &format!("n{}", others[1])]);
        answer.is_error("TRYAGAIN").then(|| answer.to_string())
    });
    must_say(&answer, &["nothing was done"]);
}

/// Says hello on a peer port; the refusal.
fn refused_hello(cluster: &Cluster, version: u8, cluster_id: [u8; 16]) -> String {
    let mut stream = TcpStream::connect(cluster.peer_address(1)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut hello = b"WLK1".to_vec();
    hello.push(version);
    hello.extend_from_slice(&cluster_id);
    hello.extend_from_slice(&[0; 8 + 8 + 8 + 32]);
    stream.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&1), "a refusal: {answer:?}");
    String::from_utf8_lossy(&answer[3..]).into_owned()
}

#[test]
fn peers_of_other_releases_and_clusters_are_refused_with_the_reason() {
    let cluster = Cluster::start(WARLOCK, 1);
    let ours = format!("peer protocol 99 is not {WIRE_VERSION}");
    must_say(&refused_hello(&cluster, 99, [0; 16]), &[&ours, "same release"]);
    must_say(&refused_hello(&cluster, WIRE_VERSION, [9; 16]), &["another cluster", "its own"]);
    // Its client does not notice.
    assert_eq!(cluster.client(1).must(&["PING"]), "+PONG");
}

#[test]
fn a_second_process_is_refused_by_the_directory_and_by_the_port() {
    let cluster = Cluster::start(WARLOCK, 1);
    let said = |arguments: &[&str]| {
        let output = Command::new(WARLOCK).arg("server").args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (directory, pid) = (cluster.path(1), cluster.pid(1).unwrap().to_string());
    let directory = directory.to_str().unwrap();
    must_say(&said(&["--dir", directory]), &["in use", &pid, "journal/lock", "stop that process first"]);
    let other = cluster.root().join("other");
    let message = said(&[
        "--dir",
        other.to_str().unwrap(),
        "--bind",
        &cluster.address(1),
        "--peer-bind",
        "127.0.0.1:0",
    ]);
    must_say(&message, &[&cluster.address(1), "another process uses the port", "--bind"]);
    assert_eq!(cluster.client(1).must(&["PING"]), "+PONG");
}

#[test]
fn a_first_start_that_fails_makes_no_node_and_a_free_port_is_remembered() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("node");
    let server = |arguments: &[&str]| {
        let mut command = Command::new(WARLOCK);
        command.args(["server", "--dir", directory.to_str().unwrap()]).args(arguments);
        command
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let failures: [(&[&str], &str); 4] = [
        (&["--bind", "203.0.113.7:41315"], "cannot listen on 203.0.113.7:41315"),
        (&["--bind", "127.0.0.1:0", "--peer-bind", "203.0.113.7:41315"], "--peer-bind"),
        (&["--bind", "127.0.0.1:0", "--http", "203.0.113.7:41315"], "--http"),
        (&["--bind", &taken, "--http", &taken], "bind ("),
    ];
    for (arguments, word) in failures {
        let output = server(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        must_say(&String::from_utf8_lossy(&output.stderr), &[word]);
        assert!(!directory.exists(), "{arguments:?} made a node");
    }
    let address = || {
        let log = home.path().join("log");
        let mut command = server(&["--bind", "127.0.0.1:0"]);
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut process = harness::process::spawn(command).unwrap();
        let address = wait_for("the node to say where it is", || {
            let said = std::fs::read_to_string(&log).unwrap();
            let (_, said) = said.split_once("node started")?.1.split_once("127.0.0.1:")?;
            Some(format!("127.0.0.1:{}", said.split_once('"')?.0))
        });
        wait_for("an answer at that address", || {
            Client::try_connect(&address).ok()?.ask(&["PING"]).ok().filter(|reply| *reply == "+PONG")
        });
        harness::process::signal(&process, harness::Signal::TERM).unwrap();
        assert!(process.wait().unwrap().success());
        address
    };
    assert_eq!(address(), address(), "the port is the node's from its first start on");
}

#[test]
fn an_empty_node_that_asks_in_vain_says_so_once_and_a_misspelt_variable_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (base, _guard) = harness::ports::reserve(1);
    let path = home.path().join("log");
    let mut command = Command::new(WARLOCK);
    command.args(["server", "--dir", home.path().join("node").to_str().unwrap()]);
    command.args(["--bind", &format!("127.0.0.1:{}", base + 1), "--cluster-secret", "correct horse battery"]);
    // Two reasons, in turn.
    command.args(["--join", "127.0.0.1:1,127.0.0.1:2", "--slowlog-log-slower-than", "-1"]);
    command.args(["--log", "info,warlock::waiting=debug"]).env("WARLOCK_LEESE", "2s");
    command.stderr(std::fs::File::create(&path).unwrap());
    let mut process = harness::process::spawn(command).unwrap();
    let start = std::time::Instant::now();
    let said = wait_for("three rounds of asking", || {
        let said = std::fs::read_to_string(&path).unwrap();
        (said.matches("not added to a cluster yet").count() >= 6).then_some(said)
    });
    let is_loud = |line: &&str| line.contains("WARN") && line.contains("not added to a cluster yet");
    assert!(said.lines().filter(is_loud).count() == 1 || start.elapsed().as_secs() >= 10, "{said}");
    must_say(&said, &["WARLOCK_LEESE", "did you mean WARLOCK_LEASE?"]);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_journal_of_another_format_names_the_file_and_the_way_out() {
    let mut cluster = Cluster::start(WARLOCK, 1);
    cluster.terminate(1);
    let journal = cluster.path(1).join("journal");
    let segment = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.filter(|path| path.to_string_lossy().contains("segment-")).min().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[8] = 77;
    let sum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&segment, &bytes).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap().to_string();
    let said = cluster.refusal(1);
    must_say(
        &said,
        &["another format", &name, "offset 8", "version 77", "start the version of warlock that wrote it"],
    );
}

/// As slow as it is short.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(sum & 1)))
    })
}
