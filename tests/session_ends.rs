//! Sessions end exactly once, also when the master changes at that moment: with real processes, round after round.
//!
//! In every round some sessions run out, some are closed through two other nodes at once, and one lives on; each has locks with two waiters in line, and
//! a key. Around the moment at which the time of the first is over the master is killed, stopped, told to hand over, or told to go. Then, on every node that
//! can still tell, the story of every lock must be the same and whole: taken, ended with its session, taken and given back by the first in line, by the second.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, Reply, wait_for};
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const ROUNDS: usize = 12;
/// Of the sessions that run out. Long enough to prepare the next step of a round on a busy machine.
const TTL: Duration = Duration::from_millis(1_000);
/// How much earlier than this process counts it a time may be over: clocks drift, and a new master continues the clock of the one before to within 10 ms.
const SLACK: Duration = Duration::from_millis(25);

/// What happens to the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    HandsOver,
    Stopped,
    ToldToGo,
}

/// How a session is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    RunsOut,
    Closed,
    LivesOn,
}

struct Session {
    id: String,
    ends: Ends,
    /// It lives from here on for at least [`TTL`], if it runs out.
    since: Instant,
    key: String,
    /// With their tokens.
    locks: Vec<(String, i64)>,
}

fn token(reply: &Reply) -> i64 {
    reply.items().first().and_then(Reply::integer).unwrap_or_else(|| panic!("no grant: {reply}"))
}

/// Opens a session with a key and two locks. One has no time of its own, the other one a long one and a delay.
fn open(client: &mut Client, name: &str, ends: Ends) -> Session {
    let ttl = if ends == Ends::RunsOut { TTL.as_millis().to_string() } else { "600000".into() };
    let since = Instant::now();
    let opened = client.must(&["SESSION.OPEN", &ttl, "NAME", name]);
    let id = opened.integer().unwrap_or_else(|| panic!("no session: {opened}")).to_string();
    let key = format!("{name}:key");
    assert!(client.must(&["SET", &key, "v", "SESSION", &id]).is_ok());
    let (plain, delayed) = (format!("{name}:plain"), format!("{name}:delayed"));
    let asks = [
        vec!["LOCK.ACQUIRE", &plain, name, "0", "SESSION", &id],
        vec!["LOCK.ACQUIRE", &delayed, name, "600000", "DELAY", "50", "SESSION", &id],
    ];
    let locks = asks.iter().map(|ask| (ask[1].to_string(), token(&client.must(ask)))).collect();
    Session { id, ends, since, key, locks }
}

/// Lets those that are to run out live on from now.
fn beat(client: &mut Client, sessions: &mut [Session]) {
    for session in sessions.iter_mut().filter(|session| session.ends == Ends::RunsOut) {
        let since = Instant::now();
        let left = client.must(&["SESSION.ALIVE", &session.id]);
        assert_eq!(left.integer(), Some(TTL.as_millis() as i64), "a session ended early: {left}");
        session.since = since;
    }
}

/// A message: when, on which channel, what.
type Told = (Instant, String, String);

/// Listens to what a node tells about locks whose names begin so, until it tells that the round is over.
fn listen(cluster: &Cluster, node: u16, round: &str) -> JoinHandle<Vec<Told>> {
    let mut client = cluster.client(node);
    client.must(&["PSUBSCRIBE", &format!("__lock__:{round}:*")]);
    let last = format!("{round}:over");
    std::thread::spawn(move || {
        let mut told = Vec::new();
        loop {
            let message = client.receive().unwrap_or_else(|error| panic!("n{node} tells nothing: {error}"));
            let [_, _, channel, text] = message.items() else { panic!("no message: {message}") };
            let channel = channel.text().unwrap().trim_start_matches("__lock__:").to_string();
            if channel == last {
                return told;
            }
            told.push((Instant::now(), channel, text.text().unwrap()));
        }
    })
}

