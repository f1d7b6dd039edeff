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
