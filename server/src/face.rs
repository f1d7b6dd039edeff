//! All connections of a node, and the way from an answer to its connection.

use crate::connection::{self, Connection};
use crate::engine::{Answer, Engine, Ticket};
use crate::resp::Limits;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use storage::reply::Reply;
use tokio::net::TcpListener;
use tracing::warn;

/// What the face allows its clients.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Open connections, at most.
    pub clients_max: usize,
    /// Limits of the protocol.
    pub limits: Limits,
    /// The password, if one is asked for.
    pub password: Option<String>,
    /// Replies that wait for one slow client, in bytes, at most.
    pub output_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        // A command travels through the log as one record, and a record must fit into a segment of the journal.
        let limits = Limits { bulk_bytes_max: 16 << 20, request_bytes_max: 32 << 20, ..Limits::default() };
        Settings { clients_max: 10_000, limits, password: None, output_bytes_max: 64 << 20 }
    }
}

/// The Redis face of one node.
pub struct Face {
    /// What is behind it.
    pub engine: Rc<dyn Engine>,
    /// What clients may do.
    pub settings: Settings,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    next_id: Cell<u64>,
    /// Commands taken since the start.
    pub commands: Cell<u64>,
    /// Connections taken since the start.
    pub accepted: Cell<u64>,
}

impl Face {
    /// A face before `engine`.
    #[must_use]
    pub fn new(engine: Rc<dyn Engine>, settings: Settings) -> Rc<Face> {
        Rc::new(Face {
            engine,
            settings,
            connections: RefCell::default(),
            next_id: Cell::new(1),
            commands: Cell::new(0),
            accepted: Cell::new(0),
        })
    }

    /// Takes connections until the task is dropped.
    pub async fn listen(self: Rc<Face>, listener: TcpListener) {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a client");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let id = self.next_id.get();
            self.next_id.set(id + 1);
            self.accepted.set(self.accepted.get() + 1);
            if self.connections.borrow().len() >= self.settings.clients_max {
                // As Redis says it; the client need not read it.
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                continue;
            }
            let connection = Rc::new(Connection::new(id, address.to_string(), self.clone()));
            self.connections.borrow_mut().insert(id, connection.clone());
            let face = self.clone();
            tokio::task::spawn_local(async move {
                connection::serve(stream, &connection).await;
                face.connections.borrow_mut().remove(&id);
                face.engine.closed(id);
            });
        }
    }

    /// An answer came; its connection, if it is still there, sends it in its turn.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        let connection = self.connections.borrow().get(&ticket.connection).cloned();
        if let Some(connection) = connection {
            connection.answer(ticket.place, answer);
        }
    }

    /// Says something to a connection that it did not ask for, if it is still there and speaks RESP3.
    pub fn push(&self, connection: u64, message: Vec<Reply>) {
        let connection = self.connections.borrow().get(&connection).cloned();
        if let Some(connection) = connection {
            connection.push(message);
        }
    }

    /// Whether a connection is still there.
    #[must_use]
    pub fn is_connected(&self, connection: u64) -> bool {
        self.connections.borrow().contains_key(&connection)
    }

    /// Closes every connection once its replies are sent.
    pub fn close_all(&self) {
        for connection in self.connections.borrow().values() {
            connection.close();
        }
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.connections.borrow().len()
    }
}
