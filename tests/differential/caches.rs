//! CLIENT TRACKING: the same conversations with Redis and with a node, between several connections; every reply and every push must be the same.
//!
//! A line is `connection: command`. Connections `a` and `b` speak RESP3, `c` and `d` RESP2. Behind every line each connection is asked for a PING (in its own words), so that
//! what was pushed to it is known.

use crate::sides::Side;
use crate::wire::{Client, Value};
use std::collections::BTreeMap;

const SCRIPTS: &[(&str, &str)] = &[
    (
        "default mode",
        "a: CLIENT TRACKING ON
         a: GET k
         b: SET k 1
         b: SET k 2
         a: MGET k l m
         b: MSET l 1 m 2
         a: GET k
         a: SET k 3
         a: GET k
         b: DEL k nothing
         a: HGET h f
         a: LRANGE l 0 -1
         b: HSET h f 1
         a: STRLEN k
         b: EXPIRE k 100
         b: SET k v
         a: TTL k
         b: EXPIRE k 100
         a: GETEX k
         b: SET k v
         a: EXISTS x y
         b: RENAME k x
         b: COPY x y
         a: CLIENT TRACKING OFF
         b: SET k 9",
    ),
    (
        "all keys",
        "a: CLIENT TRACKING ON
         b: CLIENT TRACKING ON BCAST
         a: GET k
         c: FLUSHALL
         a: GET k
         a: FLUSHDB
         c: SET k v
         a: GET k
         b: FLUSHALL",
    ),
    (
        "own writes",
        "a: CLIENT TRACKING ON NOLOOP
         b: CLIENT TRACKING ON
         a: GET k
         b: GET k
         a: SET k 1
         a: GET k
         b: GET k
         b: SET k 2
         a: CLIENT TRACKINGINFO",
    ),
    (
        "transactions",
        "a: CLIENT TRACKING ON
         a: MULTI
         a: GET k
         a: EXEC
         b: SET k 1
         b: SET k 2
         a: MULTI
         a: GET k
         a: SET k 3
         a: GET k
         a: EXEC
         b: SET k 4
         a: MULTI
         a: GET k
         a: DISCARD
         b: SET k 5",
    ),
    (
        "opt in",
        "a: CLIENT TRACKING ON OPTIN
         a: GET k
         b: SET k 1
         a: CLIENT CACHING YES
         a: GET k
         a: GET l
         b: MSET k 2 l 2
         a: CLIENT CACHING YES
         a: CLIENT TRACKINGINFO
         a: GET k
         b: SET k 3
         a: CLIENT CACHING YES
         a: MULTI
         a: GET k
         a: GET l
         a: EXEC
         b: SET l 4
         b: SET k 4
         a: GET k
         b: SET k 5
         a: CLIENT CACHING YES
         a: PING
         a: GET k
         b: SET k 6
         a: CLIENT CACHING NO",
    ),
    (
        "opt out",
        "a: CLIENT TRACKING ON OPTOUT
         a: GET k
         b: SET k 1
         a: CLIENT CACHING NO
         a: GET k
         a: GET l
         b: SET k 2
         b: SET l 2
         a: CLIENT CACHING NO
         a: CLIENT TRACKINGINFO
         a: CLIENT CACHING YES
         a: CLIENT TRACKING ON OPTIN
         a: CLIENT CACHING MAYBE",
    ),
    (
        "prefixes",
        "a: CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:
         b: CLIENT TRACKING ON BCAST
         c: SET user:1 x
         c: SET other x
         c: SET item:1 x
         a: GET user:1
         c: SET user:1 y
         a: SET item:2 z
         b: SET x 1
         a: CLIENT TRACKING ON BCAST PREFIX use
         a: CLIENT TRACKING ON BCAST PREFIX new:
         a: CLIENT TRACKINGINFO
         c: SET new:1 x
         a: CLIENT TRACKING ON
         a: CLIENT TRACKING OFF
         c: SET user:1 z
         b: CLIENT TRACKINGINFO
         a: CLIENT TRACKING ON BCAST NOLOOP
         a: SET user:9 1
         b: SET user:9 2",
    ),
    (
        "redirected to a subscriber",
        "d: SUBSCRIBE __redis__:invalidate
         c: CLIENT TRACKING ON REDIRECT $d
         c: GET k
         b: SET k 1
         c: GET k
         b: FLUSHALL
         c: CLIENT TRACKING ON REDIRECT $a
         c: GET k
         b: SET k 2
         c: CLIENT TRACKING ON
         c: GET k
         b: SET k 3
         c: CLIENT GETREDIR
         c: CLIENT TRACKING OFF
         c: CLIENT GETREDIR",
    ),
    (
        "redirected to who goes away",
        "a: CLIENT TRACKING ON REDIRECT $d
         a: GET k
         d: QUIT
         b: SET k 1
         a: CLIENT TRACKINGINFO
         a: GET k
         b: SET k 2",
    ),
    (
        "wrong words",
        "a: CLIENT TRACKING
         a: CLIENT TRACKING MAYBE
         a: CLIENT TRACKING ON BOGUS
         a: CLIENT TRACKING ON REDIRECT
         a: CLIENT TRACKING ON REDIRECT x
         a: CLIENT TRACKING ON REDIRECT 999999
         a: CLIENT TRACKING ON REDIRECT -1
         a: CLIENT TRACKING ON PREFIX a
         a: CLIENT TRACKING ON BCAST PREFIX
         a: CLIENT TRACKING ON BCAST PREFIX a PREFIX ab
         a: CLIENT TRACKING ON OPTIN OPTOUT
         a: CLIENT TRACKING ON OPTIN BCAST
         a: CLIENT TRACKINGINFO x
         a: CLIENT GETREDIR x
         a: CLIENT CACHING
         a: CLIENT CACHING YES
         a: CLIENT TRACKING OFF BCAST
         a: CLIENT TRACKINGINFO",
    ),
    (
        "as new",
        "a: CLIENT TRACKING ON
         a: GET k
         a: RESET
         a: CLIENT TRACKINGINFO
         a: CLIENT TRACKING ON
         a: GET k
         b: SET k 1
         a: CLIENT TRACKINGINFO",
    ),
];

