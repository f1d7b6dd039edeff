//! PUBLISH. It goes through the log, so that every node tells its subscribers the same messages in the same order; who listens is known to
//! each node alone.

use super::spec::{Arity, CommandSpec, Flag, Group, Handler};
use crate::machine::Event;
use crate::reply::Reply;
use bytes::Bytes;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "PUBLISH",
    summary: "Posts a message to a channel.",
    since: "2.0.0",
    group: Group::PubSub,
    arity: Arity::Exactly(2),
    flags: &[Flag::Fast, Flag::Publishes],
    differs: "The reply counts the clients of the node that took the command, as in a Redis Cluster; inside a script it is 0.",
    handler: Handler::Write(|txn, _, args| {
        let [channel, message] = [0, 1].map(|at| Bytes::copy_from_slice(args[at]));
        txn.tell(Event::Published { channel, message });
        // The connection puts the number of its node's subscribers here.
        Reply::Integer(0)
    }),
    ..CommandSpec::BASE
}];
