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
        let newest = rows.iter().filter_map(|(_, _, facts)| Some(facts.as_ref()?.applied)).max().unwrap_or(0);
        let rows = rows.into_iter().map(|(id, member, facts)| member_row(id, &member, facts, master, newest));
        Reply::Array(rows.collect())
    }

    /// Asks a member how it is, in a task of its own.
    pub(super) fn ask_facts(
        &self,
        id: NodeId,
        member: &Member,
    ) -> tokio::task::JoinHandle<Option<MemberFacts>> {
        let (node, contact) = (self.me.upgrade(), Contact::from_bytes(&member.contact));
        let cluster = self.identity.cluster;
        tokio::task::spawn_local(async move {
            let node = node?;
            if id == node.identity.node {
                return Some(node.member_facts());
            }
            match node.call(&contact?.peer, &Question::Facts).await {
                Ok(Answer::Facts(facts)) if facts.cluster == cluster && facts.node == id => Some(facts),
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

fn member_row(
    id: NodeId,
    member: &Member,
    facts: Option<MemberFacts>,
    master: Option<NodeId>,
    newest: u64,
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
        (
            text("lag"),
            facts.as_ref().map_or(Reply::Null, |facts| number(newest.saturating_sub(facts.applied))),
        ),
        (text("client"), text(contact.as_ref().map_or("", |contact| &contact.client))),
        (text("peer"), text(contact.as_ref().map_or("", |contact| &contact.peer))),
        (text("version"), facts.as_ref().map_or(Reply::Null, |facts| text(&facts.version))),
    ])
}
