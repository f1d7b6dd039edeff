//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use warlock::identity::{self, Contact};
use warlock::node;

/// A strongly consistent coordination service that any Redis client can use.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one node.
    ///
    /// If the directory does not exist, it is made, and a cluster of this one node is formed.
    ///
    /// Example: warlock server --dir data/n1
    Server {
        /// The node's data directory.
        #[arg(long, env = "WARLOCK_DIR", default_value = "data")]
        dir: PathBuf,
        /// The address for clients, when a cluster of one is formed.
        #[arg(long, env = "WARLOCK_BIND", default_value = "127.0.0.1:6379")]
        bind: String,
        /// The password that clients must give (AUTH).
        #[arg(long, env = "WARLOCK_REQUIREPASS")]
        requirepass: Option<String>,
    },
    /// Make the data directories of a new cluster's nodes on this machine.
    ///
    /// Node N gets DIR/nN, serves clients on port BASE+N and talks to its peers on port BASE+100+N.
    ///
    /// Example: warlock form --dir data --nodes 3 --base-port 7000
    Form {
        /// Where the nodes' directories are made.
        #[arg(long, default_value = "data")]
        dir: PathBuf,
        /// How many nodes.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
        nodes: u16,
        /// Where the ports begin.
        #[arg(long, default_value_t = 7000)]
        base_port: u16,
        /// The address that all nodes listen on.
        #[arg(long, default_value = "127.0.0.1")]
        host: String,
        /// The length of the master lease in milliseconds.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        lease_ms: u64,
    },
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WARLOCK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let outcome = match Arguments::parse().command {
        Command::Server { dir, bind, requirepass } => server(dir, &bind, requirepass),
        Command::Form { dir, nodes, base_port, host, lease_ms } => {
            form(&dir, nodes, base_port, &host, lease_ms)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warlock: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn form(dir: &std::path::Path, nodes: u16, base_port: u16, host: &str, lease_ms: u64) -> Outcome {
    let last = u32::from(base_port) + 100 + u32::from(nodes);
    if last > u32::from(u16::MAX) {
        return Err(format!("--base-port {base_port} is too high: the last port would be {last}").into());
    }
    let members: Vec<(PathBuf, Contact)> = (1..=nodes)
        .map(|node| {
            let contact = Contact {
                peer: format!("{host}:{}", base_port + 100 + node),
                client: format!("{host}:{}", base_port + node),
            };
            (dir.join(format!("n{node}")), contact)
        })
        .collect();
    identity::form(&members, Duration::from_millis(lease_ms))?;
    for (directory, contact) in members {
        println!("{}: clients {}, peers {}", directory.display(), contact.client, contact.peer);
    }
    Ok(())
}

fn server(dir: PathBuf, bind: &str, password: Option<String>) -> Outcome {
    // A directory that is there but empty may be a disk that is not mounted, or a node that lost its data: no reason to begin anew.
    if !dir.exists() {
        let contact = Contact { peer: "127.0.0.1:0".to_string(), client: bind.to_string() };
        identity::form(&[(dir.clone(), contact)], Duration::from_secs(1))?;
    }
    let settings = server::Settings { password, ..server::Settings::default() };
    let options = node::Options { directory: dir, settings, config: consensus::Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(node::run(options, stop_signal())))?;
    Ok(())
}

async fn stop_signal() {
    let interrupt = tokio::signal::ctrl_c();
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(_) => return std::future::pending().await,
    };
    tokio::select! {
        _ = interrupt => {}
        _ = terminate.recv() => {}
    }
}
