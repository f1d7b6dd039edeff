//! What clients do to the node: write every key, read at random, write again until the node is killed, and compare everything with what they were told.
//!
//! Keys are dealt out to the connections like cards. Connection c writes its keys in order, so two numbers tell all that it knows about its second writes: how many were
//! acknowledged, and how many were sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use warlock_harness::report::progress;
use warlock_harness::{Client, Reply};

const CONNECTIONS: u64 = 8;
const PIPELINE: usize = 32;
/// The bar moves after so many keys of the first connection.
const BAR_EVERY: usize = 64 * PIPELINE;

type Request = Vec<Vec<u8>>;

/// What is written where.
#[derive(Clone, Copy)]
pub struct Load {
    pub keys: u64,
    pub bytes: usize,
}

/// What one connection knows about its keys, by their place among them: those below `acknowledged` were written a second time; those below `sent` perhaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    acknowledged: usize,
    sent: usize,
}

/// The value of a key's first or second write: different for every key, and not to be compressed to nothing.
fn value(n: u64, round: u64, bytes: usize) -> Vec<u8> {
    let mut state = (n * 2 + round).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

fn get(n: u64) -> Request {
    vec![b"GET".to_vec(), key(n)]
}

fn set(n: u64, round: u64, bytes: usize) -> Request {
    vec![b"SET".to_vec(), key(n), value(n, round, bytes)]
}

/// Runs `work(connection)` on all connections at once: what each returned, and how long it took.
fn on_all<T: Send + 'static>(
    address: &str,
    work: impl Fn(&mut Client, u64) -> T + Send + Sync + 'static,
) -> (Vec<T>, Duration) {
    let (start, work) = (Instant::now(), Arc::new(work));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (work, address) = (work.clone(), address.to_string());
            thread::spawn(move || work(&mut Client::connect(&address), number))
        })
        .collect();
    let results = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panic!("a client failed")));
    (results.collect(), start.elapsed())
}

fn pipeline(client: &mut Client, requests: &[Request]) -> Vec<Reply> {
    client.pipeline(requests).unwrap_or_else(|error| panic!("the node does not answer: {error}"))
}

impl Load {
    fn keys_of(self, connection: u64) -> Vec<u64> {
        (connection..self.keys).step_by(CONNECTIONS as usize).collect()
    }

    /// Writes every key; how long that took.
    pub fn fill(self, address: &str, note: impl Fn() -> String + Send + Sync + 'static) -> Duration {
        let fill = move |client: &mut Client, number: u64| {
            let mine = self.keys_of(number);
            for (index, part) in mine.chunks(PIPELINE).enumerate() {
                let requests: Vec<_> = part.iter().map(|n| set(*n, 1, self.bytes)).collect();
                let replies = pipeline(client, &requests);
                if let Some(wrong) = replies.iter().find(|reply| !reply.is_ok()) {
                    panic!("a key was not written: {wrong}");
                }
                self.bar("write", number, index, mine.len(), &note);
            }
        };
        on_all(address, fill).1
    }

    /// Reads random keys for a while, one at a time per connection, and compares them: the latencies of all, sorted, in microseconds.
    pub fn read(
        self,
        address: &str,
        time: Duration,
        note: impl Fn() -> String + Send + Sync + 'static,
    ) -> Vec<u32> {
        let read = move |client: &mut Client, number: u64| {
            let (start, mut state, mut latencies) = (Instant::now(), number * 7_919 + 1, Vec::new());
            while start.elapsed() < time {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let n = (state >> 20) % self.keys;
                let asked = Instant::now();
                let reply = pipeline(client, &[get(n)]).pop();
                latencies.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                let is_right =
                    matches!(&reply, Some(Reply::Bulk(found)) if found[..] == value(n, 1, self.bytes));
                assert!(is_right, "key {n} is wrong: {:.100}", format!("{reply:?}"));
                if number == 0 && latencies.len() % 1_024 == 0 {
                    progress(
                        "read",
                        start.elapsed().as_secs() as usize,
                        time.as_secs() as usize + 1,
                        &note(),
                    );
                }
            }
            latencies
        };
        let (latencies, _) = on_all(address, read);
        let mut latencies = latencies.concat();
        latencies.sort_unstable();
        progress("read", 1, 1, "");
        latencies
    }

