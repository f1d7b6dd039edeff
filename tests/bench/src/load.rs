//! The one client: a closed loop on one thread over epoll, the same for every server.
//!
//! Each connection sends a batch of `pipeline` requests in one write, waits for all the answers, and sends the next. A latency is the time from the
//! batch's write to the read that brought the answer. What is counted lies inside one window; before it the servers warm up, after it nothing
//! new is sent, every answer is awaited and every lock given back, so that a run leaves nothing behind for the next.

use crate::processes::Usage;
use crate::wire::{self, Kind, Op, Protocol, Wire};
use rustix::event::epoll;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What the requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Makes keys 0.. once, and ends.
    Fill,
    /// Overwrites random keys; the number is the share of reads in percent.
    Mix(u8),
    /// Takes and gives back locks that nobody else wants.
    Lock,
    /// The same with commands that only Warlock has.
    Native,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the requests are.
    pub work: Work,
    /// How many connections.
    pub connections: usize,
    /// How many requests each sends at once.
    pub pipeline: usize,
    /// How long values are.
    pub value_bytes: usize,
    /// How many keys there are.
    pub keys: u64,
    /// How long nothing is counted.
    pub warm_up: Duration,
    /// How long everything is counted.
    pub window: Duration,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// Operations in the window; taking and giving back a lock is one.
    pub operations: u64,
    /// How long the window was.
    pub seconds: f64,
    /// Sorted, in microseconds.
    pub latencies: Vec<u32>,
    /// Processor time of the servers in the window.
    pub server_cpu: Duration,
    /// Processor time of this client in the window.
    pub client_cpu: Duration,
}

impl Count {
    /// Operations per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// The latency that `share` of the operations did not exceed, in microseconds.
    #[must_use]
    pub fn latency(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        self.latencies.get(place).map_or(f64::NAN, |micros| f64::from(*micros))
    }
}

struct Connection {
    stream: TcpStream,
    wire: Box<dyn Wire>,
    input: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
    written: usize,
    wants_write: bool,
    /// Answers that are still to come.
    missing: usize,
    sent_at: Instant,
    /// The batch in flight takes locks: the next gives them back.
    holds: bool,
    is_greeting: bool,
}

const READ_BYTES: usize = 16 << 10;
/// A server that says nothing for this long is stuck.
const SILENCE: Duration = Duration::from_secs(30);

struct Loop<'a> {
    plan: &'a Plan,
    value: Vec<u8>,
    random: u64,
    filled: u64,
    connections: Vec<Connection>,
    is_over: bool,
    is_counting: bool,
    count: Count,
}

/// Drives `server` by `plan`; `usage` is asked at both ends of the window.
///
/// # Errors
/// When the server cannot be reached, says no, or falls silent; or when `stopped` says so.
pub fn drive(
    protocol: Protocol,
    server: SocketAddr,
    plan: &Plan,
    usage: &Usage,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Count> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut this = Loop {
        plan,
        value: (0..plan.value_bytes).map(|n| b'a' + (n % 26) as u8).collect(),
        random: 0x2545_F491_4F6C_DD1D,
        filled: 0,
        connections: Vec::with_capacity(plan.connections),
        is_over: false,
        is_counting: false,
        count: Count::default(),
    };
    for place in 0..plan.connections {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(place as u64), epoll::EventFlags::IN)?;
        let mut wire = wire::new(protocol);
        let mut out = Vec::new();
        wire.hello(&mut out);
        let missing = wire.hello_answers();
        this.connections.push(Connection {
            stream,
            input: vec![0; READ_BYTES],
            filled: 0,
            out,
            written: 0,
            wants_write: false,
            missing,
            sent_at: Instant::now(),
            holds: false,
            is_greeting: missing > 0,
            wire,
        });
    }
    for place in 0..plan.connections {
        if !this.connections[place].is_greeting {
            this.next_batch(place);
        }
        this.write(place, &poll)?;
    }
    this.run(&poll, usage, stopped)?;
    for connection in &mut this.connections {
        let mut out = Vec::new();
        connection.wire.goodbye(&mut out);
        let _ = connection.stream.write_all(&out);
    }
    this.count.latencies.sort_unstable();
    Ok(this.count)
}

