//! CLIENT: connections, seen and steered from one of them.

use super::{Effect, OwnCommand, Paused, error, is, tracking};
use crate::connection::{Connection, Replies, State};
use crate::resp::Protocol;
use crate::tracking::Mode;
use bytes::Bytes;
use std::time::Duration;
use storage::commands::Arity;
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[OwnCommand {
    name: "CLIENT",
    summary: "Tells about connections, names, pauses and closes them.",
    differs: "Tracking follows the log: a write through any node is told. NO-EVICT and NO-TOUCH change nothing: nothing is evicted. PAUSE and UNPAUSE, as LIST and KILL, are about the clients of the node that is asked; a pause of all does not hold AUTH, HELLO, CLIENT and WARLOCK, so that it can be ended.",
    arity: Arity::AtLeast(1),
    keeps_caching: true,
    paused: Paused::Never,
    parts: &[
        "ID",
        "GETNAME",
        "SETNAME",
        "SETINFO",
        "INFO",
        "LIST",
        "KILL",
        "NO-EVICT",
        "NO-TOUCH",
        "PAUSE",
        "UNPAUSE",
        "REPLY",
        "UNBLOCK",
        "TRACKING",
        "CACHING",
        "TRACKINGINFO",
        "GETREDIR",
        "HELP",
    ],
    handler: client,
    ..OwnCommand::BASE
}];

/// A subcommand: its name, how many arguments it takes, what it does.
type Subcommand = (&'static str, Arity, fn(&Connection, &mut State, &[&[u8]]) -> Effect);

const SUBCOMMANDS: &[Subcommand] = &[
    ("ID", Arity::Exactly(0), |connection, _, _| Effect::Reply(id(connection))),
    ("GETNAME", Arity::Exactly(0), |_, state, _| {
        Effect::Reply(if state.name.is_empty() { Reply::Null } else { Reply::Bulk(state.name.clone()) })
    }),
    ("SETNAME", Arity::Exactly(1), set_name),
    ("SETINFO", Arity::Exactly(2), set_info),
    ("INFO", Arity::Exactly(0), |connection, state, _| {
        Effect::Reply(Reply::Bulk(Bytes::from(describe(connection, state) + "\n")))
    }),
    ("LIST", Arity::AtLeast(0), list),
    ("KILL", Arity::AtLeast(1), kill),
    ("NO-EVICT", Arity::Exactly(1), switch),
    ("NO-TOUCH", Arity::Exactly(1), switch),
    ("PAUSE", Arity::AtLeast(1), pause),
    ("UNPAUSE", Arity::Exactly(0), |connection, _, _| {
        connection.face.unpause();
        Effect::Reply(Reply::Ok)
    }),
    ("REPLY", Arity::Exactly(1), reply),
    ("UNBLOCK", Arity::AtLeast(1), unblock),
    ("TRACKING", Arity::AtLeast(1), tracking::tracking),
    ("CACHING", Arity::Exactly(1), tracking::caching),
    ("TRACKINGINFO", Arity::Exactly(0), |connection, state, _| {
        Effect::Reply(tracking::info(connection, state))
    }),
    ("GETREDIR", Arity::Exactly(0), |connection, _, _| Effect::Reply(tracking::redirection(connection))),
    ("HELP", Arity::Exactly(0), |_, _, _| Effect::Reply(super::help(HELP))),
];

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are: ADDR, LADDR, TYPE, USER, SKIPME, ID.",
    "LIST [options ...]",
    "    Return information about client connections. Options: TYPE, ID.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set the library's name and version: LIB-NAME, LIB-VER.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "HELP",
    "    Print this help.",
];

fn client(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let (what, rest) = (args[0], &args[1..]);
    match SUBCOMMANDS.iter().find(|(name, ..)| is(what, name)) {
        None => super::unknown_subcommand("CLIENT", what),
        Some((_, arity, _)) if !arity.allows(rest.len()) => super::wrong_subcommand_arity("client", what),
        Some((_, _, handler)) => handler(connection, state, rest),
    }
}

fn id(connection: &Connection) -> Reply {
    Reply::Integer(i64::try_from(connection.id).unwrap_or(i64::MAX))
}

fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// What is wrong with a connection's name: it stands in the lines of CLIENT LIST.
pub(super) fn check_name(name: &[u8]) -> Result<(), Reply> {
    let refused = Reply::error("ERR Client names cannot contain spaces, newlines or special characters.");
    if is_plain(name) { Ok(()) } else { Err(refused) }
}

