//! From settings to a running node: a directory that holds a node is opened; one that does not exist becomes a new node.
//!
//! A directory that is there but holds no node is never taken for a reason to begin anew: it may be a disk that is not mounted, or a node that
//! lost its data.

use crate::identity::{self, Contact, IdentityError, NodeIdentity};
use crate::node::{self, NodeError};
use crate::settings::Settings;
use std::future::Future;

/// Runs a node until `stop` is ready. Must be called inside a `LocalSet`.
///
/// # Errors
/// When it cannot start, or its disk fails.
pub async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    let identity = match NodeIdentity::read(&settings.dir) {
        Ok(identity) => identity,
        Err(IdentityError::Absent(_)) if !settings.dir.exists() => {
            found_alone(&settings).map_err(NodeError::Identity)?
        }
        Err(error) => return Err(NodeError::Identity(error)),
    };
    node::run(settings, identity, stop).await
}

fn found_alone(settings: &Settings) -> Result<NodeIdentity, IdentityError> {
    let contact = Contact { client: settings.client_address(), peer: settings.peer_address() };
    let members = [(settings.dir.clone(), contact)];
    identity::form(&members, settings.lease, settings.cluster_secret.clone())
        .map(|mut formed| formed.remove(0))
}
