//! Room on the disk: while too little is free, this node refuses its clients' writes and goes on with reads.
//!
//! It looks ahead: below the reserve, new writes are refused while the journal still has its next segments, so what is under way has a place. On a disk
//! that is really full the journal waits ([`storage::journal`]), and so does everything that this node would have to persist: the others go on without it.
//! A master hands over to a member that has room, if there is one. Writes are taken again as soon as there is room.
//!
//! A disk that does not answer at all is another matter: nothing needs to be refused, because the others go on without it, but its node is no good master.

use super::Running;
use super::admin::Asked;
use consensus::{Condition, Message, NodeId};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

/// A disk that has not answered for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A master that could not hand over tries again after this.
const HAND_OVER_EVERY: Duration = Duration::from_secs(2);

/// How much room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Room {
    /// For everything.
    #[default]
    Enough,
    /// Less than the reserve.
    Low,
    /// Not even for what is under way.
    None,
    /// Nobody knows: the disk does not answer.
    Hung,
}

impl Room {
    /// What a client hears that wants to write, if there is too little.
    pub(super) fn refusal(self) -> Option<&'static str> {
        match self {
            Room::Enough | Room::Hung => None,
            Room::Low => Some(
                "MISCONF the disk of this node is nearly full (disk-reserve); nothing was written. Reads go on, and writes again as soon as there \
                 is room; other nodes may have some",
            ),
            Room::None => Some(
                "MISCONF the disk of this node is full; nothing was written. Reads go on, and writes again as soon as there is room; other nodes \
                 may have some",
            ),
        }
    }
}

/// What a client hears that wants to read when more waits for room than the node keeps in memory.
pub(super) const TOO_FAR_BEHIND: &str = "MISCONF the disk of this node has been full, or has hung, for so long that it is too far behind to answer; nothing was done, connect to \
                                         another node, and look after this one's disk";

/// Looks again and again until the task is dropped.
pub(super) async fn watch(node: Rc<Running>, directory: PathBuf, reserve: u64) {
    let mut hand_over_at = Instant::now();
    loop {
        let room = look(&node, &directory, reserve);
        if node.room.replace(room) != room {
            match room {
                Room::Enough => info!("the disk answers and has room again; writes are taken"),
                Room::Hung => error!("the disk does not answer; the others go on without it"),
                Room::Low => error!(reserve, "the disk is nearly full (disk-reserve); writes are refused"),
                Room::None => {
                    let failure = node.core.borrow().disk_full().map(|failure| failure.to_string());
                    error!(failure, "the disk is full; writes are refused, reads go on");
                }
            }
        }
        if room != Room::Enough && hand_over_at <= Instant::now() && node.is_master() {
            node.hand_over_to_room().await;
            hand_over_at = Instant::now() + HAND_OVER_EVERY;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn look(node: &Running, directory: &Path, reserve: u64) -> Room {
    if node.core.borrow().disk_full().is_some() {
        return Room::None;
    }
    if node.core.borrow_mut().disk_silent_for() >= HANGS_AFTER {
        return Room::Hung;
    }
    match rustix::fs::statvfs(directory) {
        Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < reserve => Room::Low,
        Ok(_) => Room::Enough,
        Err(error) => {
            debug!(%error, "cannot tell how much room the disk has");
            node.room.get()
        }
    }
}

impl Running {
    /// Makes a voter with room the master, if there is one (two masters without room would pass it to and fro), and if a majority can make its promise
    /// durable: otherwise the lease would be given up for nothing, and with it the reads.
    async fn hand_over_to_room(&self) {
        let view = self.core.borrow().node.replica().view().current.clone();
        let voters: Vec<_> =
            view.members.iter().filter(|(_, member)| member.condition == Condition::Valid).collect();
        let asked: Vec<(NodeId, _)> = voters
            .iter()
            .filter(|(id, _)| **id != self.identity.node)
            .map(|(id, member)| (**id, self.ask_facts(**id, member)))
            .collect();
        let mut with_room = Vec::new();
        for (id, answer) in asked {
            if answer.await.ok().flatten().is_some_and(|answer| !answer.facts.is_disk_low) {
                with_room.push(id);
            }
        }
        let can_write = with_room.len() + usize::from(matches!(self.room.get(), Room::Enough | Room::Low));
        if can_write <= voters.len() / 2 {
            return;
        }
        for to in with_room {
            match self.ask_master(|ticket| Message::Transfer { to: Some(to), ticket }).await {
                Asked::Answered(Ok(_)) => {
                    return info!(%to, "trouble with the disk: handed the mastership over");
                }
                Asked::Answered(Err(error)) => {
                    warn!(%to, ?error, "trouble with the disk, but cannot hand over")
                }
                Asked::NoMaster | Asked::Lost => {}
            }
        }
    }
}
