//! Clients that count up, each its own key, and notice every lost or repeated increment and every silence.

use crate::client::{Client, Reply};
use crate::patience::wait_for;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One client's account.
#[derive(Debug, Default)]
struct Account {
    node: u16,
    key: String,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    silence_us: AtomicU64,
    latencies_us: Mutex<Vec<u32>>,
    complaints: Mutex<Vec<String>>,
}

impl Account {
    fn complain(&self, what: String) {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// Clients at work.
pub struct Counting {
    accounts: Vec<Arc<Account>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Counting {
    /// Starts `per_node` clients on each of the nodes (number and address).
    #[must_use]
    pub fn start(nodes: &[(u16, String)], per_node: usize) -> Counting {
        let stop = Arc::new(AtomicBool::new(false));
        let mut counting = Counting { accounts: Vec::new(), threads: Vec::new(), stop };
        for (node, address) in nodes {
            for n in 0..per_node {
                let key = format!("counter:{node}:{n}");
                let account = Arc::new(Account { node: *node, key, ..Account::default() });
                let (address, stop) = (address.clone(), counting.stop.clone());
                counting.accounts.push(account.clone());
                counting.threads.push(std::thread::spawn(move || count(&account, &address, &stop)));
            }
        }
        counting
    }

    /// Waits until each client of these nodes has got `count` more answers.
    ///
    /// # Panics
    /// When one does not.
    pub fn wait_for_answers(&self, nodes: &[u16], count: u64) {
        let goals: Vec<_> =
            self.of(nodes).map(|account| (account, account.acknowledged.load(Relaxed) + count)).collect();
        wait_for(&format!("{count} answers to each client of nodes {nodes:?}"), || {
            goals.iter().all(|(account, goal)| account.acknowledged.load(Relaxed) >= *goal).then_some(())
        });
    }

    /// Forgets the silences so far.
    pub fn listen(&self) {
        for account in &self.accounts {
            account.silence_us.store(0, Relaxed);
        }
    }

    /// The longest time that a client of these nodes waited between two answers since [`listen`](Self::listen).
    #[must_use]
    pub fn longest_silence(&self, nodes: &[u16]) -> Duration {
        Duration::from_micros(
            self.of(nodes).map(|account| account.silence_us.load(Relaxed)).max().unwrap_or(0),
        )
    }

    /// Requests of clients of these nodes that were not answered with success.
    #[must_use]
    pub fn failed(&self, nodes: &[u16]) -> u64 {
        self.of(nodes).map(|account| account.unknown.load(Relaxed) + account.refused.load(Relaxed)).sum()
    }

    /// How many increments were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.accounts.iter().map(|account| account.acknowledged.load(Relaxed)).sum()
    }

    /// The latencies of all answers since the last call, in microseconds.
    #[must_use]
    pub fn take_latencies(&self) -> Vec<u32> {
        let take = |account: &Arc<Account>| {
            std::mem::take(&mut *account.latencies_us.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.accounts.iter().flat_map(take).collect()
    }

    /// Stops the clients and compares every counter with what its client was told.
    ///
    /// # Errors
    /// What was lost, done twice, or answered wrongly.
    pub fn finish(self, address: &str) -> Result<u64, String> {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                return Err("a client panicked".into());
            }
        }
        let mut reader = Client::connect(address);
        let mut total = 0;
        let mut wrong = Vec::new();
        for account in &self.accounts {
            let value = reader.must(&["GET", &account.key]).integer().unwrap_or(0).unsigned_abs();
            let (acknowledged, unknown) = (account.acknowledged.load(Relaxed), account.unknown.load(Relaxed));
            if value < acknowledged {
                wrong.push(format!("{}: {acknowledged} acknowledged, {value} there: lost", account.key));
            }
            if value > acknowledged + unknown {
                wrong.push(format!(
                    "{}: {value} there, {acknowledged} + {unknown} asked: done twice",
                    account.key
                ));
            }
            wrong.append(&mut account.complaints.lock().unwrap_or_else(PoisonError::into_inner));
            total += acknowledged;
        }
        if wrong.is_empty() { Ok(total) } else { Err(wrong.join("\n")) }
    }

    fn of(&self, nodes: &[u16]) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.iter().filter(move |account| nodes.contains(&account.node))
    }
}

fn count(account: &Account, address: &str, stop: &AtomicBool) {
    let mut connection: Option<Client> = None;
    let mut last_answer = Instant::now();
    let (mut last, mut is_certain) = (0, true);
    while !stop.load(Relaxed) {
        let Some(client) = connection.as_mut() else {
            connection = Client::try_connect(address).ok();
            if connection.is_none() {
                std::thread::sleep(Duration::from_millis(5)); // the node is down
            }
            continue;
        };
        let asked = Instant::now();
        match client.ask(&["INCR", &account.key]) {
            Ok(Reply::Integer(value)) => {
                let now = Instant::now();
                let micros = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
                account.silence_us.fetch_max(micros(now - last_answer).into(), Relaxed);
                account.latencies_us.lock().unwrap_or_else(PoisonError::into_inner).push(micros(now - asked));
                last_answer = now;
                if value <= last || (is_certain && value != last + 1) {
                    account.complain(format!("{}: {value} was told after {last}", account.key));
                }
                (last, is_certain) = (value, true);
                account.acknowledged.fetch_add(1, Relaxed);
            }
            Ok(reply) if reply.is_error("CLUSTERDOWN") || reply.is_error("TRYAGAIN") => {
                account.refused.fetch_add(1, Relaxed);
            }
            Ok(reply) if reply.is_error("UNCERTAIN") => {
                account.unknown.fetch_add(1, Relaxed);
                is_certain = false;
            }
            Ok(reply) => account.complain(format!("{}: answered with {reply}", account.key)),
            Err(_) => {
                account.unknown.fetch_add(1, Relaxed);
                (connection, is_certain) = (None, false);
            }
        }
    }
}
