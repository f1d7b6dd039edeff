//! What the node tells about itself and its cluster.

use super::Running;
use super::peers::member_contact;
use crate::host::clock;
use crate::identity::Contact;
use bytes::Bytes;
use consensus::Condition;
use server::Facts;
use storage::reply::Reply;

impl Running {
    pub(super) fn status(&self) -> Reply {
        let facts = self.known_facts();
        let text = |text: &str| Reply::bulk(text.as_bytes());
        let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        Reply::Map(vec![
            (text("node"), text(&format!("n{}", facts.node))),
            (text("role"), text(facts.role)),
            (text("master"), facts.master.as_deref().map_or(Reply::Null, text)),
            (text("view"), number(facts.view)),
            (text("ballot"), text(&facts.ballot)),
            (text("applied"), number(facts.applied)),
            (text("waiting"), number(facts.waiting as u64)),
            (text("journal_bytes"), number(facts.journal_bytes)),
        ])
    }

    pub(super) fn members(&self) -> Reply {
        let core = self.core.borrow();
        let (view, master) = (core.node.replica().view().clone(), core.node.master());
        let outboxes = self.outboxes.borrow();
        let text = |text: &str| Reply::bulk(text.as_bytes());
        let rows = view.current.members.iter().map(|(id, member)| {
            let contact = Contact::from_bytes(&member.contact);
            let condition = match member.condition {
                Condition::Valid => "valid",
                Condition::Join => "join",
                Condition::Observer => "observer",
                Condition::Down => "down",
            };
            let is_linked =
                *id == self.identity.node || outboxes.get(id).is_some_and(|outbox| outbox.is_up());
            Reply::Map(vec![
                (text("node"), text(&id.to_string())),
                (text("condition"), text(condition)),
                (text("role"), text(if master == Some(*id) { "master" } else { "member" })),
                (text("client"), text(contact.as_ref().map_or("", |contact| &contact.client))),
                (text("peer"), text(contact.as_ref().map_or("", |contact| &contact.peer))),
                (text("link"), text(if is_linked { "up" } else { "down" })),
            ])
        });
        Reply::Array(rows.collect())
    }

    pub(super) fn checksum(&self) -> Result<Reply, String> {
        let core = self.core.borrow();
        let checksum = core.backend.machine.checksum().map_err(|error| format!("ERR {error}"))?;
        let text = format!("{} {checksum:?}", core.ledger.applied());
        Ok(Reply::Bulk(Bytes::from(text)))
    }

    /// What is known now.
    pub(super) fn known_facts(&self) -> Facts {
        let core = self.core.borrow();
        let view = core.node.replica().view();
        let master = core.node.master();
        let role = if *self.is_removed.borrow() {
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
            ballot: core.node.leader().ballot().to_string(),
            applied: core.ledger.applied(),
            waiting: core.waiting(),
            journal_bytes: core.journal_bytes(),
            address: self.contact.client.clone(),
        }
    }
}
