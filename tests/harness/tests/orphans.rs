//! A child of the harness dies with the process that started it, even by kill -9.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use warlock_harness::{process, wait_for};

const PARENT: &str = "HARNESS_TEST_PARENT";

/// Started again by the test below, this plays the process that is killed.
#[test]
fn plays_the_parent_when_asked_to() {
    if std::env::var_os(PARENT).is_none() {
        return;
    }
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    // From a thread that ends at once: the child must live on as long as the process does.
    let mut child = std::thread::spawn(|| process::spawn(sleep).unwrap()).join().unwrap();
    println!("\nchild {}", child.id());
    child.wait().unwrap();
}

#[test]
fn no_child_survives_its_parent() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plays_the_parent_when_asked_to", "--nocapture"])
        .env(PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let child = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("child ")?.to_string()));
    let child = child.expect("the parent names its child");
    // A zombie has no command line: what counts is that it does not run any more.
    let runs = || std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|words| !words.is_empty());
    assert!(runs(), "the child must outlive the thread that asked for it");
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for("the child to be gone", || (!runs()).then_some(()));
}
