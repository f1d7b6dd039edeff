//! New clusters from old data: from a backup, or from what one node still has when the majority is gone for good.
//!
//! Both give a directory of a cluster of one, to which others are added. Invariant: nothing of the new cluster can be taken for something of the old
//! one. It has a new cluster id, a new secret or the one that is given, a new member id, and slots and tokens far ahead of any that the old one may have
//! given out since; so a lock holder of before has a lower fencing token than every later one.

use crate::codec;
use crate::disk::{self, Disk};
use crate::host::backend::MachineBackend;
use crate::host::core::Backend;
use crate::identity::{self, Contact, NodeIdentity};
use crate::node::{first_ledger, journal_id};
use crate::snapshots::{Loaded, Snapshots};
use consensus::{Condition, Config, Durable, Ledger, Member, NodeId, View, ViewState};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::journal::{self, Journal};
use storage::machine::Machine;

/// Further than a cluster gets between a backup and its restoration.
const AHEAD: u64 = 1_000_000_000;

/// Memory for rows that are read from a store on disk.
const STORE_CACHE: u64 = 16 << 20;

/// What was made.
#[derive(Debug)]
pub struct Reborn {
    /// What is in it.
    pub held: Held,
    /// Where the old files are, if there were any.
    pub old: Option<PathBuf>,
}

/// What the files of a stopped node hold.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The slot of the last value.
    pub slot: u64,
    /// How many of the last values the node had accepted without knowing them decided.
    pub undecided: u64,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { slot, undecided } = self;
        write!(
            f,
            "everything up to slot {slot}, the last {undecided} slots of which this node did not know to be decided"
        )
    }
}

/// Makes `directory` a new cluster of one with the data of a backup.
///
/// # Errors
/// When the backup is damaged, or the directory holds something.
pub fn restore(
    backup: &Path,
    directory: &Path,
    contact: &Contact,
    secret: Option<String>,
) -> Result<Reborn, Box<dyn Error>> {
    let is_used = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if is_used {
        let shown = directory.display();
        return Err(format!("{shown} is not empty; restore into a new directory").into());
    }
    let loaded = Loaded::read(backup)?;
    let slot = loaded.slot;
    found(loaded, directory, contact, secret)?.write(directory)?;
    Ok(Reborn { held: Held { slot, undecided: 0 }, old: None })
}

/// What the node in `directory` would bring into a new cluster. A node may have applied more than its own disk held when it crashed, because the disks of
/// the others had it; so this is what directories are compared by.
///
/// # Errors
/// When the directory holds no node, is in use, or is damaged.
pub fn held(directory: &Path) -> Result<Held, Box<dyn Error>> {
    let (loaded, undecided) = everything(directory, &NodeIdentity::read(directory)?)?;
    Ok(Held { slot: loaded.slot, undecided })
}

/// Makes a new cluster of one of what the node in `directory` has; its old files are put aside.
///
/// # Errors
/// When the directory holds no node, is in use, or is damaged.
pub fn force_new_cluster(directory: &Path) -> Result<Reborn, Box<dyn Error>> {
    let identity = NodeIdentity::read(directory)?;
    let (loaded, undecided) = everything(directory, &identity)?;
    let contact = loaded
        .view
        .current
        .members
        .get(&identity.node)
        .or_else(|| identity.view.current.members.get(&identity.node));
    let contact = contact
        .and_then(|member| Contact::from_bytes(&member.contact))
        .ok_or("the node does not know its own address any more")?;
    let old = directory.join(format!("before-recovery-{}", NodeIdentity::short(&identity.cluster)));
    let slot = loaded.slot;
    // The new rows are read from the old files, so those go aside when the new ones are there.
    let unfinished = directory.join("recovering");
    let new = found(loaded, &unfinished, &contact, Some(identity.secret))?;
    // Not before: who tries again after a failure (no room) must not stumble over it.
    fs::create_dir(&old)?;
    for name in ["identity", "started", "journal", "snapshots", "store"] {
        let path = directory.join(name);
        if path.exists() {
            fs::rename(&path, old.join(name))?;
        }
    }
    fs::rename(unfinished.join("snapshots"), directory.join("snapshots"))?;
    fs::remove_dir(&unfinished)?;
    new.write(directory)?;
    Ok(Reborn { held: Held { slot, undecided }, old: Some(old) })
}

