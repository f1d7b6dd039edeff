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
    /// For probes, when they were opened with the others.
    pub probes: Option<TcpListener>,
}

impl Doors {
    /// Listens on both addresses.
    ///
    /// # Errors
    /// When one of them cannot be used; it says which setting to change.
    pub async fn open(clients: &str, peers: &str) -> Result<Doors, NodeError> {
        let clients = bind("bind", clients).await?;
        Ok(Doors { clients, peers: bind("peer-bind", peers).await?, probes: None })
    }

    /// All doors of a node that does not exist yet: it is made only if they can be opened. A port that was left to the system (0) is settled in
    /// `settings`, so that the node can be found there again.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn of_a_new_node(settings: &mut Settings) -> Result<Doors, NodeError> {
        let mut doors = Doors::open(&settings.client_bind(), &settings.peer_listen()).await?;
        doors.probes = open_probes(settings).await?;
        let failed = |error| NodeError::Failed(format!("cannot tell the port of a socket: {error}"));
        let (clients, peers) = (doors.clients.local_addr(), doors.peers.local_addr());
        let peer = with_port(&settings.peer_listen(), peers.map_err(failed)?.port());
        settings.bind = Some(with_port(&settings.client_bind(), clients.map_err(failed)?.port()));
        settings.peer_bind = Some(peer);
        Ok(doors)
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
            probes: None,
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
        let too = Doors { clients: clients_too, peers: peers_too, probes: None };
        Ok((Doors { clients, peers, probes: self.probes }, too))
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

fn with_port(address: &str, port: u16) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("{host}:{port}")
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
