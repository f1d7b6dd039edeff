//! A node inside a Rust program.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! # let dir = home.path().join("node");
//! let node = warlock::Node::builder().dir(&dir).bind("127.0.0.1:0").start()?;
//!
//! // Any Redis client works; this one is the command line's own.
//! let mut client = node.client();
//! client.ask(&["SET", "greeting", "hello"])?;
//! assert_eq!(client.ask(&["GET", "greeting"])?.text().as_deref(), Some("hello"));
//!
//! node.stop()?; // dropping it stops it, too
//! # Ok(())
//! # }
//! ```

use crate::client::{Access, Client};
use crate::identity::NodeIdentity;
use crate::node::{Doors, NodeError, member_contact};
use crate::settings::{self, Settings};
use crate::startup;
use std::collections::BTreeMap;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How long a client of [`Node::client`] waits for a reply: longer than a node holds a request.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a node is started with. Every setting of `warlock server` can be given; the defaults are the same.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    values: BTreeMap<String, String>,
}

impl Builder {
    /// Where its data is. A directory that does not exist becomes a new cluster of one node.
    #[must_use]
    pub fn dir(self, dir: impl AsRef<Path>) -> Builder {
        self.set("dir", &dir.as_ref().display().to_string())
    }

    /// Where clients connect. Port 0: a free one, see [`Node::address`].
    #[must_use]
    pub fn bind(self, address: &str) -> Builder {
        self.set("bind", address)
    }

    /// Any setting, by the name of its flag.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Builder {
        self.values.insert(name.to_string(), value.to_string());
        self
    }

    /// Starts the node on a thread of its own.
    ///
    /// # Errors
    /// When a setting is wrong, an address is taken, or the directory cannot be used.
    pub fn start(self) -> Result<Node, NodeError> {
        let wrong = |what: String| NodeError::Setting(what);
        if let Some(unknown) =
            self.values.keys().find(|name| !settings::TABLE.iter().any(|s| s.name == *name))
        {
            return Err(wrong(format!("there is no setting {unknown}; `warlock server --help` lists them")));
        }
        let given = settings::given(|name| self.values.get(name).cloned(), |_| None, None)
            .map_err(|error| wrong(error.to_string()))?;
        let mut settings = Settings::new(&given).map_err(|error| wrong(error.to_string()))?;
        let doors = open_doors(&mut settings)?;
        let address = match &doors {
            Some(_) => settings.client_address(),
            None => {
                let identity = NodeIdentity::read(&settings.dir).map_err(NodeError::Identity)?;
                member_contact(&identity.view, identity.node)
                    .map_or_else(String::new, |contact| contact.client)
            }
        };
        let (stop, mut stopped) = watch::channel(false);
        let password = settings.requirepass.clone();
        let thread = std::thread::Builder::new()
            .name("warlock node".to_string())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| NodeError::Failed(format!("no event loop: {error}")))?;
                let local = tokio::task::LocalSet::new();
                runtime.block_on(local.run_until(async move {
                    let doors = doors.map(|(clients, peers)| Doors::from_std(clients, peers)).transpose()?;
                    let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
                    startup::run_behind(settings, doors, stop).await
                }))
            })
            .map_err(|error| NodeError::Failed(format!("no thread for the node: {error}")))?;
        let node = Node { address, password, stop, thread: Some(thread) };
        node.wait_until_it_answers()
    }
}

/// Opens the sockets before the node runs, so that the address is known even when it was left to the system.
fn open_doors(settings: &mut Settings) -> Result<Option<(TcpListener, TcpListener)>, NodeError> {
    if settings.bind.is_none() && settings.dir.exists() {
        return Ok(None); // the directory knows the addresses
    }
    let (clients, client_address) = listen("bind", &settings.client_address())?;
    let host = client_address.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
    let wanted = settings.peer_bind.clone().unwrap_or_else(|| format!("{host}:0"));
    let (peers, peer_address) = listen("peer-bind", &wanted)?;
    settings.bind = Some(client_address);
    settings.peer_bind = Some(peer_address);
    Ok(Some((clients, peers)))
}

fn listen(setting: &'static str, address: &str) -> Result<(TcpListener, String), NodeError> {
    let open = || {
        let listener = TcpListener::bind(address.to_socket_addrs()?.collect::<Vec<_>>().as_slice())?;
        listener.set_nonblocking(true)?;
        let taken = listener.local_addr()?.to_string();
        Ok((listener, taken))
    };
    open().map_err(|error| NodeError::Address { setting, address: address.to_string(), error })
}

/// A running node. It stops when this is dropped.
#[derive(Debug)]
pub struct Node {
    address: String,
    password: Option<String>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<(), NodeError>>>,
}

impl Node {
    /// A node to be started.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A client of this node.
    #[must_use]
    pub fn client(&self) -> Client {
        let nodes = vec![self.address.clone()];
        Client::new(Access { nodes, password: self.password.clone(), patience: PATIENCE })
    }

    /// Hands mastership over, finishes what is in flight, and stops.
    ///
    /// # Errors
    /// When the node had failed before.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), NodeError> {
        let _ = self.stop.send(true);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }

    fn wait_until_it_answers(mut self) -> Result<Node, NodeError> {
        loop {
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                self.join()?;
                return Err(NodeError::Failed("the node stopped at once".to_string()));
            }
            if self.client().ask(&["PING"]).is_ok() {
                return Ok(self);
            }
            std::thread::sleep(Duration::from_millis(5)); // its socket is open, or the thread ends
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.join(); // whoever wants to know calls stop
        }
    }
}
