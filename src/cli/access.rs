//! How a command of the command line reaches a cluster: the same flags for all of them.

use super::say::note;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use warlock::client::{Access, Client, ClientError};
use warlock::settings;

/// The command ran and was answered with an error.
pub const REFUSED: u8 = 1;
/// No node could be reached, or it did not answer.
pub const UNREACHABLE: u8 = 3;

/// Where the cluster is.
#[derive(Args, Clone, Debug)]
pub struct AccessFlags {
    /// The nodes' addresses for clients. Any one will do; with several, another is used when one is gone.
    #[arg(
        long,
        short = 'n',
        env = "WARLOCK_NODES",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        default_value = "127.0.0.1:6379"
    )]
    pub nodes: Vec<String>,
    /// The password of the cluster's clients.
    #[arg(long, env = "WARLOCK_REQUIREPASS", hide_env_values = true)]
    pub password: Option<String>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = settings::time)]
    pub patience: Duration,
}

impl AccessFlags {
    /// As the client wants it. A port alone is a port of this machine.
    pub fn access(&self) -> Access {
        let whole = |node: &String| match node.parse::<u16>() {
            Ok(port) => format!("127.0.0.1:{port}"),
            Err(_) if node.contains(':') => node.clone(),
            Err(_) => format!("{node}:6379"),
        };
        Access {
            nodes: self.nodes.iter().map(whole).collect(),
            password: self.password.clone(),
            patience: self.patience,
        }
    }

    /// A client that connects when it is first used.
    pub fn client(&self) -> Client {
        Client::new(self.access())
    }
}

/// Says why there is no answer.
pub fn complain(error: &ClientError) -> ExitCode {
    note!("warlock: {error}");
    ExitCode::from(UNREACHABLE)
}
