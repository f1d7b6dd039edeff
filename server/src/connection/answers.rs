//! What comes back from the node for the requests that were handed to it.

use super::places::{Finding, Place};
use super::{Connection, Read, State};
use crate::engine::Answer;
use storage::reply::Reply;

impl Connection {
    /// An answer for a place. Who calls it lets the connection send it.
    pub fn answer(&self, place: u64, answer: Answer) {
        let mut state = self.state.borrow_mut();
        self.take_answer(place, answer, &mut state);
        // It may be what a read waited for.
        self.read_allowed(&mut state);
        drop(state);
        self.face.shrink_tracking();
    }

    fn take_answer(&self, place: u64, answer: Answer, state: &mut State) {
        let Some((waiting, call)) = state.places.take(place) else { return };
        let (mut tracked, mut own) = (Vec::new(), Vec::new());
        let reply = match (answer, waiting) {
            // The log's time has gone on.
            (Answer::Ran(_), Place::Read(read)) => self.read_here(&read, state),
            (Answer::Ran(bytes), waiting) => {
                if matches!(waiting, Place::Exec(..) | Place::Write { tells: true, .. }) {
                    state.places.told(bytes.len());
                }
                let reply = Reply::decode(&bytes)
                    .unwrap_or_else(|error| Reply::Error(format!("ERR damaged reply: {error:?}").into()));
                match waiting {
                    Place::Write { tracked: keys, .. } if !keys.is_empty() => {
                        if !matches!(reply, Reply::Error(_)) {
                            tracked = keys;
                        }
                        reply
                    }
                    Place::Exec(_, exec) => {
                        if matches!(reply, Reply::Array(_)) {
                            tracked = exec.tracked;
                        }
                        own = exec.own;
                        reply
                    }
                    _ => match call.as_ref().and_then(|call| call.channel.as_ref()) {
                        Some(channel) => self.listeners(reply, channel),
                        None => reply,
                    },
                }
            }
            (Answer::Reply(reply), Place::Ride(_)) => {
                state.places.ridden(reply.bytes_at_most());
                self.found(Finding::Reply(reply), state)
            }
            (Answer::Reply(reply), _) => reply,
            (Answer::ReadNow, Place::Read(read)) => {
                return state.places.put_back(place, Place::Allowed(read), call);
            }
            (Answer::ReadNow, _) => Reply::error("ERR a write was answered as a read"),
            (answer @ (Answer::NotDone | Answer::Uncertain), waiting) => {
                if matches!(waiting, Place::Read(Read::Watch(..))) {
                    state.watching.lose();
                }
                Reply::error(
                    if answer == Answer::NotDone || matches!(waiting, Place::Read(_) | Place::Ride(_)) {
                        "CLUSTERDOWN no master took the command in time; it was certainly not done, try again"
                    } else {
                        "UNCERTAIN no answer in time: the command may or may not have run; check before you repeat it"
                    },
                )
            }
        };
        if let Some(call) = call {
            self.count(&call, &reply, state);
        }
        self.take_pushed(state);
        let filling = self.do_own(reply, own, state);
        let protocol = state.protocol;
        state.places.fill(place, filling, protocol);
        self.face.tracking.borrow_mut().remember_from_turn(self.id, &tracked);
    }

    /// The reply to PUBLISH: how many clients of this node listen.
    pub(super) fn listeners(&self, reply: Reply, channel: &[u8]) -> Reply {
        match reply {
            Reply::Integer(_) => Reply::count(self.face.subscriptions.borrow().receivers(channel)),
            other => other,
        }
    }
}
