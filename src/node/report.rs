//! What the node tells about itself and its cluster.

use super::Running;
use super::peers::member_contact;
use super::room::Room;
use crate::host::calls::{Answer, MemberFacts, Question};
use crate::host::clock;
use crate::identity::Contact;
use consensus::{Condition, Member, NodeId};
use server::Facts;
use storage::reply::Reply;

pub(super) fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

pub(super) fn number(number: u64) -> Reply {
    Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A member's answer.
pub(super) struct Answered {
    pub facts: MemberFacts,
    /// How far this node was when the answer came.
    here: u64,
}

impl Running {
    pub(super) fn status(&self) -> Reply {
        let facts = self.known_facts();
        Reply::Map(vec![
            (text("node"), text(&format!("n{}", facts.node))),
            (text("role"), text(facts.role)),
            (text("master"), facts.master.as_deref().map_or(Reply::Null, text)),
            (text("view"), number(facts.view)),
            (text("ballot"), text(&facts.ballot)),
            (text("applied"), number(facts.applied)),
            (text("lease_left_ms"), number(self.lease_left_ms())),
            (text("waiting"), number(facts.waiting as u64)),
            (text("journal_bytes"), number(facts.journal_bytes)),
            (text("disk_free_bytes"), self.snapshots.borrow().disk_free().map_or(Reply::Null, number)),
            (text("version"), text(env!("CARGO_PKG_VERSION"))),
        ])
    }

    /// Every member, with what it says of itself; who does not answer is shown as the cluster knows it.
    pub(super) async fn members(&self) -> Reply {
        let (view, master) = {
            let core = self.core.borrow();
            (core.node.replica().view().current.clone(), core.node.master())
        };
        let mut asked = Vec::new();
        for (id, member) in &view.members {
            asked.push((*id, member.clone(), self.ask_facts(*id, member)));
        }
        let mut rows = Vec::new();
        for (id, member, answer) in asked {
            // They were all asked at once: a task each.
            rows.push((id, member, answer.await.ok().flatten()));
        }
        let seen = rows.iter().map(|(_, _, answer)| answer.as_ref().map(|it| (it.facts.applied, it.here)));
        let lags = lags(&seen.collect::<Vec<_>>());
        let row = |((id, member, answer), lag): ((NodeId, Member, Option<Answered>), Option<u64>)| {
            member_row(id, &member, answer.map(|answer| answer.facts), master, lag)
        };
        Reply::Array(rows.into_iter().zip(lags).map(row).collect())
    }

    /// Asks a member how it is, in a task of its own.
    pub(super) fn ask_facts(&self, id: NodeId, member: &Member) -> tokio::task::JoinHandle<Option<Answered>> {
        let (node, contact) = (self.me.upgrade(), Contact::from_bytes(&member.contact));
        let cluster = self.identity.cluster;
        tokio::task::spawn_local(async move {
            let node = node?;
            let here = |facts| Answered { facts, here: node.core.borrow().ledger.applied() };
            if id == node.identity.node {
                return Some(here(node.member_facts()));
            }
            match node.call(&contact?.peer, &Question::Facts).await {
                Ok(Answer::Facts(facts)) if facts.cluster == cluster && facts.node == id => Some(here(facts)),
                _ => None,
            }
        })
    }

    /// What a peer hears that asks.
    pub(super) fn member_facts(&self) -> MemberFacts {
        let facts = self.known_facts();
        MemberFacts {
            cluster: self.identity.cluster,
            node: self.identity.node,
            role: facts.role.to_string(),
            applied: facts.applied,
            version: env!("CARGO_PKG_VERSION").to_string(),
            is_disk_low: self.room.get() != Room::Enough,
        }
    }

    /// How long this node's master lease still holds; 0 when it is not the master.
    fn lease_left_ms(&self) -> u64 {
        let (core, now) = (self.core.borrow(), clock::now());
        let until = core.node.leader().lease_until().filter(|_| core.node.leader().is_master(now));
        until.map_or(0, |until| u64::try_from(until.since(now.at).as_millis()).unwrap_or(0))
    }

    /// What is known now.
    pub(super) fn known_facts(&self) -> Facts {
        let core = self.core.borrow();
        let view = core.node.replica().view();
        let master = core.node.master();
        let role = if self.is_removed.get() {
            "removed"
        } else if core.node.leader().is_master(clock::now()) {
            "master"
        } else if view.current.is_voter(self.identity.node) {
            "member"
        } else {
            "learner"
        };
        Facts {
            node: self.identity.node.0,
            role,
            master: master.and_then(|id| member_contact(view, id)).map(|contact| contact.client),
            view: view.current.number,
            ballot: core.node.ballot().to_string(),
            applied: core.ledger.applied(),
            waiting: core.waiting(),
            mailed: core.meters.mailed,
            journal_bytes: core.journal_bytes(),
            voters: view.current.voters().count(),
            address: self.contact.client.clone(),
        }
    }
}

/// By how much each member is behind the first, from how far it said it was and how far this node was when it said so. Answers come one after the other
/// while the cluster goes on: members are compared by how far they are ahead of this node, each at its own moment.
fn lags(answers: &[Option<(u64, u64)>]) -> Vec<Option<u64>> {
    let ahead = |(applied, here): (u64, u64)| i128::from(applied) - i128::from(here);
    let first = answers.iter().flatten().map(|answer| ahead(*answer)).max().unwrap_or(0);
    answers.iter().map(|answer| answer.map(|it| u64::try_from(first - ahead(it)).unwrap_or(0))).collect()
}

fn member_row(
    id: NodeId,
    member: &Member,
    facts: Option<MemberFacts>,
    master: Option<NodeId>,
    lag: Option<u64>,
) -> Reply {
    let contact = Contact::from_bytes(&member.contact);
    let condition = match member.condition {
        Condition::Valid => "valid",
        Condition::Join => "join",
        Condition::Observer => "observer",
        Condition::Down => "down",
    };
    let role = match &facts {
        Some(facts) => facts.role.as_str(),
        None if master == Some(id) => "master",
        None => "unknown",
    };
    Reply::Map(vec![
        (text("node"), text(&id.to_string())),
        (text("condition"), text(condition)),
        (text("role"), text(role)),
        (text("reachable"), text(if facts.is_some() { "yes" } else { "no" })),
        (text("applied"), facts.as_ref().map_or(Reply::Null, |facts| number(facts.applied))),
        (text("lag"), lag.map_or(Reply::Null, number)),
        (text("client"), text(contact.as_ref().map_or("", |contact| &contact.client))),
        (text("peer"), text(contact.as_ref().map_or("", |contact| &contact.peer))),
        (text("version"), facts.as_ref().map_or(Reply::Null, |facts| text(&facts.version))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_answers_later_makes_no_other_look_behind() {
        // This node at 100; one that answers when this node is at 600; one that is 40 behind; one that is silent.
        let seen = [Some((100, 100)), Some((603, 600)), Some((560, 600)), None];
        assert_eq!(lags(&seen), [Some(3), Some(0), Some(43), None]);
        assert_eq!(lags(&[]), []);
    }
}
