//! What an operator looks at and turns: CONFIG, SLOWLOG, LATENCY, MONITOR.

use super::{Behind, Effect, InMulti, OwnCommand, error, is};
use crate::config;
use crate::connection::{Connection, State};
use bytes::Bytes;
use storage::commands::Arity;
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "CONFIG",
        summary: "Shows settings of this node, changes some of them until it stops, and writes those to its configuration file: GET, SET, RESETSTAT, REWRITE.",
        differs: "The names are Redis's where the setting is; most of Redis's settings do not exist.",
        arity: Arity::AtLeast(1),
        is_secret: true,
        parts: &["GET", "SET", "RESETSTAT", "REWRITE", "HELP"],
        handler: config,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "SLOWLOG",
        summary: "Shows commands that took long on this node: GET, LEN, RESET.",
        arity: Arity::AtLeast(1),
        parts: &["GET", "LEN", "RESET", "HELP"],
        handler: slowlog,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "LATENCY",
        summary: "Shows samples of slow commands: LATEST, HISTORY, HISTOGRAM, DOCTOR, RESET.",
        arity: Arity::AtLeast(1),
        parts: &["LATEST", "HISTORY", "HISTOGRAM", "DOCTOR", "RESET", "HELP"],
        handler: latency,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "MONITOR",
        summary: "Shows every command that comes to this node.",
        differs: "AUTH, HELLO and CONFIG are not shown, since they may carry a password (Redis shows AUTH without its arguments); nor are the commands of a transaction or a script one by one.",
        arity: Arity::Exactly(0),
        behind: Behind::Everything,
        in_multi: InMulti::Fails("ERR MONITOR isn't allowed for DENY BLOCKING client"),
        is_secret: true,
        handler: |connection, state, _| {
            state.is_monitor = true;
            connection.face.set_monitor(connection.id, true);
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
];

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

fn number(number: u64) -> Reply {
    Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

const CONFIG_HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
    "HELP",
    "    Print this help.",
];

fn config(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let face = &connection.face;
    match args {
        [what, patterns @ ..] if is(what, "GET") && !patterns.is_empty() => {
            let found = config::matching(face, patterns);
            Effect::Reply(Reply::Map(found.iter().map(|(name, value)| (text(name), text(value))).collect()))
        }
        [what, pairs @ ..] if is(what, "SET") && !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            match config::set(face, pairs) {
                Ok(()) => Effect::Reply(Reply::Ok),
                Err(text) => error(text),
            }
        }
        [what] if is(what, "RESETSTAT") => {
            face.stats.borrow_mut().reset();
            Effect::Reply(Reply::Ok)
        }
        [what] if is(what, "REWRITE") => match config::rewrite(face) {
            Ok(()) => Effect::Reply(Reply::Ok),
            Err(text) => error(text),
        },
        [what] if is(what, "HELP") => Effect::Reply(super::help(CONFIG_HELP)),
        [what, ..] if ["GET", "SET", "RESETSTAT", "REWRITE"].iter().any(|known| is(what, known)) => {
            super::wrong_subcommand_arity("config", what)
        }
        [what, ..] => super::unknown_subcommand("CONFIG", what),
        [] => error("ERR wrong number of arguments for 'config' command"),
    }
}

const SLOWLOG_HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
    "    Print this help.",
];

fn slowlog(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let mut stats = connection.face.stats.borrow_mut();
    match args {
        [what] if is(what, "LEN") => Effect::Reply(Reply::count(stats.slow.len())),
        [what] if is(what, "RESET") => {
            stats.slow.clear();
            Effect::Reply(Reply::Ok)
        }
        [what] if is(what, "HELP") => Effect::Reply(super::help(SLOWLOG_HELP)),
        [what, rest @ ..] if is(what, "GET") && rest.len() < 2 => {
            let count = match rest.first() {
                None => Some(10),
                Some(arg) => std::str::from_utf8(arg).ok().and_then(|text| text.parse::<i64>().ok()),
            };
            let count = match count {
                Some(-1) => usize::MAX,
                Some(count @ 0..) => usize::try_from(count).unwrap_or(usize::MAX),
                _ => return error("ERR count should be greater than or equal to -1"),
            };
            let rows = stats.slow.iter().take(count).map(|slow| {
                Reply::Array(vec![
                    Reply::Integer(slow.id),
                    number(slow.at),
                    number(slow.micros),
                    Reply::Array(slow.words.iter().cloned().map(Reply::Bulk).collect()),
                    text(&slow.address),
                    Reply::Bulk(slow.name.clone()),
                ])
            });
            Effect::Reply(Reply::Array(rows.collect()))
        }
        [what, ..] if is(what, "GET") => super::wrong_use("SLOWLOG", what),
        [what, ..] if ["LEN", "RESET", "HELP"].iter().any(|known| is(what, known)) => {
            super::wrong_subcommand_arity("slowlog", what)
        }
        [what, ..] => super::unknown_subcommand("SLOWLOG", what),
        [] => error("ERR wrong number of arguments for 'slowlog' command"),
    }
}

