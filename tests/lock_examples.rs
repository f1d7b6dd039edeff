//! The examples of docs/locks.md, run as they stand there, against a real cluster.
//!
//! The client libraries are those of `tests/clients`; without a network the test says so and does nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::Cluster;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first example in a language, with this port.
fn example(language: &str, port: u16) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/locks.md");
    let text = std::fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    let (_, rest) = text.split_once(&fence).unwrap_or_else(|| panic!("no example in {language}"));
    let (code, _) = rest.split_once("```").unwrap();
    assert!(code.contains("7001"), "the example in {language} names no port: {code}");
    code.replace("7001", &port.to_string())
}

fn set_up(kind: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(kind);
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/setup");
    let output = Command::new(setup).arg(kind).arg(&directory).output().unwrap();
    if output.status.success() {
        return Some(directory);
    }
    println!(
        "SKIPPED: the {kind} libraries cannot be installed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

/// Runs it; afterwards what it did under the lock is done, and the lock is free.
fn check(language: &str, command: impl FnOnce(String) -> Command) {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    let output = command(example(language, cluster.port(1))).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "the example in {language}: {}", String::from_utf8_lossy(&said));
    let mut client = cluster.client(2);
    assert_eq!(client.must(&["GET", "version"]).to_string(), "42");
    let info = client.must(&["LOCK.INFO", "deploy"]);
    assert_eq!(info.field("holders").map_or(0, |holders| holders.items().len()), 0, "{info}");
}

#[test]
fn python() {
    if let Some(directory) = set_up("python") {
        check("python", |code| {
            let mut command = Command::new(directory.join("venv/bin/python"));
            command.arg("-c").arg(code);
            command
        });
    }
}

#[test]
fn node() {
    if let Some(directory) = set_up("node") {
        check("js", |code| {
            let mut command = Command::new("node");
            let main = format!(
                "(async () => {{ {code}\nawait r.quit(); }})().catch((error) => {{ console.error(error); process.exit(1); }});"
            );
            command.arg("-e").arg(main).env("NODE_PATH", directory.join("node_modules"));
            command
        });
    }
}
