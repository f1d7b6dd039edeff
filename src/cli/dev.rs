//! `warlock dev`: all nodes of a cluster in one process, a thread each.

use super::Outcome;
use super::say::say;
use clap::Args;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use warlock::client::{Access, Client};
use warlock::identity::{self, Contact, NodeIdentity};
use warlock::node::NodeError;
use warlock::settings::{self, Settings};
use warlock::startup;

/// How long the cluster has to elect its first master.
const MASTER_PATIENCE: Duration = Duration::from_secs(30);

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Where the data goes; what is there is used again. Without it: a temporary directory, removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Node N serves clients on port BASE+N and talks to its peers on port BASE+100+N.
    #[arg(long, default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    base_port: u16,
}

/// Runs the cluster until Ctrl-C or SIGTERM.
pub fn run(flags: &Flags) -> Outcome {
    let (dir, temporary) = match &flags.dir {
        Some(dir) => (dir.clone(), None),
        None => {
            let temporary = tempfile::Builder::new().prefix("warlock-dev-").tempdir()?;
            (temporary.path().to_path_buf(), Some(temporary))
        }
    };
    let members: Vec<(PathBuf, Contact)> =
        (1..=flags.nodes).map(|node| (dir.join(format!("n{node}")), flags.contact(node))).collect();
    if !members[0].0.exists() {
        identity::form(&members, Duration::from_secs(1), None)?;
    }
    let (stop, stopped) = watch::channel(false);
    let (ended, ends) = mpsc::channel();
    for (directory, _) in &members {
        NodeIdentity::read(directory)?; // a directory of another shape is named before anything runs
        let (settings, mut stopped, ended) = (settings(directory)?, stopped.clone(), ended.clone());
        std::thread::Builder::new().name(format!("node {}", directory.display())).spawn(move || {
            let outcome = in_this_thread(settings, async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            });
            let _ = ended.send(outcome);
        })?;
    }
    drop(ended);
    let addresses: Vec<String> = members.iter().map(|(_, contact)| contact.client.clone()).collect();
    if let Err(failed) = announce(&addresses, &members, temporary.is_some(), &ends) {
        let _ = stop.send(true);
        return Err(failed);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let waiting = std::thread::spawn(move || ends.into_iter().collect::<Result<Vec<()>, NodeError>>());
    let signal = {
        let _inside = runtime.enter();
        super::server::stop_signal()?
    };
    runtime.block_on(async {
        let mut look = tokio::time::interval(Duration::from_millis(200));
        tokio::pin!(signal);
        loop {
            tokio::select! {
                () = &mut signal => break,
                _ = look.tick() => if waiting.is_finished() { break },
            }
        }
    });
    let _ = stop.send(true);
    match waiting.join() {
        Ok(outcome) => drop(outcome?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    match temporary {
        Some(_) => say!("stopped; the data is gone"),
        None => say!("stopped; the data is kept in {}", dir.display()),
    };
    Ok(())
}

impl Flags {
    fn contact(&self, node: u16) -> Contact {
        Contact {
            client: format!("127.0.0.1:{}", self.base_port + node),
            peer: format!("127.0.0.1:{}", self.base_port + 100 + node),
        }
    }
}

fn settings(directory: &std::path::Path) -> Result<Settings, Box<dyn std::error::Error>> {
    let value = |name: &str| (name == "dir").then(|| directory.display().to_string());
    let given = settings::given(value, |_| None, None)?;
    Ok(Settings::new(&given)?)
}

fn in_this_thread(settings: Settings, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| NodeError::Failed(format!("no event loop: {error}")))?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(startup::run(settings, stop)))
}

/// Waits until every node serves and says how to use the cluster.
fn announce(
    addresses: &[String],
    members: &[(PathBuf, Contact)],
    is_temporary: bool,
    ends: &mpsc::Receiver<Result<(), NodeError>>,
) -> Outcome {
    let until = Instant::now() + MASTER_PATIENCE;
    for address in addresses {
        while !serves(address) {
            if let Ok(outcome) = ends.recv_timeout(Duration::from_millis(50)) {
                outcome?;
            }
            if Instant::now() > until {
                return Err(format!("{address} serves nobody after {} s", MASTER_PATIENCE.as_secs()).into());
            }
        }
    }
    say!(
        "{} nodes in one process{}:",
        members.len(),
        if is_temporary { ", data in a temporary directory" } else { "" }
    );
    say!("  node  client{}role    data", " ".repeat(members[0].1.client.len() - 4));
    for (index, (directory, contact)) in members.iter().enumerate() {
        let role = role(&contact.client);
        say!("  n{:<4} {}  {role:<7} {}", index + 1, contact.client, directory.display());
    }
    let port = addresses[0].rsplit(':').next().unwrap_or_default();
    say!(
        "Any Redis client works against any node. Try:\n  redis-cli -p {port} set greeting hello\n  warlock cli -n {port} get greeting\n  \
         warlock status -n {port} --watch\nCtrl-C stops it."
    );
    Ok(())
}

/// A read, which a node answers only when there is a master.
fn serves(address: &str) -> bool {
    client(address).ask(&["EXISTS", "warlock"]).is_ok_and(|reply| reply.integer().is_some())
}

fn role(address: &str) -> String {
    let status = client(address).ask(&["WARLOCK", "STATUS"]).ok();
    status.and_then(|status| status.field("role")?.text()).unwrap_or_default()
}

fn client(address: &str) -> Client {
    let nodes = vec![address.to_string()];
    Client::new(Access { nodes, password: None, patience: Duration::from_secs(10) })
}