/// Puts one more waiter into the line of every lock that somebody waits to lose.
fn line_up(cluster: &Cluster, node: u16, round: &str, sessions: &mut [Session], place: usize) -> Vec<Client> {
    let mut waiters = Vec::new();
    let mut look = cluster.client(node);
    let ending = |session: &&Session| session.ends != Ends::LivesOn;
    let locks: Vec<String> = sessions
        .iter()
        .filter(ending)
        .flat_map(|session| &session.locks)
        .map(|lock| lock.0.clone())
        .collect();
    for lock in &locks {
        let mut waiter = cluster.client(node);
        let owner = format!("waiter{place}");
        waiter.send(&["LOCK.ACQUIRE", lock, &owner, "600000", "WAIT", "600000"]).unwrap();
        waiters.push(waiter);
        beat(&mut look, sessions);
    }
    wait_for(&format!("waiter {place} in {} lines", locks.len()), || {
        beat(&mut look, sessions);
        let list = look.must(&["LOCK.LIST", "MATCH", &format!("{round}:*"), "WAITED"]);
        let is_there = |lock: &&Reply| lock.field("waiters").and_then(Reply::integer) == Some(place as i64);
        (list.items().iter().filter(is_there).count() == locks.len()).then_some(())
    });
    waiters
}

/// Two nodes are asked at once to close a session: one of them closed it.
fn check_closed(closers: &mut [Client], sessions: &[Session]) {
    for session in sessions.iter().filter(|session| session.ends == Ends::Closed) {
        let answers: Vec<Reply> = closers.iter_mut().map(|closer| closer.receive().unwrap()).collect();
        let closed: Option<i64> = answers.iter().map(Reply::integer).sum();
        assert_eq!(closed, Some(1), "session {} was closed by {answers:?}", session.id);
    }
}

/// Those in line get the lock, one after the other, each once and with a token of its own. The tokens.
fn pass_on(look: &mut Client, lock: &(String, i64), line: [&mut Client; 2]) -> Vec<i64> {
    let (key, first) = lock;
    let mut tokens = vec![*first];
    for waiter in line {
        let granted = token(&waiter.receive().unwrap_or_else(|error| panic!("{key}: {error}")));
        assert!(granted > tokens[tokens.len() - 1], "{key}: token {granted} after {tokens:?}");
        if tokens.len() == 1 {
            let info = look.must(&["LOCK.INFO", key]);
            let last = info.field("last").unwrap();
            assert_eq!(last.field("how").and_then(Reply::text).as_deref(), Some("session"), "{key}: {info}");
            assert_eq!(last.field("token").and_then(Reply::integer), Some(*first), "{key}: {info}");
        }
        // A second grant would be read here as the answer to PING.
        assert_eq!(waiter.must(&["PING"]), Reply::Simple("PONG".into()), "{key}");
        assert_eq!(waiter.must(&["LOCK.RELEASE", key, &granted.to_string()]), Reply::Integer(0), "{key}");
        tokens.push(granted);
    }
    tokens
}

/// What a node told of a lock is all that happened to it, each thing once and in order.
fn check_told(node: u16, told: &[Told], session: &Session, key: &str, tokens: &[i64]) {
    let mut expected = vec![format!("acquired {}", tokens[0]), format!("session {}", tokens[0])];
    expected.extend(tokens[1..].iter().flat_map(|t| [format!("acquired {t}"), format!("released {t}")]));
    let of_lock: Vec<&Told> = told.iter().filter(|(_, channel, _)| channel == key).collect();
    let texts: Vec<&str> = of_lock.iter().map(|(.., text)| text.as_str()).collect();
    assert_eq!(texts, expected, "what n{node} told of {key}");
    let lived = of_lock[1].0.saturating_duration_since(session.since);
    assert!(
        session.ends != Ends::RunsOut || lived + SLACK >= TTL,
        "n{node}: {key}: the session ended after {lived:?} instead of {TTL:?}"
    );
}

fn hit(cluster: &mut Cluster, fault: Fault, master: u16, look: &mut Client) {
    match fault {
        Fault::Killed => cluster.kill(master),
        Fault::Stopped => cluster.stop(master),
        Fault::ToldToGo => assert!(cluster.terminate(master).success()),
        Fault::HandsOver => {
            let answer = look.must(&["WARLOCK", "TRANSFER-MASTER"]);
            assert!(answer.error().is_none(), "{answer}");
        }
    }
}

fn heal(cluster: &mut Cluster, fault: Fault, master: u16) {
    match fault {
        Fault::Killed | Fault::ToldToGo => cluster.run(master),
        Fault::Stopped => cluster.cont(master),
        Fault::HandsOver => {}
    }
    cluster.wait_for_master();
}

