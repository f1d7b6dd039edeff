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
    /// If the directory does not exist, it is made, and a cluster of this one node is formed, unless the node is told to wait for an invitation.
    ///
    /// Example: warlock server --dir data/n1
    Server(cli::server::Flags),
    /// Make the data directories of a new cluster's nodes on this machine.
    ///
    /// Node N gets DIR/nN, serves clients on port BASE+N and talks to its peers on port BASE+100+N.
    ///
    /// Example: warlock form --dir data --nodes 3 --base-port 7000
    Form(cli::form::Flags),
    /// Talk to a cluster, as redis-cli does.
    ///
    /// Exit codes: 0 answered · 1 answered with an error · 2 wrong usage · 3 no node can be reached, or none answered in time.
    ///
    /// Examples:
    ///   warlock cli set greeting hello
    ///   warlock cli -n 7001,7002,7003 --json hgetall user:1
    ///   warlock cli -n 7001            (a prompt, with history)
    #[command(verbatim_doc_comment)]
    Cli(cli::shell::Flags),
    /// Put a quick load on a cluster and print how long answers took.
    ///
    /// Writes keys that begin with `bench:` and removes none of them. Exit codes: 0 done · 2 wrong usage · 3 no node can be reached.
    ///
    /// Examples:
    ///   warlock bench -n 7001
    ///   warlock bench -n 7001,7002,7003 --clients 50 --pipeline 16 --workload mixed
    #[command(verbatim_doc_comment)]
    Bench(cli::bench::Flags),
    /// Run a whole cluster in this one process, for tests and laptops.
    ///
    /// Real nodes with real journals and real peer links; only the process is shared. Without --dir the data goes to a temporary directory
    /// that is removed at the end. Ctrl-C stops it.
    ///
    /// Examples:
    ///   warlock dev
    ///   warlock dev --nodes 5 --base-port 8000 --dir data/dev
    #[command(verbatim_doc_comment)]
    Dev(cli::dev::Flags),
    /// Administer a running cluster: the same as WARLOCK … of any Redis client.
    ///
    /// Examples:
    ///   warlock admin -n 7001 members
    ///   warlock admin -n 7001 add 10.0.0.4:16379
    ///   warlock admin help
    #[command(verbatim_doc_comment)]
    Admin(cli::admin::Flags),
    /// Make a new cluster of one from a backup.
    ///
    /// It has a new id, and its tokens and versions are far ahead of the old cluster's: nothing of the old one can be taken for something of it.
    ///
    /// Examples:
    ///   warlock admin -n 7001 backup monday.warlock
    ///   warlock restore monday.warlock --dir data/restored
    #[command(verbatim_doc_comment)]
    Restore(cli::restore::RestoreFlags),
    /// Make a new cluster of one of what a node has, when a majority of its cluster is gone for good.
    ///
    /// Example: warlock recover --force-new-cluster --dir data/n1
    Recover(cli::restore::RecoverFlags),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Server(flags) => finish(cli::server::run(&flags)),
        Command::Form(flags) => finish(cli::form::run(flags)),
        Command::Cli(flags) => cli::shell::run(&flags),
        Command::Bench(flags) => cli::bench::run(&flags),
        Command::Dev(flags) => finish(cli::dev::run(&flags)),
        Command::Admin(flags) => finish(cli::admin::run(flags)),
        Command::Restore(flags) => finish(cli::restore::restore(&flags)),
        Command::Recover(flags) => finish(cli::restore::recover(&flags)),
    }
}

fn finish(outcome: cli::Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warlock: {error}");
            ExitCode::FAILURE
        }
    }
}
