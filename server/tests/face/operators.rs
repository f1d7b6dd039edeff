//! What an operator asks a node. Texts and shapes were compared with those of Redis 7.0.15.

use crate::lone::{Client, Served, with_face};
use warlock_server::Settings;

async fn fresh(served: &Served) -> Client {
    served.client().await
}

#[test]
fn config_shows_and_changes_all_or_nothing() {
    with_face(Settings::default(), async |served| {
        fresh(&served)
            .await
            .talk(
                "CONFIG GET maxclients nosuch -> [\"maxclients\" \"10000\"]
                 CONFIG SET maxclients 7 slowlog-max-len 9 -> +OK
                 CONFIG GET max*nts -> [\"maxclients\" \"7\"]
                 CONFIG SET maxclients 8 databases 3 -> -ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config
                 CONFIG SET maxclients x -> -ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an integer
                 CONFIG SET nosuch 1 -> -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'
                 CONFIG GET maxclients slowlog-max-len -> [\"maxclients\" \"7\" \"slowlog-max-len\" \"9\"]
                 CONFIG GET -> -ERR wrong number of arguments for 'config|get' command
                 CONFIG SET maxclients -> -ERR wrong number of arguments for 'config|set' command
                 CONFIG NOSUCH -> -ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.
                 CONFIG RESETSTAT -> +OK",
            )
            .await;
        let mut client = fresh(&served).await;
        assert!(client.ask("CONFIG REWRITE").await.starts_with("-ERR"));
        assert!(client.ask("HELLO 3").await.starts_with('{'));
        assert_eq!(client.ask("CONFIG GET databases").await, "{\"databases\" \"16\"}");
    });
}

#[test]
fn info_has_every_section_and_counts() {
    with_face(Settings::default(), async |served| {
        let mut client = fresh(&served).await;
        client
            .talk("SET a 1 -> +OK\n GET a -> \"1\"\n GET -> -ERR wrong number of arguments for 'get' command")
            .await;
        assert!(client.ask("INCR").await.starts_with("-ERR"));
        let all = client.ask("INFO everything").await;
        for title in [
            "Server",
            "Clients",
            "Memory",
            "Persistence",
            "Stats",
            "Replication",
            "CPU",
            "Modules",
            "Commandstats",
            "Errorstats",
            "Cluster",
            "Keyspace",
            "Warlock",
        ] {
            assert!(
                all.to_lowercase().contains(&format!("# {}\\r\\n", title.to_lowercase())),
                "{title} in {all}"
            );
        }
        for line in [
            "redis_version:7.2.4",
            "db0:keys=1,expires=0,avg_ttl=0",
            "errorstat_ERR:count=2",
            "warlock_role:master",
        ] {
            assert!(all.contains(line), "{line} in {all}");
        }
        assert!(
            all.contains("cmdstat_get:calls=1,") && all.contains("rejected_calls=1,failed_calls=0"),
            "{all}"
        );
        assert!(!client.ask("INFO").await.contains("cmdstat"));
        let some = client.ask("INFO keyspace clients").await;
        assert!(some.contains("connected_clients:1") && !some.contains("redis_version"), "{some}");
        client.ask("CONFIG RESETSTAT").await;
        assert!(!client.ask("INFO commandstats").await.contains("cmdstat_get"));
    });
}

#[test]
fn slow_commands_are_remembered_without_secrets() {
    with_face(Settings::default(), async |served| {
        let mut client = fresh(&served).await;
        client.talk("CONFIG SET slowlog-log-slower-than 0 -> +OK\n CLIENT SETNAME me -> +OK").await;
        client.talk("SET a 1 -> +OK\n GET a -> \"1\"").await;
        assert!(client.ask("AUTH secret").await.starts_with("-ERR"));
        let slow = client.ask("SLOWLOG GET -1").await;
        for part in ["[\"SET\" \"a\" \"1\"]", "[\"GET\" \"a\"]", "\"me\"", "[\"CLIENT\" \"SETNAME\" \"me\"]"]
        {
            assert!(slow.contains(part), "{part} in {slow}");
        }
        assert!(!slow.contains("secret"), "{slow}");
        assert_eq!(client.ask("SLOWLOG GET 1").await.matches("SLOWLOG").count(), 1);
        client
            .talk(
                "CONFIG SET slowlog-log-slower-than -1 -> +OK
                 SLOWLOG RESET -> +OK
                 GET a -> \"1\"
                 SLOWLOG LEN -> :0
                 SLOWLOG GET x -> -ERR count should be greater than or equal to -1
                 SLOWLOG FOO -> -ERR unknown subcommand 'FOO'. Try SLOWLOG HELP.",
            )
            .await;
    });
}

#[test]
fn latency_takes_samples_when_it_is_told_to() {
    with_face(Settings::default(), async |served| {
        let mut client = fresh(&served).await;
        client.talk("LATENCY LATEST -> []\n LATENCY RESET -> :0\n LATENCY HISTORY command -> []").await;
        assert!(client.ask("LATENCY DOCTOR").await.contains("disabled"));
        client.ask("GET a").await;
        let histogram = client.ask("LATENCY HISTOGRAM get nosuch").await;
        assert!(histogram.starts_with("[\"get\" [\"calls\" :1 \"histogram_usec\" [:"), "{histogram}");
        assert!(
            client.ask("LATENCY FOO").await.starts_with("-ERR unknown subcommand 'FOO'. Try LATENCY HELP.")
        );
    });
}

#[test]
fn the_tables_describe_themselves() {
    with_face(Settings::default(), async |served| {
        let mut client = fresh(&served).await;
        client
            .talk(
                "COMMAND GETKEYS MSET a 1 b 2 -> [\"a\" \"b\"]
                 COMMAND GETKEYS PING x -> -ERR The command has no key arguments
                 COMMAND GETKEYS NOSUCH x -> -ERR Invalid command specified
                 COMMAND GETKEYS GET a b -> -ERR Invalid number of arguments specified for command
                 COMMAND LIST FILTERBY PATTERN hincr* -> [\"hincrby\" \"hincrbyfloat\"]
                 COMMAND LIST FILTERBY x y -> -ERR syntax error
                 COMMAND INFO NOSUCH -> [nil]
                 COMMAND DOCS NOSUCH -> []
                 COMMAND FOO -> -ERR unknown subcommand 'FOO'. Try COMMAND HELP.",
            )
            .await;
        let get = client.ask("COMMAND INFO get").await;
        assert!(get.starts_with("[[\"get\" :2 [+readonly +fast] :1 :1 :1 [+@read +@string +@fast]"), "{get}");
        let count: usize = client.ask("COMMAND COUNT").await[1..].parse().unwrap();
        let list = client.ask("COMMAND LIST").await;
        assert_eq!(list.split(' ').count(), count);
        assert!(client.ask("COMMAND DOCS get").await.contains("\"group\" \"string\""));
        assert_eq!(client.ask("COMMAND").await.matches("[[").count(), 1);
    });
}

#[test]
fn the_node_tells_the_time_its_role_and_that_everything_is_saved() {
    with_face(Settings::default(), async |served| {
        let mut client = fresh(&served).await;
        client
            .talk(
                "SET a 1 -> +OK\n WAIT 1 0 -> :0\n WAIT x 0 -> -ERR value is not an integer or out of range",
            )
            .await;
        client.talk("WAIT 1 -1 -> -ERR timeout is negative\n ROLE -> [\"master\" :0 []]\n SAVE -> +OK").await;
        assert!(client.ask("BGSAVE x").await.starts_with("-ERR syntax error"));
        let time = client.ask("TIME").await;
        let last = client.ask("LASTSAVE").await;
        assert!(time.starts_with("[\"1") && last.starts_with(":1"), "{time} {last}");
    });
}

#[test]
fn a_monitor_sees_what_others_do_but_no_password() {
    with_face(Settings::default(), async |served| {
        let (mut monitor, mut client) = (fresh(&served).await, fresh(&served).await);
        assert_eq!(monitor.ask("MONITOR").await, "+OK");
        client.talk("SET a \"x -> +OK\n GET a -> \"\\\"x\"").await;
        client.ask("AUTH secret").await;
        client.ask("PING").await;
        let (set, get, ping) = (monitor.receive().await, monitor.receive().await, monitor.receive().await);
        assert!(set.starts_with("+1") && set.ends_with("] \"SET\" \"a\" \"\\\"x\""), "{set}");
        assert!(get.contains("[0 127.0.0.1:") && get.ends_with("\"GET\" \"a\""), "{get}");
        assert!(ping.ends_with("\"PING\""), "{ping}");
    });
}

#[test]
fn a_monitor_reads_no_keys_and_shows_bytes_as_redis_does() {
    with_face(Settings::default(), async |served| {
        let (mut monitor, mut client) = (fresh(&served).await, fresh(&served).await);
        assert_eq!(monitor.ask("MONITOR").await, "+OK");
        client.send_words(&[b"ECHO", b"it's \"a\" \\ \n\r\t\x07\x08\x00\xff"]).await;
        client.receive().await;
        let line = monitor.receive().await;
        assert!(line.ends_with(r#""ECHO" "it's \"a\" \\ \n\r\t\a\b\x00\xff""#), "{line}");
        for request in ["GET a", "SET a 1", "PUBLISH c m"] {
            assert_eq!(monitor.ask(request).await, "-ERR Replica can't interact with the keyspace");
        }
        // Nothing is shown behind RESET, not even itself.
        assert_eq!(monitor.ask("RESET").await, "+RESET");
        client.talk("SET a 1 -> +OK").await;
        monitor.talk("GET a -> \"1\"").await;
        client
            .talk("MULTI -> +OK\n MONITOR -> +QUEUED\n SET a 2 -> +QUEUED\n EXEC -> [-ERR MONITOR isn't allowed for DENY BLOCKING client +OK]")
            .await;
        client.talk("GET a -> \"2\"").await;
    });
}

#[test]
fn what_is_wrong_is_told_in_the_words_of_redis() {
    with_face(Settings { password: Some("secret".into()), ..Settings::default() }, async |served| {
        let mut client = served.client().await;
        client
            .talk(
                "EXEC -> -EXECABORT Transaction discarded because of: NOAUTH Authentication required.
                DISCARD -> -NOAUTH Authentication required.
                AUTH secret -> +OK
                MULTI -> +OK
                SET a 1 -> +QUEUED
                EXEC x -> -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
                EXEC -> -ERR EXEC without MULTI
                SCRIPT FLUSH SYNC x -> -ERR SCRIPT FLUSH only support SYNC|ASYNC option
                SCRIPT FLUSH x -> -ERR SCRIPT FLUSH only support SYNC|ASYNC option
                SCRIPT FLUSH SYNC -> +OK
                SLOWLOG Get -1 x -> -ERR unknown subcommand or wrong number of arguments for 'Get'. Try SLOWLOG HELP.
                SLOWLOG LEN x -> -ERR wrong number of arguments for 'slowlog|len' command
                PUBSUB Channels a b -> -ERR unknown subcommand or wrong number of arguments for 'Channels'. Try PUBSUB HELP.
                SUBSCRIBE c -> [\"subscribe\" \"c\" :1]
                EXEC -> -EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context
                RESET -> +RESET
                AUTH secret -> +OK
                GET a -> nil",
            )
            .await;
        let told = client.ask("COMMAND INFO BLPOP BLMPOP").await;
        let pop = "[\"blpop\" :-3 [+write +blocking] :1 :-2 :1 [+@write +@list +@slow +@blocking] [] [] []]";
        assert!(told.starts_with(&format!("[{pop} [\"blmpop\" :-5 [+write +blocking")), "{told}");
        for (request, shown) in [
            ("CONFIG GET port", "config|get"),
            ("SLOWLOG RESET", "slowlog|reset"),
            ("GET a", "get"),
            ("CLIENT NONE", "client"),
        ] {
            client.ask(request).await;
            let mut watcher = served.client().await;
            watcher.talk("AUTH secret -> +OK").await;
            let list = watcher.ask("CLIENT LIST").await;
            assert!(
                list.contains(&format!("cmd={shown} user")) && list.contains("cmd=client|list "),
                "{list}"
            );
        }
    });
}

#[test]
fn config_rewrite_writes_what_was_changed_into_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.toml");
    std::fs::write(&path, "# mine\nmaxclients = 50 # few\ndir = \"data\"\n").unwrap();
    let settings = Settings { clients_max: 50, config_file: Some(path.clone()), ..Settings::default() };
    with_face(settings, async |served| {
        let mut client = served.client().await;
        client
            .talk("CONFIG SET maxclients 60 notify-keyspace-events KEA -> +OK\nCONFIG REWRITE -> +OK")
            .await;
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(text(), "# mine\nmaxclients = \"60\"\ndir = \"data\"\nnotify-keyspace-events = \"AKE\"\n");
        client.talk("CONFIG SET maxclients 50 -> +OK\nCONFIG REWRITE -> +OK").await;
        assert!(text().contains("maxclients = \"50\""), "{}", text());
        client.talk("CONFIG SET maxclients 1 maxclients 2 -> -ERR CONFIG SET failed (possibly related to argument 'maxclients') - duplicate parameter").await;
        client.talk("CONFIG REWRITE x -> -ERR wrong number of arguments for 'config|rewrite' command").await;
    });
    with_face(Settings::default(), async |served| {
        served
            .client()
            .await
            .talk("CONFIG REWRITE -> -ERR The server is running without a config file")
            .await;
    });
}
