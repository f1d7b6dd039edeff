//! What clients cannot do to a real node: take its memory, or stall the others.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::cluster::Options;
use harness::{Client, Cluster, Reply, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::TcpStream;

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");
const MB: u64 = 1 << 20;

/// A node with these flags.
fn node(flags: &[&str]) -> Cluster {
    let flags = flags.iter().map(|flag| (*flag).to_string()).collect();
    Cluster::with(Options { flags, ..Options::new(WARLOCK, 1) })
}

/// The memory of the node's process that is in use.
fn resident(cluster: &Cluster) -> u64 {
    resident_of(cluster, 1)
}

fn resident_of(cluster: &Cluster, node: u16) -> u64 {
    let pid = cluster.pid(node).expect("the node runs");
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    bytes
}

/// Waits until much waits for so many clients of a node that do not read.
fn wait_for_full_output(client: &mut Client, clients: usize) {
    wait_for("the lazy clients' output to be full", || {
        let list = client.must(&["CLIENT", "LIST"]).text().unwrap();
        let full = list.lines().filter(|line| {
            let output = line.split(' ').find_map(|field| field.strip_prefix("omem=")).unwrap();
            output.parse::<u64>().unwrap() >= 6 * MB
        });
        (full.count() == clients).then_some(())
    });
}

#[test]
fn who_does_not_read_its_replies_costs_little_and_stalls_nobody() {
    let cluster = node(&["--client-output-buffer-limit", "8mb"]);
    let mut good = cluster.client(1);
    assert_eq!(good.must(&[&b"SET"[..], b"large", &[b'x'; 1 << 20]]), "+OK");
    let before = resident(&cluster);
    // Eight clients ask for 4 GB together and read nothing.
    let mut lazy: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(cluster.address(1)).unwrap()).collect();
    let gets = request(&[b"GET", b"large"]).repeat(500);
    for stream in &mut lazy {
        stream.write_all(&gets).unwrap();
    }
    wait_for_full_output(&mut good, 8);
    for n in 0..100 {
        assert_eq!(good.must(&["SET", "n", &n.to_string()]), "+OK");
        assert_eq!(good.must(&["GET", "n"]).text(), Some(n.to_string()));
    }
    let grown = resident(&cluster).saturating_sub(before);
    assert!(grown < 256 * MB, "eight lazy clients cost {} MB", grown / MB);
}

/// Reads that the master must allow, and commands of the log whose replies nobody knows before every node has made them.
#[test]
fn who_does_not_read_from_a_member_costs_little_on_every_node() {
    let flags = vec!["--client-output-buffer-limit".into(), "8mb".into()];
    let cluster = Cluster::with(Options { flags, ..Options::new(WARLOCK, 3) });
    let member = (1..=3).find(|node| *node != cluster.master()).unwrap();
    let mut good = cluster.client(member);
    assert_eq!(good.must(&[&b"SET"[..], b"large", &[b'x'; 1 << 20]]), "+OK");
    let before: Vec<u64> = (1..=3).map(|node| resident_of(&cluster, node)).collect();
    let mut lazy = Vec::new();
    for words in [
        &[&b"GET"[..], b"large"][..],
        &[b"EVAL", b"return redis.call('get', 'large')", b"0"],
        &[b"GETEX", b"large", b"EX", b"1000"],
    ] {
        let mut stream = TcpStream::connect(cluster.address(member)).unwrap();
        stream.write_all(&request(words).repeat(1_000)).unwrap();
        lazy.push(stream);
    }
    wait_for_full_output(&mut good, lazy.len());
    for n in 0..50 {
        assert_eq!(good.must(&["SET", "n", &n.to_string()]), "+OK");
        assert_eq!(good.must(&["GET", "n"]).text(), Some(n.to_string()));
    }
    for (node, before) in (1..=3).zip(before) {
        let grown = resident_of(&cluster, node).saturating_sub(before);
        println!("node {node}: {} MB", grown / MB);
        assert!(grown < 400 * MB, "three lazy clients cost {} MB on node {node}", grown / MB);
    }
}

#[test]
fn a_pipeline_goes_on_when_its_output_was_full_and_fits_the_socket_at_once() {
    let cluster = node(&["--client-output-buffer-limit", "64kb"]);
    let mut client = cluster.client(1);
    client.must(&[&b"SET"[..], b"large", &[b'x'; 60 << 10]]);
    let gets: Vec<[&str; 2]> = vec![["GET", "large"]; 40];
    let replies = client.pipeline(&gets).unwrap();
    assert!(replies.iter().all(|reply| reply.text().is_some_and(|text| text.len() == 60 << 10)));
}

#[test]
fn a_huge_pipeline_is_answered_in_order_and_costs_little() {
    const REQUESTS: usize = 100_000;
    let cluster = node(&[]);
    let mut client = cluster.client(1);
    client.must(&["SET", "a", "1"]);
    let before = resident(&cluster);
    let mut sender = client.raw().try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let pair = [request(&[b"GET", b"a"]), request(&[b"PING"])].concat();
        sender.write_all(&pair.repeat(REQUESTS / 2)).unwrap();
    });
    let mut most = 0;
    for n in 0..REQUESTS / 2 {
        assert_eq!(client.receive().unwrap().text().as_deref(), Some("1"));
        assert_eq!(client.receive().unwrap(), Reply::Simple("PONG".into()));
        if n % 10_000 == 0 {
            most = most.max(resident(&cluster).saturating_sub(before));
        }
    }
    writing.join().unwrap();
    assert!(most < 100 * MB, "the pipeline cost {} MB", most / MB);
}

