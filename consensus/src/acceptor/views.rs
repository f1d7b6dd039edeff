//! Which views an acceptor knows, and whom it tells.
//!
//! Invariant A6: it promises and accepts only in views that it knows, durably: a view that a message brings is written down with the answer to it. Otherwise
//! a leader that alone knew of a new view could die and leave promises that nobody can ever surpass.

use super::Acceptor;
use crate::message::{Address, Message, PValue, RoleId};
use crate::record::Record;
use crate::role::Outputs;
use crate::types::{Ballot, NodeId, Slot};
use crate::view::ViewState;

impl Acceptor {
    /// A sibling knows it. Who told has written it down before (what a role says leaves behind what it persists), or it is known and only became established.
    pub(super) fn on_view(&mut self, view: &ViewState) -> Outputs {
        self.view.learn(view);
        self.forget_established();
        Outputs::default()
    }

    /// Whether the view of `ballot` is known, perhaps from the message that brought the ballot (A6).
    pub(super) fn knows_view_of(&mut self, ballot: Ballot, view: &ViewState, out: &mut Outputs) -> bool {
        if self.view.learn(view) {
            out.persist.push(Record::View(self.view.clone()));
            out.send(self.me, self.sibling(RoleId::Replica), Message::ViewIs(self.view.clone()));
            self.forget_established();
        }
        ballot.view <= self.view.current.number
    }

    /// An established view's reconfiguration need not be kept.
    fn forget_established(&mut self) {
        if let Some(PValue { slot: Slot::Reconfig(number), .. }) = &self.reconfig
            && self.is_established(*number)
        {
            self.reconfig = None;
        }
    }

    pub(super) fn is_established(&self, view: u64) -> bool {
        let known = &self.view;
        known.current.number > view || (known.current.number == view && known.established)
    }

    /// A sender that uses ballots of an older view learns of the newer one.
    pub(super) fn tell_newer_view(&self, node: NodeId, ballot: Ballot, out: &mut Outputs) {
        if ballot.view < self.view.current.number {
            let to = Address { node, role: RoleId::Replica };
            out.send(self.me, to, Message::ViewIs(self.view.clone()));
        }
    }
}