/// What a node has: its newest snapshot, what it knows decided behind it, and what it accepted behind that. A client may have heard of the last, too.
fn everything(directory: &Path, identity: &NodeIdentity) -> Result<(Loaded, u64), Box<dyn Error>> {
    let mut durable = Durable { view: Some(identity.view.clone()), ..Durable::default() };
    let options = journal::Options::new(directory.join("journal"), journal_id(identity));
    let replay = |bytes: &[u8]| {
        durable.apply(codec::record_from_bytes(bytes)?);
        Ok(())
    };
    drop(Journal::open(options, replay, || ())?);
    let snapshots = Snapshots::open(directory.join("snapshots"), identity.cluster, Arc::new(|| ()))?;
    // Rows on disk are only looked at: what is applied here stays in memory.
    let newest = if disk::is_used(directory) {
        let store = Disk::new((directory, 0), STORE_CACHE, identity, Arc::new(|| ()));
        Some(store.open(identity, &snapshots)?)
    } else {
        snapshots.newest()?
    };
    let (mut ledger, machine, mut view) = match newest {
        Some(loaded) => (loaded.ledger, loaded.machine, loaded.view),
        None => (first_ledger(identity), Machine::in_memory(), identity.view.clone()),
    };
    if let Some(known) = &durable.view {
        view.learn(known);
    }
    let (mut backend, config, mut outcomes) = (MachineBackend::new(machine), Config::default(), Vec::new());
    let mut said = Vec::new();
    let mut undecided = 0;
    loop {
        let slot = ledger.applied() + 1;
        let accepted = durable.accepted.get(&slot).map(|pvalue| &pvalue.value);
        let Some(value) = durable.decided_value(slot).or(accepted) else { break };
        undecided += u64::from(durable.decided_value(slot).is_none());
        ledger.apply(slot, value, &mut backend, &config, &mut outcomes);
        backend.finish_slot(slot);
        backend.take_events(&mut said);
        outcomes.clear();
    }
    if let Some(error) = backend.failure {
        return Err(format!("the rows cannot be put together: {error:?}").into());
    }
    if ledger.applied() < durable.decided {
        return Err(format!(
            "slots {} to {} are missing: a snapshot is damaged or lost; use another node's directory, or a backup",
            ledger.applied() + 1,
            durable.decided
        )
        .into());
    }
    Ok((Loaded { slot: ledger.applied(), ledger, view, machine: backend.machine }, undecided))
}

/// Writes the rows of a new cluster into `directory`. Its identity is to be written last: without it a directory is no node.
fn found(
    loaded: Loaded,
    directory: &Path,
    contact: &Contact,
    secret: Option<String>,
) -> Result<NodeIdentity, Box<dyn Error>> {
    let Loaded { ledger, view, mut machine, .. } = loaded;
    machine.jump_ahead(AHEAD, AHEAD).map_err(|error| format!("the rows cannot be changed: {error:?}"))?;
    let (node, view) = alone(&view.current, contact);
    let ledger = at_slot(&ledger, machine.applied())?;
    let cluster = rand::random::<[u8; 16]>();
    let snapshots = directory.join("snapshots");
    fs::create_dir_all(&snapshots)?;
    Loaded { slot: machine.applied(), ledger, view: view.clone(), machine }.write(&snapshots, cluster)?;
    let secret = secret.unwrap_or_else(identity::random_secret);
    Ok(NodeIdentity { cluster, node, secret, view })
}

/// The view of one new member. It is not established yet, so the ledger hears of it, and forgets the old members, from the first entry of the new cluster.
fn alone(old: &View, contact: &Contact) -> (NodeId, ViewState) {
    let node = NodeId(old.next_member);
    let member = Member { condition: Condition::Valid, contact: contact.to_bytes() };
    let view = |number| {
        let members = BTreeMap::from([(node, member.clone())]);
        Arc::new(View { number, members, next_member: node.0 + 1, lease: old.lease })
    };
    (
        node,
        ViewState { current: view(old.number + 2), established: false, previous: Some(view(old.number + 1)) },
    )
}

/// The same ledger at another slot. Its bytes begin with the slot; the test below keeps it so.
fn at_slot(ledger: &Ledger, slot: u64) -> Result<Ledger, Box<dyn Error>> {
    let bytes = codec::to_bytes(ledger);
    let Some(rest) = bytes.strip_prefix(&codec::to_bytes(&ledger.applied())[..]) else {
        return Err("a ledger does not begin with its slot".into());
    };
    Ok(codec::from_bytes(&[&codec::to_bytes(&slot)[..], rest].concat())?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use consensus::{Ballot, Body, Command, CommandId, Origin, Value};

    struct Echo;

    impl consensus::Machine for Echo {
        fn apply(&mut self, _: &consensus::Stamp, _: CommandId, payload: &bytes::Bytes) -> bytes::Bytes {
            payload.clone()
        }
    }

    #[test]
    fn a_ledger_moves_to_another_slot_and_is_otherwise_the_same() {
        let origin = Origin { node: NodeId(1), incarnation: 2 };
        let command = Command { id: CommandId { origin, seq: 1 }, low: 1, payload: "reply".into() };
        let made_in = Ballot { view: 1, round: 3, leader: NodeId(1) };
        let value = Value { made_in, stamp_ms: 77, body: Body::Commands(vec![command]) };
        let view = View::first([(NodeId(1), "a b".into())], std::time::Duration::from_secs(1));
        let mut ledger = Ledger::new(Arc::new(view));
        ledger.apply(1, &value, &mut Echo, &Config::default(), &mut Vec::new());
        let moved = at_slot(&ledger, 500).unwrap();
        assert_eq!((moved.applied(), moved.cluster_ms(), moved.replies_kept()), (500, 77, 1));
        assert_eq!(moved.view(), ledger.view());
        assert_eq!(at_slot(&moved, 1).unwrap(), ledger);
    }
}