fn set_name(_: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    if let Err(refused) = check_name(args[0]) {
        return Effect::Reply(refused);
    }
    state.name = Bytes::copy_from_slice(args[0]);
    Effect::Reply(Reply::Ok)
}

fn set_info(_: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let (field, value) = (args[0], args[1]);
    if !is_plain(value) {
        let field = String::from_utf8_lossy(field).to_lowercase();
        return error(format!("ERR {field} cannot contain spaces, newlines or special characters."));
    }
    let value = Bytes::copy_from_slice(value);
    if is(field, "LIB-NAME") {
        state.library.0 = value;
    } else if is(field, "LIB-VER") {
        state.library.1 = value;
    } else {
        return error(format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(field)));
    }
    Effect::Reply(Reply::Ok)
}

fn switch(_: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    if is(args[0], "ON") || is(args[0], "OFF") { Effect::Reply(Reply::Ok) } else { error("ERR syntax error") }
}

fn reply(_: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let replies = match args[0] {
        word if is(word, "ON") => Replies::On,
        word if is(word, "OFF") => Replies::Off,
        word if is(word, "SKIP") && state.replies == Replies::Off => return Effect::Silence,
        word if is(word, "SKIP") => Replies::SkipNext,
        _ => return error("ERR syntax error"),
    };
    state.set_replies(replies);
    if replies == Replies::On { Effect::Reply(Reply::Ok) } else { Effect::Silence }
}

fn pause(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let Some(ms) = std::str::from_utf8(args[0]).ok().and_then(|text| text.parse::<i64>().ok()) else {
        return error("ERR timeout is not an integer or out of range");
    };
    let Ok(ms) = u64::try_from(ms) else { return error("ERR timeout is negative") };
    let is_for_all = match args[1..] {
        [] => true,
        [mode] if is(mode, "ALL") => true,
        [mode] if is(mode, "WRITE") => false,
        [_] => return error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
        _ => {
            return error(
                "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
            );
        }
    };
    // A year is for ever, and added to the clock it does not overflow.
    let time = Duration::from_millis(ms).min(Duration::from_secs(365 * 86_400));
    connection.face.pause(time, is_for_all);
    Effect::Reply(Reply::Ok)
}

fn unblock(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let as_error = match args[1..] {
        [] => false,
        [mode] if is(mode, "TIMEOUT") => false,
        [mode] if is(mode, "ERROR") => true,
        _ => return error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
    };
    match parse_id(args[0]) {
        None => error("ERR value is not an integer or out of range"),
        Some(id) => Effect::Reply(Reply::flag(connection.face.engine().unblock(id, as_error))),
    }
}

fn parse_id(arg: &[u8]) -> Option<u64> {
    std::str::from_utf8(arg).ok()?.parse().ok()
}

/// What CLIENT LIST and KILL choose by. Nothing: any.
#[derive(Default)]
struct Choice {
    ids: Vec<u64>,
    address: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    kind: Option<&'static str>,
    user: Option<Vec<u8>>,
    skips_me: bool,
}

impl Choice {
    fn fits(&self, connection: &Connection, state: &State) -> bool {
        let is_or_any = |wanted: &Option<Vec<u8>>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == text.as_bytes())
        };
        (self.ids.is_empty() || self.ids.contains(&connection.id))
            && is_or_any(&self.address, &connection.address)
            && is_or_any(&self.local, &connection.local)
            && is_or_any(&self.user, "default")
            && self.kind.is_none_or(|kind| kind == kind_of(state))
    }
}

fn kind_of(state: &State) -> &'static str {
    if state.subscribed.count() > 0 { "pubsub" } else { "normal" }
}

fn parse_kind(arg: &[u8]) -> Option<&'static str> {
    let kinds = [
        ("normal", "normal"),
        ("master", "master"),
        ("replica", "replica"),
        ("slave", "replica"),
        ("pubsub", "pubsub"),
    ];
    kinds.iter().find(|(word, _)| is(arg, word)).map(|(_, kind)| *kind)
}

fn list(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let mut choice = Choice::default();
    match args {
        [] => {}
        [what, kind] if is(what, "TYPE") => match parse_kind(kind) {
            Some(kind) => choice.kind = Some(kind),
            None => {
                return error(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)));
            }
        },
        [what, ids @ ..] if is(what, "ID") && !ids.is_empty() => {
            for id in ids {
                match parse_id(id) {
                    Some(id) => choice.ids.push(id),
                    None => return error("ERR Invalid client ID"),
                }
            }
        }
        _ => return error("ERR syntax error"),
    }
    let mut text = String::new();
    for other in connection.face.all() {
        let line = |state: &State| choice.fits(&other, state).then(|| describe(&other, state) + "\n");
        let line = if other.id == connection.id { line(state) } else { other.look(line).flatten() };
        text.extend(line);
    }
    Effect::Reply(Reply::Verbatim(*b"txt", Bytes::from(text)))
}

