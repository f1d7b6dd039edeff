//! `warlock form`: the directories of a whole cluster on one machine, without a running node.

use super::Outcome;
use super::say::say;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use warlock::identity::{self, Contact};

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    /// Where the nodes' directories are made.
    #[arg(long, default_value = "data")]
    dir: PathBuf,
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Where the ports begin.
    #[arg(long, default_value_t = 7000)]
    base_port: u16,
    /// The address that all nodes listen on; or one for each node, separated by commas.
    #[arg(long, default_value = "127.0.0.1", value_delimiter = ',')]
    host: Vec<String>,
    /// The length of the master lease in milliseconds.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    lease_ms: u64,
    /// What all nodes of the cluster know and nobody else. Not given: a random one, kept in each directory.
    #[arg(long, env = "WARLOCK_CLUSTER_SECRET", hide_env_values = true)]
    cluster_secret: Option<String>,
}

/// Makes the directories.
pub fn run(flags: Flags) -> Outcome {
    let Flags { dir, nodes, base_port, host, lease_ms, cluster_secret } = flags;
    let last = u32::from(base_port) + 100 + u32::from(nodes);
    if last > u32::from(u16::MAX) {
        return Err(format!("--base-port {base_port} is too high: the last port would be {last}").into());
    }
    if host.len() != 1 && host.len() != usize::from(nodes) {
        return Err(format!(
            "--host names {} addresses for {nodes} nodes; give one, or one for each",
            host.len()
        )
        .into());
    }
    let members: Vec<(PathBuf, Contact)> = (1..=nodes)
        .zip(host.iter().cycle())
        .map(|(node, host)| {
            let contact = Contact {
                peer: format!("{host}:{}", base_port + 100 + node),
                client: format!("{host}:{}", base_port + node),
            };
            (dir.join(format!("n{node}")), contact)
        })
        .collect();
    identity::form(&members, Duration::from_millis(lease_ms), cluster_secret)?;
    for (directory, contact) in members {
        say!("{}: clients {}, peers {}", directory.display(), contact.client, contact.peer);
    }
    Ok(())
}
