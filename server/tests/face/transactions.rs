//! MULTI, EXEC, WATCH. The replies were compared with those of Redis 7.0.15.

use crate::lone::with_face;
use warlock_server::Settings;
use warlock_server::resp::Limits;

/// Says a script on a master and on another node: only the way of the reads differs.
fn check(script: &str) {
    for is_master in [true, false] {
        with_face(Settings::default(), async |served| {
            served.engine.is_master.set(is_master);
            served.client().await.talk(script).await;
        });
    }
}

#[test]
fn a_transaction_runs_as_one() {
    check(
        "MULTI -> +OK
         SET a 1 -> +QUEUED
         INCR a -> +QUEUED
         GET a -> +QUEUED
         EXEC -> [+OK :2 \"2\"]
         GET a -> \"2\"
         MULTI -> +OK
         EXEC -> []",
    );
}

#[test]
fn a_discarded_one_does_nothing() {
    check(
        "MULTI -> +OK
         SET a 1 -> +QUEUED
         DISCARD -> +OK
         EXISTS a -> :0
         DISCARD -> -ERR DISCARD without MULTI
         EXEC -> -ERR EXEC without MULTI",
    );
}

#[test]
fn what_is_wrong_while_queueing_aborts_it() {
    check(
        "MULTI -> +OK
         SET a 1 -> +QUEUED
         SET a -> -ERR wrong number of arguments for 'set' command
         SET b 1 -> +QUEUED
         EXEC -> -EXECABORT Transaction discarded because of previous errors.
         MULTI -> +OK
         SET a 1 -> +QUEUED
         NOSUCH x -> -ERR unknown command 'NOSUCH', with args beginning with: 'x' 
         EXEC -> -EXECABORT Transaction discarded because of previous errors.
         MULTI -> +OK
         ECHO -> -ERR wrong number of arguments for 'echo' command
         EXEC -> -EXECABORT Transaction discarded because of previous errors.
         MULTI -> +OK
         SET a 1 -> +QUEUED
         EXEC now -> -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
         EXEC -> -ERR EXEC without MULTI
         EXISTS a b -> :0",
    );
}

#[test]
fn errors_inside_are_elements_and_the_rest_is_done() {
    check(
        "MULTI -> +OK
         SET a text -> +QUEUED
         INCR a -> +QUEUED
         SET b 1 -> +QUEUED
         EXEC -> [+OK -ERR value is not an integer or out of range +OK]
         GET b -> \"1\"",
    );
}

#[test]
fn multi_and_watch_inside_are_errors_that_do_not_abort() {
    check(
        "MULTI -> +OK
         MULTI -> -ERR MULTI calls can not be nested
         WATCH a -> -ERR WATCH inside MULTI is not allowed
         SET a 1 -> +QUEUED
         EXEC -> [+OK]",
    );
}

#[test]
fn commands_of_the_connection_are_done_in_their_places_and_only_with_the_rest() {
    check(
        "MULTI -> +OK
         PING -> +QUEUED
         SET a 0 -> +QUEUED
         SELECT 3 -> +QUEUED
         SET a 3 -> +QUEUED
         SELECT 99 -> +QUEUED
         ECHO x -> +QUEUED
         GET a -> +QUEUED
         EXEC -> [+PONG +OK +OK +OK -ERR DB index is out of range \"x\" \"3\"]
         GET a -> \"3\"
         SELECT 0 -> +OK
         GET a -> \"0\"
         WATCH a -> +OK
         SET a 1 -> +OK
         MULTI -> +OK
         SELECT 3 -> +QUEUED
         EXEC -> nil*
         GET a -> \"1\"
         MULTI -> +OK
         SELECT 3 -> +QUEUED
         PING -> +QUEUED
         EXEC -> [+OK +PONG]
         GET a -> \"3\"",
    );
}

#[test]
fn a_watched_key_that_changes_stops_it() {
    check(
        "WATCH a b -> +OK
         MULTI -> +OK
         SET done 1 -> +QUEUED
         EXEC -> [+OK]
         SET a 1 -> +OK
         WATCH a -> +OK
         SET a 1 -> +OK
         MULTI -> +OK
         SET done 2 -> +QUEUED
         EXEC -> nil*
         MULTI -> +OK
         SET done 3 -> +QUEUED
         EXEC -> [+OK]
         WATCH a -> +OK
         SET a 2 -> +OK
         WATCH a -> +OK
         MULTI -> +OK
         EXEC -> nil*
         WATCH a -> +OK
         SET a 3 -> +OK
         UNWATCH -> +OK
         MULTI -> +OK
         EXEC -> []
         WATCH a -> +OK
         SET a 4 -> +OK
         MULTI -> +OK
         DISCARD -> +OK
         MULTI -> +OK
         EXEC -> []
         GET done -> \"3\"",
    );
}

#[test]
fn another_client_counts_and_resp3_has_its_own_null() {
    with_face(Settings::default(), async |served| {
        let (mut one, mut other) = (served.client().await, served.client().await);
        assert!(one.ask("HELLO 3").await.starts_with('{'));
        assert_eq!(one.ask("WATCH a").await, "+OK");
        assert_eq!(other.ask("SET a 1").await, "+OK");
        one.talk("MULTI -> +OK\n GET a -> +QUEUED\n EXEC -> nil3").await;
        one.talk("MULTI -> +OK\n GET none -> +QUEUED\n HGETALL none -> +QUEUED\n EXEC -> [nil3 {}]").await;
        one.talk("MULTI -> +OK\n SAVE -> -ERR Command not allowed inside a transaction").await;
        assert!(one.ask("EXEC").await.starts_with("-EXECABORT"));
        one.talk("WATCH a -> +OK\n MULTI -> +OK\n RESET -> +RESET\n EXEC -> -ERR EXEC without MULTI").await;
    });
}

#[test]
fn a_watch_that_nobody_answered_counts_as_a_change() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        served.engine.is_cut_off.set(true);
        assert!(client.ask("WATCH a").await.starts_with("-CLUSTERDOWN"));
        served.engine.is_cut_off.set(false);
        client.talk("MULTI -> +OK\n SET a 1 -> +QUEUED\n EXEC -> nil*\n EXISTS a -> :0").await;
    });
}

