//! The sockets that a node listens on: for clients, for peers, and perhaps for probes.

use super::NodeError;
use crate::settings::Settings;
use std::io;
use tokio::net::TcpListener;

/// Where clients and peers knock.
#[derive(Debug)]
pub struct Doors {
    /// For clients.
    pub clients: TcpListener,
    /// For peers.
    pub peers: TcpListener,
}

impl Doors {
    /// Listens on both addresses.
    ///
    /// # Errors
    /// When one of them cannot be used; it says which setting to change.
    pub async fn open(clients: &str, peers: &str) -> Result<Doors, NodeError> {
        Ok(Doors { clients: bind("bind", clients).await?, peers: bind("peer-bind", peers).await? })
    }

    /// Sockets that listen already and do not block. Must be called inside the node's event loop.
    ///
    /// # Errors
    /// When the event loop cannot watch them.
    pub fn from_std(
        clients: std::net::TcpListener,
        peers: std::net::TcpListener,
    ) -> Result<Doors, NodeError> {
        let failed = |error| NodeError::Failed(format!("cannot watch a socket: {error}"));
        Ok(Doors {
            clients: TcpListener::from_std(clients).map_err(failed)?,
            peers: TcpListener::from_std(peers).map_err(failed)?,
        })
    }

    /// The same doors twice: the second pair stays open when the first is closed.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn twice(self) -> Result<(Doors, Doors), NodeError> {
        let failed = |error| NodeError::Failed(format!("cannot share a socket: {error}"));
        let (clients, clients_too) = copy(self.clients).map_err(failed)?;
        let (peers, peers_too) = copy(self.peers).map_err(failed)?;
        Ok((Doors { clients, peers }, Doors { clients: clients_too, peers: peers_too }))
    }
}

/// The door for probes and Prometheus, if one is wanted.
///
/// # Errors
/// As [`Doors::open`].
pub async fn open_probes(settings: &Settings) -> Result<Option<TcpListener>, NodeError> {
    match &settings.http {
        Some(address) => bind("http", address).await.map(Some),
        None => Ok(None),
    }
}

fn copy(listener: TcpListener) -> io::Result<(TcpListener, TcpListener)> {
    let listener = listener.into_std()?;
    let copy = listener.try_clone()?;
    Ok((TcpListener::from_std(listener)?, TcpListener::from_std(copy)?))
}

async fn bind(setting: &'static str, address: &str) -> Result<TcpListener, NodeError> {
    let failed = |error| NodeError::Address { setting, address: address.to_string(), error };
    TcpListener::bind(address).await.map_err(failed)
}
