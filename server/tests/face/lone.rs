//! A node without peers: what is submitted is decided at once, in order.

use bytes::Bytes;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use storage::machine::{Event, Interest, Machine, Stamp, View};
use storage::reply::Reply;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use warlock_server::{Answer, Change, Engine, Face, Facts, Settings, Ticket};

const PATIENCE: Duration = Duration::from_secs(60);

/// The engine: a machine and a clock.
pub struct Lone {
    machine: RefCell<Machine>,
    face: OnceCell<Rc<Face>>,
    /// Whether reads are answered on the spot, as on a master.
    pub is_master: Cell<bool>,
    /// Whether nothing is answered in time.
    pub is_cut_off: Cell<bool>,
    /// How old the state is said to be.
    pub age_ms: Cell<Option<u64>>,
    pub now_ms: Cell<u64>,
    /// Reads are answered on the spot only before this.
    pub lease_ms: Cell<u64>,
    /// The time when requests were begun to be taken, while they are.
    requests_ms: Cell<Option<u64>>,
    /// The log's time.
    log_ms: Cell<u64>,
    /// Whether nothing is answered for now.
    pub is_stalled: Cell<bool>,
    /// Turns that the node took.
    pub turns: Cell<usize>,
    wake: tokio::sync::Notify,
    waiting: RefCell<Vec<(Ticket, Option<Bytes>)>>,
}

impl Lone {
    fn decide(&self) {
        let face = self.face.get().unwrap();
        face.breathe();
        if self.is_stalled.get() {
            return;
        }
        self.turns.set(self.turns.get() + 1);
        let waiting = self.waiting.take();
        for (ticket, payload) in waiting {
            let answer = match payload {
                _ if self.is_cut_off.get() => Answer::NotDone,
                None => Answer::ReadNow,
                Some(payload) => {
                    let mut machine = self.machine.borrow_mut();
                    let slot = machine.applied() + 1;
                    let stamp = Stamp { slot, index: 0, at_ms: self.now_ms.get() };
                    let reply = machine.apply(&stamp, &payload);
                    machine.finish_slot(slot).unwrap();
                    self.log_ms.set(self.now_ms.get());
                    let mut changes = Vec::new();
                    for event in machine.take_events() {
                        let author = Some(ticket.connection);
                        match event {
                            Event::Published { channel, message } => face.publish(&channel, &message),
                            Event::Changed { key, .. } => changes.push(Change { key: Some(key), author }),
                            Event::Flushed { .. } => changes.push(Change { key: None, author }),
                            _ => {}
                        }
                    }
                    face.begin_turn(changes);
                    Answer::Ran(reply.to_bytes())
                }
            };
            face.answer(ticket, answer);
            face.end_turn();
        }
    }
}

impl Engine for Lone {
    fn begin_requests(&self) {
        self.requests_ms.set(Some(self.now_ms.get()));
    }

    fn end_requests(&self) {
        self.requests_ms.set(None);
    }

    fn read_now(&self, read: &mut dyn FnMut(&View<'_>)) -> bool {
        let now_ms = self.requests_ms.get().unwrap_or_else(|| self.now_ms.get());
        let may_read = self.is_master.get() && !self.is_cut_off.get() && now_ms < self.lease_ms.get();
        if may_read {
            self.read(read);
        }
        may_read
    }

    fn read(&self, read: &mut dyn FnMut(&View<'_>)) {
        read(&self.machine.borrow().view(self.log_ms.get()).with_clock(self.now_ms.get()));
    }

    fn age(&self) -> Option<Duration> {
        self.age_ms.get().map(Duration::from_millis)
    }

    fn read_later(&self, ticket: Ticket) {
        self.waiting.borrow_mut().push((ticket, None));
        self.wake.notify_one();
    }

    fn write(&self, payload: Bytes, ticket: Ticket) {
        self.waiting.borrow_mut().push((ticket, Some(payload)));
        self.wake.notify_one();
    }

    fn expire(&self, ticket: Ticket) {
        self.log_ms.set(self.now_ms.get());
        self.write(storage::commands::sweep(10), ticket);
    }

    fn closed(&self, _: u64) {}

    fn unblock(&self, _: u64, _: bool) -> bool {
        false
    }

    fn admin(&self, _: Vec<Bytes>, ticket: Ticket) {
        self.face.get().unwrap().answer(ticket, Answer::Reply(Reply::Ok));
    }

    fn nudge(&self) {
        self.wake.notify_one();
    }

    fn listen(&self, interest: Interest) {
        self.machine.borrow_mut().listen(interest);
    }

    fn facts(&self) -> Facts {
        Facts { role: "master", address: "127.0.0.1:6379".into(), ..Facts::default() }
    }
}

/// A served face.
pub struct Served {
    pub engine: Rc<Lone>,
    pub face: Rc<Face>,
    address: std::net::SocketAddr,
}

impl Served {
    pub async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        Client { stream: BufReader::new(stream) }
    }
}

/// Serves a face with `settings` for as long as `test` runs.
pub fn with_face<T: Future<Output = ()>>(settings: Settings, test: impl FnOnce(Served) -> T) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = Rc::new(Lone {
            machine: RefCell::default(),
            face: OnceCell::new(),
            is_master: Cell::new(true),
            is_stalled: Cell::new(false),
            is_cut_off: Cell::new(false),
            age_ms: Cell::new(None),
            now_ms: Cell::new(1_000_000),
            lease_ms: Cell::new(u64::MAX),
            requests_ms: Cell::new(None),
            log_ms: Cell::new(1_000_000),
            turns: Cell::new(0),
            wake: tokio::sync::Notify::new(),
            waiting: RefCell::default(),
        });
        let face = Face::new(engine.clone(), settings);
        let _ = engine.face.set(face.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(face.clone().listen(listener));
        let node = engine.clone();
        tokio::task::spawn_local(async move {
            loop {
                node.wake.notified().await;
                node.decide();
            }
        });
        tokio::time::timeout(PATIENCE, test(Served { engine, face, address }))
            .await
            .expect("the conversation ends");
    });
}

