//! CLIENT, and what protects a node from its clients. Texts were compared with those of Redis 7.0.15.

use crate::lone::with_face;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use warlock_server::Settings;

#[test]
fn clients_are_listed_named_and_killed() {
    with_face(Settings::default(), async |served| {
        let (mut one, mut other) = (served.client().await, served.client().await);
        other.talk("CLIENT SETNAME other -> +OK\n CLIENT GETNAME -> \"other\"\n SELECT 3 -> +OK").await;
        let other_id = other.ask("CLIENT ID").await;
        let list = one.ask("CLIENT LIST").await;
        assert_eq!(list.matches("id=").count(), 2, "{list}");
        assert!(
            list.contains("name=other") && list.contains(" db=3 ") && list.contains("cmd=client|list "),
            "{list}"
        );
        let list = one.ask(&format!("CLIENT LIST ID {}", &other_id[1..])).await;
        assert_eq!(list.matches("id=").count(), 1, "{list}");
        one.talk(
            "CLIENT SETNAME a\u{7f} -> -ERR Client names cannot contain spaces, newlines or special characters.
             CLIENT KILL 1.2.3.4:5 -> -ERR No such client
             CLIENT KILL ID 999 -> :0
             CLIENT KILL ID x -> -ERR client-id should be greater than 0
             CLIENT KILL FOO BAR -> -ERR syntax error
             CLIENT KILL -> -ERR wrong number of arguments for 'client|kill' command
             CLIENT FOO -> -ERR unknown subcommand 'FOO'. Try CLIENT HELP.
             CLIENT GETNAME x -> -ERR wrong number of arguments for 'client|getname' command
             CLIENT UNBLOCK 999 -> :0
             CLIENT GETREDIR -> :-1",
        )
        .await;
        assert_eq!(one.ask(&format!("CLIENT KILL ID {}", &other_id[1..])).await, ":1");
        assert!(other.is_closed().await);
        let mut third = served.client().await;
        third.ask("PING").await;
        assert_eq!(one.ask("CLIENT KILL TYPE normal SKIPME yes").await, ":1");
        assert!(third.is_closed().await);
        assert_eq!(one.ask("CLIENT KILL TYPE normal SKIPME no").await, ":1");
        assert!(one.is_closed().await);
    });
}

#[test]
fn replies_are_kept_back_when_the_client_wants_none() {
    with_face(Settings::default(), async |served| {
        for is_master in [true, false] {
            served.engine.is_master.set(is_master);
            let mut client = served.client().await;
            for request in ["CLIENT REPLY OFF", "SET a 1", "GET a", "PING", "CLIENT REPLY SKIP"] {
                client.send(request).await;
            }
            assert_eq!(client.ask("CLIENT REPLY ON").await, "+OK");
            client.send("CLIENT REPLY SKIP").await;
            client.send("GET a").await;
            client.talk("INCR a -> :2\n SET a 1 -> +OK").await;
        }
    });
}

#[test]
fn a_pause_holds_writes_or_everything_until_it_ends() {
    with_face(Settings::default(), async |served| {
        let (mut one, mut other) = (served.client().await, served.client().await);
        assert_eq!(one.ask("CLIENT PAUSE 3600000 WRITE").await, "+OK");
        other.send("SET a 1").await;
        other.send("GET a").await;
        one.talk("GET a -> nil\n PING -> +PONG\n CLIENT UNPAUSE -> +OK").await;
        assert_eq!((other.receive().await, other.receive().await), ("+OK".into(), "\"1\"".into()));
        let start = Instant::now();
        assert_eq!(one.ask("CLIENT PAUSE 200").await, "+OK");
        assert_eq!(other.ask("GET a").await, "\"1\"");
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
        one.talk("CLIENT PAUSE x -> -ERR timeout is not an integer or out of range\n CLIENT PAUSE -1 -> -ERR timeout is negative")
            .await;
    });
}

