//! Changes of the member set: inviting an empty node, taking a member out.
//!
//! The rule: nothing is changed before everything that can be checked has been. A new member is met at its address, with the secret, empty, and able to
//! reach every member, before the cluster hears of it; it begins without a vote, and consensus gives it one when it is in step. So a
//! mistyped address, a node of another cluster or a node with data costs nothing.

use super::Running;
use super::admin::{Asked, LOST, NO_MASTER, refusal};
use crate::host::calls::{self, Answer, Applicant, EmptyNode, Invitation, Question};
use crate::identity::Contact;
use consensus::{AdminError, Change, Message, NodeId, View};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use storage::reply::Reply;
use tracing::{info, warn};

/// How long a change is tried while the master is busy or changing.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a node that is asked something may take.
const CALL: Duration = Duration::from_secs(5);
/// How consensus says that a change was made before; a test below keeps it so.
const ALREADY: &str = "it is already so";

impl Running {
    /// Invites the empty node at `address`.
    pub(super) async fn add(&self, address: &str, observer: bool) -> Result<Reply, String> {
        let node = self.invite(address, observer, None).await?;
        Ok(Reply::Simple(format!("OK {node}").into()))
    }

    /// An empty node asks to be added.
    pub(super) async fn admit(&self, applicant: Applicant) -> Answer {
        if self.is_admitting.replace(true) {
            return Answer::No("another node is being added; ask again".into());
        }
        let outcome = self.invite(&applicant.peer, false, Some(applicant.instance)).await;
        self.is_admitting.set(false);
        match outcome {
            Ok(_) => Answer::Done,
            Err(why) => Answer::No(why),
        }
    }

    async fn invite(&self, address: &str, observer: bool, instance: Option<u64>) -> Result<NodeId, String> {
        let nothing = |why: String| format!("ERR nothing was done: {why}");
        let guest = self.meet(address).await.map_err(nothing)?;
        if instance.is_some_and(|instance| instance != guest.instance) {
            return Err(nothing(format!("{address} is not the node that asked to be added")));
        }
        self.make_way(address, &guest).await?;
        let reach = Question::Reach(self.living_peers());
        match self.call(address, &reach).await.map_err(nothing)? {
            Answer::Unreachable(problems) if problems.is_empty() => {}
            Answer::Unreachable(problems) => {
                return Err(nothing(format!("from {address}, {}", problems.join("; "))));
            }
            other => return Err(nothing(format!("{address} gave an answer that makes no sense: {other:?}"))),
        }
        let contact = Contact { peer: address.to_string(), client: guest.client.clone() };
        self.change(Change::Add { contact: contact.to_bytes(), observer }).await?;
        let node = self.wait_for_member(&contact).await?;
        if let Err(why) = self.hand_over_identity(address, node).await {
            warn!(%node, address, why, "an invited node did not answer; it is taken out again");
            return match self.change(Change::Remove(node)).await {
                Ok(_) => Err(nothing(format!("{why}; the member {node} was taken out again"))),
                Err(_) => Err(format!(
                    "UNCERTAIN {why}; {node} is a member that never began: WARLOCK REMOVE {node}, then ADD again"
                )),
            };
        }
        info!(%node, address, "a node was added");
        Ok(node)
    }

    /// Who is at `address`: an empty node, or why not.
    async fn meet(&self, address: &str) -> Result<EmptyNode, String> {
        match self.call(address, &Question::Who).await? {
            Answer::Empty(guest) => check_guest(address, &guest).map(|()| guest),
            Answer::Member { cluster, node } if cluster == self.identity.cluster => {
                Err(format!("{address} is {node}, a member of this cluster already"))
            }
            Answer::Member { .. } => Err(format!(
                "{address} is a member of another cluster; only an empty node (--wait-for-invitation) can be added"
            )),
            other => Err(format!("{address} gave an answer that makes no sense: {other:?}")),
        }
    }

    /// Two members cannot have one address. Who is there now is empty: the member that was there has lost its memory and can never come back.
    async fn make_way(&self, address: &str, guest: &EmptyNode) -> Result<(), String> {
        let earlier = self.contacts().into_iter().find(|(_, contact)| contact.peer == address);
        match earlier {
            None => Ok(()),
            Some((node, _)) if guest.is_memory => {
                info!(%node, address, "a node lost its memory; its member is taken out");
                self.change(Change::Remove(node)).await.map(|_| ())
            }
            Some((node, _)) => Err(format!(
                "ERR nothing was done: {address} is the address of {node}, and the node there is empty now; WARLOCK REMOVE {node} first"
            )),
        }
    }

    async fn hand_over_identity(&self, address: &str, node: NodeId) -> Result<(), String> {
        let view = self.core.borrow().node.replica().view().clone();
        let invitation = Invitation { cluster: self.identity.cluster, node, view };
        deliver(address, self.identity.secret.as_bytes(), invitation).await
    }

