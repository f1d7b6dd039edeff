//! SUBSCRIBE, PUBLISH. The replies were compared with those of Redis 7.0.15.

use crate::lone::with_face;
use warlock_server::Settings;

#[test]
fn a_subscriber_of_resp2_may_do_little_else() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        client.send("SUBSCRIBE a a b").await;
        for expected in ["[\"subscribe\" \"a\" :1]", "[\"subscribe\" \"a\" :1]", "[\"subscribe\" \"b\" :2]"] {
            assert_eq!(client.receive().await, expected);
        }
        client
            .talk(
                "GET x -> -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
                 MULTI -> -ERR Can't execute 'multi': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
                 PING -> [\"pong\" \"\"]
                 PING hi -> [\"pong\" \"hi\"]
                 UNSUBSCRIBE a -> [\"unsubscribe\" \"a\" :1]
                 UNSUBSCRIBE nosuch -> [\"unsubscribe\" \"nosuch\" :1]
                 PSUBSCRIBE h* -> [\"psubscribe\" \"h*\" :2]
                 UNSUBSCRIBE -> [\"unsubscribe\" \"b\" :1]
                 PUNSUBSCRIBE -> [\"punsubscribe\" \"h*\" :0]
                 GET x -> nil
                 UNSUBSCRIBE -> [\"unsubscribe\" nil :0]
                 PUNSUBSCRIBE -> [\"punsubscribe\" nil :0]
                 SUBSCRIBE a -> [\"subscribe\" \"a\" :1]
                 RESET -> +RESET
                 PING -> +PONG
                 PUBSUB NUMSUB a -> [\"a\" :0]",
            )
            .await;
    });
}

#[test]
fn messages_come_by_channel_and_by_pattern() {
    with_face(Settings::default(), async |served| {
        let (mut one, mut two, mut publisher) =
            (served.client().await, served.client().await, served.client().await);
        one.talk("SUBSCRIBE news -> [\"subscribe\" \"news\" :1]").await;
        two.ask("HELLO 3").await;
        two.talk("PSUBSCRIBE n?ws -> >[\"psubscribe\" \"n?ws\" :1]\n SUBSCRIBE news -> >[\"subscribe\" \"news\" :2]").await;
        publisher
            .talk(
                "PUBLISH news hello -> :3
                 PUBLISH nobody hello -> :0
                 MULTI -> +OK
                 PUBLISH nows x -> +QUEUED
                 SET a 1 -> +QUEUED
                 PUBLISH news y -> +QUEUED
                 EXEC -> [:1 +OK :3]
                 PUBSUB CHANNELS -> [\"news\"]
                 PUBSUB CHANNELS x* -> []
                 PUBSUB NUMSUB news none -> [\"news\" :2 \"none\" :0]
                 PUBSUB NUMPAT -> :1
                 PUBSUB FOO -> -ERR unknown subcommand 'FOO'. Try PUBSUB HELP.",
            )
            .await;
        assert_eq!(one.receive().await, "[\"message\" \"news\" \"hello\"]");
        assert_eq!(one.receive().await, "[\"message\" \"news\" \"y\"]");
        for expected in [
            ">[\"message\" \"news\" \"hello\"]",
            ">[\"pmessage\" \"n?ws\" \"news\" \"hello\"]",
            ">[\"pmessage\" \"n?ws\" \"nows\" \"x\"]",
            ">[\"message\" \"news\" \"y\"]",
            ">[\"pmessage\" \"n?ws\" \"news\" \"y\"]",
        ] {
            assert_eq!(two.receive().await, expected);
        }
        // In RESP3 a subscriber does anything, and hears itself before its own reply.
        assert_eq!(two.ask("GET a").await, "\"1\"");
        two.talk("UNSUBSCRIBE news -> >[\"unsubscribe\" \"news\" :1]").await;
        two.send("PUBLISH news z").await;
        assert_eq!(two.receive().await, ">[\"pmessage\" \"n?ws\" \"news\" \"z\"]");
        assert_eq!(two.receive().await, ":2");
        drop(two);
        while publisher.ask("PUBSUB NUMPAT").await != ":0" {}
        assert_eq!(publisher.ask("PUBLISH nows x").await, ":0");
    });
}

#[test]
fn what_is_not_published_is_not_told() {
    with_face(Settings::default(), async |served| {
        let (mut listener, mut publisher) = (served.client().await, served.client().await);
        listener.ask("SUBSCRIBE c").await;
        publisher
            .talk("WATCH a -> +OK\n SET a 1 -> +OK\n MULTI -> +OK\n PUBLISH c no -> +QUEUED\n EXEC -> nil*")
            .await;
        publisher.talk("MULTI -> +OK\n SUBSCRIBE c -> +QUEUED\n DISCARD -> +OK").await;
        publisher.talk("PUBLISH c yes -> :1").await;
        assert_eq!(listener.receive().await, "[\"message\" \"c\" \"yes\"]");
    });
}

#[test]
fn a_listener_that_does_not_read_is_closed_and_the_others_go_on() {
    with_face(Settings::default(), async |served| {
        let (mut lazy, mut good, mut publisher) =
            (served.client().await, served.client().await, served.client().await);
        publisher.send_words(&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"pubsub 1mb 0 0"]).await;
        assert_eq!(publisher.receive().await, "+OK");
        lazy.ask("SUBSCRIBE c").await;
        good.ask("SUBSCRIBE c").await;
        let message = vec![b'x'; 100_000];
        let mut count = 0;
        // What the sockets hold comes on top.
        while publisher.ask("PUBSUB NUMSUB c").await == "[\"c\" :2]" {
            publisher.send_words(&[b"PUBLISH", b"c", &message]).await;
            publisher.receive().await;
            assert!(good.receive().await.starts_with("[\"message\""));
            count += 1;
            assert!(count < 1_000, "the lazy one is never closed");
        }
        assert!(publisher.ask("INFO stats").await.contains("client_output_buffer_limit_disconnections:1"));
        assert_eq!(publisher.ask("PUBLISH c x").await, ":1");
    });
}
