//! Links to the other members: opened and closed as the configuration changes.

use super::Running;
use crate::host::handshake::Identity;
use crate::host::links;
use crate::host::outbox::Outbox;
use crate::identity::Contact;
use consensus::{NodeId, ViewState};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A member's addresses.
#[must_use]
pub fn member_contact(view: &ViewState, node: NodeId) -> Option<Contact> {
    view.current.members.get(&node).and_then(|member| Contact::from_bytes(&member.contact))
}

/// A member that left is still told that it did, and that nobody needs it any more; then its link goes.
const PARTING: Duration = Duration::from_secs(60);

async fn part(node: Rc<Running>, id: NodeId, outbox: Rc<Outbox>) {
    tokio::time::sleep(PARTING).await;
    outbox.close();
    node.outboxes.borrow_mut().remove(&id);
    let outboxes = node.outboxes.borrow().clone();
    node.core.borrow_mut().connect(outboxes);
}

impl Running {
    pub(super) fn link_identity(&self, incarnation: u64) -> Identity {
        Identity {
            cluster: self.identity.cluster,
            node: self.identity.node,
            incarnation,
            secret: self.identity.secret.clone().into_bytes(),
        }
    }

    /// Opens links to new members and closes those to members that left.
    pub(super) fn link(&self, view: &ViewState, me: &Identity) {
        let mut outboxes = self.outboxes.borrow_mut();
        let previous = view.previous.iter().flat_map(|view| view.members.iter());
        let members: BTreeMap<NodeId, Contact> = view
            .current
            .members
            .iter()
            .chain(previous)
            .filter(|(id, _)| **id != self.identity.node)
            .filter_map(|(id, member)| Some((*id, Contact::from_bytes(&member.contact)?)))
            .collect();
        for (id, outbox) in outboxes.iter().filter(|(id, _)| !members.contains_key(id)) {
            if let Some(node) = self.me.upgrade() {
                tokio::task::spawn_local(part(node, *id, outbox.clone()));
            }
        }
        for (id, contact) in members {
            outboxes.entry(id).or_insert_with(|| {
                let outbox = Rc::new(Outbox::default());
                tokio::task::spawn_local(links::dial(me.clone(), id, contact.peer, outbox.clone()));
                outbox
            });
        }
        self.core.borrow_mut().connect(outboxes.clone());
    }
}
