//! Who a data directory belongs to: written once, when a cluster is formed, and never changed.
//!
//! A node starts only from a directory that has one. So a node whose directory was lost cannot come back under its old id with an empty memory of its
//! promises: it has to be added as a new member.

use crate::codec;
use bytes::Bytes;
use consensus::{NodeId, View, ViewState};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "identity";

/// A node's identity.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// The cluster.
    pub cluster: [u8; 16],
    /// The member.
    pub node: NodeId,
    /// What all members know and nobody else.
    pub secret: String,
    /// The configuration when the identity was written.
    pub view: ViewState,
}

/// How to reach a member: kept in the view, the same on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// For peers.
    pub peer: String,
    /// For clients.
    pub client: String,
}

impl Contact {
    /// As it stands in a view.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from(format!("{} {}", self.peer, self.client))
    }

    /// The other way round.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Contact> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (peer, client) = text.split_once(' ')?;
        Some(Contact { peer: peer.to_string(), client: client.to_string() })
    }
}

/// Why there is no identity.
#[derive(Debug)]
pub enum IdentityError {
    /// The directory has none.
    Absent(PathBuf),
    /// The directory has one already.
    Present(PathBuf),
    /// The file makes no sense.
    Damaged(PathBuf),
    /// The disk says no.
    Io(PathBuf, io::Error),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityError::Absent(path) if !path.exists() => {
                write!(f, "{} does not exist; give the data directory of a node", path.display())
            }
            IdentityError::Absent(path) => write!(
                f,
                "{} exists, but holds no node. If it is the place of a disk, mount the disk. If the node is new, remove the empty directory, or start \
                 with --wait-for-invitation. If the node lost its data, WARLOCK REMOVE it from its cluster and ADD it again as a new member",
                path.display()
            ),
            IdentityError::Present(path) => write!(
                f,
                "{} already holds a node; use another directory, or empty this one if its data is not needed",
                path.display()
            ),
            IdentityError::Damaged(path) => write!(
                f,
                "{} is damaged; remove this node from its cluster, empty the directory and add it as a new member",
                path.display()
            ),
            IdentityError::Io(path, error) => write!(f, "cannot use {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for IdentityError {}

/// Makes the directories of a new cluster whose members are `members`: (directory, contact) each. Without a secret they get a random one.
///
/// # Errors
/// When one of the directories already holds a node, or cannot be written.
pub fn form(
    members: &[(PathBuf, Contact)],
    lease: Duration,
    secret: Option<String>,
) -> Result<Vec<NodeIdentity>, IdentityError> {
    for (directory, _) in members {
        if directory.join(FILE).exists() {
            return Err(IdentityError::Present(directory.clone()));
        }
    }
    let ids = (1..).map(NodeId);
    let view = View::first(ids.clone().zip(members.iter().map(|(_, contact)| contact.to_bytes())), lease);
    let cluster = rand::random::<[u8; 16]>();
    let secret = secret.unwrap_or_else(random_secret);
    let mut identities = Vec::new();
    for (node, (directory, _)) in ids.zip(members) {
        let view = ViewState::first(view.clone());
        let identity = NodeIdentity { cluster, node, secret: secret.clone(), view };
        identity.write(directory)?;
        identities.push(identity);
    }
    Ok(identities)
}

impl NodeIdentity {
    /// The only member of a new cluster. Without a secret it gets a random one.
    #[must_use]
    pub fn alone(contact: &Contact, lease: Duration, secret: Option<String>) -> NodeIdentity {
        let node = NodeId(1);
        let view = ViewState::first(View::first([(node, contact.to_bytes())], lease));
        NodeIdentity { cluster: rand::random(), node, secret: secret.unwrap_or_else(random_secret), view }
    }

    /// Reads a directory's identity.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn read(directory: &Path) -> Result<NodeIdentity, IdentityError> {
        let path = directory.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(IdentityError::Absent(directory.to_path_buf()));
            }
            Err(error) => return Err(IdentityError::Io(path, error)),
        };
        Self::parse(&text).ok_or(IdentityError::Damaged(path))
    }

    /// The beginning of a cluster's id, for names.
    #[must_use]
    pub fn short(cluster: &[u8; 16]) -> String {
        to_hex(&cluster[..4])
    }

    fn parse(text: &str) -> Option<NodeIdentity> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ").map(str::to_string))
        };
        Some(NodeIdentity {
            cluster: from_hex(&field("cluster")?)?.try_into().ok()?,
            node: NodeId(field("node")?.parse().ok()?),
            secret: field("secret")?,
            view: codec::from_bytes(&from_hex(&field("view")?)?).ok()?,
        })
    }

    /// Makes `directory` this node's.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn write(&self, directory: &Path) -> Result<(), IdentityError> {
        let fail = |error| IdentityError::Io(directory.to_path_buf(), error);
        fs::create_dir_all(directory).map_err(fail)?;
        let text = format!(
            "# Written when the cluster was formed. Keep it: without it this directory is no node.\n\
             cluster = {}\nnode = {}\nsecret = {}\nview = {}\n",
            to_hex(&self.cluster),
            self.node.0,
            self.secret,
            to_hex(&codec::to_bytes(&self.view)),
        );
        let temporary = directory.join("identity.new");
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, directory.join(FILE))?;
            fs::File::open(directory)?.sync_all()
        };
        write().map_err(fail)
    }
}

/// A secret that nobody knows yet.
#[must_use]
pub fn random_secret() -> String {
    to_hex(&rand::random::<[u8; 24]>())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
