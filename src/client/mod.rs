//! A Redis client for the command line: one connection at a time, to any of several nodes.
//!
//! It tells what was certainly not sent from what may have run: only the first is ever sent again, to the next node. A connection that was closed while
//! nobody used it is noticed before the next command is sent. Pushes that arrive between replies are kept apart.

pub mod show;
pub mod value;

pub use value::Value;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long one node has to take a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// A connection that was not used for so long is looked at before it is used again.
const IDLE: Duration = Duration::from_millis(50);

/// Why there is no reply.
#[derive(Debug)]
pub enum ClientError {
    /// No node took the connection: the command was certainly not sent. Each address with its reason.
    Unreachable(Vec<(String, String)>),
    /// The command was sent, and the connection was lost or silent: it may have run.
    Uncertain(String, String),
    /// The other side does not speak Redis's protocol.
    NotRedis(String, String),
    /// The node refused the connection's password.
    Refused(String, String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Unreachable(tried) => {
                write!(f, "no node can be reached")?;
                for (address, why) in tried {
                    write!(f, "\n  {address}: {why}")?;
                }
                write!(
                    f,
                    "\nIs the cluster running? Name its nodes with --nodes HOST:PORT,HOST:PORT (or WARLOCK_NODES)."
                )
            }
            ClientError::Uncertain(address, why) => {
                write!(f, "{address} did not answer ({why}): the command may or may not have run")
            }
            ClientError::NotRedis(address, why) => {
                write!(f, "{address} does not answer like a node ({why}); is this the port for clients?")
            }
            ClientError::Refused(address, why) => {
                write!(
                    f,
                    "{address} refused the connection: {why}\nGive the password with --password or WARLOCK_REQUIREPASS."
                )
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Access {
    /// The nodes' client addresses, `host:port`, in the order in which they are tried.
    pub nodes: Vec<String>,
    /// For AUTH.
    pub password: Option<String>,
    /// How long a reply may take.
    pub patience: Duration,
}

/// A connection to one of several nodes.
pub struct Client {
    access: Access,
    /// The node to try next.
    next: usize,
    link: Option<Link>,
    connections: u64,
    pushes: VecDeque<Vec<Value>>,
}

struct Link {
    address: String,
    stream: TcpStream,
    buffer: Vec<u8>,
    used: Instant,
}

impl Client {
    /// A client that connects when it is first needed.
    #[must_use]
    pub fn new(access: Access) -> Client {
        Client { access, next: 0, link: None, connections: 0, pushes: VecDeque::new() }
    }

    /// The node it is connected to.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.link.as_ref().map(|link| link.address.as_str())
    }

    /// How many connections it has made. What a connection remembers, a subscription for instance, is gone with the next one.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// See [`ClientError`]: only `Uncertain` means that the command may have run.
    pub fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Value, ClientError> {
        self.ask_within(command, self.access.patience)
    }

    /// Sends a command and waits so long for its reply: for commands that wait themselves.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_within<A: AsRef<[u8]>>(
        &mut self,
        command: &[A],
        patience: Duration,
    ) -> Result<Value, ClientError> {
        let bytes = encode(command);
        self.exchange_within(&bytes, 1, patience).map(|mut replies| replies.pop().unwrap_or(Value::Nil))
    }

    /// The connection, made now if there is none: another thread can hang up with it while this one waits for a reply.
    ///
    /// # Errors
    /// When no node can be reached, or refuses.
    pub fn socket(&mut self) -> Result<TcpStream, ClientError> {
        let link = self.connect()?;
        let socket = link.stream.try_clone();
        socket.map_err(|error| ClientError::Unreachable(vec![(link.address.clone(), error.to_string())]))
    }

    /// Sends `bytes`, which hold `count` commands, and waits for as many replies.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn exchange(&mut self, bytes: &[u8], count: usize) -> Result<Vec<Value>, ClientError> {
        self.exchange_within(bytes, count, self.access.patience)
    }

    fn exchange_within(
        &mut self,
        bytes: &[u8],
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Value>, ClientError> {
        let link = self.connect()?;
        let address = link.address.clone();
        let outcome = link
            .stream
            .write_all(bytes)
            .map_err(|error| ClientError::Uncertain(address.clone(), error.to_string()))
            .and_then(|()| self.replies(count, patience));
        if outcome.is_err() {
            self.disconnect();
        }
        outcome
    }

    /// Sends a command without waiting for its reply.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<(), ClientError> {
        let link = self.connect()?;
        let sent = link.stream.write_all(&encode(command));
        sent.map_err(|error| {
            let address = self.address().unwrap_or_default().to_string();
            self.disconnect();
            ClientError::Uncertain(address, error.to_string())
        })
    }

