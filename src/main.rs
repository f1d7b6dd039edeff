//! The `warlock` binary.
// They panic when the output is closed; see `cli::say`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;

use clap::{Parser, Subcommand};
use cli::say::note;
use std::process::ExitCode;

const AFTER: &str = "'warlock COMMAND --help' has examples. Exit codes: 0 done · 1 refused or failed, with the reason on standard error · 2 wrong usage; \
                     commands that talk to a cluster have more, see their help.";

/// A strongly consistent coordination service that any Redis client can use.
#[derive(Parser)]
#[command(version = env!("WARLOCK_VERSION"), about, max_term_width = 100, after_help = AFTER)]
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
    /// Exit codes: 0 answered · 1 answered with an error · 2 wrong usage · 3 no node can be reached, takes the password, or answers in time.
    ///
    /// Examples:
    ///   warlock cli set greeting hello
    ///   warlock cli -n 7001,7002,7003 --json hgetall user:1
    ///   warlock cli -n 7001            (a prompt, with history)
    #[command(verbatim_doc_comment)]
    Cli(cli::shell::Flags),
    /// Show the members of a cluster: who is master, how far each one is, how busy it is.
    ///
    /// Exit codes: 0 shown · 1 refused · 2 wrong usage · 3 no node can be reached, or takes the password.
    ///
    /// Examples:
    ///   warlock status -n 7001
    ///   warlock status -n 7001,7002,7003 --watch
    #[command(verbatim_doc_comment)]
    Status(cli::status::Flags),
    /// Put a quick load on a cluster and print how long answers took.
    ///
    /// Writes keys that begin with `bench:` and removes none of them. Exit codes: 0 done · 2 wrong usage · 3 no node can be reached, or takes the password.
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
    /// Run a command while a lock is held.
    ///
    /// Waits for the lock, runs the command with the fencing token in WARLOCK_TOKEN, renews the lock meanwhile, and gives it back. If the lock is or
    /// may be lost, the command gets SIGTERM, then SIGKILL, before its time is over; if it was taken away, at once. While no node answers, it goes on trying
    /// until --wait is over; if it never reached any, it gives up after --patience.
    ///
    /// Exit codes: the command's own (128 + n when signal n ended it, or the wait) · 123 the lock was or may have been lost, the command was stopped ·
    /// 124 somebody else holds it and --wait is over · 125 the cluster cannot be reached or refused · 126, 127 the command cannot be run · 2 wrong usage.
    ///
    /// Examples:
    ///   warlock lock deploy -- ./deploy.sh
    ///   warlock lock -n 7001,7002,7003 nightly --ttl 30s --wait 0s -- pg_dump shop
    #[command(verbatim_doc_comment)]
    Lock(cli::lock::Flags),
    /// Run a command while we lead, or print who leads.
    ///
    /// Like lock, but stands again when leadership is lost; ends when the command ends by itself, or at SIGTERM, SIGINT, SIGQUIT or SIGHUP while it does not lead.
    /// Exit codes as for lock.
    ///
    /// Examples:
    ///   warlock elect scheduler 10.0.0.7:9000 -- ./scheduler
    ///   warlock elect scheduler --watch
    #[command(verbatim_doc_comment)]
    Elect(cli::elect::Flags),
    /// Administer a running cluster: the same as WARLOCK … of any Redis client.
    ///
    /// Exit codes: 0 done · 1 refused · 2 wrong usage · 3 no node can be reached, takes the password, or answers in time. A join of nodes that are one cluster already
    /// is no error.
    ///
    /// Examples:
    ///   warlock admin -n 7001 members
    ///   warlock admin -n 10.0.0.1 join 10.0.0.2:16379 10.0.0.3:16379
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
        Command::Status(flags) => cli::status::run(&flags),
        Command::Bench(flags) => cli::bench::run(&flags),
        Command::Dev(flags) => finish(cli::dev::run(&flags)),
        Command::Lock(flags) => cli::lock::run(&flags),
        Command::Elect(flags) => cli::elect::run(&flags),
        Command::Admin(flags) => cli::admin::run(&flags),
        Command::Restore(flags) => finish(cli::restore::restore(&flags)),
        Command::Recover(flags) => finish(cli::restore::recover(&flags)),
    }
}

fn finish(outcome: cli::Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note!("warlock: {error}");
            ExitCode::FAILURE
        }
    }
}
