//! A child of the harness dies with the process that started it, even by kill -9.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use warlock_harness::{process, wait_for};

const PARENT: &str = "HARNESS_TEST_PARENT";

/// Started again by the test below, this plays the process that is killed.
#[test]
fn plays_the_parent_when_asked_to() {
    if std::env::var_os(PARENT).is_none() {
        return;
    }
    let mut echo = Command::new("cat");
    echo.stdin(Stdio::piped()).stdout(Stdio::piped());
    // From a thread that ends at once: the child must live on as long as the process does.
    let mut child = std::thread::spawn(|| process::spawn(echo).unwrap()).join().unwrap();
    let mut input = child.stdin.take().unwrap(); // held open: the child does not end by itself
    input.write_all(b"still here\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    println!("\nchild {} is {line}", child.id());
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
    let child = lines.map_while(Result::ok).find_map(|line| {
        let (pid, state) = line.strip_prefix("child ")?.split_once(" is ")?;
        assert_eq!(state, "still here", "the child must outlive the thread that asked for it");
        Some(pid.to_string())
    });
    let child = child.expect("the parent names its child");
    // A zombie runs no program: what counts is that it does not run any more.
    let runs = || std::fs::read_link(format!("/proc/{child}/exe")).is_ok();
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for("the child to be gone", || (!runs()).then_some(()));
}
