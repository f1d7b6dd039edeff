//! Tells the binary which commit it is made of: `WARLOCK_COMMIT`, or what git says. Without both, and in debug builds (which would be made anew at every
//! commit), `warlock --version` tells the version alone.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WARLOCK_COMMIT");
    let given = std::env::var("WARLOCK_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| if is_release { from_git() } else { None });
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match commit {
        Some(commit) => println!("cargo::rustc-env=WARLOCK_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=WARLOCK_VERSION={version}"),
    }
}

fn from_git() -> Option<String> {
    // Sources that were unpacked below somebody else's repository are not of its commit.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    if std::fs::canonicalize(top).ok()? != std::fs::canonicalize(here).ok()? {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if std::path::Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=10", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !text.is_empty()).then_some(text)
}
