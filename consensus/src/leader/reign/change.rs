//! Changes of the member set, from the request to the new view, and the dismissal of members that left.
//!
//! Invariant L3: the next view is proposed only by a serving master whose own view is established, one at a time, and is entered, with a new ballot, only when
//! it is chosen. And it is proposed only if a majority of its voters is in step, so that it does not cost the quorum.

use super::super::{Leader, State, admin_answer};
use super::PendingChange;
use crate::message::{Address, AdminError, Message, RoleId};
use crate::planted::Bug;
use crate::record::Record;
use crate::role::Outputs;
use crate::types::{NodeId, Now, Slot};
use crate::value::Body;
use crate::view::{Change, View};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Leader {
    pub(in crate::leader) fn on_reconfigure(
        &mut self,
        from: Address,
        change: &Change,
        ticket: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        let result = self.try_change(change, Some((from, ticket)), now, &mut out);
        if let Err(error) = result {
            out.send(self.me, from, admin_answer(ticket, Err(error)));
        }
        out
    }

    /// Proposes the view after `change`, if that is safe now.
    pub(super) fn try_change(
        &mut self,
        change: &Change,
        asked: Option<(Address, u64)>,
        now: Now,
        out: &mut Outputs,
    ) -> Result<(), AdminError> {
        let master = self.seen.leader;
        let (me, serving, config) = (self.me.node, self.can_read(now), self.config.clone());
        let established = self.views.established || config.has_bug(Bug::ReconfigBeforeEstablished);
        let State::Leading(reign) = &mut self.state else {
            return Err(AdminError::NotMaster((master != me).then_some(master)));
        };
        if !serving || !established || reign.is_changing() || reign.transfer.is_some() {
            return Err(AdminError::Busy);
        }
        let next = reign.view.after(change)?;
        let in_step: BTreeSet<NodeId> = next
            .voters()
            .filter(|voter| {
                *voter == me || reign.hearing.is_in_step(*voter, now.at, reign.view.lease, config.in_step)
            })
            .collect();
        if !next.is_majority(&in_step) {
            return Err(AdminError::NotInStep);
        }
        if !next.is_voter(me) {
            // A master hands over before it goes; whoever asked asks the successor again.
            let (from, ticket) = asked.unwrap_or((self.me, 0));
            return self.begin_transfer(from, None, ticket, true, now, out);
        }
        let ballot = reign.proposer.ballot;
        reign.change = asked.map(|(from, ticket)| PendingChange { from, ticket });
        let slot = Slot::Reconfig(next.number);
        let value = Arc::new(self.value(ballot, Body::Reconfig(Arc::new(next)), now));
        self.command(slot, value, out);
        Ok(())
    }

    /// A reconfiguration was chosen: this node leads on in the new view, with a new ballot.
    pub(super) fn enter_view(&mut self, view: &Arc<View>, now: Now, out: &mut Outputs) {
        if let State::Leading(reign) = &mut self.state
            && let Some(change) = reign.change.take()
        {
            out.send(self.me, change.from, admin_answer(change.ticket, Ok(view.number)));
        }
        let before = self.views.current.clone();
        if !self.views.chosen(view) {
            return;
        }
        for departed in before.members.keys().filter(|id| !view.is_member(**id)) {
            // Told once; if it does not hear it, it finds out when it hears no master any more.
            let to = Address { node: *departed, role: RoleId::Replica };
            out.send(self.me, to, Message::ViewIs(self.views.clone()));
        }
        out.persist.push(Record::View(self.views.clone()));
        self.tell_siblings(out);
        if view.is_voter(self.me.node) {
            self.start_scout(now, out);
        } else {
            self.step_down(out);
        }
    }

    /// A removed node may stop once a majority of the new view holds its start entry durably.
    pub(in crate::leader) fn on_may_i_stop(&self, from: Address) -> Outputs {
        let mut out = Outputs::default();
        let State::Leading(reign) = &self.state else { return out };
        let holds_start = |id: &NodeId| {
            reign.hearing.of(*id).is_some_and(|heard| heard.durable >= reign.proposer.start_slot)
        };
        let holders: BTreeSet<NodeId> = reign.view.voters().filter(holds_start).collect();
        let is_needed = reign.view.is_member(from.node) || !self.views.established;
        if !is_needed && reign.view.is_majority(&holders) {
            out.send(self.me, from, Message::Dismissed(self.views.clone()));
        }
        out
    }
}
