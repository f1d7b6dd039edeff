//! A load with a pace of its own: requests leave when they are due, whether or not earlier ones are answered, and latency counts from when a request was due.
//! So a cluster that stands still for a second shows it in every request of that second.

use crate::mixed::{self, Expected};
use sim::rng::Rng;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warlock_harness::client::{Client, Reply, encode};

/// What one connection found out.
#[derive(Default)]
struct Findings {
    latencies_us: Mutex<Vec<u32>>,
    refused: AtomicU64,
    /// What was wrong and cannot go on.
    wrong: Mutex<Option<String>>,
}

/// Connections at work.
pub struct Paced {
    findings: Vec<Arc<Findings>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Paced {
    /// Sends `rate` requests a second, spread over `per_node` connections to each address.
    pub fn start(addresses: &[String], per_node: usize, rate: u32, seed: u64) -> Paced {
        let mut paced = Paced { findings: Vec::new(), threads: Vec::new(), stop: Arc::default() };
        let count = u32::try_from(addresses.len() * per_node).unwrap_or(1).max(1);
        let (start, between) = (Instant::now(), Duration::from_secs(1) * count / rate.max(1));
        for (index, address) in (0..count).zip(addresses.iter().cycle()) {
            let (findings, stop) = (Arc::new(Findings::default()), paced.stop.clone());
            paced.findings.push(findings.clone());
            let mut client = Client::connect(address);
            let stream = client.raw().try_clone();
            let stream = stream.unwrap_or_else(|error| panic!("cannot share a socket: {error}"));
            let (asked, to_answer) = channel();
            let (first, seed) = (start + between * index / count, seed.wrapping_add(index.into()));
            paced.threads.push(std::thread::spawn(move || {
                send(stream, (first, between), seed, &format!("counter:{index}"), &asked, &stop);
            }));
            paced.threads.push(std::thread::spawn(move || receive(&mut client, &to_answer, &findings)));
        }
        paced
    }

    /// The latencies of all answers since the last call, in microseconds, sorted.
    pub fn take_latencies(&self) -> Vec<u32> {
        let take = |findings: &Arc<Findings>| std::mem::take(&mut *locked(&findings.latencies_us));
        let mut all: Vec<u32> = self.findings.iter().flat_map(take).collect();
        all.sort_unstable();
        all
    }

    /// Requests that were answered with an error so far.
    pub fn refused(&self) -> u64 {
        self.findings.iter().map(|findings| findings.refused.load(Relaxed)).sum()
    }

    /// What was wrong so far.
    pub fn wrong(&self) -> Vec<String> {
        self.findings.iter().filter_map(|findings| locked(&findings.wrong).clone()).collect()
    }

    /// Sends no more, and waits for the answers that are still to come; what was wrong.
    pub fn finish(mut self) -> Vec<String> {
        self.stop.store(true, Relaxed);
        let panicked = self.threads.drain(..).filter_map(|thread| thread.join().err()).count();
        let mut wrong = self.wrong();
        if panicked > 0 {
            wrong.push(format!("{panicked} threads of the load panicked"));
        }
        wrong
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(
    mut stream: TcpStream,
    (first, between): (Instant, Duration),
    seed: u64,
    counter: &str,
    asked: &Sender<(Instant, Expected)>,
    stop: &AtomicBool,
) {
    let (mut rng, mut due, mut bytes) = (Rng::new(seed), first, Vec::new());
    while !stop.load(Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let (words, expected) = mixed::request(&mut rng, counter);
        bytes.clear();
        encode(&words, &mut bytes);
        // Who takes the answers says what went wrong with the connection.
        if asked.send((due, expected)).is_err() || stream.write_all(&bytes).is_err() {
            return;
        }
        due += between;
    }
}

fn receive(client: &mut Client, asked: &Receiver<(Instant, Expected)>, findings: &Findings) {
    // The last count, and increments since then of which nobody knows whether they were done.
    let (mut count, mut uncertain) = (0, 0);
    for (due, expected) in asked {
        let problem = match (client.receive(), expected) {
            (Err(error), _) => Some(format!("an answer did not come: {error}")),
            (Ok(Reply::Error(error)), _) => {
                findings.refused.fetch_add(1, Relaxed);
                uncertain += i64::from(expected == Expected::OneMore && error.starts_with("UNCERTAIN"));
                None
            }
            (Ok(reply), Expected::OneMore) => {
                let value = reply.integer().unwrap_or(0);
                let is_right = (count + 1..=count + 1 + uncertain).contains(&value);
                let problem =
                    (!is_right).then(|| format!("an increment of {count} was answered with {reply}"));
                (count, uncertain) = (value, 0);
                problem
            }
            (Ok(_), Expected::NoError) => None,
        };
        if problem.is_some() {
            *locked(&findings.wrong) = problem;
            return;
        }
        locked(&findings.latencies_us).push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
}