const LATENCY_HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of commands in histogram format.",
    "HELP",
    "    Print this help.",
];

/// There is one kind of event: a command that took longer than the threshold.
const EVENT: &str = "command";

fn latency(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let mut stats = connection.face.stats.borrow_mut();
    match args {
        [what] if is(what, "LATEST") => {
            let worst = stats.latency.iter().map(|(_, ms)| *ms).max();
            let rows = stats.latency.back().zip(worst).map(|((at, ms), worst)| {
                Reply::Array(vec![text(EVENT), number(*at), number(*ms), number(worst)])
            });
            Effect::Reply(Reply::Array(rows.into_iter().collect()))
        }
        [what, event] if is(what, "HISTORY") => {
            let rows = stats.latency.iter().filter(|_| is(event, EVENT));
            Effect::Reply(Reply::Array(
                rows.map(|(at, ms)| Reply::Array(vec![number(*at), number(*ms)])).collect(),
            ))
        }
        [what, events @ ..] if is(what, "RESET") => {
            let is_meant = events.is_empty() || events.iter().any(|event| is(event, EVENT));
            let had = is_meant && !stats.latency.is_empty();
            if is_meant {
                stats.latency.clear();
            }
            Effect::Reply(Reply::flag(had))
        }
        [what] if is(what, "DOCTOR") => {
            let report = match stats.latency.iter().map(|(_, ms)| *ms).max() {
                _ if connection.face.tunable.borrow().latency_ms == 0 => {
                    "Latency monitoring is disabled on this node. CONFIG SET latency-monitor-threshold <milliseconds> enables it.\n".to_string()
                }
                None => "No command took longer than the threshold.\n".to_string(),
                Some(worst) => format!(
                    "{} samples of commands above the threshold, the worst {worst} ms. A write takes as long as the slower disk of a majority: \
                     look at the disks and at the links between the nodes; SLOWLOG GET shows the commands.\n",
                    stats.latency.len()
                ),
            };
            Effect::Reply(Reply::Verbatim(*b"txt", Bytes::from(report)))
        }
        [what, names @ ..] if is(what, "HISTOGRAM") => {
            let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| is(wanted, name));
            let counts = stats.commands.iter().filter(|(name, count)| wanted(name) && count.calls > 0);
            let rows = counts.map(|(name, count)| {
                let mut sum = 0;
                let buckets = count.histogram.iter().enumerate().filter(|(_, hits)| **hits > 0);
                let buckets = buckets.map(|(power, hits)| {
                    sum += hits;
                    (number(1 << power), number(sum))
                });
                let fields = vec![
                    (text("calls"), number(count.calls)),
                    (text("histogram_usec"), Reply::Map(buckets.collect())),
                ];
                (text(&name.to_ascii_lowercase()), Reply::Map(fields))
            });
            Effect::Reply(Reply::Map(rows.collect()))
        }
        [what] if is(what, "HELP") => Effect::Reply(super::help(LATENCY_HELP)),
        [what, ..] if ["LATEST", "HISTORY", "DOCTOR", "HELP"].iter().any(|known| is(what, known)) => {
            super::wrong_subcommand_arity("latency", what)
        }
        [what, ..] => super::unknown_subcommand("LATENCY", what),
        [] => error("ERR wrong number of arguments for 'latency' command"),
    }
}
