//! The `warlock` binary.

mod cli;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    Server(cli::server::Flags),
    /// Make the data directories of a new cluster's nodes on this machine.
    ///
    /// Node N gets DIR/nN, serves clients on port BASE+N and talks to its peers on port BASE+100+N.
    ///
    /// Example: warlock form --dir data --nodes 3 --base-port 7000
    Form(cli::form::Flags),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Server(flags) => cli::server::run(&flags),
        Command::Form(flags) => cli::form::run(flags),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warlock: {error}");
            ExitCode::FAILURE
        }
    }
}
