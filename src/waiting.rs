//! An empty node that waits: until JOIN, asked of it, forms a first cluster with other empty nodes, or a member of a running cluster invites it.
//!
//! It has no data, makes no promises and votes nowhere. What makes it a member is an identity, durable before it is acknowledged; from then on
//! nothing can make it another. Clients can connect, and hear that there is no cluster yet; probes hear that it lives and is not ready. From the moment it
//! is a member, requests are held, and the member goes on with the same connections: whoever is told that a cluster was formed can use it.

mod clients;

use crate::host::calls::{self, Answer as CallAnswer, Answerer, Applicant, EmptyNode, Invitation, Question};
use crate::http::{self, Probed, exposition::Page};
use crate::identity::{Contact, NodeIdentity};
use crate::node::{self, Doors, NodeError, change};
use crate::settings::{Settings, is_any_host};
use bytes::Bytes;
use clients::Held;
use consensus::{NodeId, View, ViewState};
use server::Face;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use storage::reply::Reply;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

/// How long a node that is asked something may take.
const CALL: Duration = Duration::from_secs(5);
/// How long a member may take to add this node.
const ADD_ME: Duration = Duration::from_secs(60);
/// Between two rounds of asking members.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Between two lines of the log that say why this node is still alone: members may give different reasons in turn, for as long as nobody joins them.
const SAY_AGAIN: Duration = Duration::from_secs(10);

const NO_CLUSTER: &str = "CLUSTERDOWN this node is empty and belongs to no cluster; nothing was done. WARLOCK JOIN host:peerport … here forms a first \
                          cluster, WARLOCK ADD on a member invites this node to a running one";

struct Waiting {
    me: Weak<Waiting>,
    settings: Settings,
    secret: Vec<u8>,
    /// Names this life of the process.
    instance: u64,
    face: OnceCell<Rc<Face>>,
    identity: RefCell<Option<NodeIdentity>>,
    is_forming: Cell<bool>,
    invited: Notify,
    /// What clients want of the member that this node has become.
    held: RefCell<Vec<Held>>,
}

/// A node that is a member now, with what it goes on with.
pub struct Invited {
    /// Who it is.
    pub identity: NodeIdentity,
    /// Its sockets: who knocks meanwhile waits a moment instead of being turned away.
    pub doors: Doors,
    /// Its clients.
    pub face: Rc<Face>,
}

/// Waits until this node is a member, or until `stop`.
///
/// # Errors
/// When it cannot listen.
pub async fn wait(settings: &Settings, stop: impl Future<Output = ()>) -> Result<Option<Invited>, NodeError> {
    let secret = settings.cluster_secret.clone().unwrap_or_default().into_bytes();
    let doors = Doors::open(&settings.client_bind(), &settings.peer_listen()).await?;
    let probes = node::open_probes(settings).await?;
    let (Doors { clients, peers, .. }, doors) = doors.twice()?;
    info!(
        clients = settings.client_bind(),
        peers = settings.peer_listen(),
        "empty node waits for an invitation"
    );
    let waiting = Rc::new_cyclic(|me| Waiting {
        me: me.clone(),
        settings: settings.clone(),
        secret: secret.clone(),
        instance: rand::random(),
        face: OnceCell::new(),
        identity: RefCell::default(),
        is_forming: Cell::new(false),
        invited: Notify::new(),
        held: RefCell::default(),
    });
    let face = Face::new(waiting.clone(), settings.face());
    let _ = waiting.face.set(face.clone());
    let listening = tokio::task::spawn_local(calls::listen(peers, secret, waiting.answerer()));
    let serving = tokio::task::spawn_local(face.clone().listen(clients));
    let asking = tokio::task::spawn_local(ask_members(waiting.clone()));
    let probing = probes.map(|probes| tokio::task::spawn_local(http::listen(probes, waiting.clone())));
    let is_stopped = tokio::select! {
        () = stop => true,
        () = waiting.invited.notified() => false,
    };
    for task in [listening, serving, asking].into_iter().chain(probing) {
        task.abort();
        // Who was cancelled says so.
        let _ = task.await;
    }
    if is_stopped {
        face.close_all();
        return Ok(None);
    }
    let identity = waiting.identity.borrow().clone();
    Ok(identity.map(|identity| Invited { identity, doors, face }))
}