/// A client that shows replies as text: `+simple`, `-error`, `:1`, `"bulk"`, `nil`, `[array]`, `{map}`, `>[push]`.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Sends a request given as words.
    pub async fn send(&mut self, command: &str) {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        self.send_words(&words).await;
    }

    /// Sends the same request many times, in one write.
    pub async fn send_times(&mut self, command: &str, times: usize) {
        self.stream.get_mut().write_all(format!("{command}\r\n").repeat(times).as_bytes()).await.unwrap();
    }

    pub async fn send_words(&mut self, words: &[&[u8]]) {
        self.try_send_words(words).await.unwrap();
    }

    /// The same to a server that may have closed the connection.
    pub async fn try_send_words(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
        }
        self.stream.get_mut().write_all(&request).await
    }

    pub async fn ask(&mut self, command: &str) -> String {
        self.send(command).await;
        self.receive().await
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        assert!(line.ends_with("\r\n"), "the connection is closed after {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    async fn bytes(&mut self, length: &str) -> String {
        let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
        self.stream.read_exact(&mut bytes).await.unwrap();
        bytes.truncate(bytes.len() - 2);
        bytes.escape_ascii().to_string()
    }

    /// One reply as it came.
    pub async fn receive_raw(&mut self) -> Vec<u8> {
        let mut raw = Vec::new();
        let mut missing = 1;
        while missing > 0 {
            missing -= 1;
            let begin = raw.len();
            self.stream.read_until(b'\n', &mut raw).await.unwrap();
            assert!(raw.ends_with(b"\n"), "the connection is closed");
            let line = String::from_utf8_lossy(&raw[begin..]).trim_end().to_string();
            let count = line.get(1..).and_then(|rest| rest.parse::<usize>().ok());
            match (line.as_bytes()[0], count) {
                (b'$' | b'=', Some(length)) => {
                    let begin = raw.len();
                    raw.resize(begin + length + 2, 0);
                    self.stream.read_exact(&mut raw[begin..]).await.unwrap();
                }
                (b'*' | b'~' | b'>', Some(count)) => missing += count,
                (b'%', Some(count)) => missing += 2 * count,
                _ => {}
            }
        }
        raw
    }

    pub async fn receive(&mut self) -> String {
        let line = self.line().await;
        let (kind, rest) = line.split_at(1);
        match (kind, rest) {
            ("$" | "*", "-1") => format!("nil{}", if kind == "*" { "*" } else { "" }),
            ("_", _) => "nil3".into(),
            ("$", length) => format!("\"{}\"", self.bytes(length).await),
            ("=", length) => format!("={}", self.bytes(length).await),
            ("*" | "~" | ">" | "%", count) => {
                let count: usize = count.parse::<usize>().unwrap() * if kind == "%" { 2 } else { 1 };
                let mut parts = Vec::new();
                for _ in 0..count {
                    parts.push(Box::pin(self.receive()).await);
                }
                let parts = parts.join(" ");
                match kind {
                    "%" => format!("{{{parts}}}"),
                    "~" => format!("~[{parts}]"),
                    ">" => format!(">[{parts}]"),
                    _ => format!("[{parts}]"),
                }
            }
            _ => line,
        }
    }

    /// Whether the server closed the connection and sent nothing more.
    pub async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.is_err() || rest.is_empty()
    }

    /// A conversation: lines `request -> reply`. All requests are sent before the first reply is read.
    pub async fn talk(&mut self, script: &str) {
        let lines: Vec<(&str, &str)> = script
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.is_empty())
            .map(|line| line.split_once(" -> ").unwrap_or_else(|| panic!("no reply in {line:?}")))
            .collect();
        for (request, _) in &lines {
            self.send(request).await;
        }
        for (request, reply) in &lines {
            assert_eq!(self.receive().await, *reply, "{request}\nin {script}");
        }
    }
}
