//! Clients that cache, on several nodes: a write through any node reaches every cache, in time.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Reply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const WRITES: u64 = 200;

fn tracking(cluster: &Cluster, node: u16, options: &[&str]) -> Client {
    let mut client = cluster.client(node);
    client.must(&["HELLO", "3"]);
    client.must(&[&["CLIENT", "TRACKING", "ON"], options].concat());
    client
}

/// The keys of a notice; nothing: all.
fn old_keys(push: &Reply) -> Option<Vec<String>> {
    let Reply::Push(parts) = push else { panic!("{push:?} is no push") };
    assert_eq!(parts[0].text().as_deref(), Some("invalidate"), "{push:?}");
    match &parts[1] {
        Reply::Array(keys) => Some(keys.iter().map(|key| key.text().unwrap()).collect()),
        _ => None,
    }
}

#[test]
fn a_write_through_any_node_is_told_to_the_caches_of_all() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut plain: Vec<_> = (1..=3).map(|node| tracking(&cluster, node, &[])).collect();
    let mut broad: Vec<_> = (1..=3).map(|node| tracking(&cluster, node, &["BCAST", "PREFIX", "k"])).collect();
    for writer in 1..=3 {
        for client in &mut plain {
            client.must(&["MGET", "k", "other"]);
        }
        cluster.client(writer).must(&["SET", "k", &writer.to_string()]);
        for client in plain.iter_mut().chain(&mut broad) {
            assert_eq!(old_keys(&client.receive().unwrap()), Some(vec!["k".to_string()]));
        }
    }
    // What goes by itself is told, too.
    for client in &mut plain {
        client.must(&["GET", "k"]);
    }
    cluster.client(2).must(&["PEXPIRE", "k", "30"]);
    for client in plain.iter_mut() {
        assert_eq!(old_keys(&client.receive().unwrap()), Some(vec!["k".to_string()]));
    }
    let mut asker = cluster.client(3);
    harness::wait_for("the key to be removed", || {
        (asker.must(&["DBSIZE"]) == Reply::Integer(0)).then_some(())
    });
    asker.must(&["FLUSHALL"]);
    for client in &mut plain {
        assert_eq!(old_keys(&client.receive().unwrap()), None);
    }
    for client in &mut broad {
        // Two changes that a node learns at once are one notice.
        let notices = std::iter::from_fn(|| old_keys(&client.receive().unwrap())).collect::<Vec<_>>();
        assert!((1..=2).contains(&notices.len()), "{notices:?}");
        assert!(notices.iter().all(|keys| *keys == ["k"]), "{notices:?}");
    }
}

/// A client with a cache, as libraries have it.
struct Cache {
    client: Client,
    kept: BTreeMap<String, u64>,
    hits: u64,
}

impl Cache {
    /// A value from the server. What is told before the reply is about older copies.
    fn fetch(&mut self, key: &str) -> u64 {
        self.client.send(&["GET", key]).unwrap();
        loop {
            let reply = self.client.receive().unwrap();
            if let Reply::Push(_) = reply {
                match old_keys(&reply) {
                    Some(keys) => self.kept.retain(|key, _| !keys.contains(key)),
                    None => self.kept.clear(),
                }
                continue;
            }
            return reply.text().map_or(0, |text| text.parse().unwrap());
        }
    }

    fn get(&mut self, key: &str) -> u64 {
        if let Some(value) = self.kept.get(key) {
            self.hits += 1;
            return *value;
        }
        let value = self.fetch(key);
        self.kept.insert(key.to_string(), value);
        value
    }
}

/// Each writer says in `done` what it was told about `k`. Who reads `done` knows of the write to `k`, so its copy of `k` must be as new. A notice that is lost,
/// comes late, or comes before the reply that it is about, leaves an old copy in a cache, and is seen here.
#[test]
fn who_knows_of_a_write_has_no_older_copy() {
    let cluster = Cluster::start(WARLOCK, 3);
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = [(1, &[][..]), (2, &[]), (3, &[]), (2, &["BCAST"]), (3, &["NOLOOP"])]
        .into_iter()
        .map(|(node, options)| {
            let client = tracking(&cluster, node, options);
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let mut cache = Cache { client, kept: BTreeMap::new(), hits: 0 };
                while !is_over.load(Ordering::Relaxed) {
                    let known: Vec<u64> =
                        (1..=2).map(|writer| cache.fetch(&format!("done{writer}"))).collect();
                    for (writer, known) in (1..=2).zip(known) {
                        let copy = cache.get(&format!("k{writer}"));
                        assert!(
                            copy >= known,
                            "node {node} {options:?}: k{writer} is {copy}, {known} was written before"
                        );
                        // Once more, from the cache if nothing was told.
                        assert!(cache.get(&format!("k{writer}")) >= copy);
                    }
                }
                cache.hits
            })
        })
        .collect();
    let writers: Vec<_> = (1..=2)
        .map(|writer| {
            let mut client = cluster.client(writer + 1);
            std::thread::spawn(move || {
                for n in 1..=WRITES {
                    client.must(&["SET", &format!("k{writer}"), &n.to_string()]);
                    client.must(&["SET", &format!("done{writer}"), &n.to_string()]);
                }
            })
        })
        .collect();
    let written: Vec<_> = writers.into_iter().map(std::thread::JoinHandle::join).collect();
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(
            reader.join().expect("the cache is never older than what is known") > 0,
            "nothing was ever cached"
        );
    }
    written.into_iter().for_each(|result| result.unwrap());
}