/// Asks the members that the operator named, again and again, to be added.
async fn ask_members(waiting: Rc<Waiting>) {
    let applicant = Applicant { peer: waiting.settings.peer_address(), instance: waiting.instance };
    let mut said_at: Option<Instant> = None;
    loop {
        for member in &waiting.settings.join {
            if *member == applicant.peer {
                continue; // the same list serves all nodes
            }
            let question = Question::AddMe(applicant.clone());
            let why = match calls::ask(member, &waiting.secret, &question, ADD_ME).await {
                Ok(CallAnswer::No(why)) => format!("{member}: {why}"),
                Err(why) => why,
                Ok(_) => return, // the invitation is here
            };
            if waiting.identity.borrow().is_some() {
                return;
            }
            if said_at.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                warn!(why, "not added to a cluster yet; members are asked again and again");
                said_at = Some(Instant::now());
            } else {
                debug!(why, "not added to a cluster yet");
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

impl Waiting {
    fn answerer(&self) -> Answerer {
        let me = self.me.clone();
        Rc::new(move |question| {
            let waiting = me.upgrade();
            Box::pin(async move {
                match waiting {
                    Some(waiting) => waiting.answer_call(question).await,
                    None => CallAnswer::No("the node is stopping".into()),
                }
            })
        })
    }

    async fn answer_call(&self, question: Question) -> CallAnswer {
        let invited = self.identity.borrow().as_ref().map(|identity| (identity.cluster, identity.node));
        match (question, invited) {
            (Question::Who, Some((cluster, node))) => CallAnswer::Member { cluster, node },
            (question, _) => self.answer_as_empty(question).await,
        }
    }

    async fn answer_as_empty(&self, question: Question) -> CallAnswer {
        match question {
            Question::Who => CallAnswer::Empty(EmptyNode {
                instance: self.instance,
                client: self.settings.client_address(),
                peer_announce: self.settings.peer_announce.clone(),
                is_memory: self.settings.is_memory(),
            }),
            Question::Reach(addresses) => CallAnswer::Unreachable(node::unreachable(&addresses).await),
            Question::BeMember(_) if self.is_forming.get() => {
                CallAnswer::No("this node is forming a cluster itself".into())
            }
            Question::BeMember(invitation) => match self.become_member(invitation) {
                Ok(()) => CallAnswer::Done,
                Err(why) => CallAnswer::No(why),
            },
            Question::AddMe(_) | Question::Facts | Question::Checksum(_) => {
                CallAnswer::No("this node is empty and waits for an invitation itself".into())
            }
        }
    }

    /// From here on this node is that member, for good.
    fn become_member(&self, invitation: Invitation) -> Result<(), String> {
        let Invitation { cluster, node, view } = invitation;
        if let Some(known) = &*self.identity.borrow() {
            let is_same = known.cluster == cluster && known.node == node;
            return if is_same { Ok(()) } else { Err("this node is a member of a cluster already".into()) };
        }
        let secret = String::from_utf8_lossy(&self.secret).into_owned();
        let identity = NodeIdentity { cluster, node, secret, view };
        if !self.settings.is_memory() {
            identity.write(&self.settings.dir).map_err(|error| error.to_string())?;
        }
        info!(%node, "invited");
        *self.identity.borrow_mut() = Some(identity);
        self.invited.notify_one();
        Ok(())
    }

    async fn administer(&self, words: &[Bytes]) -> Result<Reply, String> {
        let text = |word: &Bytes| String::from_utf8_lossy(word).into_owned();
        let name = words.first().map(|word| text(word).to_uppercase()).unwrap_or_default();
        match (name.as_str(), words.get(1..).unwrap_or_default()) {
            ("STATUS", []) => {
                let pairs = [("role", "empty"), ("version", env!("CARGO_PKG_VERSION"))];
                let bulk = |text: &str| Reply::bulk(text.as_bytes());
                Ok(Reply::Map(pairs.into_iter().map(|(name, value)| (bulk(name), bulk(value))).collect()))
            }
            ("MEMBERS", []) => Ok(Reply::Array(Vec::new())),
            ("JOIN", []) => {
                Err("ERR nothing was done: name the peer addresses of the other empty nodes: WARLOCK JOIN host:peerport …".into())
            }
            ("JOIN", addresses) if self.identity.borrow().is_some() => {
                self.was_formed_with(&addresses.iter().map(text).collect::<Vec<_>>())
            }
            ("JOIN", addresses) => {
                if self.is_forming.replace(true) {
                    return Err("TRYAGAIN this node is forming a cluster already; nothing was done".into());
                }
                let outcome = self.form(&addresses.iter().map(text).collect::<Vec<_>>()).await;
                self.is_forming.set(false);
                outcome
            }
            _ => Err(NO_CLUSTER.into()),
        }
    }

    /// A JOIN that is repeated before the node begins its new life.
    fn was_formed_with(&self, addresses: &[String]) -> Result<Reply, String> {
        let identity = self.identity.borrow();
        let members = identity.iter().flat_map(|identity| identity.view.current.members.values());
        let peers: Vec<String> =
            members.filter_map(|member| Some(Contact::from_bytes(&member.contact)?.peer)).collect();
        if addresses.len() + 1 == peers.len() && addresses.iter().all(|address| peers.contains(address)) {
            return Ok(Reply::Simple(format!("OK {} nodes", peers.len()).into()));
        }
        Err("ERR nothing was done: this node is a member of a cluster already".into())
    }

    /// Forms the first cluster: this node and the empty nodes at `addresses`.
    async fn form(&self, addresses: &[String]) -> Result<Reply, String> {
        let nothing = |why: String| format!("ERR nothing was done: {why}");
        let contacts = self.meet_all(addresses).await.map_err(nothing)?;
        let ids = (1..).map(NodeId);
        let first = View::first(ids.zip(contacts.iter().map(Contact::to_bytes)), self.settings.lease);
        let view = ViewState::first(first);
        let cluster = rand::random::<[u8; 16]>();
        let invitation = |node: u64| Invitation { cluster, node: NodeId(node), view: view.clone() };
        let mut missing = Vec::new();
        for (node, address) in (2..).zip(addresses) {
            if let Err(why) = change::deliver(address, &self.secret, invitation(node)).await {
                missing.push(format!("n{node} ({why})"));
            }
        }
        let members = addresses.len() + 1;
        if missing.len() > members - (members / 2 + 1) {
            return Err(format!(
                "ERR no cluster was formed: no answer of {}. Empty the directories of the others before you try again",
                missing.join(", ")
            ));
        }
        self.become_member(invitation(1)).map_err(|why| {
            format!("ERR the others formed a cluster without this node ({why}); WARLOCK REMOVE n1 there, then ADD it")
        })?;
        if missing.is_empty() {
            return Ok(Reply::Simple(format!("OK {members} nodes").into()));
        }
        Err(format!(
            "UNCERTAIN the cluster is formed, but there was no answer of {}: if it does not appear in WARLOCK MEMBERS as reachable, REMOVE it and ADD it again",
            missing.join(", ")
        ))
    }

    /// Makes sure that all of them are there, empty, different, and can reach each other. Changes nothing.
    async fn meet_all(&self, addresses: &[String]) -> Result<Vec<Contact>, String> {
        let me = Contact { peer: self.settings.peer_address(), client: self.settings.client_address() };
        for (name, address) in [("peer-announce", &me.peer), ("announce", &me.client)] {
            if is_any_host(address) {
                return Err(format!(
                    "this node would be known as {address}, which is no address of one machine; start it with --{name}"
                ));
            }
        }
        let (mut contacts, mut seen) = (vec![me], vec![(self.instance, "this node".to_string())]);
        for address in addresses {
            let guest = match calls::ask(address, &self.secret, &Question::Who, CALL).await? {
                CallAnswer::Empty(guest) => guest,
                CallAnswer::Member { .. } => {
                    return Err(format!(
                        "{address} is a member of a cluster already; to join that one, ask one of its members to WARLOCK ADD this node"
                    ));
                }
                other => return Err(format!("{address} gave an answer that makes no sense: {other:?}")),
            };
            change::check_guest(address, &guest)?;
            if let Some((_, first)) = seen.iter().find(|(instance, _)| *instance == guest.instance) {
                return Err(format!("{address} is the same node as {first}; name each of the others once"));
            }
            seen.push((guest.instance, address.clone()));
            contacts.push(Contact { peer: address.clone(), client: guest.client });
        }
        let all: Vec<String> = contacts.iter().map(|contact| contact.peer.clone()).collect();
        for address in addresses {
            match calls::ask(address, &self.secret, &Question::Reach(all.clone()), CALL * 4).await? {
                CallAnswer::Unreachable(problems) if problems.is_empty() => {}
                CallAnswer::Unreachable(problems) => {
                    return Err(format!("from {address}, {}", problems.join("; ")));
                }
                other => return Err(format!("{address} gave an answer that makes no sense: {other:?}")),
            }
        }
        Ok(contacts)
    }
}

impl Probed for Waiting {
    fn not_ready(&self) -> Option<String> {
        Some("this node is empty and waits for an invitation to a cluster".to_string())
    }

    fn metrics(&self) -> String {
        let mut page = Page::default();
        page.info(env!("CARGO_PKG_VERSION"), "", &self.settings.client_address());
        page.ready(false);
        page.into_text()
    }
}