    /// Writes the keys a second time until the node is gone, and calls `kill` when `count` of them are acknowledged.
    pub fn write_again(self, address: &str, count: u64, kill: impl FnOnce()) -> Vec<Told> {
        let (acknowledged, is_killed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count_here, is_killed_here) = (acknowledged.clone(), is_killed.clone());
        let (enough, is_enough) = std::sync::mpsc::channel::<()>();
        let enough = Mutex::new(Some(enough));
        let write = move |client: &mut Client, number: u64| {
            let mut told = Told::default();
            for part in self.keys_of(number).chunks(PIPELINE) {
                let requests: Vec<_> = part.iter().map(|n| set(*n, 2, self.bytes)).collect();
                told.sent += part.len();
                // A pipeline that the end of the node cuts short counts as unanswered, although some of its answers may have come.
                let Ok(replies) = client.pipeline(&requests) else {
                    assert!(is_killed_here.load(Relaxed), "the node is gone, and nobody has killed it");
                    return told;
                };
                assert!(replies.iter().all(Reply::is_ok), "a key was not written: {replies:?}");
                told.acknowledged += part.len();
                if count_here.fetch_add(part.len() as u64, Relaxed) + part.len() as u64 >= count {
                    // Dropping it tells.
                    drop(enough.lock().unwrap_or_else(|_| panic!("a client failed")).take());
                }
            }
            told
        };
        let address = address.to_string();
        let clients = thread::spawn(move || on_all(&address, write).0);
        let _ = is_enough.recv();
        is_killed.store(true, Relaxed);
        kill();
        clients.join().unwrap_or_else(|_| panic!("a client failed"))
    }

    /// Compares every key with what its client was told, and says how many second writes were acknowledged.
    pub fn check(
        self,
        address: &str,
        told: &[Told],
        note: impl Fn() -> String + Send + Sync + 'static,
    ) -> usize {
        let acknowledged = told.iter().map(|told| told.acknowledged).sum();
        let told = told.to_vec();
        let check = move |client: &mut Client, number: u64| {
            let (mine, told) = (self.keys_of(number), told[number as usize]);
            for (index, part) in mine.chunks(PIPELINE).enumerate() {
                let requests: Vec<_> = part.iter().map(|n| get(*n)).collect();
                for (offset, (n, reply)) in part.iter().zip(pipeline(client, &requests)).enumerate() {
                    let place = index * PIPELINE + offset;
                    let may_be_first = place >= told.acknowledged;
                    let may_be_second = place < told.sent;
                    let is_right = matches!(&reply, Reply::Bulk(found)
                        if may_be_first && found[..] == value(*n, 1, self.bytes)
                        || may_be_second && found[..] == value(*n, 2, self.bytes));
                    assert!(
                        is_right,
                        "key {n} is not what was acknowledged before kill -9: {:.100}",
                        format!("{reply:?}")
                    );
                }
                self.bar("check", number, index, mine.len(), &note);
            }
        };
        let _ = on_all(address, check);
        acknowledged
    }

    /// The first connection moves the bar for all: they go on at about the same pace.
    fn bar(self, what: &str, connection: u64, index: usize, mine: usize, note: &impl Fn() -> String) {
        let done = ((index + 1) * PIPELINE).min(mine);
        if connection == 0 && (done.is_multiple_of(BAR_EVERY) || done == mine) {
            let keys = self.keys as usize;
            progress(what, if done == mine { keys } else { done * CONNECTIONS as usize }, keys, &note());
        }
    }
}
