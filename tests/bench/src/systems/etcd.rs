//! A three-node etcd. Clients go to its leader; its reads are linearizable, as they are by default.

use super::{System, find_master, free_ports, local};
use crate::processes::Process;
use crate::wire::Protocol;
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) fn start(directory: &Path) -> io::Result<System> {
    let ports = free_ports(6)?;
    let (clients, peers) = ports.split_at(3);
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let cluster: Vec<String> =
        peers.iter().enumerate().map(|(place, port)| format!("n{place}={}", url(*port))).collect();
    let mut processes = Vec::new();
    for (place, (client, peer)) in clients.iter().zip(peers).enumerate() {
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("n{place}"), "--data-dir"]).arg(directory.join(format!("n{place}")));
        for (flag, value) in [
            ("--listen-client-urls", url(*client)),
            ("--advertise-client-urls", url(*client)),
            ("--listen-peer-urls", url(*peer)),
            ("--initial-advertise-peer-urls", url(*peer)),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", "new".to_string()),
            ("--log-level", "error".to_string()),
            ("--quota-backend-bytes", (8_u64 << 30).to_string()),
        ] {
            command.args([flag, &value]);
        }
        processes.push(Process::start(&mut command, &directory.join(format!("n{place}.log")))?);
    }
    let addresses: Vec<_> = clients.iter().map(|port| local(*port)).collect();
    let question = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let master = find_master("etcd", &addresses, question, "etcd_server_is_leader 1\n")?;
    Ok(System::new(Protocol::Etcd, addresses[master], processes))
}