#[test]
fn a_password_is_asked_for_and_until_then_little_is_allowed() {
    with_face(Settings { password: Some("secret".into()), ..Settings::default() }, async |served| {
        let mut client = served.client().await;
        client
            .talk(
                "PING -> -NOAUTH Authentication required.
                 GET a -> -NOAUTH Authentication required.
                 MULTI -> -NOAUTH Authentication required.
                 CLIENT LIST -> -NOAUTH Authentication required.
                 AUTH wrong -> -WRONGPASS invalid username-password pair or user is disabled.
                 AUTH other secret -> -WRONGPASS invalid username-password pair or user is disabled.
                 AUTH secret -> +OK
                 PING -> +PONG
                 RESET -> +RESET
                 PING -> -NOAUTH Authentication required.",
            )
            .await;
        let mut many = served.client().await;
        many.send("AUTH 1 2 3 4 5 6 7 8 9 10").await;
        assert_eq!(many.receive().await, "-ERR Protocol error: unauthenticated multibulk length");
        assert!(many.is_closed().await);
        let mut large = served.client().await;
        large.send_words(&[b"AUTH", &[b'x'; 16_385]]).await;
        assert_eq!(large.receive().await, "-ERR Protocol error: unauthenticated bulk length");
        let mut good = served.client().await;
        assert!(good.ask("HELLO 3 AUTH default secret").await.starts_with('{'));
        assert_eq!(good.ask("CONFIG SET requirepass other").await, "+OK");
        assert_eq!(good.ask("PING").await, "+PONG", "who is in stays in");
        assert_eq!(served.client().await.ask("AUTH secret").await.split(' ').next(), Some("-WRONGPASS"));
    });
}

#[test]
fn too_many_clients_are_refused() {
    with_face(Settings { clients_max: 2, ..Settings::default() }, async |served| {
        let (mut one, mut two) = (served.client().await, served.client().await);
        one.ask("PING").await;
        two.ask("PING").await;
        let mut three = served.client().await;
        assert_eq!(three.receive().await, "-ERR max number of clients reached");
        assert!(three.is_closed().await);
        assert_eq!(one.ask("CONFIG SET maxclients 3").await, "+OK");
        assert_eq!(served.client().await.ask("PING").await, "+PONG");
        assert!(one.ask("INFO stats").await.contains("rejected_connections:1"));
    });
}

#[test]
fn a_readonly_connection_reads_what_is_there_if_it_is_young_enough() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        client.talk("SET a 1 -> +OK\n READONLY -> +OK").await;
        // Nobody else is asked: it works while the node is cut off.
        served.engine.is_master.set(false);
        served.engine.is_cut_off.set(true);
        served.engine.age_ms.set(Some(900));
        assert_eq!(client.ask("GET a").await, "\"1\"");
        assert!(client.ask("SET a 2").await.starts_with("-CLUSTERDOWN"));
        served.engine.age_ms.set(Some(1_001));
        assert!(client.ask("GET a").await.starts_with("-STALE this node's state may be 1001 ms old"));
        assert_eq!(client.ask("CONFIG SET readonly-max-age-ms 2000").await, "+OK");
        assert_eq!(client.ask("GET a").await, "\"1\"");
        served.engine.age_ms.set(None);
        assert!(client.ask("GET a").await.starts_with("-STALE"));
        assert_eq!(client.ask("READWRITE").await, "+OK");
        assert!(client.ask("GET a").await.starts_with("-CLUSTERDOWN"));
    });
}

#[test]
fn a_short_request_cannot_ask_for_a_reply_that_does_not_fit() {
    with_face(Settings { output_bytes_max: 1 << 20, ..Settings::default() }, async |served| {
        for is_master in [true, false] {
            served.engine.is_master.set(is_master);
            let mut client = served.client().await;
            client.send_words(&[b"SET", b"k", &[b'x'; 10_000]]).await;
            assert_eq!(client.receive().await, "+OK");
            assert!(client.ask(&format!("MGET{}", " k".repeat(50))).await.starts_with('['));
            let reply = client.ask(&format!("MGET{}", " k".repeat(50_000))).await;
            assert!(reply.starts_with("-ERR the reply has about"), "{reply}");
            assert_eq!(client.ask("STRLEN k").await, ":10000");
        }
    });
}

