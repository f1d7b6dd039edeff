//! Warlock as it is shipped: every node durable, settings as they are by default.

use super::{System, find_master, local};
use crate::processes::Process;
use crate::wire::Protocol;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Node N serves clients on base + N and peers on base + 100 + N.
fn free_base(nodes: u16) -> io::Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let start = 10_000 + (std::process::id() % 1_000) as u16 * 10;
    (0..500)
        .map(|step| start + step * 20)
        .find(|base| (1..=nodes).all(|node| is_free(base + node) && is_free(base + 100 + node)))
        .ok_or_else(|| io::Error::other("no free ports for a cluster"))
}

/// Starts `nodes` of `binary`.
///
/// # Errors
/// When they do not come up.
pub fn start(directory: &Path, binary: &Path, nodes: u16) -> io::Result<System> {
    let base = free_base(nodes)?;
    let mut form = Command::new(binary);
    form.args(["form", "--nodes", &nodes.to_string(), "--base-port", &base.to_string(), "--dir"]);
    let formed = form.arg(directory).stdout(Stdio::null()).status().map_err(|error| {
        let path = binary.display();
        io::Error::new(
            error.kind(),
            format!("cannot run {path}: {error}; build it with `cargo build --release`"),
        )
    })?;
    if !formed.success() {
        return Err(io::Error::other("warlock form failed"));
    }
    let mut processes = Vec::new();
    for node in 1..=nodes {
        let mut command = Command::new(binary);
        command.args(["server", "--dir"]).arg(directory.join(format!("n{node}"))).env("WARLOCK_LOG", "info");
        processes.push(Process::start(&mut command, &directory.join(format!("n{node}.log")))?);
    }
    let addresses: Vec<_> = (1..=nodes).map(|node| local(base + node)).collect();
    let master = find_master("warlock", &addresses, b"INFO warlock\r\n", "warlock_role:master")?;
    Ok(System::new(Protocol::Resp, addresses[master], processes))
}
