//! Clients that do not read their replies: what waits for them has a bound, whatever they asked for, and nothing is lost.

use crate::lone::{Client, Served, with_face};
use warlock_server::{Engine, Settings};

const LIMIT: usize = 1 << 20;
const VALUE: usize = 300_000;
const REQUESTS: usize = 100;

/// What waits for the client of that name, in bytes.
async fn waiting_for(watcher: &mut Client, name: &str) -> usize {
    let list = watcher.ask("CLIENT LIST").await;
    let line = list.split("\\n").find(|line| line.contains(&format!(" name={name} "))).unwrap();
    let bytes = line.split(' ').find_map(|field| field.strip_prefix("omem=")).unwrap();
    bytes.parse().unwrap()
}

/// Sends requests many times and reads nothing until much waits; at no moment more than `bytes_max` do. Then the last reply each time is, or has,
/// the value.
async fn ask_and_do_not_read(served: &Served, requests: &[&[&[u8]]], bytes_max: usize) {
    let (mut lazy, mut watcher) = (served.client().await, served.client().await);
    lazy.talk("CLIENT SETNAME lazy -> +OK").await;
    for _ in 0..REQUESTS {
        for request in requests {
            lazy.send_words(request).await;
        }
    }
    let (mut most, mut rounds) = (0, 0);
    while rounds < 100 {
        // A turn of the node in each round.
        assert_eq!(watcher.ask("SET other 1").await, "+OK");
        let waiting = waiting_for(&mut watcher, "lazy").await;
        most = most.max(waiting);
        assert!(waiting <= bytes_max, "{waiting} bytes wait for a client that does not read");
        rounds += usize::from(most >= LIMIT / 2);
    }
    for at in 0..REQUESTS {
        for _ in 1..requests.len() {
            assert!(lazy.receive_raw().await.starts_with(b"+"));
        }
        let reply = lazy.receive_raw().await;
        let value = reply.strip_suffix(b"\r\n").unwrap_or_default();
        assert!(value.ends_with(&[b'x'; VALUE]), "reply {at} of {REQUESTS} is another");
    }
    lazy.talk("PING -> +PONG").await;
}

#[test]
fn who_does_not_read_has_only_so_much_waiting_whatever_was_asked() {
    let value = vec![b'x'; VALUE];
    let script = b"return redis.call('get', 'big')";
    let reads: [&[&[&[u8]]]; 2] = [&[&[b"GET", b"big"]], &[&[b"EVAL_RO", script, b"0"]]];
    let writes: [&[&[&[u8]]]; 4] = [
        &[&[b"EVAL", script, b"0"]],
        &[&[b"GETEX", b"big", b"PX", b"100000"]],
        &[&[b"LMOVE", b"list", b"list", b"LEFT", b"RIGHT"]],
        &[&[b"MULTI"], &[b"GET", b"big"], &[b"EXEC"]],
    ];
    with_face(Settings { output_bytes_max: LIMIT, ..Settings::default() }, async |served| {
        let mut client = served.client().await;
        client.send_words(&[b"SET", b"big", &value]).await;
        assert_eq!(client.receive().await, "+OK");
        client.send_words(&[b"RPUSH", b"list", &value]).await;
        assert_eq!(client.receive().await, ":1");
        for is_master in [true, false] {
            served.engine.is_master.set(is_master);
            for read in reads {
                ask_and_do_not_read(&served, read, LIMIT + VALUE + 100).await;
            }
            for write in writes {
                // Those that were sent before the first reply told how large they are.
                ask_and_do_not_read(&served, write, LIMIT + 32 * (VALUE + 100)).await;
            }
        }
    });
}

