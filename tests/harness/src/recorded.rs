//! A workload that remembers what it asked and was told, and the check that one order explains all of it.
//!
//! Several clients on every node work on few keys at a time. Each operation has an outcome that a client can know: an answer, "certainly
//! not done", or *unknown* (the connection broke, or the node said UNCERTAIN): then it may have run, may still run, or never will. Half of the reads are asked behind a write that
//! is on its way.
//!
//! A key is retired after [`OPERATIONS_PER_KEY`] operations, because the search is exponential in the worst case, and read once more at the
//! very end: what was acknowledged and got lost later shows there.

use crate::client::{Client, Reply};
use crate::patience::PATIENCE;
use sim::rng::Rng;
use sim::wgl::{self, Order, Span};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Operations on one key; the search takes 128, and the last look needs room.
pub const OPERATIONS_PER_KEY: u64 = 100;
/// Keys that are worked on at a time.
const KEYS_AT_ONCE: u64 = 4;

/// What a client asks of a key. The values are numbers, each written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// GET
    Get,
    /// SET
    Set(i64),
    /// SET … GET: tells what was there.
    Swap(i64),
    /// SET … NX
    Create(i64),
    /// SET … IFEQ expected
    Replace(i64, i64),
    /// INCR
    Increment,
    /// GETDEL
    Take,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Told `Some` number, or nil.
    Told(Option<i64>),
    /// Nobody knows.
    Unknown,
}

/// One operation that ran, or may have.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Which client.
    pub client: usize,
    /// On which key.
    pub key: u64,
    /// What it asked.
    pub request: Request,
    /// When it asked: nanoseconds since the workload began.
    pub invoked: u64,
    /// When it was told; `u64::MAX` when never.
    pub returned: u64,
    /// What it was told.
    pub outcome: Outcome,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanos: u64| nanos / 1_000_000;
        let returned = if self.returned == u64::MAX { "-".into() } else { ms(self.returned).to_string() };
        write!(
            f,
            "{:>7} .. {returned:>7} ms  client {:>2}  {:?} → {:?}",
            ms(self.invoked),
            self.client,
            self.request,
            self.outcome
        )
    }
}

impl Request {
    fn words(self, key: &str) -> Vec<String> {
        let words = |rest: &[&str]| {
            let mut words = vec![rest[0].to_string(), key.to_string()];
            words.extend(rest[1..].iter().map(ToString::to_string));
            words
        };
        match self {
            Request::Get => words(&["GET"]),
            Request::Set(value) => words(&["SET", &value.to_string()]),
            Request::Swap(value) => words(&["SET", &value.to_string(), "GET"]),
            Request::Create(value) => words(&["SET", &value.to_string(), "NX"]),
            Request::Replace(expected, value) => {
                words(&["SET", &value.to_string(), "IFEQ", &expected.to_string()])
            }
            Request::Increment => words(&["INCR"]),
            Request::Take => words(&["GETDEL"]),
        }
    }

    /// What the key holds afterwards, and the answer; OK is told as 1.
    fn step(self, held: Option<i64>) -> (Option<i64>, Option<i64>) {
        match self {
            Request::Get => (held, held),
            Request::Set(value) => (Some(value), Some(1)),
            Request::Swap(value) => (Some(value), held),
            Request::Create(value) if held.is_none() => (Some(value), Some(1)),
            Request::Replace(expected, value) if held == Some(expected) => (Some(value), Some(1)),
            Request::Create(_) | Request::Replace(..) => (held, None),
            Request::Increment => {
                let after = Some(held.unwrap_or(0) + 1);
                (after, after)
            }
            Request::Take => (None, held),
        }
    }
}

/// Clients at work.
pub struct Recorded {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Operation>>>,
}

struct Shared {
    prefix: String,
    start: Instant,
    stop: AtomicBool,
    next: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
}

