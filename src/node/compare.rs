//! CHECKSUM: the data of all members, compared at one slot.
//!
//! A mark goes through the log. Every node that applies it sums its rows at the end of that slot, beside the running machine
//! ([`MachineBackend`](crate::host::backend::MachineBackend)), and remembers the sum for a while; whoever asked collects the sums. A member that took
//! the slot from a snapshot, or does not answer, is not compared.

use super::Running;
use super::report::{number, text};
use crate::host::calls::{Answer as CallAnswer, Question};
use server::Answer;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use storage::reply::Reply;

/// How long a member may take to reach the slot and to sum its rows.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

impl Running {
    pub(super) async fn compare_checksums(&self) -> Result<Reply, String> {
        let slot = self.mark().await?;
        let members = self.contacts();
        let Some(node) = self.me.upgrade() else { return Err("ERR the node is stopping".into()) };
        let asked: Vec<_> = members
            .into_iter()
            .map(|(id, contact)| {
                let node = node.clone();
                (id, tokio::task::spawn_local(async move { node.checksum_of(id, &contact.peer, slot).await }))
            })
            .collect();
        let (mut rows, mut sums, mut is_missing) = (Vec::new(), BTreeSet::new(), false);
        for (id, answer) in asked {
            let sum = answer.await.unwrap_or(None);
            sums.extend(sum);
            is_missing |= sum.is_none();
            rows.push(Reply::Map(vec![
                (text("node"), text(&id.to_string())),
                (text("rows"), sum.map_or(Reply::Null, |(rows, _)| number(rows))),
                (text("checksum"), sum.map_or(Reply::Null, |(_, sum)| text(&format!("{sum:016x}")))),
            ]));
        }
        let verdict = match (sums.len(), is_missing) {
            (0, _) => "unknown: no member has summed its rows in time",
            (2.., _) => "different",
            (_, true) => "the same on all that answered",
            _ => "the same",
        };
        let reply = [("slot", number(slot)), ("result", text(verdict)), ("nodes", Reply::Array(rows))];
        Ok(Reply::Map(reply.into_iter().map(|(name, value)| (text(name), value)).collect()))
    }

    /// Sends a mark through the log. When its slot is known, everything before it is applied here.
    pub(super) async fn mark(&self) -> Result<u64, String> {
        match self.submit_own(storage::commands::mark()).await {
            Some(Answer::Ran(reply)) => match Reply::decode(&reply) {
                Ok(Reply::Integer(slot)) => Ok(u64::try_from(slot).unwrap_or(0)),
                other => Err(format!("ERR a mark gave {other:?}")),
            },
            _ => Err("CLUSTERDOWN no master took the request in time; nothing was done, try again".into()),
        }
    }

    async fn checksum_of(&self, id: consensus::NodeId, peer: &str, slot: u64) -> Option<(u64, u64)> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let sum = if id == self.identity.node {
                self.checksum_at(slot)
            } else {
                match self.call(peer, &Question::Checksum(slot)).await {
                    Ok(CallAnswer::Checksum(sum)) => sum,
                    _ => return None,
                }
            };
            if sum.is_some() {
                return sum;
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// The sum at a slot with a mark, once it is known here.
    pub(super) fn checksum_at(&self, slot: u64) -> Option<(u64, u64)> {
        let marks = self.core.borrow().backend.marks();
        marks.get(slot).map(|checksum| (checksum.rows, checksum.sum))
    }
}
