//! Messages across real nodes: everybody hears the same, in the same order.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Reply};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const MESSAGES: usize = 200;

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(|item| item.text().unwrap_or_else(|| format!("{item:?}"))).collect()
}

#[test]
fn every_node_tells_the_same_messages_in_the_same_order() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut listeners: Vec<_> = (1..=3).map(|node| cluster.client(node)).collect();
    for listener in &mut listeners {
        assert_eq!(texts(&listener.must(&["SUBSCRIBE", "c"]))[..2], ["subscribe", "c"]);
    }
    // Two publish at once, through different nodes.
    let publishers: Vec<_> = (1..=2)
        .map(|node| {
            let mut client = cluster.client(node);
            std::thread::spawn(move || {
                let requests: Vec<[String; 3]> =
                    (0..MESSAGES).map(|n| ["PUBLISH".into(), "c".into(), format!("{node}-{n}")]).collect();
                for reply in client.pipeline(&requests).unwrap() {
                    assert_eq!(reply, Reply::Integer(1), "one client of this node listens");
                }
            })
        })
        .collect();
    let heard: Vec<Vec<String>> = listeners
        .iter_mut()
        .map(|listener| (0..2 * MESSAGES).map(|_| texts(&listener.receive().unwrap())[2].clone()).collect())
        .collect();
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    assert_eq!(heard[0], heard[1]);
    assert_eq!(heard[0], heard[2]);
    for node in 1..=2 {
        let of_node = heard[0].iter().filter(|text| text.starts_with(&format!("{node}-")));
        let expected: Vec<String> = (0..MESSAGES).map(|n| format!("{node}-{n}")).collect();
        assert_eq!(of_node.cloned().collect::<Vec<_>>(), expected, "in the order in which they were sent");
    }
}

#[test]
fn what_happens_to_a_lock_is_told_on_its_channel_on_every_node() {
    let cluster = Cluster::start(WARLOCK, 3);
    let (mut listener, mut holder) = (cluster.client(1), cluster.client(2));
    listener.must(&["SUBSCRIBE", "__lock__:printer"]);
    let token = texts(&holder.must(&["LOCK.ACQUIRE", "printer", "me", "60000"])).last().cloned();
    let told = texts(&listener.receive().unwrap());
    assert_eq!(told[..2], ["message", "__lock__:printer"]);
    assert!(told[2].starts_with("acquired "), "{told:?}, {token:?}");
    holder.must(&["LOCK.REVOKE", "printer"]);
    assert!(texts(&listener.receive().unwrap())[2].starts_with("revoked "));
}

/// Messages up to the one that says `end`.
fn hear(listener: &mut harness::Client) -> Vec<(String, String)> {
    let mut heard = Vec::new();
    loop {
        let told = texts(&listener.receive().expect("a message before the end"));
        heard.push((told[2].clone(), told[3].clone()));
        if told[3] == "end" {
            return heard;
        }
    }
}

#[test]
fn what_happens_to_keys_is_told_on_every_node_in_the_same_order() {
    let cluster = Cluster::start(WARLOCK, 3);
    let mut listeners: Vec<_> = (1..=3).map(|node| cluster.client(node)).collect();
    // The third node is told less: each hears a part of the same sequence.
    for (node, letters) in [(1, "KEA"), (2, "AKE"), (3, "Ex")] {
        cluster.client(node).must(&["CONFIG", "SET", "notify-keyspace-events", letters]);
    }
    listeners.iter_mut().for_each(|listener| drop(listener.must(&["PSUBSCRIBE", "__key*__:*"])));
    let writers: Vec<_> = (1..=3)
        .map(|node| {
            let mut client = cluster.client(node);
            std::thread::spawn(move || {
                for n in 0..50 {
                    client.must(&["SET", &format!("k{}", n % 7), &node.to_string()]);
                    client.must(&["DEL", &format!("k{}", n % 5)]);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let mut client = cluster.client(2);
    client.must(&["SET", "short", "v", "PX", "20"]);
    // Nobody writes to it: the master finds it, and says so through the log.
    harness::wait_for("the key to be removed", || {
        (client.must(&["DBSIZE"]) == client.must(&["EXISTS", "k0", "k1", "k2", "k3", "k4", "k5", "k6"]))
            .then_some(())
    });
    client.must(&["PUBLISH", "__keyend__:", "end"]);
    let heard: Vec<_> = listeners.iter_mut().map(hear).collect();
    assert_eq!(heard[0], heard[1]);
    let of = |name: &str| (format!("__keyevent@0__:{name}"), "short".to_string());
    for name in ["set", "expire", "expired"] {
        assert_eq!(heard[0].iter().filter(|told| **told == of(name)).count(), 1, "{name}");
    }
    let sets = heard[0].iter().filter(|(channel, _)| channel == "__keyevent@0__:set").count();
    assert_eq!(sets, 151);
    let last = ("__keyend__:".to_string(), "end".to_string());
    assert_eq!(heard[2], [of("expired"), last]);
}
