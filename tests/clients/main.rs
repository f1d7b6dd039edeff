//! Client libraries that people use, against a real three-node cluster, with a node killed in the middle.
//!
//! Those of Python and Node are installed below `target/clients` when they are needed first; without a network the test says so and does nothing.
//! redis-rs is a dependency of the tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod redis_rs;

use harness::Cluster;
use harness::libraries::{scripts, set_up};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

/// A cluster, its master, and the other nodes: the master dies in the middle, so that those have to find a new one.
fn cluster() -> (Cluster, u16, Vec<u16>) {
    let cluster = Cluster::start(WARLOCK, 3);
    for node in cluster.all() {
        // A library does not wait until a node listens.
        cluster.client(node).must(&["PING"]);
    }
    let victim = cluster.master();
    let others = cluster.all().into_iter().filter(|node| *node != victim).collect();
    (cluster, victim, others)
}

/// Runs a script; when it says so, the node that it does not talk to dies.
fn run(mut command: Command) {
    let (mut cluster, victim, others) = cluster();
    let ports: Vec<String> =
        others.into_iter().chain([victim]).map(|node| cluster.port(node).to_string()).collect();
    let mut script = command.args(&ports).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(script.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "kill" {
            cluster.kill(victim);
            script.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
        }
        said.push(line);
    }
    assert!(script.wait().unwrap().success(), "the script failed; it said {said:?}, see above");
    assert_eq!(said, ["kill", "done"]);
}

fn run_python(script: &str) {
    if let Some(directory) = set_up("python", TARGET) {
        let mut command = Command::new(directory.join("venv/bin/python"));
        command.arg(scripts().join(script));
        run(command);
    }
}

fn run_node(script: &str) {
    if let Some(directory) = set_up("node", TARGET) {
        let mut command = Command::new("node");
        command.arg(scripts().join(script)).env("NODE_PATH", directory.join("node_modules"));
        run(command);
    }
}

#[test]
fn redis_py() {
    run_python("redis_py.py");
}

/// The locks of redis-py, python-redis-lock and pottery, and the plain ones: SETNX, IFEQ, DELIFEQ, DELEX.
#[test]
fn locks_of_python() {
    run_python("locks.py");
}

#[test]
fn ioredis_and_node_redis() {
    run_node("node.js");
}

#[test]
fn redlock_4_and_5() {
    run_node("redlock.js");
}
