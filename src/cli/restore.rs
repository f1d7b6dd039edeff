//! `warlock restore` and `warlock recover`: new clusters from old data.

use super::Outcome;
use super::say::{note, say};
use clap::Args;
use std::path::PathBuf;
use warlock::identity::Contact;
use warlock::rebirth;
use warlock::settings::{self, Settings};

/// What stands behind `warlock restore`.
#[derive(Args, Debug)]
pub struct RestoreFlags {
    /// The backup.
    file: PathBuf,
    /// The new node's data directory; it must not exist, or be empty.
    #[arg(long, env = "WARLOCK_DIR")]
    dir: PathBuf,
    /// Where clients will reach the new node.
    #[arg(long, env = "WARLOCK_BIND", default_value = "127.0.0.1:6379")]
    bind: String,
    /// Where other nodes will reach it. Not given: the host of --bind, and 10000 above its port (below it when that is above 55535).
    #[arg(long, env = "WARLOCK_PEER_BIND")]
    peer_bind: Option<String>,
    /// The new cluster's secret. Not given: a random one, kept in the directory.
    #[arg(long, env = "WARLOCK_CLUSTER_SECRET", hide_env_values = true)]
    cluster_secret: Option<String>,
}

/// Restores a backup.
pub fn restore(flags: &RestoreFlags) -> Outcome {
    let flag = |name: &str| match name {
        "bind" => Some(flags.bind.clone()),
        "peer-bind" => flags.peer_bind.clone(),
        "cluster-secret" => flags.cluster_secret.clone(),
        _ => None,
    };
    let settings = Settings::new(&settings::given(flag, |_| None, None)?)?;
    let contact = Contact { client: settings.client_address(), peer: settings.peer_address() };
    let reborn = rebirth::restore(&flags.file, &flags.dir, &contact, settings.cluster_secret)?;
    say!(
        "{dir}: a new cluster of one with everything up to slot {slot}; clients {}, peers {}\n\
         start it with: warlock server --dir {dir}\n\
         then add other, empty nodes with WARLOCK ADD",
        contact.client,
        contact.peer,
        dir = flags.dir.display(),
        slot = reborn.held.slot,
    );
    Ok(())
}

/// What stands behind `warlock recover`.
#[derive(Args, Debug)]
pub struct RecoverFlags {
    /// The data directory of the node whose data is kept; the node must not run.
    #[arg(long, env = "WARLOCK_DIR")]
    dir: PathBuf,
    /// Make a new cluster of one of what this node has. The only kind of recovery there is.
    #[arg(long, required = true)]
    force_new_cluster: bool,
    /// Do it; without it the command only warns and says how far the directory is.
    #[arg(long)]
    yes: bool,
}

const WARNING: &str = "\
This gives up the old cluster. Do it only when a majority of its nodes is gone for good, and on ONE node only: the one whose
directory is furthest. Without --yes this command only says how far that is.
  - Writes that were acknowledged by nodes that are gone, and that this node never heard of, are LOST.
  - Writes that were never acknowledged may be there.
  - If other old nodes still run, they and this one become two clusters with different data. Stop them first, and never start them again with their
    old directories: empty them and WARLOCK ADD them.
The old files are put aside, not removed.";

/// Recovers, when the operator knows what that means.
pub fn recover(flags: &RecoverFlags) -> Outcome {
    note!("{WARNING}");
    if !flags.yes {
        say!("{} holds {}", flags.dir.display(), rebirth::held(&flags.dir)?);
        return Err("nothing was done; add --yes to go on".into());
    }
    let reborn = rebirth::force_new_cluster(&flags.dir)?;
    say!("{}: a new cluster of one with {}", flags.dir.display(), reborn.held);
    if let Some(old) = reborn.old {
        say!("the old files are in {}", old.display());
    }
    Ok(())
}
