//! State stays small: what a node keeps is bounded by its configuration and by how far its newest snapshot lies back.

use super::Verdict;
use consensus::{Config, Node};

/// Compares one node's state with its bounds.
pub fn check(node: &Node, config: &Config, verdict: &mut Verdict) {
    let id = node.id();
    let replica = node.replica();
    // Measured from the snapshot that the replica has heard of: several may be durable before it hears of the first.
    let uncovered = replica.decided().max(replica.applied()).saturating_sub(replica.snapshot());
    let ahead = config.accept_ahead_max + 2 * config.window + config.durable_every;
    let log = usize::try_from(config.log_keep + uncovered + 2 * ahead + 8).unwrap_or(usize::MAX);
    verdict.check(replica.log_len() <= log, || {
        format!("bounds: {id} keeps {} decided values, more than {log}", replica.log_len())
    });
    let accepted = usize::try_from(2 * ahead + 8).unwrap_or(usize::MAX);
    verdict.check(node.acceptor().accepted_len() <= accepted, || {
        format!("bounds: {id} keeps {} accepted values, more than {accepted}", node.acceptor().accepted_len())
    });
    verdict.check(replica.pending_len() <= config.pending_max, || {
        format!("bounds: {id} keeps {} pending commands", replica.pending_len())
    });
}
