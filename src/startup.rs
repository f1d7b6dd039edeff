//! From settings to a running node: a directory that holds a node is opened; one that does not exist becomes a new node, alone or by invitation.
//!
//! A directory that is there but holds no node is never taken for a reason to found a cluster: it may be a disk that is not mounted, or a node that
//! lost its data. (Waiting for an invitation in an empty one is harmless: the node becomes a new member.)

use crate::identity::{Contact, IdentityError, NodeIdentity};
use crate::node::{self, Doors, NodeError};
use crate::settings::Settings;
use crate::waiting::{self, Invited};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::future::Future;
use std::path::Path;
use tracing::warn;

/// Runs a node until `stop` is ready. Must be called inside a `LocalSet` or a `LocalRuntime`.
///
/// # Errors
/// When it cannot start, or its disk fails.
pub async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    run_behind(settings, None, stop).await
}

/// As [`run`], behind sockets that are open already.
///
/// # Errors
/// As [`run`].
pub async fn run_behind(
    mut settings: Settings,
    doors: Option<Doors>,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    allow_files(settings.maxclients);
    tokio::pin!(stop);
    let found = NodeIdentity::read(&settings.dir);
    if settings.is_memory() && !matches!(found, Err(IdentityError::Absent(_))) {
        return Err(NodeError::Setting(format!(
            "durability is memory, but {} holds a node that keeps its data on disk; leave durability out, or give another dir",
            settings.dir.display()
        )));
    }
    let (identity, doors, face) = match found {
        Ok(identity) => (identity, doors, None),
        Err(IdentityError::Absent(_))
            if settings.is_guest() && (settings.is_memory() || is_empty(&settings.dir)) =>
        {
            match waiting::wait(&settings, &mut stop).await? {
                Some(Invited { identity, doors, face }) => (identity, Some(doors), Some(face)),
                None => return Ok(()), // told to stop
            }
        }
        Err(IdentityError::Absent(_)) if settings.is_memory() || !settings.dir.exists() => {
            // Before the node is made: its addresses are fixed with it.
            let doors = match doors {
                Some(doors) => doors,
                None => Doors::of_a_new_node(&mut settings).await?,
            };
            (found_alone(&settings).map_err(NodeError::Identity)?, Some(doors), None)
        }
        Err(error) => return Err(NodeError::Identity(error)),
    };
    node::run(settings, identity, doors, face, stop).await
}

fn contact(settings: &Settings) -> Contact {
    Contact { client: settings.client_address(), peer: settings.peer_address() }
}

/// Raises the number of open files to what so many clients need, as far as the system lets us: the usual 1,024 are for programs that are no servers.
fn allow_files(clients: usize) {
    // The journal, the snapshots, the peers, and some to spare.
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(512);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        warn!(
            wanted,
            allowed = current,
            "the system allows fewer open files than maxclients needs; raise it (ulimit -n) or lower --maxclients"
        );
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

fn found_alone(settings: &Settings) -> Result<NodeIdentity, IdentityError> {
    let identity = NodeIdentity::alone(&contact(settings), settings.lease, settings.cluster_secret.clone());
    if !settings.is_memory() {
        identity.write(&settings.dir)?;
    }
    Ok(identity)
}
