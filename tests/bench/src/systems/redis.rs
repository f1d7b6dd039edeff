//! Redis, one process: without persistence, or with every write synced.

use super::{System, find_master, free_ports, local};
use crate::processes::Process;
use crate::wire::Protocol;
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) fn start(directory: &Path, is_durable: bool) -> io::Result<System> {
    let port = free_ports(1)?[0];
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(directory);
    command.args(["--appendonly", if is_durable { "yes" } else { "no" }, "--appendfsync", "always"]);
    let process = Process::start(&mut command, &directory.join("log"))?;
    find_master("redis", &[local(port)], b"PING\r\n", "+PONG")?;
    Ok(System::new(Protocol::Resp, local(port), vec![process]))
}
