//! Who is at the other end of a peer link: proved before any message is taken.
//!
//! ```text
//! dialler → listener   "WLK1" | wire version u8 | cluster 16 | from u64 | incarnation u64 | to u64 | nonce 32
//! listener → dialler   0 | nonce 32 | HMAC(secret, "listener" | hello | nonce)      or  1 | length u16 | why not
//! dialler → listener   HMAC(secret, "dialler" | hello | nonce)
//! listener → dialler   0                                                            or  1 | length u16 | why not
//! ```
//!
//! Both prove that they know the cluster's secret, for this connection only. A listener takes a node's newest incarnation only.

use crate::codec::WIRE_VERSION;
use consensus::NodeId;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAGIC: &[u8; 4] = b"WLK1";
/// Begins a call instead of a link: see [`super::calls`].
pub const CALL_MAGIC: &[u8; 4] = b"WLKC";
const HELLO: usize = 4 + 1 + 16 + 8 + 8 + 8 + 32;
const PATIENCE: Duration = Duration::from_secs(5);
const REASON_BYTES_MAX: usize = 1024;

/// What identifies this node to its peers.
#[derive(Clone)]
pub struct Identity {
    /// The cluster.
    pub cluster: [u8; 16],
    /// This member.
    pub node: NodeId,
    /// This life of it.
    pub incarnation: u64,
    /// What all members of the cluster know.
    pub secret: Vec<u8>,
}

/// Who dialled.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The member.
    pub node: NodeId,
    /// This life of it.
    pub incarnation: u64,
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.into())
}

fn proof(secret: &[u8], side: &[u8], hello: &[u8], nonce: &[u8]) -> Hmac<Sha256> {
    // HMAC takes a key of any length.
    let mut mac =
        <Hmac<Sha256> as Mac>::new_from_slice(secret).unwrap_or_else(|_| unreachable!("any key length"));
    mac.update(side);
    mac.update(hello);
    mac.update(nonce);
    mac
}

/// Proves to a listener who we are, and that it is one of us.
///
/// # Errors
/// When the connection fails, or one of the two does not believe the other.
pub async fn dial(stream: &mut TcpStream, me: &Identity, to: NodeId) -> io::Result<()> {
    tokio::time::timeout(PATIENCE, dial_now(stream, me, to)).await?
}

async fn dial_now(stream: &mut TcpStream, me: &Identity, to: NodeId) -> io::Result<()> {
    let mut hello = Vec::with_capacity(HELLO);
    hello.extend_from_slice(MAGIC);
    hello.push(WIRE_VERSION);
    hello.extend_from_slice(&me.cluster);
    hello.extend_from_slice(&me.node.0.to_be_bytes());
    hello.extend_from_slice(&me.incarnation.to_be_bytes());
    hello.extend_from_slice(&to.0.to_be_bytes());
    hello.extend_from_slice(&rand::random::<[u8; 32]>());
    prove_to_listener(stream, &hello, &me.secret).await
}

/// Says hello and proves that we know the secret; the listener must, too.
pub(super) async fn prove_to_listener(stream: &mut TcpStream, hello: &[u8], secret: &[u8]) -> io::Result<()> {
    stream.write_all(hello).await?;
    read_verdict(stream).await?;
    let mut answer = [0; 64];
    stream.read_exact(&mut answer).await?;
    let (nonce, theirs) = answer.split_at(32);
    proof(secret, b"listener", hello, nonce).verify_slice(theirs).map_err(|_| {
        refused("it does not know the cluster's secret: give both nodes the same cluster-secret")
    })?;
    let ours = proof(secret, b"dialler", hello, nonce).finalize().into_bytes();
    stream.write_all(&ours).await?;
    read_verdict(stream).await
}

/// Proves that we know the secret to who said `hello`, and lets it prove the same. The last word (0) is the caller's.
pub(super) async fn prove_to_dialler(stream: &mut TcpStream, hello: &[u8], secret: &[u8]) -> io::Result<()> {
    let nonce = rand::random::<[u8; 32]>();
    let ours = proof(secret, b"listener", hello, &nonce).finalize().into_bytes();
    stream.write_all(&[&[0], &nonce[..], &ours[..]].concat()).await?;
    let mut theirs = [0; 32];
    stream.read_exact(&mut theirs).await?;
    if proof(secret, b"dialler", hello, &nonce).verify_slice(&theirs).is_err() {
        let why = "the dialler does not know the cluster's secret: give both nodes the same cluster-secret";
        return Err(refuse(stream, why.into()).await);
    }
    Ok(())
}

