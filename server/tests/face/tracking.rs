//! CLIENT TRACKING, as one node's clients see it.

use crate::lone::with_face;
use warlock_server::Settings;

#[test]
fn a_full_table_tells_what_it_forgets_after_the_reply() {
    with_face(Settings::default(), async |served| {
        let (mut cache, mut other) = (served.client().await, served.client().await);
        cache.ask("HELLO 3").await;
        other.talk("CONFIG SET tracking-table-max-keys 2 -> +OK").await;
        cache.talk("CLIENT TRACKING ON -> +OK").await;
        // More keys than the table takes, in one read: the reply comes first, or what is forgotten would be kept for ever.
        cache.send("MGET a b c d").await;
        assert_eq!(cache.receive().await, "[nil3 nil3 nil3 nil3]");
        assert_eq!(cache.receive().await, ">[\"invalidate\" [\"a\"]]");
        assert_eq!(cache.receive().await, ">[\"invalidate\" [\"b\"]]");
        let info = other.ask("INFO stats").await;
        assert!(info.contains("tracking_total_keys:2\\r\\ntracking_total_items:2"), "{info}");
        other.talk("SET a 1 -> +OK\nSET d 1 -> +OK").await;
        assert_eq!(cache.receive().await, ">[\"invalidate\" [\"d\"]]");
    });
}

#[test]
fn a_notice_does_not_overtake_the_reply_that_it_is_about() {
    with_face(Settings::default(), async |served| {
        let (mut cache, mut other) = (served.client().await, served.client().await);
        cache.ask("HELLO 3").await;
        cache.talk("CLIENT TRACKING ON -> +OK").await;
        // Somebody else's command is held between the read and its reply: the read waits behind a write of the same connection.
        served.engine.is_master.set(false);
        for n in 0..50 {
            cache.send("SET mine 1").await;
            cache.send("GET k").await;
            other.ask(&format!("SET k {n}")).await;
            assert_eq!(cache.receive().await, "+OK");
            let first = cache.receive().await;
            let value = if first.starts_with('>') { cache.receive().await } else { first.clone() };
            // Told before the reply: then the reply is the new value.
            if first.starts_with('>') {
                assert_eq!(value, format!("\"{n}\""));
            } else if value != format!("\"{n}\"") {
                assert_eq!(cache.receive().await, ">[\"invalidate\" [\"k\"]]");
            }
        }
    });
}

#[test]
fn tracking_ends_with_its_connection() {
    with_face(Settings::default(), async |served| {
        let (mut cache, mut other) = (served.client().await, served.client().await);
        cache.talk("CLIENT TRACKING ON BCAST PREFIX a -> +OK\nGET k -> nil").await;
        assert!(other.ask("INFO clients").await.contains("tracking_clients:1"));
        cache.ask("QUIT").await;
        assert!(cache.is_closed().await);
        while !other.ask("INFO clients").await.contains("tracking_clients:0") {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_key_whose_time_has_passed_is_gone_while_nobody_writes() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        client.talk("SET k v PX 100 -> +OK\nGET k -> \"v\"").await;
        served.engine.now_ms.set(served.engine.now_ms.get() + 100);
        client.talk("GET k -> \"v\"").await;
        for is_master in [true, false] {
            served.engine.is_master.set(is_master);
            client.talk("SET k v PX 100 -> +OK").await;
            served.engine.now_ms.set(served.engine.now_ms.get() + 101);
            client.talk("GET k -> nil\nEXISTS k -> :0\nPTTL k -> :-2\nKEYS * -> []").await;
        }
    });
}

#[test]
fn the_keys_of_a_script_are_remembered() {
    with_face(Settings::default(), async |served| {
        let (mut cache, mut other) = (served.client().await, served.client().await);
        cache.ask("HELLO 3").await;
        cache.talk("CLIENT TRACKING ON -> +OK").await;
        let read = "return(redis.call('get',KEYS[1]))";
        for is_master in [true, false] {
            served.engine.is_master.set(is_master);
            for (at, ask) in ["EVAL", "EVAL_RO"].into_iter().enumerate() {
                other.talk(&format!("SET k {at} -> +OK")).await;
                cache.talk(&format!("{ask} {read} 1 k -> \"{at}\"")).await;
                other.talk("SET k 9 -> +OK").await;
                assert_eq!(cache.receive().await, ">[\"invalidate\" [\"k\"]]", "{ask}");
            }
            // In a transaction, too.
            cache.talk(&format!("MULTI -> +OK\n EVAL {read} 1 k -> +QUEUED\n EXEC -> [\"9\"]")).await;
            other.talk("SET k 10 -> +OK").await;
            assert_eq!(cache.receive().await, ">[\"invalidate\" [\"k\"]]");
            // What it changed itself is told behind the reply; what failed has read nothing that could be kept.
            cache.talk(&format!("EVAL return(redis.call('incr',KEYS[1])) 1 {is_master} -> :1")).await;
            assert_eq!(cache.receive().await, format!(">[\"invalidate\" [\"{is_master}\"]]"));
            assert!(cache.ask("EVAL return(redis.call('nonsense')) 1 z").await.starts_with('-'));
            other.talk("SET z 1 -> +OK").await;
            cache.talk("PING -> +PONG").await;
        }
    });
}