/// What the clients did.
pub struct History {
    /// All that ran or may have.
    pub operations: Vec<Operation>,
    /// How many were refused, certainly not done.
    pub refused: u64,
}

impl Recorded {
    /// Starts `per_node` clients on each address; `prefix` keeps their keys apart from others.
    #[must_use]
    pub fn start(addresses: &[String], per_node: usize, seed: u64, prefix: &str) -> Recorded {
        let shared = Arc::new(Shared {
            prefix: prefix.to_string(),
            start: Instant::now(),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let places = addresses.iter().flat_map(|address| std::iter::repeat_n(address, per_node));
        let clients = places.enumerate().map(|(number, address)| {
            let (shared, address) = (shared.clone(), address.clone());
            std::thread::spawn(move || Worker::new(number, address, shared, seed).work())
        });
        let clients = clients.collect();
        Recorded { shared, clients }
    }

    /// How many operations were answered so far.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Requests that got no answer, or an error, so far.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits until `count` more operations are answered: the service is there.
    ///
    /// # Panics
    /// When it is not.
    pub fn wait_for_answers(&self, count: u64) {
        let goal = self.answered() + count;
        crate::wait_for(&format!("{count} more answers of the recorded workload"), || {
            (self.answered() >= goal).then_some(())
        });
    }

    /// Stops the clients and reads every key once more through `address`.
    ///
    /// # Panics
    /// When a client met something that no client should, or the last look fails.
    #[must_use]
    pub fn finish(self, address: &str) -> History {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut operations = Vec::new();
        let clients = self.clients.len();
        for client in self.clients {
            match client.join() {
                Ok(done) => operations.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let mut reader = Client::connect(address);
        let keys: std::collections::BTreeSet<u64> =
            operations.iter().map(|operation| operation.key).collect();
        for key in keys {
            let invoked = self.shared.now();
            let reply = reader.must(&Request::Get.words(&self.shared.key(key)));
            let outcome = outcome_of(Request::Get, Ok(reply)).expect("the last look at a key is answered");
            let returned = self.shared.now();
            operations.push(Operation {
                client: clients,
                key,
                request: Request::Get,
                invoked,
                returned,
                outcome,
            });
        }
        History { operations, refused: self.shared.failed.load(Ordering::Relaxed) }
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn key(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }
}

struct Worker {
    number: usize,
    address: String,
    shared: Arc<Shared>,
    rng: Rng,
    written: i64,
    /// The last number seen on a key: what a compare-and-set may expect.
    seen: BTreeMap<u64, i64>,
}

impl Worker {
    fn new(number: usize, address: String, shared: Arc<Shared>, seed: u64) -> Worker {
        let rng = Rng::new(seed.wrapping_mul(1_000).wrapping_add(number as u64));
        Worker { number, address, shared, rng, written: 0, seen: BTreeMap::new() }
    }

    fn work(mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut connection: Option<Client> = None;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let Some(client) = connection.as_mut() else {
                connection = Client::try_connect(&self.address).ok();
                if connection.is_none() {
                    std::thread::sleep(Duration::from_millis(5)); // the node is down
                }
                continue;
            };
            let place = self.shared.next.fetch_add(1, Ordering::Relaxed);
            let key = place / (OPERATIONS_PER_KEY * KEYS_AT_ONCE) * KEYS_AT_ONCE + place % KEYS_AT_ONCE;
            let request = self.choose(key);
            let words = request.words(&self.shared.key(key));
            let is_behind = request == Request::Get && self.rng.between(0, 1) == 0;
            let (invoked, answer) = if is_behind {
                self.ask_behind_a_write(client, &words)
            } else {
                (self.shared.now(), client.ask(&words))
            };
            let mut returned = self.shared.now();
            let is_broken = answer.is_err();
            let outcome = outcome_of(request, answer);
            match outcome {
                Some(Outcome::Told(told)) => {
                    self.shared.answered.fetch_add(1, Ordering::Relaxed);
                    if let (Request::Get | Request::Swap(_) | Request::Increment, Some(value)) =
                        (request, told)
                    {
                        self.seen.insert(key, value);
                    }
                }
                Some(Outcome::Unknown) => returned = u64::MAX,
                None => {}
            }
            if !matches!(outcome, Some(Outcome::Told(_))) {
                self.shared.failed.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(outcome) = outcome {
                operations.push(Operation { client: self.number, key, request, invoked, returned, outcome });
            }
            if is_broken {
                connection = None;
            }
        }
        operations
    }

    /// Asks behind a write to another key that is not answered, at once or some time later; when, and the answer.
    fn ask_behind_a_write(&mut self, client: &mut Client, words: &[String]) -> (u64, io::Result<Reply>) {
        let own = format!("{}own{}", self.shared.prefix, self.number);
        let write = client.send(&["SET", &own, &self.written.to_string()]);
        let later = Duration::from_micros(self.rng.between(0, 4) * 100);
        let sent = Instant::now();
        while sent.elapsed() < later {
            std::hint::spin_loop();
        }
        let invoked = self.shared.now();
        let both = write.and_then(|()| client.send(words)).and_then(|()| client.receive());
        (invoked, both.and_then(|_| client.receive()))
    }

    fn choose(&mut self, key: u64) -> Request {
        // Far apart, so that increments of one do not meet another.
        self.written += 1;
        let value =
            (i64::try_from(self.number).unwrap_or(0) + 1) * 1_000_000_000_000 + self.written * 100_000;
        match self.rng.between(0, 9) {
            0..=3 => Request::Get,
            4 => Request::Set(value),
            5 => Request::Swap(value),
            6 => Request::Create(value),
            7 => Request::Replace(self.seen.get(&key).copied().unwrap_or(0), value),
            8 => Request::Increment,
            _ => Request::Take,
        }
    }
}

/// How errors begin that say that nothing was done.
const NOT_DONE: &[&str] = &["CLUSTERDOWN", "TRYAGAIN", "MISCONF"];

/// `None`: certainly not done.
fn outcome_of(request: Request, answer: io::Result<Reply>) -> Option<Outcome> {
    match answer {
        Ok(Reply::Error(text)) if NOT_DONE.iter().any(|word| text.starts_with(word)) => None,
        Ok(Reply::Error(text)) if text.starts_with("UNCERTAIN") => Some(Outcome::Unknown),
        Ok(Reply::Nil) => Some(Outcome::Told(None)),
        Ok(reply) if reply.is_ok() => Some(Outcome::Told(Some(1))),
        Ok(reply) => match reply.integer() {
            Some(number) => Some(Outcome::Told(Some(number))),
            None => panic!("{request:?} was answered with {reply}"),
        },
        Err(_) => Some(Outcome::Unknown),
    }
}

impl History {
    /// Looks for an order of all operations that explains every answer. How many were answered, and how many are unknown.
    ///
    /// # Errors
    /// The operations of the first key for which there is none.
    pub fn check(&self) -> Result<(usize, usize), String> {
        let mut keys: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            let is_moot = operation.request == Request::Get && operation.outcome == Outcome::Unknown;
            if !is_moot {
                keys.entry(operation.key).or_default().push(operation);
            }
        }
        for (key, mut operations) in keys {
            operations.sort_by_key(|operation| operation.invoked);
            let spans: Vec<Span> = operations.iter().map(|operation| span(operation)).collect();
            let order = wgl::search(&spans, None, |held, index| {
                let (after, answer) = operations[index].request.step(*held);
                match operations[index].outcome {
                    Outcome::Told(told) if told != answer => None,
                    _ => Some(after),
                }
            });
            let lines = || operations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            match order {
                Order::Found => {}
                Order::None => return Err(format!("no order explains key {key}:\n{}", lines())),
                Order::TooManyStates => {
                    return Err(format!("key {key} has too many orders to try:\n{}", lines()));
                }
            }
        }
        let unknown =
            self.operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count();
        Ok((self.operations.len() - unknown, unknown))
    }

    /// [`check`](Self::check) for tests: says what there was, and panics when there is no explanation.
    ///
    /// # Panics
    /// When the history is not linearizable.
    pub fn must_be_linearizable(&self) {
        match self.check() {
            Ok((answered, unknown)) => {
                eprintln!(
                    "linearizable: {answered} answered, {unknown} unknown, {} without success",
                    self.refused
                );
                assert!(answered > 0, "the history is empty");
            }
            Err(broken) => panic!("not linearizable: {broken}"),
        }
    }
}

fn span(operation: &Operation) -> Span {
    Span {
        invoked: operation.invoked,
        returned: operation.returned,
        is_done: matches!(operation.outcome, Outcome::Told(_)),
    }
}

/// A client must wait longer than a node holds a request, or it would never hear that the outcome is unknown.
const _: () = assert!(PATIENCE.as_secs() >= 30);

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[(Request, u64, u64, Outcome)]) -> History {
        let operations = lines.iter().map(|(request, invoked, returned, outcome)| Operation {
            client: 0,
            key: 0,
            request: *request,
            invoked: *invoked,
            returned: *returned,
            outcome: *outcome,
        });
        History { operations: operations.collect(), refused: 0 }
    }

    fn told(value: i64) -> Outcome {
        Outcome::Told(Some(value))
    }

    const NIL: Outcome = Outcome::Told(None);

    #[test]
    fn a_stale_read_is_noticed() {
        let (set, swap) = ((Request::Set(5), 1, 2, told(1)), (Request::Swap(6), 3, 4, told(5)));
        assert!(history(&[set, swap, (Request::Get, 5, 6, told(6))]).check().is_ok());
        assert!(history(&[set, swap, (Request::Get, 5, 6, told(5))]).check().is_err());
        assert!(history(&[set, swap, (Request::Get, 3, 6, told(5))]).check().is_ok(), "they overlap");
    }

    #[test]
    fn a_lost_write_is_noticed() {
        let set = (Request::Set(5), 1, 2, told(1));
        assert!(history(&[set, (Request::Get, 9, 10, NIL)]).check().is_err());
        let unknown = (Request::Set(5), 1, u64::MAX, Outcome::Unknown);
        assert!(history(&[unknown, (Request::Get, 9, 10, NIL)]).check().is_ok());
        assert!(history(&[unknown, (Request::Get, 9, 10, told(5))]).check().is_ok());
    }

    #[test]
    fn a_write_that_ran_twice_is_noticed() {
        let once = (Request::Increment, 1, 2, told(1));
        assert!(history(&[once, (Request::Get, 3, 4, told(2))]).check().is_err());
        let unknown = (Request::Increment, 1, u64::MAX, Outcome::Unknown);
        assert!(history(&[once, unknown, (Request::Get, 3, 4, told(2))]).check().is_ok());
        assert!(history(&[once, unknown, (Request::Get, 3, 4, told(3))]).check().is_err());
    }

    #[test]
    fn two_cannot_win_the_same_compare_and_set() {
        let set = (Request::Set(5), 1, 2, told(1));
        let (first, second) =
            ((Request::Replace(5, 6), 3, 9, told(1)), (Request::Replace(5, 7), 4, 8, told(1)));
        assert!(history(&[set, first, second]).check().is_err());
        let lost = (Request::Replace(5, 7), 4, 8, NIL);
        assert!(history(&[set, first, lost]).check().is_ok());
        let both_took = [set, (Request::Take, 3, 4, told(5)), (Request::Take, 3, 5, told(5))];
        assert!(history(&both_took).check().is_err());
        assert!(
            history(&[(Request::Create(1), 1, 4, told(1)), (Request::Create(2), 2, 3, told(1))])
                .check()
                .is_err()
        );
    }
}