/// Lets a dialler prove who it is; its first four bytes, `magic`, are read already. `newest` is the newest incarnation seen of a member.
///
/// # Errors
/// When the connection fails or the dialler is nobody we know.
pub async fn answer(
    stream: &mut TcpStream,
    magic: [u8; 4],
    me: &Identity,
    newest: impl Fn(NodeId) -> u64,
) -> io::Result<Caller> {
    tokio::time::timeout(PATIENCE, answer_now(stream, magic, me, newest)).await?
}

async fn answer_now(
    stream: &mut TcpStream,
    magic: [u8; 4],
    me: &Identity,
    newest: impl Fn(NodeId) -> u64,
) -> io::Result<Caller> {
    if &magic != MAGIC {
        let why = "this is Warlock's peer port; clients use the client port";
        return Err(refuse(stream, why.into()).await);
    }
    let mut hello = [0; HELLO];
    hello[..4].copy_from_slice(&magic);
    stream.read_exact(&mut hello[4..]).await?;
    let caller = match read_hello(&hello, me) {
        Ok(caller) => caller,
        Err(why) => return Err(refuse(stream, why).await),
    };
    prove_to_dialler(stream, &hello, &me.secret).await?;
    if caller.incarnation < newest(caller.node) {
        return Err(refuse(stream, format!("a newer life of {} is already here", caller.node)).await);
    }
    stream.write_all(&[0]).await?;
    Ok(caller)
}

fn read_hello(hello: &[u8; HELLO], me: &Identity) -> Result<Caller, String> {
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hello[at..at + 8]);
        u64::from_be_bytes(bytes)
    };
    if hello[4] != WIRE_VERSION {
        return Err(format!(
            "peer protocol {} is not {WIRE_VERSION}: bring both nodes to the same release",
            hello[4]
        ));
    }
    if hello[5..21] != me.cluster {
        return Err("that is another cluster: give each node its own peers and its own data directory".into());
    }
    if number(37) != me.node.0 {
        return Err(format!("this is {}, not n{}", me.node, number(37)));
    }
    if number(21) == me.node.0 {
        return Err(format!("{} is this node; two processes must not have the same id", me.node));
    }
    Ok(Caller { node: NodeId(number(21)), incarnation: number(29) })
}

pub(super) async fn refuse(stream: &mut TcpStream, why: String) -> io::Error {
    let text = &why.as_bytes()[..why.len().min(REASON_BYTES_MAX)];
    let length = u16::try_from(text.len()).unwrap_or(0);
    // The refusal is a courtesy: the link is closed either way.
    let _ = stream.write_all(&[&[1], &length.to_be_bytes()[..], text].concat()).await;
    refused(why)
}

async fn read_verdict(stream: &mut TcpStream) -> io::Result<()> {
    if stream.read_u8().await? == 0 {
        return Ok(());
    }
    let length = usize::from(stream.read_u16().await?).min(REASON_BYTES_MAX);
    let mut why = vec![0; length];
    stream.read_exact(&mut why).await?;
    Err(refused(format!("refused: {}", String::from_utf8_lossy(&why))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::net::TcpListener;

    fn identity(node: u64, incarnation: u64, secret: &str) -> Identity {
        Identity { cluster: [7; 16], node: NodeId(node), incarnation, secret: secret.as_bytes().to_vec() }
    }

    /// `dialler` calls node 2, which knows life 5 of it; what both make of it.
    async fn meet(dialler: Identity, to: u64) -> (io::Result<()>, io::Result<Caller>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut magic = [0; 4];
            stream.read_exact(&mut magic).await.unwrap();
            answer(&mut stream, magic, &identity(2, 1, "the secret"), |_| 5).await
        };
        let dialling = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            dial(&mut stream, &dialler, NodeId(to)).await
        };
        tokio::join!(dialling, listening)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_link_is_bound_to_secret_cluster_node_and_life() {
        let (dialled, answered) = meet(identity(1, 5, "the secret"), 2).await;
        dialled.unwrap();
        let caller = answered.unwrap();
        assert_eq!((caller.node, caller.incarnation), (NodeId(1), 5));
        let another = Identity { cluster: [8; 16], ..identity(1, 5, "the secret") };
        for (dialler, to, why) in [
            (identity(1, 5, "a guess"), 2, "secret"),
            (identity(1, 4, "the secret"), 2, "a newer life"),
            (another, 2, "another cluster"),
            (identity(1, 5, "the secret"), 3, "this is n2"),
            (identity(2, 5, "the secret"), 2, "the same id"),
        ] {
            let (dialled, answered) = meet(dialler, to).await;
            assert!(answered.is_err(), "{why}: no message is read on such a link");
            let said = dialled.unwrap_err().to_string();
            assert!(said.contains(why), "{said} does not say {why}");
        }
    }
}