impl Loop<'_> {
    fn run(
        &mut self,
        poll: &rustix::fd::OwnedFd,
        usage: &Usage,
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        let is_fill = self.plan.work == Work::Fill;
        let (mut from, mut before) = (start, (usage.cpu(), own_cpu()));
        self.is_counting = is_fill;
        let mut heard_at = start;
        let mut events = Vec::with_capacity(1_024);
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        loop {
            events.clear();
            epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), Some(&pause)).or_else(
                |error| {
                    if error == rustix::io::Errno::INTR { Ok(0) } else { Err(error) }
                },
            )?;
            let now = Instant::now();
            if !is_fill && !self.is_counting && !self.is_over && now - start >= self.plan.warm_up {
                self.is_counting = true;
                (from, before) = (now, (usage.cpu(), own_cpu()));
            }
            let is_done = match is_fill {
                true => self.filled >= self.plan.keys,
                false => now - from >= self.plan.window,
            };
            if self.is_counting && is_done {
                self.is_counting = false;
                self.is_over = true;
                self.count.seconds = (now - from).as_secs_f64();
                self.count.server_cpu = usage.cpu().saturating_sub(before.0);
                self.count.client_cpu = own_cpu().saturating_sub(before.1);
            }
            for event in &events {
                let (place, flags) = (event.data.u64() as usize, event.flags);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.write(place, poll)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.read(place)?;
                    self.write(place, poll)?;
                }
            }
            if self.is_over && self.connections.iter().all(|connection| connection.missing == 0) {
                return Ok(());
            }
            if !events.is_empty() {
                heard_at = now;
            } else if now - heard_at > SILENCE {
                let silent = self.connections.iter().filter(|connection| connection.missing > 0).count();
                return Err(io::Error::other(format!("{silent} connections got no answer for {SILENCE:?}")));
            }
            if stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn read(&mut self, place: usize) -> io::Result<()> {
        let connection = &mut self.connections[place];
        loop {
            if connection.filled == connection.input.len() {
                connection.input.resize(connection.filled * 2, 0);
            }
            let room = connection.input.len() - connection.filled;
            let got = match connection.stream.read(&mut connection.input[connection.filled..]) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            connection.filled += got;
            let (used, answers) = connection
                .wire
                .take(&connection.input[..connection.filled], &mut connection.out)
                .map_err(io::Error::other)?;
            connection.input.copy_within(used..connection.filled, 0);
            connection.filled -= used;
            if answers > connection.missing {
                return Err(io::Error::other("more answers than questions"));
            }
            connection.missing -= answers;
            let is_operation = !connection.is_greeting && !connection.holds;
            if self.is_counting && is_operation && answers > 0 {
                let micros = u32::try_from(connection.sent_at.elapsed().as_micros()).unwrap_or(u32::MAX);
                self.count.operations += answers as u64;
                self.count.latencies.extend(std::iter::repeat_n(micros, answers));
            }
            if connection.missing == 0 && answers > 0 {
                connection.is_greeting = false;
                self.next_batch(place);
                return Ok(());
            }
            if got < room {
                return Ok(()); // the socket is empty for now
            }
        }
    }

    /// Appends the next batch, unless it is over.
    fn next_batch(&mut self, place: usize) {
        let Plan { work, pipeline, keys, .. } = *self.plan;
        let connection = &mut self.connections[place];
        let is_release = connection.holds;
        if self.is_over && !is_release {
            return;
        }
        connection.wire.begin();
        let mut sent = 0;
        for index in 0..pipeline {
            let (kind, key) = match work {
                Work::Fill if self.filled == keys => break,
                Work::Fill => {
                    self.filled += 1;
                    (Kind::Create, self.filled - 1)
                }
                Work::Lock | Work::Native => {
                    let kind = if is_release { Kind::Release } else { Kind::Acquire };
                    (kind, (place * pipeline + index) as u64)
                }
                Work::Mix(reads) => {
                    self.random ^= self.random << 13;
                    self.random ^= self.random >> 7;
                    self.random ^= self.random << 17;
                    let is_read = (self.random >> 40) % 100 < u64::from(reads);
                    (if is_read { Kind::Get } else { Kind::Set }, (self.random >> 8) % keys)
                }
            };
            connection.wire.put(&Op { kind, key, value: &self.value }, &mut connection.out);
            sent += 1;
        }
        connection.holds = matches!(work, Work::Lock | Work::Native) && !is_release;
        connection.missing = sent;
        // The latency of a lock counts from the first of its two requests.
        if !is_release {
            connection.sent_at = Instant::now();
        }
    }

    fn write(&mut self, place: usize, poll: &rustix::fd::OwnedFd) -> io::Result<()> {
        let connection = &mut self.connections[place];
        while connection.written < connection.out.len() {
            match connection.stream.write(&connection.out[connection.written..]) {
                Ok(wrote) => connection.written += wrote,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let wants_write = connection.written < connection.out.len();
        if !wants_write {
            connection.out.clear();
            connection.written = 0;
        }
        if wants_write != connection.wants_write {
            connection.wants_write = wants_write;
            let flags = epoll::EventFlags::IN
                | if wants_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            epoll::modify(poll, &connection.stream, epoll::EventData::new_u64(place as u64), flags)?;
        }
        Ok(())
    }
}

fn own_cpu() -> Duration {
    Usage::of([std::process::id()]).cpu()
}