#[test]
fn a_transaction_that_is_too_large_is_refused_and_forgotten() {
    let limits = Limits { request_bytes_max: 10_000, ..Limits::default() };
    with_face(Settings { limits, ..Settings::default() }, async |served| {
        let mut client = served.client().await;
        client.talk("MULTI -> +OK\n SET a 1 -> +QUEUED").await;
        let mut replies = Vec::new();
        for _ in 0..5 {
            client.send_words(&[b"SET", b"b", &[b'x'; 3_000]]).await;
            replies.push(client.receive().await);
        }
        assert_eq!(replies[2], "+QUEUED");
        assert!(replies[3].starts_with("-ERR the transaction is too large"), "{replies:?}");
        assert!(client.ask("EXEC").await.starts_with("-EXECABORT"));
        client.talk("EXISTS a b -> :0\n MULTI -> +OK\n SET a 1 -> +QUEUED\n EXEC -> [+OK]").await;
    });
}

#[test]
fn no_client_can_name_what_exec_submits() {
    check(
        "WARLOCK.EXEC 0 -> -ERR unknown command 'WARLOCK.EXEC', with args beginning with: '0' 
         MULTI -> +OK
         WARLOCK.EXEC 0 -> -ERR unknown command 'WARLOCK.EXEC', with args beginning with: '0' 
         EXEC -> -EXECABORT Transaction discarded because of previous errors.",
    );
}

/// Recorded from Redis 7.0.15: the array counts commands, but SUBSCRIBE says one thing for each channel.
#[test]
fn subscribe_and_hello_run_at_their_place() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        client.talk("MULTI -> +OK\nSET x 1 -> +QUEUED\nSUBSCRIBE a b -> +QUEUED\nGET x -> +QUEUED").await;
        client.send("EXEC").await;
        assert_eq!(client.receive().await, "[+OK [\"subscribe\" \"a\" :1] [\"subscribe\" \"b\" :2]]");
        assert_eq!(client.receive().await, "\"1\"", "what is too much for the array stands behind it");
        client.talk("PING -> [\"pong\" \"\"]\nUNSUBSCRIBE a -> [\"unsubscribe\" \"a\" :1]").await;
        client.talk("UNSUBSCRIBE b -> [\"unsubscribe\" \"b\" :0]\nPING -> +PONG").await;
        client.talk("HSET h f v -> :1\nMULTI -> +OK\nHGETALL h -> +QUEUED\nHELLO 3 -> +QUEUED\nHGETALL h -> +QUEUED").await;
        let replies = client.ask("EXEC").await;
        assert!(replies.starts_with("[[\"f\" \"v\"] {\"server\" \"redis\""), "{replies}");
        assert!(replies.ends_with("{\"f\" \"v\"}]"), "{replies}");
        client
            .talk("MULTI -> +OK\nHELLO 9 -> +QUEUED\nEXEC -> [-NOPROTO unsupported protocol version]")
            .await;
        client.talk("MULTI -> +OK\nPSUBSCRIBE a* -> +QUEUED\nEXEC -> [>[\"psubscribe\" \"a*\" :1]]").await;
    });
}
