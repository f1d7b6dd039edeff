//! redis-rs: plain, RESP2 and RESP3, pipelines, WATCH, pub/sub, scripts; locks by IFEQ, DELEX and a script, through the death of a node.

use super::cluster;
use harness::{Cluster, wait_for};
use redis::{Client, Commands, Connection, ExistenceCheck, Script, SetExpiry, SetOptions, ValueComparison};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

/// Nothing here may run out by itself.
const TTL: SetExpiry = SetExpiry::EX(300);
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

fn connect(cluster: &Cluster, node: u16, protocol: &str) -> Connection {
    let client =
        Client::open(format!("redis://127.0.0.1:{}/?protocol={protocol}", cluster.port(node))).unwrap();
    let connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    connection
}

#[test]
fn commands() {
    let (cluster, _, nodes) = cluster();
    for protocol in ["resp2", "resp3"] {
        let (mut one, mut two) =
            (connect(&cluster, nodes[0], protocol), connect(&cluster, nodes[1], protocol));
        let () = redis::cmd("FLUSHALL").query(&mut one).unwrap();
        assert_eq!(one.set::<_, _, String>("a", 1).unwrap(), "OK");
        assert_eq!(two.get::<_, i64>("a").unwrap(), 1);
        let () = one.hset_multiple("h", &[("f", 1), ("g", 2)]).unwrap();
        let mut fields: Vec<(String, i64)> = two.hgetall("h").unwrap();
        fields.sort();
        assert_eq!(fields, [("f".to_owned(), 1), ("g".to_owned(), 2)]);
        let plain: (i64, i64) = redis::pipe().incr("n", 1).incr("n", 1).query(&mut one).unwrap();
        let atomic: (i64, i64) = redis::pipe().atomic().incr("n", 1).get("n").query(&mut one).unwrap();
        assert_eq!((plain, atomic), ((1, 2), (3, 3)));
        assert_eq!(two.rpush::<_, _, i64>("l", &["x", "y"]).unwrap(), 2);
        assert_eq!(one.blpop::<_, (String, String)>("l", 1.0).unwrap(), ("l".to_owned(), "x".to_owned()));
        // The first attempt is undone by a write through the other node.
        let mut attempts = 0;
        let (sum,): (i64,) = redis::transaction(&mut one, &["n"], |connection, pipe| {
            attempts += 1;
            let seen: i64 = connection.get("n")?;
            if attempts == 1 {
                let () = two.set("n", 10)?;
            }
            pipe.set("n", seen + 1).ignore().get("n").query(connection)
        })
        .unwrap();
        assert_eq!((sum, attempts), (11, 2));
        let mut listening = connect(&cluster, nodes[0], protocol);
        let mut listener = listening.as_pubsub();
        listener.subscribe("c").unwrap();
        let _receivers: i64 = two.publish("c", "hello").unwrap();
        assert_eq!(listener.get_message().unwrap().get_payload::<String>().unwrap(), "hello");
        let script = Script::new("return redis.call('incrby', KEYS[1], ARGV[1])");
        assert_eq!(script.key("sum").arg(2).invoke::<i64>(&mut one).unwrap(), 2);
        let by_hash: i64 =
            redis::cmd("EVALSHA").arg(script.get_hash()).arg(1).arg("sum").arg(3).query(&mut two).unwrap();
        assert_eq!(by_hash, 5);
        assert!(one.lpush::<_, _, i64>("a", 1).unwrap_err().to_string().contains("WRONGTYPE"));
    }
}

fn take(connection: &mut Connection, key: &str, owner: &str) -> bool {
    let options = SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(TTL);
    connection.set_options::<_, _, Option<String>>(key, owner, options).unwrap().is_some()
}

fn extend(connection: &mut Connection, key: &str, owner: &str) -> bool {
    let options = SetOptions::default().value_comparison(ValueComparison::ifeq(owner)).with_expiration(TTL);
    connection.set_options::<_, _, Option<String>>(key, owner, options).unwrap().is_some()
}

/// By DELEX, or by the script that everybody has.
fn release(connection: &mut Connection, key: &str, owner: &str, by_script: bool) -> bool {
    if by_script {
        Script::new(COMPARE_AND_DELETE).key(key).arg(owner).invoke::<i64>(connection).unwrap() == 1
    } else {
        connection.del_ex::<_, i64>(key, ValueComparison::ifeq(owner)).unwrap() == 1
    }
}

/// One holds a lock, another waits for it, and two more count below a second lock, when the master dies.
#[test]
fn locks() {
    let (mut cluster, victim, nodes) = cluster();
    for (protocol, by_script) in [("resp2", false), ("resp3", true)] {
        let (mut one, mut two) =
            (connect(&cluster, nodes[0], protocol), connect(&cluster, nodes[1], protocol));
        assert!(take(&mut one, "lock", "one"));
        assert!(!take(&mut two, "lock", "two"), "taken although it is held");
        assert!(
            !extend(&mut two, "lock", "two") && !release(&mut two, "lock", "two", by_script),
            "somebody else's"
        );
        assert!(extend(&mut one, "lock", "one") && release(&mut one, "lock", "one", by_script));
        assert!(!release(&mut one, "lock", "one", by_script), "released twice");
    }
    let mut holder = connect(&cluster, nodes[0], "resp3");
    assert!(take(&mut holder, "lock", "holder"));
    let (done, is_over, is_taken) = (AtomicI64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let mut connections: Vec<_> = nodes.iter().map(|node| connect(&cluster, *node, "resp3")).collect();
    let mut waiter = connect(&cluster, nodes[1], "resp2");
    thread::scope(|scope| {
        // However this ends, the others end, too.
        let _over = Raise(&is_over);
        for (index, connection) in connections.iter_mut().enumerate() {
            let (done, is_over, owner) = (&done, &is_over, format!("counter{index}"));
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    if take(connection, "guard", &owner) {
                        let seen: Option<i64> = connection.get("count").unwrap();
                        let () = connection.set("count", seen.unwrap_or(0) + 1).unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                        assert!(release(connection, "guard", &owner, index == 0), "a lock was lost");
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) && !is_taken.load(Ordering::SeqCst) {
                is_taken.store(take(&mut waiter, "lock", "waiter"), Ordering::SeqCst);
            }
        });
        let goes_on = |when: &str| {
            let wanted = done.load(Ordering::SeqCst) + 10;
            wait_for(&format!("ten more counts {when}"), || {
                (done.load(Ordering::SeqCst) >= wanted).then_some(())
            });
        };
        goes_on("before the master dies");
        cluster.kill(victim);
        assert!(extend(&mut holder, "lock", "holder"), "the lock was lost with the master");
        goes_on("after the master died");
        assert!(!is_taken.load(Ordering::SeqCst), "taken although it is held");
        assert!(release(&mut holder, "lock", "holder", true));
        wait_for("the one that waits has the lock", || is_taken.load(Ordering::SeqCst).then_some(()));
        assert!(!release(&mut holder, "lock", "holder", false), "released although it is somebody else's");
    });
    assert_eq!(holder.get::<_, i64>("count").unwrap(), done.load(Ordering::SeqCst), "two counted at once");
}

/// Raises a flag when it goes.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