    /// The next push or reply that arrived, or arrives within `patience`.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn listen(&mut self, patience: Duration) -> Result<Option<Value>, ClientError> {
        if let Some(push) = self.pushes.pop_front() {
            return Ok(Some(Value::Push(push)));
        }
        let until = Instant::now() + patience;
        let outcome = self.connect()?.next(until);
        if outcome.is_err() {
            self.disconnect();
        }
        outcome
    }

    /// Gives the connection up; the next command goes to the next node.
    pub fn disconnect(&mut self) {
        self.link = None;
        self.next += 1;
    }

    fn replies(&mut self, count: usize, patience: Duration) -> Result<Vec<Value>, ClientError> {
        let until = Instant::now() + patience;
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            let link = self.link.as_mut().ok_or_else(|| ClientError::Unreachable(Vec::new()))?;
            match link.next(until)? {
                Some(Value::Push(push)) => self.pushes.push_back(push),
                Some(reply) => replies.push(reply),
                None => {
                    let why = format!("no reply in {:.1} s", patience.as_secs_f64());
                    return Err(ClientError::Uncertain(link.address.clone(), why));
                }
            }
        }
        Ok(replies)
    }

    fn connect(&mut self) -> Result<&mut Link, ClientError> {
        if self.link.as_ref().is_some_and(Link::is_closed) {
            self.disconnect();
        }
        if self.link.is_none() {
            let link = self.dial()?;
            self.link = Some(link);
            self.connections += 1;
        }
        self.link.as_mut().ok_or_else(|| ClientError::Unreachable(Vec::new()))
    }

    /// Tries each node once, beginning with the next.
    fn dial(&mut self) -> Result<Link, ClientError> {
        let nodes = self.access.nodes.len().max(1);
        let mut tried = Vec::new();
        for turn in 0..nodes {
            let index = (self.next + turn) % nodes;
            let Some(address) = self.access.nodes.get(index).cloned() else { break };
            match dial(&address).and_then(|stream| {
                let (address, used) = (address.clone(), Instant::now());
                Link { address, stream, buffer: Vec::new(), used }.greet(&self.access)
            }) {
                Ok(link) => {
                    self.next = index;
                    return Ok(link);
                }
                Err(Greeting::Failed(why)) => tried.push((address, why)),
                Err(Greeting::Refused(error)) => return Err(error),
            }
        }
        Err(ClientError::Unreachable(tried))
    }
}

/// Why a node is not used.
enum Greeting {
    /// Another node may do.
    Failed(String),
    /// No other node would answer otherwise.
    Refused(ClientError),
}

fn dial(address: &str) -> Result<TcpStream, Greeting> {
    let failed = |error: io::Error| Greeting::Failed(error.to_string());
    let mut last = Greeting::Failed("the name has no address".to_string());
    for resolved in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&resolved, CONNECT_PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

impl Link {
    /// Agrees on RESP3 and gives the password.
    fn greet(mut self, access: &Access) -> Result<Link, Greeting> {
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &access.password {
            hello.extend([b"AUTH".as_slice(), b"default", password.as_bytes()]);
        }
        self.stream.write_all(&encode(&hello)).map_err(|error| Greeting::Failed(error.to_string()))?;
        let until = Instant::now() + access.patience;
        match self.next(until) {
            Ok(Some(Value::Error(why))) => {
                Err(Greeting::Refused(ClientError::Refused(self.address.clone(), why)))
            }
            Ok(Some(_)) => Ok(self),
            Ok(None) => Err(Greeting::Failed(
                "it takes connections, but does not answer; is this the port for clients?".to_string(),
            )),
            Err(error @ ClientError::NotRedis(..)) => Err(Greeting::Refused(error)),
            Err(ClientError::Uncertain(_, why)) => Err(Greeting::Failed(format!(
                "it hung up at the greeting ({why}); is this the port for clients?"
            ))),
            Err(error) => Err(Greeting::Failed(error.to_string())),
        }
    }

    /// Whether the other side closed it while nobody used it.
    fn is_closed(&self) -> bool {
        if self.used.elapsed() < IDLE || self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let is_closed = match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        is_closed || self.stream.set_nonblocking(false).is_err()
    }

    /// The next reply or push; nothing when none came in time.
    fn next(&mut self, until: Instant) -> Result<Option<Value>, ClientError> {
        loop {
            match Value::parse(&self.buffer) {
                Ok(Some((value, length))) => {
                    self.buffer.drain(..length);
                    return Ok(Some(value));
                }
                Ok(None) => {}
                Err(malformed) => {
                    return Err(ClientError::NotRedis(self.address.clone(), malformed.to_string()));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let lost = |why: String| ClientError::Uncertain(self.address.clone(), why);
            self.stream.set_read_timeout(Some(left)).map_err(|error| lost(error.to_string()))?;
            let mut chunk = [0; 16_384];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(lost("the connection was closed".to_string())),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    self.used = Instant::now();
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error.to_string())),
            }
        }
    }
}

/// A command as it is sent.
#[must_use]
pub fn encode<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
