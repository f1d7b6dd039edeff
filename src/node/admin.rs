//! `WARLOCK …`: what an operator asks of the cluster. Any node takes it; what changes the cluster goes to the master.
//!
//! Each request is a task of its own that waits for other nodes without holding anything up. An error says whether nothing was done (`ERR`, `TRYAGAIN`,
//! `CLUSTERDOWN`) or whether that is not known (`UNCERTAIN`).

use super::Running;
use crate::host::faults;
use bytes::Bytes;
use consensus::{Address, AdminError, Message, NodeId, RoleId};
use server::{Answer, Ticket};
use std::time::Duration;
use storage::reply::Reply;
use tokio::sync::oneshot;

/// How long one question to the master waits for its answer.
const MASTER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the answer of one that is the master no more may still be on its way.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Between two looks at who is the master.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `WARLOCK HELP` says.
pub const HELP: &[&str] = &[
    "WARLOCK <subcommand> [<arg> …]. Subcommands are:",
    "STATUS                     What this node knows of itself and its cluster.",
    "MEMBERS                    Every member: condition, role, applied slot, lag, addresses, version.",
    "JOIN host:peerport …       On an empty node that waits: form the first cluster, with the empty nodes at these peer addresses.",
    "ADD host:peerport [OBSERVER]",
    "                           Invite the empty node at this peer address. It copies, follows, and then votes (an observer never does).",
    "REMOVE node                Take a member out for good (n3).",
    "LEAVE                      Take this node out for good; its process ends.",
    "TRANSFER-MASTER [node]     Hand the mastership over, to this node or to the best one.",
    "CHECKSUM                   Compare the data of all members at one slot.",
    "SNAPSHOT                   Write a snapshot of this node now.",
    "BACKUP                     Make everything up to now readable as one file ('warlock admin backup FILE' does it all).",
    "BACKUP slot offset         A piece of that file.",
    "HELP                       This text.",
];

/// What became of a question to the master.
pub(super) enum Asked {
    /// Nobody to ask: nothing was done.
    NoMaster,
    /// No answer in time: it may have been done.
    Lost,
    /// The master's answer.
    Answered(Result<u64, AdminError>),
}

