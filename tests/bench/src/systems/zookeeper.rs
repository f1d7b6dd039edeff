//! A three-node ZooKeeper. Clients go to its leader, which answers reads from its own memory.

use super::{System, find_master, free_ports, local};
use crate::processes::Process;
use crate::wire::Protocol;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) fn start(directory: &Path) -> io::Result<System> {
    let ports = free_ports(9)?;
    let mut servers = String::new();
    for node in 0..3 {
        let _ = writeln!(servers, "server.{}=127.0.0.1:{}:{}", node + 1, ports[3 + node], ports[6 + node]);
    }
    let mut processes = Vec::new();
    for (node, port) in ports[..3].iter().enumerate() {
        let data = directory.join(format!("n{}", node + 1));
        std::fs::create_dir_all(&data)?;
        std::fs::write(data.join("myid"), format!("{}\n", node + 1))?;
        let settings = data.join("zoo.cfg");
        let text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n{servers}",
            data.display(),
            port
        );
        std::fs::write(&settings, text)?;
        let mut command = Command::new("java");
        command.args(["-Xmx1g", "-Dzookeeper.4lw.commands.whitelist=srvr", "-cp"]);
        command.arg(format!("{}:/usr/share/java/zookeeper.jar", data.display()));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&settings);
        processes.push(Process::start(&mut command, &data.join("log"))?);
    }
    let addresses: Vec<_> = ports[..3].iter().map(|port| local(*port)).collect();
    let master = find_master("zookeeper", &addresses, b"srvr", "Mode: leader")?;
    Ok(System::new(Protocol::ZooKeeper, addresses[master], processes))
}