#[test]
fn the_node_takes_its_turns_however_much_its_clients_ask() {
    with_face(Settings::default(), async |served| {
        let (mut one, mut other) = (served.client().await, served.client().await);
        one.talk("SET key value -> +OK").await;
        let before = served.engine.turns.get();
        let requests = 10_000;
        for client in [&mut one, &mut other] {
            for _ in 0..requests {
                client.send("GET key").await; // answered on the spot, without a turn
            }
        }
        for client in [&mut one, &mut other] {
            for _ in 0..requests {
                assert_eq!(client.receive().await, "\"value\"");
            }
        }
        let turns = served.engine.turns.get() - before;
        assert!(turns >= 2 * requests / 2_048, "only {turns} turns");
    });
}

#[test]
fn a_crowd_is_served_in_turn_although_some_of_it_go_away() {
    const CROWD: usize = 200;
    const PIPELINE: usize = 64; // together far more than is taken between two turns
    with_face(Settings::default(), async |served| {
        let rounds = Rc::new(RefCell::new([0; CROWD]));
        let mut clients = Vec::new();
        for _ in 0..CROWD {
            clients.push(served.client().await);
        }
        let mut tasks = tokio::task::JoinSet::new();
        for (number, mut client) in clients.into_iter().enumerate() {
            let rounds = rounds.clone();
            tasks.spawn_local(async move {
                while rounds.borrow().iter().sum::<usize>() < 20 * CROWD {
                    client.send_times("PING", PIPELINE).await;
                    if number % 10 == 0 && rounds.borrow()[number] == number % 7 {
                        return; // while it stands in line
                    }
                    for _ in 0..PIPELINE {
                        assert_eq!(client.receive().await, "+PONG");
                    }
                    rounds.borrow_mut()[number] += 1;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let rounds = rounds.borrow();
        let stayed = || (0..CROWD).filter(|number| number % 10 != 0).map(|number| rounds[number]);
        let (least, most) = (stayed().min().unwrap(), stayed().max().unwrap());
        assert!(least * 3 >= most * 2, "some had {most} rounds and some {least}: {rounds:?}");
    });
}

#[test]
fn who_is_killed_in_line_does_not_hold_up_those_behind() {
    with_face(Settings::default(), async |served| {
        let (mut many, mut killer) = (served.client().await, served.client().await);
        let (mut killed, mut last) = (served.client().await, served.client().await);
        let id = killed.ask("CLIENT ID").await;
        for client in [&mut many, &mut killer, &mut last] {
            client.talk("PING -> +PONG").await;
        }
        // More than is taken before a turn, so that all of these stand in line, in this order.
        let count = 2_060;
        many.send_times("PING", count).await;
        killer.send_times(&format!("CLIENT KILL ID {}", &id[1..]), 1).await;
        killed.send_times("PING", 1).await;
        last.send_times("PING", 1).await;
        assert_eq!(last.receive().await, "+PONG");
        assert_eq!(killer.receive().await, ":1");
        assert!(killed.is_closed().await);
        for _ in 0..count {
            assert_eq!(many.receive().await, "+PONG");
        }
    });
}

#[test]
fn what_a_browser_sends_ends_the_connection_before_anything_of_it_is_done() {
    let settings = || Settings { password: Some("secret".into()), ..Settings::default() };
    with_face(settings(), async |served| {
        let bodies: [&[&[u8]]; 4] = [&[b"POST", b"/"], &[b"post"], &[b"Host:", b"x"], &[b"hOsT:"]];
        for (at, body) in bodies.into_iter().enumerate() {
            let mut client = served.client().await;
            if at % 2 == 0 {
                client.talk("AUTH secret -> +OK").await;
            }
            client.send_words(body).await;
            // It may be closed before it could take this.
            let _ = client.try_send_words(&[b"PING"]).await;
            assert!(client.is_closed().await, "{body:?}");
        }
        let mut client = served.client().await;
        client.talk("AUTH secret -> +OK\n MULTI -> +OK\n SET a 1 -> +QUEUED").await;
        client.send("POST").await;
        let _ = client.try_send_words(&[b"EXEC"]).await;
        assert!(client.is_closed().await);
        let mut client = served.client().await;
        client.talk("AUTH secret -> +OK\n GET a -> nil").await;
        assert!(client.ask("HOST").await.starts_with("-ERR unknown command 'HOST'"));
    });
}

#[test]
fn a_name_that_would_forge_a_line_of_the_list_is_refused_by_every_command() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        let refusal = "-ERR Client names cannot contain spaces, newlines or special characters.";
        let forged: &[u8] = b"x\nid=1 addr=10.0.0.1:1";
        for words in [&[&b"CLIENT"[..], b"SETNAME", forged][..], &[b"HELLO", b"3", b"SETNAME", forged]] {
            client.send_words(words).await;
            assert_eq!(client.receive().await, refusal);
        }
        // It stays as it was, the protocol, too.
        client.talk("CLIENT GETNAME -> nil\n HELLO 2 SETNAME good -> [\"server\" \"redis\" \"version\" \"7.2.4\" \"proto\" :2 \"id\" :1 \"mode\" \"standalone\" \"role\" \"master\" \"modules\" []]\n CLIENT GETNAME -> \"good\"").await;
    });
}

#[test]
fn a_pause_of_all_holds_everything_but_what_can_end_it() {
    with_face(Settings::default(), async |served| {
        let mut one = served.client().await;
        let requests = ["PING", "SUBSCRIBE c", "GET a", "SET b 1", "INFO", "MULTI", "QUIT"];
        let mut held = Vec::new();
        for _ in requests {
            held.push(served.client().await);
        }
        let (mut queueing, mut known) = (served.client().await, served.client().await);
        queueing.talk("MULTI -> +OK").await;
        assert_eq!(one.ask("CLIENT PAUSE 3600000").await, "+OK");
        let sent = served.face.stats.borrow().bytes_out;
        for (client, request) in held.iter_mut().zip(requests) {
            client.send(request).await;
        }
        queueing.send("GET a").await;
        one.send("PING").await;
        // What is wrong is told at once, as in Redis.
        let mut heard = 0;
        for (request, reply) in [
            ("NONSENSE", "-ERR unknown"),
            ("GET", "-ERR wrong number"),
            ("HELLO 2", "*14"),
            ("CLIENT ID", ":"),
        ] {
            known.send(request).await;
            let raw = known.receive_raw().await;
            assert!(raw.starts_with(reply.as_bytes()), "{request}: {raw:?}");
            heard += raw.len() as u64;
        }
        let commands =
            ["cmd=ping", "cmd=subscribe", "cmd=get", "cmd=set", "cmd=info", "cmd=multi", "cmd=quit"];
        let mut list = String::new();
        while !commands.iter().all(|command| list.contains(command)) {
            known.send("CLIENT LIST").await;
            let raw = known.receive_raw().await;
            heard += raw.len() as u64;
            list = String::from_utf8_lossy(&raw).into_owned();
        }
        // Nobody else got anything.
        assert_eq!(served.face.stats.borrow().bytes_out - sent, heard, "{list}");
        known.talk("CLIENT UNPAUSE -> +OK").await;
        assert_eq!(one.receive().await, "+PONG");
        assert_eq!(queueing.receive().await, "+QUEUED");
        let [ping, subscribe, get, set, .., quit] = &mut held[..] else { panic!("there are seven") };
        assert_eq!(ping.receive().await, "+PONG");
        assert_eq!(subscribe.receive().await, "[\"subscribe\" \"c\" :1]");
        assert_eq!(get.receive().await, "nil");
        assert_eq!(set.receive().await, "+OK");
        assert_eq!(quit.receive().await, "+OK");
    });
}

#[test]
fn a_read_on_the_spot_needs_a_lease_that_lives_after_it_came() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        assert_eq!(client.ask("SET key value").await, "+OK");
        let turns = || served.engine.turns.get();
        served.engine.lease_ms.set(served.engine.now_ms.get() + 10);
        let before = turns();
        assert_eq!(client.ask("GET key").await, "\"value\"");
        assert_eq!(turns(), before, "the lease lives");
        served.engine.now_ms.set(served.engine.lease_ms.get());
        assert_eq!(client.ask("GET key").await, "\"value\"");
        assert_eq!(turns(), before + 1, "the lease is over: somebody else is asked");
    });
}