#[test]
fn what_is_announced_but_not_sent_costs_nothing() {
    let cluster = node(&[]);
    let mut good = cluster.client(1);
    let before = resident(&cluster);
    let greedy: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(cluster.address(1)).unwrap();
            stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$16777216\r\nx").unwrap();
            stream
        })
        .collect();
    wait_for("all of them to be heard", || {
        let list = good.must(&["CLIENT", "LIST"]).text().unwrap();
        (list.lines().filter(|line| !line.contains(" qbuf=0 ")).count() >= 200).then_some(())
    });
    let grown = resident(&cluster).saturating_sub(before);
    assert!(grown < 64 * MB, "3.2 GB that were announced cost {} MB", grown / MB);
    drop(greedy);
}

#[test]
fn ten_thousand_idle_clients_cost_little_and_stall_nobody() {
    let wanted = 10_000;
    // For our ends of the connections; the node raises its own limit.
    let limit = getrlimit(Resource::Nofile);
    let need = wanted + 500;
    let maximum = limit.maximum.map_or(need, |maximum| maximum.max(need));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(need), maximum: Some(maximum) })
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }));
    let got = getrlimit(Resource::Nofile).current.unwrap_or(need);
    let count = wanted.min(got.saturating_sub(500));
    if count < wanted {
        println!("only {count} clients: this system allows {got} open files");
    }
    let cluster = node(&["--maxclients", "10500"]);
    let mut good = cluster.client(1);
    good.must(&["SET", "a", "1"]);
    let before = resident(&cluster);
    let idle: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(cluster.address(1)).unwrap()).collect();
    let connected = |client: &mut Client| {
        let info = client.must(&["INFO", "clients"]).text().unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("connected_clients:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    wait_for("all clients to be accepted", || (connected(&mut good) > count).then_some(()));
    for _ in 0..100 {
        assert!(good.must(&["INCR", "a"]).integer().is_some());
    }
    let grown = resident(&cluster).saturating_sub(before);
    assert!(grown < 200 * MB, "{count} idle clients cost {} MB", grown / MB);
    println!("{count} idle clients cost {} KB each", grown / count / 1_024);
    drop(idle);
    wait_for("all clients to be gone", || (connected(&mut good) < 10).then_some(()));
}

/// Counts what clients put into a node's mailbox.
fn mailed(client: &mut Client) -> u64 {
    let info = client.must(&["INFO", "warlock"]).text().unwrap();
    info.lines().find_map(|line| line.strip_prefix("warlock_mailed:")).unwrap().parse().unwrap()
}

/// A read on the master, inside its lease, is answered in the connection's own task.
#[test]
fn a_read_on_the_master_touches_no_mailbox() {
    let cluster = Cluster::start(WARLOCK, 3);
    let master = cluster.master();
    let other = (1..=3).find(|node| *node != master).unwrap();
    let (mut here, mut there) = (cluster.client(master), cluster.client(other));
    here.must(&["SET", "k", "v"]);
    // A lease may run out on a busy machine; then the node is not the master of that moment, and the round does not count.
    wait_for("a thousand reads inside one lease", || {
        let before = mailed(&mut here);
        for _ in 0..1_000 {
            assert_eq!(here.must(&["GET", "k"]), "v");
        }
        (mailed(&mut here) == before).then_some(())
    });
    let before = mailed(&mut there);
    for _ in 0..10 {
        assert_eq!(there.must(&["GET", "k"]), "v");
    }
    assert!(mailed(&mut there) >= before + 10, "reads elsewhere are counted");
}

/// This machine's address in its network, if it has one. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn who_comes_from_elsewhere_is_refused_while_there_is_no_password() {
    let Some(address) = own_address() else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED protected mode: this machine has no address but the loopback's"
        );
        return;
    };
    let (base, _guard) = harness::ports::reserve(1);
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(WARLOCK);
    let flags = [
        ("--bind", format!("0.0.0.0:{}", base + 1)),
        ("--announce", format!("127.0.0.1:{}", base + 1)),
        ("--peer-bind", format!("127.0.0.1:{}", base + 101)),
        ("--dir", directory.path().join("node").display().to_string()),
        ("--log", "warn".into()),
    ];
    command.arg("server").args(flags.iter().flat_map(|(flag, value)| [*flag, value]));
    let mut node = harness::process::spawn(command).unwrap();
    let local = format!("127.0.0.1:{}", base + 1);
    let mut near = wait_for("the node to answer", || {
        let mut client = Client::try_connect(&local).ok()?;
        (client.ask(&["SET", "k", "v"]).ok()? == "+OK").then_some(client)
    });
    let far = format!("{address}:{}", base + 1);
    let mut refused = Client::try_connect(&far).unwrap();
    let why = refused.receive().unwrap();
    assert!(why.is_error("DENIED Warlock is running in protected mode"), "{why:?}");
    assert!(refused.receive().is_err(), "it is closed");
    // Each way out of the message.
    near.must(&["CONFIG", "SET", "protected-mode", "no"]);
    assert_eq!(Client::connect(&far).must(&["GET", "k"]), "v");
    near.must(&["CONFIG", "SET", "protected-mode", "yes", "requirepass", "secret"]);
    let mut client = Client::connect(&far);
    assert!(client.ask(&["GET", "k"]).unwrap().is_error("NOAUTH"));
    client.must(&["AUTH", "secret"]);
    assert_eq!(client.must(&["GET", "k"]), "v");
    let _ = node.kill();
    let _ = node.wait();
}
