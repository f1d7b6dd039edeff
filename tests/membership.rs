//! Clusters that are formed, grown and shrunk over the network, by real processes; and what a wrong word in it must not do.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, Recorded, Reply, wait_for};
use std::process::Command;

const SECRET: &str = "correct horse battery";

/// Empty nodes that wait for an invitation.
fn guests(nodes: u16) -> Cluster {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), nodes);
    options.flags = vec!["--wait-for-invitation".into()];
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), SECRET.into())];
    Cluster::unformed(options)
}

/// The first `formed` of `nodes` empty nodes have formed a cluster; the others wait.
fn formed(formed: u16, nodes: u16) -> Cluster {
    let mut cluster = guests(nodes);
    (1..=nodes).for_each(|node| cluster.run(node));
    let mut words = vec!["WARLOCK".to_string(), "JOIN".to_string()];
    words.extend((2..=formed).map(|node| cluster.peer_address(node)));
    for node in 1..=nodes {
        cluster.client(node).must(&["PING"]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(cluster.client(1).must(&words).to_string(), format!("+OK {formed} nodes"));
    cluster.wait_for_master();
    cluster
}

fn members(client: &mut Client) -> Vec<(String, String)> {
    let reply = client.must(&["WARLOCK", "MEMBERS"]);
    let field = |row: &Reply, name: &str| row.field(name).and_then(Reply::text).unwrap();
    reply.items().iter().map(|row| (field(row, "node"), field(row, "condition"))).collect()
}

fn wait_for_members(cluster: &Cluster, node: u16, wanted: &[&str]) {
    let mut client = cluster.client(node);
    wait_for(&format!("{wanted:?} to be the voters"), || {
        let now = members(&mut client);
        let voters: Vec<&str> =
            now.iter().filter(|(_, condition)| condition == "valid").map(|(node, _)| node.as_str()).collect();
        (voters == wanted && now.len() == wanted.len()).then_some(())
    });
}

#[test]
fn empty_nodes_form_a_cluster_and_a_wrong_word_changes_nothing() {
    let mut cluster = guests(3);
    (1..=3).for_each(|node| cluster.run(node));
    let mut client = cluster.client(1);
    assert!(client.ask(&["SET", "a", "1"]).unwrap().is_error("CLUSTERDOWN"));
    assert!(client.ask(&["GET", "a"]).unwrap().is_error("CLUSTERDOWN"));
    let (peer1, peer2, peer3) = (cluster.peer_address(1), cluster.peer_address(2), cluster.peer_address(3));
    let mut others = [2, 3].map(|node| cluster.client(node));
    others.iter_mut().for_each(|other| drop(other.must(&["PING"])));
    for (addresses, reason) in [
        (&[peer2.as_str(), "127.0.0.1:1"][..], "cannot be reached"),
        (&[&peer2, &peer2], "same node"),
        (&[&peer1, &peer2], "this node"),
        (&[&peer2, "nonsense"], "cannot be reached"),
    ] {
        let words: Vec<&str> = ["WARLOCK", "JOIN"].iter().chain(addresses).copied().collect();
        let reply = client.ask(&words).unwrap().to_string();
        assert!(reply.starts_with("-ERR nothing was done") && reply.contains(reason), "{words:?}: {reply}");
    }
    assert_eq!(client.must(&["WARLOCK", "JOIN", &peer2, &peer3]).to_string(), "+OK 3 nodes");
    // From now on they are a cluster to everybody who is connected, and to everybody who connects: requests are held until there is a master.
    client.send(&["SET", "first", "1"]).unwrap();
    client.send(&["GET", "first"]).unwrap();
    client.send(&["WARLOCK", "MEMBERS"]).unwrap();
    for other in &mut others {
        assert_eq!(other.ask(&["INCR", "first"]).unwrap().error(), None);
    }
    assert_eq!(client.receive().unwrap(), "+OK");
    assert!(client.receive().unwrap().integer().is_some_and(|first| first >= 1));
    assert_eq!(client.receive().unwrap().items().len(), 3);
    let connect = |node| Client::try_connect(&cluster.address(node)).unwrap();
    let mut early = [1, 2, 3].map(connect);
    for (client, value) in early.iter_mut().zip(["x", "y", "1"]) {
        assert_eq!(client.ask(&["SET", "a", value]).unwrap(), "+OK");
    }
    // To form it again is no error.
    let repeated = Command::new(env!("CARGO_BIN_EXE_warlock"))
        .args(["admin", "--nodes", &cluster.address(1), "join", &peer2, &peer3])
        .output()
        .unwrap();
    assert!(repeated.status.success(), "{repeated:?}");
    assert_eq!(cluster.client(3).must(&["GET", "a"]).to_string(), "1");
    let again = cluster.client(1).ask(&["WARLOCK", "JOIN", &peer2]).unwrap();
    assert!(again.is_error("ERR nothing was done"), "{again}");
    // Once formed, a node needs no flag and no invitation any more.
    for node in 1..=3 {
        cluster.kill(node);
    }
    (1..=3).for_each(|node| cluster.run(node));
    assert_eq!(cluster.client(1).must(&["GET", "a"]).to_string(), "1");
}

#[test]
fn a_node_is_added_replaced_and_leaves_while_clients_write() {
    let mut cluster = formed(3, 5);
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SEED={seed}");
    // On the first members; those that leave or die refuse, or cannot be reached any more.
    let founders: Vec<String> = (1..=3).map(|node| cluster.address(node)).collect();
    let work = Recorded::start(&founders, 2, seed, "member:");
    work.wait_for_answers(100);
    let mut client = cluster.client(2);
    for n in 0..100 {
        assert!(client.must(&["SET", &format!("key{n}"), "value"]).is_ok());
    }
    assert_eq!(client.must(&["WARLOCK", "ADD", &cluster.peer_address(4)]).to_string(), "+OK n4");
    wait_for_members(&cluster, 2, &["n1", "n2", "n3", "n4"]);
    assert_eq!(cluster.client(4).must(&["GET", "key99"]).to_string(), "value");
    assert_eq!(work.failed(), 0, "a node that is added costs no request");
    let late = Recorded::start(&[cluster.address(4)], 2, seed + 1, "late:");
    work.wait_for_answers(100);
    // Replace: a new one in, the dead one out.
    cluster.kill(3);
    assert_eq!(client.must(&["WARLOCK", "ADD", &cluster.peer_address(5)]).to_string(), "+OK n5");
    wait_for("n3 to be removed", || client.ask(&["WARLOCK", "REMOVE", "n3"]).unwrap().is_ok().then_some(()));
    wait_for_members(&cluster, 4, &["n1", "n2", "n4", "n5"]);
    work.wait_for_answers(100);
    late.wait_for_answers(100);
    // The master leaves: it hands over first, nothing is lost, and its process ends.
    let master = cluster.master();
    let witness = if master == 4 { 5 } else { 4 };
    assert!(cluster.client(master).must(&["WARLOCK", "LEAVE"]).is_ok());
    assert!(cluster.client(witness).must(&["SET", "after", "all"]).is_ok());
    assert!(cluster.wait_for_exit(master).success(), "a node that left ends with 0");
    if master != 4 {
        late.wait_for_answers(100);
    }
    work.wait_for_answers(100);
    // A member that lives is taken out: it serves nobody any more, and its process ends.
    let removed = if master == 5 { 4 } else { 5 };
    let witness = if master == 1 { 2 } else { 1 };
    wait_for("a living member to be removed", || {
        cluster
            .client(witness)
            .ask(&["WARLOCK", "REMOVE", &format!("n{removed}")])
            .ok()?
            .is_ok()
            .then_some(())
    });
    assert!(cluster.wait_for_exit(removed).success(), "a node that was removed ends with 0");
    work.wait_for_answers(100);
    work.finish(&cluster.address(witness)).must_be_linearizable();
    late.finish(&cluster.address(witness)).must_be_linearizable();
    cluster.wait_for_agreement();
    let output = Command::new(env!("CARGO_BIN_EXE_warlock"))
        .args(["server", "--dir"])
        .arg(cluster.path(master))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("was removed from its cluster"), "{message}");
}

#[test]
fn whoever_is_added_must_be_empty_reachable_and_know_the_secret() {
    let mut cluster = formed(3, 4);
    let other = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 1);
    let mut client = cluster.client(3);
    let refused = |client: &mut Client, address: &str, reason: &str| {
        let reply = client.ask(&["WARLOCK", "ADD", address]).unwrap().to_string();
        assert!(reply.starts_with("-ERR nothing was done") && reply.contains(reason), "{address}: {reply}");
        assert_eq!(members(client).len(), 3, "{address}");
    };
    refused(&mut client, "127.0.0.1:1", "cannot be reached");
    refused(&mut client, "no address", "cannot be reached");
    refused(&mut client, &cluster.peer_address(2), "is n2, a member of this cluster already");
    refused(&mut client, &other.peer_address(1), "secret");
    cluster.kill(4);
    let mut stranger = Command::new(env!("CARGO_BIN_EXE_warlock"));
    stranger.args(["server", "--wait-for-invitation", "--cluster-secret", "another secret"]);
    stranger.args(["--bind", &cluster.address(4), "--peer-bind", &cluster.peer_address(4), "--dir"]);
    let stranger = harness::process::spawn({
        stranger.arg(cluster.path(4));
        stranger
    });
    let mut stranger = stranger.unwrap();
    cluster.client(4).must(&["PING"]);
    refused(&mut client, &cluster.peer_address(4), "secret");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let unknown = client.ask(&["WARLOCK", "REMOVE", "n9"]).unwrap();
    assert!(unknown.is_error("ERR nothing was done"), "{unknown}");
    // A node that would cost the quorum is not removed: with n1 dead, n2 and n3 are all that is left of the majority.
    cluster.kill(1);
    let mut client = cluster.client(2);
    assert!(client.must(&["SET", "still", "here"]).is_ok());
    let refused = client.ask(&["WARLOCK", "REMOVE", "n3"]).unwrap();
    assert!(refused.is_error("TRYAGAIN"), "{refused}");
    assert_eq!(members(&mut client).len(), 3);
}