    async fn wait_for_member(&self, contact: &Contact) -> Result<NodeId, String> {
        let wanted = contact.to_bytes();
        let wait = async {
            loop {
                let changed = self.view_changed.notified();
                let view = self.core.borrow().node.replica().view().current.clone();
                if let Some((id, _)) = view.members.iter().find(|(_, member)| member.contact == wanted) {
                    return *id;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.map_err(|_| LOST.to_string())
    }

    /// Takes a member out.
    pub(super) async fn remove(&self, node: NodeId) -> Result<Reply, String> {
        let view = self.core.borrow().node.replica().view().current.clone();
        if !view.is_member(node) {
            return Err(format!(
                "ERR nothing was done: there is no member {node}; WARLOCK MEMBERS lists them"
            ));
        }
        if let Ok(next) = view.after(&Change::Remove(node)) {
            self.check_quorum(&next).await?;
        }
        self.change(Change::Remove(node)).await.map(|_| Reply::Ok)
    }

    /// Consensus makes sure that a majority of the new voters was heard within the lease. One that died a moment ago still was: so they are asked now.
    async fn check_quorum(&self, next: &View) -> Result<(), String> {
        let asked: Vec<_> = next
            .members
            .iter()
            .filter(|(id, _)| next.is_voter(**id))
            .map(|(id, member)| (*id, self.ask_facts(*id, member)))
            .collect();
        let (mut answered, mut silent) = (BTreeSet::new(), Vec::new());
        for (id, answer) in asked {
            match answer.await {
                Ok(Some(_)) => drop(answered.insert(id)),
                _ => silent.push(id.to_string()),
            }
        }
        if next.is_majority(&answered) {
            return Ok(());
        }
        Err(format!(
            "TRYAGAIN nothing was done: {} of the {} voters that would be left does not answer, and the rest is no majority",
            silent.join(", "),
            next.voters().count()
        ))
    }

    /// Asks the master for a change until it is made, refused, or nobody can tell. A change that is asked for twice is made once.
    async fn change(&self, change: Change) -> Result<u64, String> {
        let already = AdminError::Refused(ALREADY.into());
        let (start, mut may_be_done) = (Instant::now(), false);
        let mut last = NO_MASTER.to_string();
        while start.elapsed() < PATIENCE {
            let asked =
                self.ask_master(|ticket| Message::Reconfigure { change: change.clone(), ticket }).await;
            match asked {
                Asked::Answered(Ok(view)) => return Ok(view),
                Asked::Answered(Err(error)) if error == already && may_be_done => return Ok(0),
                Asked::Answered(Err(error @ AdminError::Refused(_))) => return Err(refusal(&error)),
                // A master that loses its office while it makes the change says so in the same words.
                Asked::Answered(Err(error)) => {
                    may_be_done |= error == AdminError::Busy;
                    last = refusal(&error);
                }
                Asked::NoMaster => {}
                Asked::Lost => {
                    may_be_done = true;
                    last = LOST.to_string();
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(last)
    }

    /// The peer addresses of this node and of the members that it reaches itself: a dead one is no reason not to add its replacement.
    fn living_peers(&self) -> Vec<String> {
        let outboxes = self.outboxes.borrow();
        let lives =
            |id: &NodeId| *id == self.identity.node || outboxes.get(id).is_some_and(|outbox| outbox.is_up());
        self.contacts().into_iter().filter(|(id, _)| lives(id)).map(|(_, contact)| contact.peer).collect()
    }

    /// Every member of the current view.
    pub(super) fn contacts(&self) -> Vec<(NodeId, Contact)> {
        let view = self.core.borrow().node.replica().view().current.clone();
        let members = view.members.iter();
        members.filter_map(|(id, member)| Some((*id, Contact::from_bytes(&member.contact)?))).collect()
    }

    pub(super) async fn call(&self, address: &str, question: &Question) -> Result<Answer, String> {
        calls::ask(address, self.identity.secret.as_bytes(), question, CALL).await
    }
}

/// Whether others could use what an empty node says of itself.
///
/// # Errors
/// In words for the operator.
pub fn check_guest(address: &str, guest: &EmptyNode) -> Result<(), String> {
    if crate::settings::is_any_host(&guest.client) {
        return Err(format!(
            "the node at {address} says that clients reach it at {}, which is no address of one machine; start it with --announce",
            guest.client
        ));
    }
    match &guest.peer_announce {
        Some(announced) if announced != address => Err(format!(
            "the node at {address} wants to be known to its peers as {announced}; use that address"
        )),
        _ => Ok(()),
    }
}

/// Makes the empty node at `address` a member. Repeated until it says yes, or no, or nothing for too long.
///
/// # Errors
/// In words for the operator.
pub async fn deliver(address: &str, secret: &[u8], invitation: Invitation) -> Result<(), String> {
    let (start, question) = (Instant::now(), Question::BeMember(invitation));
    loop {
        let problem = match calls::ask(address, secret, &question, CALL).await {
            Ok(Answer::Done) => return Ok(()),
            Ok(Answer::No(why)) => return Err(format!("{address}: {why}")),
            Ok(other) => return Err(format!("{address} gave an answer that makes no sense: {other:?}")),
            Err(problem) => problem,
        };
        if start.elapsed() > PATIENCE {
            return Err(problem);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_made_before_is_recognised() {
        let view = View::first([(NodeId(1), "a".into())], Duration::from_secs(1));
        for change in [Change::Remove(NodeId(7)), Change::Add { contact: "a".into(), observer: false }] {
            let refused = view.after(&change).map_err(|refusal| refusal.to_string());
            assert_eq!(refused.err().as_deref(), Some(ALREADY), "{change:?}");
        }
    }
}