struct Talk {
    clients: BTreeMap<char, Client>,
    ids: BTreeMap<char, String>,
}

fn is_pong(value: &Value) -> bool {
    let is = |value: &Value, word: &[u8]| matches!(value, Value::Line('+', text) | Value::Text('$', text) if text == word);
    match value {
        Value::List('*', parts) => parts.first().is_some_and(|first| is(first, b"pong")),
        other => is(other, b"PONG"),
    }
}

impl Talk {
    fn new(side: &Side) -> Talk {
        let mut talk = Talk { clients: BTreeMap::new(), ids: BTreeMap::new() };
        assert!(!side.client().ask(&["FLUSHALL"]).unwrap().is_error());
        for name in ['a', 'b', 'c', 'd'] {
            let mut client = side.client();
            let id = client.ask(&["CLIENT", "ID"]).unwrap().integer().unwrap();
            if name < 'c' {
                client.ask(&["HELLO", "3"]).unwrap();
            }
            talk.clients.insert(name, client);
            talk.ids.insert(name, id.to_string());
        }
        talk
    }

    /// What a line brings to every connection. Ids are replaced by names.
    fn say(&mut self, side: &'static str, line: &str) -> Vec<String> {
        let (name, command) = line.split_once(": ").unwrap();
        let name = name.chars().next().unwrap();
        let command =
            self.ids.iter().fold(command.to_string(), |text, (of, id)| text.replace(&format!("${of}"), id));
        let words: Vec<&str> = command.split(' ').collect();
        let mut said = Vec::new();
        let is_last = words == ["QUIT"];
        let order = std::iter::once(name).chain(self.clients.keys().copied().filter(|other| *other != name));
        for of in order.collect::<Vec<_>>() {
            let Some(client) = self.clients.get_mut(&of) else { continue };
            if of == name {
                said.push(format!("{of} {}", client.ask(&words).unwrap().show()));
                if is_last {
                    self.clients.remove(&of);
                    continue;
                }
            }
            // A transaction queues it, on both sides.
            let words = [b"PING".to_vec()];
            client.send(std::iter::once(&words[..])).unwrap();
            loop {
                let value =
                    client.read().unwrap_or_else(|error| panic!("{side}: {of} after {line}: {error}"));
                let is_queued = matches!(&value, Value::Line('+', text) if text == b"QUEUED");
                if is_pong(&value) || is_queued {
                    break;
                }
                said.push(format!("{of} {}", value.show()));
            }
        }
        self.ids.iter().fold(said, |said, (of, id)| {
            said.into_iter().map(|text| text.replace(&format!(":{id}"), &format!("${of}"))).collect()
        })
    }
}

#[test]
fn caches_are_told_as_by_redis() {
    let (redis, ours) = (Side::redis(), Side::warlock());
    for (name, script) in SCRIPTS {
        let (mut with_redis, mut with_us) = (Talk::new(&redis), Talk::new(&ours));
        for line in script.lines().map(str::trim) {
            let (theirs, ours) = (with_redis.say("redis", line), with_us.say("warlock", line));
            assert_eq!(ours, theirs, "{name}: {line} (ours, then what Redis says)");
        }
    }
}