#[test]
fn the_command_line_says_the_same_as_a_redis_client() {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    for node in 1..=3 {
        cluster.client(node).must(&["PING"]);
    }
    let admin = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_warlock"))
            .args(["admin", "--nodes", &cluster.address(1)])
            .args(words)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_ok, shown) = admin(&["members"]);
    assert!(is_ok && shown.contains("\"n3\"") && shown.contains("\"valid\""), "{shown}");
    let (is_ok, shown) = admin(&["checksum"]);
    assert!(is_ok && shown.contains("\"the same\""), "{shown}");
    let (is_ok, shown) = admin(&["help"]);
    assert!(is_ok && shown.contains("TRANSFER-MASTER"), "{shown}");
    for wrong in [["transfer-master", "n9"], ["transfer-master", "n03"], ["remove", "n03"]] {
        let (is_ok, shown) = admin(&wrong);
        assert!(!is_ok && shown.contains("ERR nothing was done: "), "{wrong:?}: {shown}");
    }
    let (is_ok, shown) = admin(&["remove", "n9"]);
    assert!(!is_ok && shown.contains("no member n9"), "{shown}");
}

#[test]
fn a_silent_member_loses_its_vote_when_that_helps_and_gets_it_back() {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 4);
    options.flags = ["--down-after", "1s"].map(String::from).to_vec();
    let mut cluster = Cluster::with(options);
    let (silent, witness) = (cluster.master() % 4 + 1, cluster.master());
    let condition = |cluster: &Cluster| {
        let members = members(&mut cluster.client(witness));
        members.into_iter().find(|(node, _)| *node == format!("n{silent}")).unwrap().1
    };
    cluster.kill(silent);
    // Three of four are a majority, of three two are.
    wait_for("the silent member to be down", || (condition(&cluster) == "down").then_some(()));
    let next = silent % 4 + 1;
    let other = if next == witness { next % 4 + 1 } else { next };
    cluster.kill(other);
    assert!(cluster.client(witness).must(&["SET", "a", "1"]).is_ok(), "two of three go on");
    cluster.run(silent);
    wait_for("it to have its vote again", || (condition(&cluster) == "valid").then_some(()));
}
