//! Calls: one question to the host of another node, and its answer, over a connection of its own to the peer port.
//!
//! What consensus says goes over links between members. A call is for what lies outside of it: inviting an empty node, and asking members how they
//! are. Both sides prove first that they know the cluster's secret; nothing is taken from who does not.
//!
//! ```text
//! caller → listener   "WLKC" | wire version u8 | nonce 32
//! listener → caller   0 | nonce 32 | HMAC(secret, "listener" | hello | nonce)      or  1 | length u16 | why not
//! caller → listener   HMAC(secret, "dialler" | hello | nonce)
//! listener → caller   0                                                            or  1 | length u16 | why not
//! caller → listener   length u32 | question          listener → caller   length u32 | answer
//! ```

use super::faults;
use super::handshake::{self, CALL_MAGIC};
use crate::codec::{self, WIRE_VERSION};
use consensus::{NodeId, ViewState};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

const BYTES_MAX: usize = 1 << 20;
const CONNECT: Duration = Duration::from_secs(2);
/// How long the first bytes of a connection may take.
const FIRST_BYTES: Duration = Duration::from_secs(5);

/// What a node asks another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// Who are you?
    Who,
    /// Which of these peer addresses can you not reach?
    Reach(Vec<String>),
    /// Be this member of this cluster. For empty nodes only.
    BeMember(Invitation),
    /// Add me to your cluster. Asked by an empty node.
    AddMe(Applicant),
    /// How are you?
    Facts,
    /// What was the checksum of your rows at this slot?
    Checksum(u64),
}

/// What an empty node is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The cluster.
    pub cluster: [u8; 16],
    /// The member.
    pub node: NodeId,
    /// The configuration that it may know.
    pub view: ViewState,
}

/// An empty node that wants to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Applicant {
    /// Where peers reach it.
    pub peer: String,
    /// Names this life of the process: who answers at `peer` must be the one that asked.
    pub instance: u64,
}

/// What a node answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// An empty node.
    Empty(EmptyNode),
    /// A member of a cluster.
    Member {
        /// The cluster.
        cluster: [u8; 16],
        /// The member.
        node: NodeId,
    },
    /// These addresses cannot be reached, and why.
    Unreachable(Vec<String>),
    /// It is done.
    Done,
    /// How a member is.
    Facts(MemberFacts),
    /// The checksum, if it is known already: rows and sum.
    Checksum(Option<(u64, u64)>),
    /// It is not done, and why.
    No(String),
}

/// What an empty node says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmptyNode {
    /// Names this life of the process.
    pub instance: u64,
    /// Where clients reach it.
    pub client: String,
    /// Where peers reach it, if its operator said so.
    pub peer_announce: Option<String>,
    /// Keeps nothing on disk.
    pub is_memory: bool,
}

/// How a member is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberFacts {
    /// The cluster.
    pub cluster: [u8; 16],
    /// The member.
    pub node: NodeId,
    /// `master`, `member`, `learner`, `removed`.
    pub role: String,
    /// The last applied slot.
    pub applied: u64,
    /// The release.
    pub version: String,
    /// Its disk has too little room for writes.
    pub is_disk_low: bool,
}

/// What answers questions: the node's host.
pub type Answerer = Rc<dyn Fn(Question) -> Pin<Box<dyn Future<Output = Answer>>>>;

/// Asks the node at `address`. The error says in words what is wrong there.
///
/// # Errors
/// When it cannot be reached, is no node of ours, or does not answer within `patience`.
pub async fn ask(
    address: &str,
    secret: &[u8],
    question: &Question,
    patience: Duration,
) -> Result<Answer, String> {
    if faults::is_cut_off() {
        return Err(format!("{address} cannot be reached: a test cut this node off"));
    }
    let connect = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let mut stream = match connect {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(format!("{address} cannot be reached: {error}")),
        Err(_) => return Err(format!("{address} cannot be reached: no answer in {CONNECT:?}")),
    };
    let talk = async {
        let mut hello = Vec::with_capacity(37);
        hello.extend_from_slice(CALL_MAGIC);
        hello.push(WIRE_VERSION);
        hello.extend_from_slice(&rand::random::<[u8; 32]>());
        handshake::prove_to_listener(&mut stream, &hello, secret).await?;
        write(&mut stream, question).await?;
        read(&mut stream).await
    };
    match tokio::time::timeout(patience, talk).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(format!("{address} closed the connection: it is no peer port of a Warlock node"))
        }
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => {
            Err(format!("{address} did not answer within {patience:?}: is it a peer port of a Warlock node?"))
        }
    }
}

/// Answers one call; its first four bytes are read already.
///
/// # Errors
/// When the caller does not know the secret, or the connection fails.
pub async fn answer(stream: &mut TcpStream, secret: &[u8], answerer: &Answerer) -> io::Result<()> {
    let opening = async {
        let mut hello = [0; 37];
        hello[..4].copy_from_slice(CALL_MAGIC);
        stream.read_exact(&mut hello[4..]).await?;
        if hello[4] != WIRE_VERSION {
            let why = format!("peer protocol {} is not {WIRE_VERSION}: different releases", hello[4]);
            return Err(handshake::refuse(stream, why).await);
        }
        handshake::prove_to_dialler(stream, &hello, secret).await?;
        stream.write_all(&[0]).await?;
        read(stream).await
    };
    let question = tokio::time::timeout(FIRST_BYTES, opening).await??;
    let answer = answerer(question).await;
    write(stream, &answer).await
}

/// Takes calls, and nothing else: the peer port of an empty node.
pub async fn listen(listener: TcpListener, secret: Vec<u8>, answerer: Answerer) {
    loop {
        let (mut stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a call");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (secret, answerer) = (secret.clone(), answerer.clone());
        tokio::task::spawn_local(async move {
            let ended = match first_bytes(&mut stream).await {
                Ok(magic) if &magic == CALL_MAGIC => answer(&mut stream, &secret, &answerer).await,
                Ok(_) => {
                    let why = "this node is empty and waits for an invitation; it is no member";
                    Err(handshake::refuse(&mut stream, why.into()).await)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                debug!(%address, %error, "a call was not taken");
            }
        });
    }
}

/// The four bytes that tell a call from a link.
///
/// # Errors
/// When they do not come.
pub async fn first_bytes(stream: &mut TcpStream) -> io::Result<[u8; 4]> {
    let mut magic = [0; 4];
    tokio::time::timeout(FIRST_BYTES, stream.read_exact(&mut magic)).await??;
    Ok(magic)
}

async fn write<T: Serialize>(stream: &mut TcpStream, value: &T) -> io::Result<()> {
    let bytes = codec::to_bytes(value);
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&bytes).await
}

async fn read<T: for<'a> Deserialize<'a>>(stream: &mut TcpStream) -> io::Result<T> {
    let length = stream.read_u32().await? as usize;
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("a call of {length} bytes is longer than any honest one")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    codec::from_bytes(&bytes).map_err(io::Error::other)
}
