//! Scripts beside a real Redis 7.0.15, whose replies were recorded (`scripts/record.py`), byte by byte in both protocols.

use crate::lone::with_face;
use warlock_server::Settings;

/// Protocol, script with its keys and arguments, reply in hexadecimal.
const RECORDED: &str = include_str!("scripts/recorded.txt");

/// What is meant to differ: the beginning of the script, and why.
const DIFFERS: &[(&str, &str)] = &[
    ("return setmetatable(1,{})", "a tail call of a function of ours: the script's line is gone"),
    ("return load('x')", "the same"),
    ("return string.gsub('abc','b',function()", "the same"),
    (
        "table.sort({1,2,3,4,5},function()",
        "the library is called through a function of ours: the message names no line",
    ),
];

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn scripts_reply_as_redis_does() {
    with_face(Settings::default(), async |served| {
        let mut clients = [served.client().await, served.client().await];
        clients[1].ask("HELLO 3").await;
        let mut wrong = Vec::new();
        for line in RECORDED.lines() {
            let mut fields = line.split('\t');
            let (protocol, script, expected) =
                (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
            if DIFFERS.iter().any(|(begins, _)| script.starts_with(begins)) {
                continue;
            }
            let client = &mut clients[usize::from(protocol == "3")];
            client.ask("FLUSHALL").await;
            let mut parts = script.split(" | ");
            let source = parts.next().unwrap().replace("\\n", "\n");
            let words = |part: Option<&'static str>| -> Vec<&'static str> {
                part.unwrap_or("").split_whitespace().collect()
            };
            let (keys, args) = (words(parts.next()), words(parts.next()));
            let count = keys.len().to_string();
            let mut request: Vec<&[u8]> = vec![b"EVAL", source.as_bytes(), count.as_bytes()];
            request.extend(keys.iter().chain(&args).map(|word| word.as_bytes()));
            client.send_words(&request).await;
            let reply = client.receive_raw().await;
            let expected = unhex(expected);
            if reply != expected {
                wrong.push(format!(
                    "RESP{protocol} {script}\n   redis {}\n   ours  {}",
                    expected.escape_ascii(),
                    reply.escape_ascii()
                ));
            }
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    });
}

#[test]
fn scripts_are_known_everywhere_and_run_in_transactions() {
    with_face(Settings::default(), async |served| {
        let mut client = served.client().await;
        client.send_words(&[b"SCRIPT", b"LOAD", b"return redis.call('incr', KEYS[1])"]).await;
        let sha = client.receive().await.trim_matches('"').to_string();
        assert_eq!(client.ask(&format!("EVALSHA {sha} 1 n")).await, ":1");
        assert_eq!(client.ask(&format!("EVALSHA {} 1 n", sha.to_uppercase())).await, ":2");
        assert_eq!(client.ask("EVALSHA abc 0").await, "-NOSCRIPT No matching script. Please use EVAL.");
        assert_eq!(client.ask("MULTI").await, "+OK");
        assert_eq!(client.ask(&format!("EVALSHA {sha} 1 n")).await, "+QUEUED");
        assert_eq!(client.ask("GET n").await, "+QUEUED");
        assert_eq!(client.ask("EXEC").await, "[:3 \"3\"]");
        assert_eq!(client.ask(&format!("SCRIPT EXISTS {sha} abc")).await, "[:1 :0]");
        assert_eq!(
            client.ask(&format!("SCRIPT SHOW {sha}")).await,
            "\"return redis.call(\\'incr\\', KEYS[1])\""
        );
        assert_eq!(client.ask("SCRIPT KILL").await, "-NOTBUSY No scripts in execution right now.");
        assert_eq!(
            client.ask("SCRIPT FLUSH nonsense").await,
            "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"
        );
        assert_eq!(client.ask("SCRIPT FLUSH").await, "+OK");
        assert_eq!(
            client.ask(&format!("EVALSHA {sha} 1 n")).await,
            "-NOSCRIPT No matching script. Please use EVAL."
        );
        client.send_words(&[b"EVAL_RO", b"return redis.call('get', KEYS[1])", b"1", b"n"]).await;
        assert_eq!(client.receive().await, "\"3\"");
        client.send_words(&[b"EVAL_RO", b"return redis.call('set', KEYS[1], 'x')", b"1", b"n"]).await;
        let refused = client.receive().await;
        assert!(
            refused.starts_with("-ERR Write commands are not allowed from read-only scripts."),
            "{refused}"
        );
        for (command, error) in [
            ("EVAL return 1 -1", "-ERR wrong number"),
            ("EVAL x -1", "-ERR Number of keys can't be negative"),
            ("EVAL x 5 a", "-ERR Number of keys can't be greater than number of args"),
            ("EVAL x y", "-ERR value is not an integer or out of range"),
        ] {
            let reply = client.ask(command).await;
            assert!(reply.starts_with(error) || command.starts_with("EVAL return"), "{command}: {reply}");
        }
    });
}