impl Running {
    /// Does what is asked, in its own time, and answers the ticket.
    pub(super) fn start_admin(&self, words: Vec<Bytes>, ticket: Ticket) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::task::spawn_local(async move {
            let reply = match node.administer(&words).await {
                Ok(reply) => reply,
                Err(error) => Reply::Error(error.into()),
            };
            if let Some(face) = node.face.get() {
                face.answer(ticket, Answer::Reply(reply));
            }
        });
    }

    async fn administer(&self, words: &[Bytes]) -> Result<Reply, String> {
        let text = |word: &Bytes| String::from_utf8_lossy(word).into_owned();
        let name = words.first().map(|word| text(word).to_uppercase()).unwrap_or_default();
        let args: Vec<String> = words.iter().skip(1).map(text).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match (name.as_str(), args.as_slice()) {
            ("HELP", []) => Ok(Reply::Array(HELP.iter().map(|line| Reply::simple(line)).collect())),
            ("STATUS", []) => Ok(self.status()),
            ("MEMBERS", []) => Ok(self.members().await),
            ("CHECKSUM", []) => self.compare_checksums().await,
            ("SNAPSHOT", []) => {
                self.save();
                let is_memory = self.snapshots.borrow().is_in_memory();
                Ok(Reply::simple(if is_memory {
                    "Background saving started, in memory only: durability is memory, nothing is written"
                } else {
                    "Background saving started"
                }))
            }
            ("BACKUP", []) => self.begin_backup().await,
            ("BACKUP", [slot, offset]) => self.backup_piece(slot, offset),
            ("TRANSFER-MASTER", []) => self.transfer(None).await,
            ("TRANSFER-MASTER", [to]) => self.transfer(Some(parse_node(to)?)).await,
            ("ADD", [address]) => self.add(address, false).await,
            ("ADD", [address, kind]) if kind.eq_ignore_ascii_case("OBSERVER") => {
                self.add(address, true).await
            }
            ("REMOVE", [node]) => self.remove(parse_node(node)?).await,
            ("LEAVE", []) => self.remove(self.identity.node).await,
            ("DEBUG", what) => faults::set(what).map(|()| Reply::Ok),
            ("JOIN", _) => Err(format!(
                "ERR nothing was done: this node is {} of a cluster already; JOIN forms a first cluster from empty nodes, ADD invites an empty node to this one",
                self.identity.node
            )),
            _ => Err(format!("ERR unknown or incomplete 'WARLOCK {name}'; WARLOCK HELP lists what there is")),
        }
    }

    async fn transfer(&self, to: Option<NodeId>) -> Result<Reply, String> {
        match self.ask_master(|ticket| Message::Transfer { to, ticket }).await {
            Asked::NoMaster => Err(NO_MASTER.into()),
            Asked::Lost => Err(LOST.into()),
            Asked::Answered(Ok(_)) => Ok(Reply::Ok),
            Asked::Answered(Err(error)) => Err(refusal(&error)),
        }
    }

    /// Asks the master, and waits.
    pub(super) async fn ask_master(&self, message: impl FnOnce(u64) -> Message) -> Asked {
        let Some(master) = self.core.borrow().node.master() else { return Asked::NoMaster };
        let number = self.next_number();
        let (answer, answered) = oneshot::channel();
        self.asked.borrow_mut().insert(number, answer);
        self.core.borrow_mut().ask(Address { node: master, role: RoleId::Leader }, message(number));
        self.wake.notify_one();
        let outcome = tokio::select! {
            biased;
            answer = answered => answer.ok(),
            () = self.fallen(master) => None,
            () = tokio::time::sleep(MASTER_PATIENCE) => None,
        };
        self.asked.borrow_mut().remove(&number);
        outcome.map_or(Asked::Lost, Asked::Answered)
    }

    /// Waits until `master` is the master no more, and for its last words: one that died was asked in vain, and its successor can be asked long before patience ends.
    async fn fallen(&self, master: NodeId) {
        while self.core.borrow().node.master() == Some(master) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(LAST_WORDS).await;
    }

    /// The master's answer to whoever asked.
    pub(super) fn master_answered(&self, message: Message) {
        let Message::AdminAnswer { ticket, result } = message else { return };
        if let Some(asker) = self.asked.borrow_mut().remove(&ticket) {
            // Who gave up does not want to know.
            let _ = asker.send(result);
        }
    }

    /// Replicates a command of the node's own, and waits until it ran.
    pub(super) async fn submit_own(&self, payload: Bytes) -> Option<Answer> {
        let number = self.next_number();
        let (answer, answered) = oneshot::channel();
        self.own.borrow_mut().insert(number, answer);
        let ticket = Ticket { connection: OWN, place: number };
        self.core.borrow_mut().submit(payload, ticket, crate::host::clock::now());
        self.wake.notify_one();
        let outcome = answered.await.ok();
        self.own.borrow_mut().remove(&number);
        outcome
    }

    fn next_number(&self) -> u64 {
        let number = self.next_admin.get();
        self.next_admin.set(number.wrapping_add(1));
        number
    }
}

/// The connection of commands that no client sent; clients' numbers begin at 1.
pub(super) const OWN: u64 = 0;

pub(super) const NO_MASTER: &str = "CLUSTERDOWN there is no master now; nothing was done, try again";
pub(super) const LOST: &str =
    "UNCERTAIN the master did not answer in time; check WARLOCK MEMBERS before you repeat it";

/// The master's refusal, in words.
pub(super) fn refusal(error: &AdminError) -> String {
    match error {
        AdminError::NotMaster(_) => "TRYAGAIN the master is changing; nothing was done, try again".into(),
        AdminError::Busy => "TRYAGAIN another change is under way; nothing was done, try again".into(),
        AdminError::NotInStep => {
            "TRYAGAIN a majority of the new voters, or the successor, is not heard or not in step; nothing was done".into()
        }
        AdminError::Refused(why) => format!("ERR nothing was done: {why}"),
    }
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    let number = text.strip_prefix('n').unwrap_or(text);
    let node = number.parse().ok().map(NodeId);
    // As it is shown, and not otherwise: whoever writes n03 may mean something else.
    node.filter(|node| node.0.to_string() == number).ok_or_else(|| {
        format!("ERR nothing was done: '{text}' is no node; WARLOCK MEMBERS lists them (n1, n2, …)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_it_is_shown() {
        for name in ["n3", "3"] {
            assert_eq!(parse_node(name), Ok(NodeId(3)));
        }
        for name in ["n03", "03", "nn3", "+3", "n", "", "n-1", "three"] {
            assert!(parse_node(name).is_err_and(|why| why.starts_with("ERR nothing was done")), "{name}");
        }
    }
}
