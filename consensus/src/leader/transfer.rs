//! Handing the mastership over: to a member that says now that it is in step, and without a moment in which nobody serves.
//!
//! First the master asks the members how far they are, and serves on. When a successor has answered and is in step, the master *closes*: it takes
//! no more commands, finishes those it has, and releases its lease as soon as the successor has applied them all.
//!
//! **Safe:** after releasing ballot b a master never again counts an answer for b nor serves in b (M1): the release leaves only after
//! `follow` has given up the reign and the lease.

use super::reign::Reign;
use super::{Leader, State, admin_answer};
use crate::message::{Address, AdminError, Message, RoleId};
use crate::role::Outputs;
use crate::types::{NodeId, Now, Time};
use std::collections::BTreeSet;

/// A hand-over under way.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub from: Address,
    pub ticket: u64,
    /// To this voter, or to whichever is first in step.
    to: Option<NodeId>,
    /// For so long a successor is waited for, and again for so long until it has everything.
    until: Time,
    /// The master goes for good: whoever asked for that must ask the successor again.
    leaves: bool,
    /// Who told how far it is since the hand-over was asked for.
    pub answered: BTreeSet<NodeId>,
    /// A successor is in step: the master takes no more commands.
    pub is_closing: bool,
    /// Everything is decided, and the successor was asked how far it is.
    hurried: bool,
}

impl Reign {
    /// The successors that answered and for which `is_fit` holds; of those, the one that is furthest and was heard last.
    fn successor(&self, me: NodeId, is_fit: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let transfer = self.transfer.as_ref()?;
        let may_be = |voter: &NodeId| {
            *voter != me && transfer.to.is_none_or(|to| to == *voter) && transfer.answered.contains(voter)
        };
        self.view
            .voters()
            .filter(|voter| may_be(voter) && is_fit(*voter))
            .filter_map(|voter| self.hearing.of(voter).map(|heard| (heard.applied, heard.at, voter)))
            .max()
            .map(|(_, _, voter)| voter)
    }
}

impl Leader {
    pub(super) fn on_transfer(
        &mut self,
        from: Address,
        to: Option<NodeId>,
        ticket: u64,
        now: Now,
    ) -> Outputs {
        let mut out = Outputs::default();
        if let Err(error) = self.begin_transfer(from, to, ticket, false, now, &mut out) {
            out.send(self.me, from, admin_answer(ticket, Err(error)));
        }
        out
    }

    pub(super) fn begin_transfer(
        &mut self,
        from: Address,
        to: Option<NodeId>,
        ticket: u64,
        leaves: bool,
        now: Now,
        out: &mut Outputs,
    ) -> Result<(), AdminError> {
        let (me, master, serving) = (self.me.node, self.seen.leader, self.can_read(now));
        let State::Leading(reign) = &mut self.state else {
            return Err(AdminError::NotMaster((master != me).then_some(master)));
        };
        if !serving || reign.transfer.is_some() || reign.is_changing() {
            return Err(AdminError::Busy);
        }
        if !reign.view.voters().any(|voter| voter != me && to.is_none_or(|to| to == voter)) {
            let to = to.unwrap_or(me);
            return Err(AdminError::Refused(format!("{to} is not another voter")));
        }
        let until = now.at.plus(reign.view.lease);
        reign.transfer = Some(Transfer {
            from,
            ticket,
            to,
            until,
            leaves,
            answered: BTreeSet::new(),
            is_closing: false,
            hurried: false,
        });
        self.beat(now, out); // whoever hears it answers how far it is
        Ok(())
    }

    /// Takes a hand-over on as far as it goes: closes when a successor is in step, releases when it has everything.
    pub(super) fn move_transfer(&mut self, now: Now, out: &mut Outputs) {
        let (me, slots) = (self.me.node, self.config.in_step);
        let State::Leading(reign) = &mut self.state else { return };
        let Some(transfer) = &reign.transfer else { return };
        if !transfer.is_closing {
            let lease = reign.view.lease;
            let in_step = |voter| reign.hearing.is_in_step(voter, now.at, lease, slots);
            if reign.successor(me, in_step).is_none() {
                return;
            }
            if let Some(transfer) = &mut reign.transfer {
                transfer.is_closing = true;
                transfer.until = now.at.plus(lease);
            }
        }
        self.finish_transfer(now, out);
    }

    /// Releases the lease as soon as everything is decided and a successor has applied it.
    fn finish_transfer(&mut self, now: Now, out: &mut Outputs) {
        let me = self.me.node;
        let State::Leading(reign) = &mut self.state else { return };
        let last = reign.proposer.next_slot - 1;
        let all_applied = self.replica_applied >= last && reign.proposer.decided_through >= last;
        if !all_applied || reign.proposer.has_queued() {
            return;
        }
        let has_everything = |voter| reign.hearing.of(voter).is_some_and(|heard| heard.applied >= last);
        let Some(to) = reign.successor(me, has_everything) else {
            if let Some(transfer) = reign.transfer.as_mut().filter(|transfer| !transfer.hurried) {
                transfer.hurried = true;
                self.beat(now, out); // brings the decisions and makes the successor answer at once
            }
            return;
        };
        let Some(Transfer { from, ticket, leaves, .. }) = reign.transfer.take() else { return };
        let (ballot, targets, view) = (reign.proposer.ballot, reign.targets.clone(), reign.view.clone());
        self.released = ballot;
        self.follow(now, view.lease, out);
        let release = Message::Release { ballot, successor: to };
        out.broadcast(self.me, targets, RoleId::Acceptor, release.clone());
        out.send(self.me, Address { node: to, role: RoleId::Leader }, release);
        let result = if leaves { Err(AdminError::NotMaster(Some(to))) } else { Ok(view.number) };
        out.send(self.me, from, admin_answer(ticket, result));
    }

    /// Nobody could take over in time: the master goes on.
    pub(super) fn expire_transfer(&mut self, now: Now, out: &mut Outputs) {
        let State::Leading(reign) = &mut self.state else { return };
        if let Some(transfer) = reign.transfer.take_if(|transfer| transfer.until <= now.at) {
            let answer = admin_answer(transfer.ticket, Err(AdminError::NotInStep));
            out.send(self.me, transfer.from, answer);
        }
    }
}