#[test]
fn reads_that_wait_for_room_stay_in_order_with_what_comes_behind_them() {
    with_face(Settings { output_bytes_max: LIMIT, ..Settings::default() }, async |served| {
        served.engine.is_master.set(false);
        let mut client = served.client().await;
        let value = vec![b'x'; VALUE];
        let bulk = format!("\"{}\"", "x".repeat(VALUE));
        client.send_words(&[b"SET", b"big", &value]).await;
        assert_eq!(client.receive().await, "+OK");
        for round in 0..20 {
            for _ in 0..10 {
                client.send("GET big").await;
            }
            client.send(&format!("SET n {round}")).await;
            client.send("GET n").await;
            client.send("PING").await;
        }
        for round in 0..20 {
            for _ in 0..10 {
                assert!(client.receive().await == bulk);
            }
            assert_eq!(client.receive().await, "+OK");
            assert_eq!(client.receive().await, format!("\"{round}\""));
            assert_eq!(client.receive().await, "+PONG");
        }
        // The same for a client that sends its last requests and ends its side.
        for _ in 0..10 {
            client.send("GET big").await;
        }
        client.send("QUIT").await;
        for _ in 0..10 {
            assert!(client.receive().await == bulk);
        }
        assert_eq!(client.receive().await, "+OK");
        assert!(client.is_closed().await);
    });
}

#[test]
fn a_transaction_of_the_connections_own_commands_has_a_bound_too() {
    with_face(Settings { output_bytes_max: LIMIT, ..Settings::default() }, async |served| {
        let mut client = served.client().await;
        client.talk("MULTI -> +OK").await;
        for _ in 0..1_000 {
            client.send("COMMAND DOCS").await;
        }
        client.send("SELECT 3").await;
        client.send("EXEC").await;
        for _ in 0..1_001 {
            assert_eq!(client.receive().await, "+QUEUED");
        }
        let replies = client.receive_raw().await;
        assert!(replies.starts_with(b"*1001\r\n") && replies.len() < 2 * LIMIT, "{} bytes", replies.len());
        // It says so, and is done all the same.
        assert!(replies.ends_with(b"more than client-output-buffer-limit\r\n"));
        assert!(client.ask("CLIENT INFO").await.contains(" db=3 "));
    });
}

/// A connection of another node than the master, whose first request has no answer yet; behind it wait `bytes` that do not need one.
async fn stalled(served: &Served, first: &[&[u8]], bytes: usize) -> Client {
    let (mut client, mut watcher) = (served.client().await, served.client().await);
    for command in ["CLIENT SETNAME stalled", "HELLO 3", "SUBSCRIBE news"] {
        client.ask(command).await;
    }
    served.engine.is_master.set(false);
    served.engine.is_stalled.set(true);
    client.send_words(first).await;
    client.send_words(&[b"ECHO", &vec![b'x'; bytes]]).await;
    while waiting_for(&mut watcher, "stalled").await < bytes {}
    client
}

#[test]
fn what_is_pushed_behind_a_reply_that_waits_does_not_stop_the_node() {
    with_face(Settings::default(), async |served| {
        let mut client = stalled(&served, &[b"SET", b"key", b"value"], 100_000).await;
        served.face.publish(&"news".into(), &"message".into());
        assert_eq!(served.client().await.ask("PING").await, "+PONG");
        served.engine.is_stalled.set(false);
        served.engine.nudge();
        assert!(client.receive_raw().await.starts_with(b"+OK"));
        assert!(client.receive_raw().await.starts_with(b"$100000"));
        assert!(client.receive_raw().await.starts_with(b">3"));
    });
}

#[test]
fn a_read_in_front_of_all_that_waits_is_done_however_much_that_is() {
    let settings = Settings { output_bytes_max: LIMIT, ..Settings::default() };
    with_face(settings, async |served| {
        let mut client = stalled(&served, &[b"GET", b"key"], LIMIT + 1).await;
        served.engine.is_stalled.set(false);
        served.engine.nudge();
        assert!(client.receive_raw().await.starts_with(b"_"));
        assert!(client.receive_raw().await.starts_with(b"$"));
    });
}