fn play(cluster: &mut Cluster, number: usize, fault: Fault, early_ms: u64, late_ms: u64) {
    let round = format!("r{number}");
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let ends_here = matches!(fault, Fault::Killed | Fault::ToldToGo);
    let listened: Vec<u16> = if ends_here { others.clone() } else { cluster.all() };
    let listeners: Vec<_> = listened.iter().map(|node| (*node, listen(cluster, *node, &round))).collect();

    let mut look = cluster.client(others[0]);
    let mut sessions: Vec<Session> = Vec::new();
    for (index, ends) in
        [Ends::LivesOn, Ends::Closed, Ends::Closed, Ends::RunsOut, Ends::RunsOut, Ends::RunsOut]
            .into_iter()
            .enumerate()
    {
        // Opened at the master itself and at others.
        let mut client = cluster.client(if index % 2 == 0 { master } else { others[0] });
        sessions.push(open(&mut client, &format!("{round}:s{index}"), ends));
        beat(&mut look, &mut sessions);
    }
    let mut first = line_up(cluster, others[0], &round, &mut sessions, 1);
    let mut second = line_up(cluster, others[1], &round, &mut sessions, 2);
    let mut closers = [cluster.client(others[0]), cluster.client(others[1])];
    let close_all = |closers: &mut [Client], sessions: &[Session]| {
        for session in sessions.iter().filter(|session| session.ends == Ends::Closed) {
            closers.iter_mut().for_each(|closer| closer.send(&["SESSION.CLOSE", &session.id]).unwrap());
        }
    };
    beat(&mut look, &mut sessions);

    // A moment, not an event: the fault comes so much before or after the time is over.
    let over_at = sessions.iter().map(|session| session.since).max().unwrap() + TTL;
    let fault_at = over_at + Duration::from_millis(late_ms) - Duration::from_millis(early_ms);
    std::thread::sleep(fault_at.saturating_duration_since(Instant::now()));
    if number.is_multiple_of(2) {
        close_all(&mut closers, &sessions);
    }
    hit(cluster, fault, master, &mut look);
    if number % 2 == 1 {
        close_all(&mut closers, &sessions);
    }

    let mut lines = first.iter_mut().zip(&mut second);
    let mut tokens: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for session in &sessions {
        for lock in &session.locks {
            let line = if session.ends == Ends::LivesOn { None } else { lines.next() };
            let passed = line.map_or(vec![lock.1], |(one, two)| pass_on(&mut look, lock, [one, two]));
            tokens.insert(&lock.0, passed);
        }
    }
    check_closed(&mut closers, &sessions);
    heal(cluster, fault, master);
    for session in &sessions {
        let lives_on = session.ends == Ends::LivesOn;
        for node in cluster.all() {
            let left = cluster.client(node).must(&["EXISTS", &session.key]);
            assert_eq!(
                left,
                Reply::Integer(i64::from(lives_on)),
                "n{node}: {} ({:?})",
                session.key,
                session.ends
            );
        }
        for (lock, token) in session.locks.iter().filter(|_| lives_on) {
            assert_eq!(look.must(&["LOCK.CHECK", lock, &token.to_string()]), Reply::Integer(1), "{lock}");
        }
        let closed = look.must(&["SESSION.CLOSE", &session.id]);
        assert_eq!(closed, Reply::Integer(i64::from(lives_on)), "{}", session.id);
        let ended = look.must(&["SESSION.ALIVE", &session.id]);
        assert!(ended.is_error("NOSESSION"), "{}: {ended}", session.id);
    }
    look.must(&["PUBLISH", &format!("__lock__:{round}:over"), "over"]);
    for (node, listener) in listeners {
        let told = listener.join().expect("the listener says why");
        for session in &sessions {
            for (lock, _) in &session.locks {
                check_told(node, &told, session, lock, &tokens[lock.as_str()]);
            }
        }
    }
}

#[test]
fn sessions_end_once_while_masters_come_and_go() {
    let mut cluster = Cluster::with(Options { lease_ms: Some(600), ..Options::new(WARLOCK, 3) });
    let faults = [Fault::Killed, Fault::HandsOver, Fault::Stopped, Fault::ToldToGo];
    for number in 0..ROUNDS {
        let fault = faults[number % faults.len()];
        // The master looks every 50 ms for what is over: before that moment, in it, and just after it.
        let (early_ms, late_ms) = [(40, 0), (0, 5), (0, 45)][number / faults.len() % 3];
        let start = Instant::now();
        play(&mut cluster, number, fault, early_ms, late_ms);
        eprintln!("round {number}: {fault:?}, -{early_ms} +{late_ms} ms: {:?}", start.elapsed());
        cluster.wait_for_agreement();
    }
}