fn parse_kill(args: &[&[u8]]) -> Result<Choice, String> {
    let mut choice = Choice { skips_me: true, ..Choice::default() };
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err("ERR syntax error".into());
    }
    for pair in args.chunks_exact(2) {
        let (option, value) = (pair[0], pair[1]);
        if is(option, "ID") {
            let id = parse_id(value).filter(|id| *id > 0);
            choice.ids = vec![id.ok_or("ERR client-id should be greater than 0")?];
        } else if is(option, "ADDR") {
            choice.address = Some(value.to_vec());
        } else if is(option, "LADDR") {
            choice.local = Some(value.to_vec());
        } else if is(option, "TYPE") {
            let kind = parse_kind(value);
            choice.kind =
                Some(kind.ok_or_else(|| {
                    format!("ERR Unknown client type '{}'", String::from_utf8_lossy(value))
                })?);
        } else if is(option, "USER") {
            if value != b"default" {
                return Err(format!("ERR No such user '{}'", String::from_utf8_lossy(value)));
            }
            choice.user = Some(value.to_vec());
        } else if is(option, "SKIPME") {
            choice.skips_me = match value {
                word if is(word, "YES") => true,
                word if is(word, "NO") => false,
                _ => return Err("ERR syntax error".into()),
            };
        } else {
            return Err("ERR syntax error".into());
        }
    }
    Ok(choice)
}

fn kill(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let is_old_form = args.len() == 1;
    let choice = if is_old_form {
        Choice { address: Some(args[0].to_vec()), ..Choice::default() }
    } else {
        match parse_kill(args) {
            Ok(choice) => choice,
            Err(text) => return error(text),
        }
    };
    let (mut count, mut kills_me) = (0, false);
    for other in connection.face.all() {
        if other.id == connection.id {
            kills_me = !choice.skips_me && choice.fits(connection, state);
            count += usize::from(kills_me);
        } else if other.look(|state| choice.fits(&other, state)).unwrap_or(false) {
            other.kill();
            count += 1;
        }
    }
    let reply = match (is_old_form, count) {
        (true, 0) => return error("ERR No such client"),
        (true, _) => Reply::Ok,
        (false, count) => Reply::count(count),
    };
    if kills_me { Effect::Close(reply) } else { Effect::Reply(reply) }
}

/// A line of CLIENT LIST.
fn describe(connection: &Connection, state: &State) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let (input, writes, output) = state.bytes();
    let mut flags = String::new();
    let trackers = connection.face.tracking.borrow();
    let tracker = trackers.of(connection.id);
    let redirect =
        tracker.map_or(-1, |tracker| i64::try_from(tracker.redirect.unwrap_or(0)).unwrap_or(i64::MAX));
    for (letter, is_set) in [
        ('O', state.is_monitor),
        ('P', state.subscribed.count() > 0),
        ('x', state.multi.is_some()),
        ('b', state.is_blocked()),
        ('t', tracker.is_some()),
        ('R', tracker.is_some_and(|tracker| tracker.is_broken)),
        ('B', tracker.is_some_and(|tracker| tracker.mode == Mode::Broadcast)),
    ] {
        flags.extend(is_set.then_some(letter));
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let (name, at) = state.last;
    let command = state.last_part.map_or(name.to_string(), |part| format!("{name}|{part}")).to_lowercase();
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub=0 multi={} qbuf={input} qbuf-free=0 \
         argv-mem={writes} multi-mem=0 rbs=0 rbp=0 obl={output} oll=0 omem={output} tot-mem={} events=r cmd={} user=default redir={redirect} resp={} \
         lib-name={} lib-ver={}",
        connection.id,
        connection.address,
        connection.local,
        text(&state.name),
        connection.since.elapsed().as_secs(),
        at.elapsed().as_secs(),
        state.db,
        state.subscribed.channels.len(),
        state.subscribed.patterns.len(),
        state.multi.as_ref().map_or(-1, |multi| i64::try_from(multi.len()).unwrap_or(i64::MAX)),
        input + writes + output,
        command,
        if state.protocol == Protocol::Resp3 { 3 } else { 2 },
        text(&state.library.0),
        text(&state.library.1),
    )
}
