//! Puts a node together from its directory: journal, newest good snapshot, roles.
//!
//! A directory that cannot give back everything that this node promised is refused: the way out is to come back as a new member.

use super::NodeError;
use crate::codec;
use crate::disk::{self, Disk};
use crate::host::backend::MachineBackend;
use crate::host::clock;
use crate::host::core::Core;
use crate::host::log::Log;
use crate::identity::NodeIdentity;
use crate::settings::Settings;
use crate::snapshots::Snapshots;
use consensus::{Config, Durable, Ledger, Node, Standing};
use std::io;
use std::sync::Arc;
use storage::journal::{self, Journal};
use storage::machine::Machine;
use tokio::sync::Notify;

/// Puts the node together from its directory.
pub(super) fn open(
    settings: &Settings,
    config: Config,
    identity: &NodeIdentity,
    wake: &Arc<Notify>,
) -> Result<(Core<MachineBackend>, Snapshots, Option<Disk>), NodeError> {
    if settings.is_memory() {
        let (core, snapshots) = open_in_memory(settings, config, identity, wake)?;
        return Ok((core, snapshots, None));
    }
    if disk::is_used(&settings.dir) && !settings.is_on_disk() {
        return Err(NodeError::Setting(format!(
            "the rows of {} are on disk (store/), and store is memory; start the node with --store disk. To have them in memory from now on, make a backup and \
             restore it (warlock admin backup, warlock restore), or remove the node from its cluster, empty its directory and add it again",
            settings.dir.display()
        )));
    }
    let directory = settings.dir.join("journal");
    let mut journal_options = journal::Options::new(&directory, journal_id(identity));
    // What clients may have in flight bounds it; refusing a batch would stop the node.
    journal_options.queue_bytes_max = u64::MAX;
    journal_options.delay = crate::host::faults::journal_delay;
    // The first start makes the journal; from then on a missing one is an error, not a node without memory.
    let marker = settings.dir.join("started");
    journal_options.create = !marker.exists();
    let mut durable = Durable { view: Some(identity.view.clone()), ..Durable::default() };
    let replay = |bytes: &[u8]| {
        durable.apply(codec::record_from_bytes(bytes)?);
        Ok(())
    };
    let (journal_wake, snapshot_wake) = (wake.clone(), wake.clone());
    let journal = Journal::open(journal_options, replay, move || journal_wake.notify_one())
        .map_err(NodeError::Journal)?;
    mark_started(&marker).map_err(|error| NodeError::Io(marker.clone(), error))?;
    let path = settings.dir.join("snapshots");
    let snapshots =
        Snapshots::open(path.clone(), identity.cluster, Arc::new(move || snapshot_wake.notify_one()))
            .map_err(|error| NodeError::Io(path, error))?;
    let wake = wake.clone();
    let disk = settings.is_on_disk().then(|| {
        Disk::new(
            (&settings.dir, settings.disk_reserve),
            settings.store_cache,
            identity,
            Arc::new(move || wake.notify_one()),
        )
    });
    let newest = match &disk {
        None => snapshots.newest().map_err(NodeError::Snapshot)?,
        Some(disk) => Some(disk.open(identity, &snapshots).map_err(|error| {
            NodeError::Failed(format!("{}: {error}", disk::directory(&settings.dir).display()))
        })?),
    };
    let (standing, ledger, machine) = match newest {
        Some(loaded) => {
            let stamp_ms = loaded.ledger.cluster_ms();
            let standing = Standing { slot: loaded.slot, stamp_ms, view: Some(loaded.view) };
            (standing, loaded.ledger, loaded.machine)
        }
        None => (Standing::default(), first_ledger(identity), Machine::in_memory()),
    };
    if durable.decided_through(standing.slot) < durable.decided {
        // Its acceptor would have forgotten values that it accepted: the same as a lost disk.
        let found = if disk.is_some() {
            format!(
                "the rows on disk stand at slot {}: they were durable beyond it, and the disk has damaged them",
                standing.slot
            )
        } else {
            format!(
                "the newest usable snapshot ends at slot {}: a snapshot is damaged or missing",
                standing.slot
            )
        };
        return Err(NodeError::Failed(format!(
            "the journal of {} continues behind slot {}, but {found}; remove this node from its cluster, empty its directory and add it again as a new member",
            settings.dir.display(),
            durable.decided,
        )));
    }
    let config = Arc::new(config);
    let recovered =
        Node::recover(identity.node, &config, durable.clone(), standing, rand::random(), clock::now());
    let backend = MachineBackend::keeping(machine, journal_id(identity));
    let mut core = Core::new(recovered, (ledger, backend), config, Log::Disk(journal), durable)?;
    core.set_request_timeout(settings.request_timeout);
    Ok((core, snapshots, disk))
}

/// A node that keeps nothing. Its id was given out for this life of the process: it has no promises to remember.
fn open_in_memory(
    settings: &Settings,
    config: Config,
    identity: &NodeIdentity,
    wake: &Arc<Notify>,
) -> Result<(Core<MachineBackend>, Snapshots), NodeError> {
    let waker = || {
        let wake = wake.clone();
        Arc::new(move || wake.notify_one())
    };
    let config = Arc::new(config);
    let durable = Durable { view: Some(identity.view.clone()), ..Durable::default() };
    let recovered = Node::recover(
        identity.node,
        &config,
        durable.clone(),
        Standing::default(),
        rand::random(),
        clock::now(),
    );
    let parts = (first_ledger(identity), MachineBackend::new(Machine::in_memory()));
    let mut core = Core::new(recovered, parts, config, Log::memory(waker()), durable)?;
    core.set_request_timeout(settings.request_timeout);
    Ok((core, Snapshots::in_memory(identity.cluster, waker())))
}

/// What a member's journal is marked with: another member's is foreign, too.
#[must_use]
pub fn journal_id(identity: &NodeIdentity) -> [u8; 16] {
    let mut id = identity.cluster;
    for (byte, part) in id[8..].iter_mut().zip(identity.node.0.to_be_bytes()) {
        *byte ^= part;
    }
    id
}

/// The ledger in front of slot 1.
///
/// A ledger skips commands of origins that are no members, so it must begin with the cluster's *first* view: with a later one it would skip what
/// members that have left since had done, and this node's state would differ from all others. An invited node knows only the view that invited it. It
/// begins without one, which skips nothing: until the log establishes a view, all commands are those of first members.
#[must_use]
pub fn first_ledger(identity: &NodeIdentity) -> Ledger {
    let view = &identity.view.current;
    if view.number == 1 { Ledger::new(view.clone()) } else { Ledger::default() }
}

fn mark_started(marker: &std::path::Path) -> io::Result<()> {
    if !marker.exists() {
        std::fs::File::create(marker)?.sync_all()?;
        if let Some(parent) = marker.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}
