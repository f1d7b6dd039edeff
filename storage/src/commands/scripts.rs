//! EVAL and its relatives: a script is one command of the log, and a transaction of its own.
//!
//! * S1: a script that uses up its work or memory has no effect at all.
//! * S2: a script that fails otherwise keeps what it did before, as in Redis; so does EXEC with such a script in it.
//! * S3: a command that a script calls and that fails changes nothing.

use super::args::is;
use super::number::{database, parse_integer};
use super::spec::{Arity, CommandSpec, Flag, Group, Handler, Keys};
use super::{Args, REPLY_BYTES_MAX, errors, lookup};
use crate::machine::{Stamp, Txn, View, Work};
use crate::reply::Reply;
use crate::script::{self, Ended, Host, SOURCE_BYTES_MAX, Script};
use crate::store::StoreError;
use bytes::Bytes;

const SCRIPTING: CommandSpec = CommandSpec {
    since: "2.6.0",
    group: Group::Scripting,
    arity: Arity::AtLeast(2),
    keys: Keys::Counted { at: 1 },
    ..CommandSpec::BASE
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EVAL",
        summary: "Runs a server-side Lua script.",
        flags: &[Flag::NoScript, Flag::Grows, Flag::NamesClient, Flag::Tells],
        differs: "Runs on every node, so it is counted: a script that does more than 5 million steps or holds more than 64 MB is stopped, and nothing of it is \
                  done. No clock: TIME is the log's. Blocking commands do not wait. See scripts.md.",
        handler: Handler::Write(|txn, stamp, args| {
            let source = Bytes::copy_from_slice(args[0]);
            reply_of(evaluate(txn, stamp, args, &source, true))
        }),
        ..SCRIPTING
    },
    CommandSpec {
        name: "EVALSHA",
        summary: "Runs a server-side Lua script by its SHA1 digest.",
        flags: &[Flag::NoScript, Flag::Grows, Flag::NamesClient, Flag::Tells],
        differs: "As EVAL. A script is known on every node; of those that were only evaluated, never loaded, the newest 1000 are kept.",
        handler: Handler::Write(|txn, stamp, args| {
            reply_of(call_of(args).and_then(|_| {
                let source = txn.look(|view| known(view, args[0]))?;
                evaluate(txn, stamp, args, &source, false)
            }))
        }),
        ..SCRIPTING
    },
    CommandSpec {
        name: "EVAL_RO",
        summary: "Runs a read-only server-side Lua script.",
        since: "7.0.0",
        flags: &[Flag::NoScript],
        differs: "A read: it goes through no log, and so the script is not kept for EVALSHA.",
        handler: Handler::Read(|view, args| reply_of(look(view, args, &Bytes::copy_from_slice(args[0])))),
        ..SCRIPTING
    },
    CommandSpec {
        name: "EVALSHA_RO",
        summary: "Runs a read-only server-side Lua script by its SHA1 digest.",
        since: "7.0.0",
        flags: &[Flag::NoScript],
        differs: "A read: it goes through no log.",
        handler: Handler::Read(|view, args| {
            reply_of(call_of(args).and_then(|_| look(view, args, &known(view, args[0])?)))
        }),
        ..SCRIPTING
    },
    CommandSpec {
        name: "SCRIPT",
        summary: "Loads, shows and forgets scripts: LOAD, EXISTS, SHOW, FLUSH, KILL.",
        arity: Arity::AtLeast(1),
        keys: Keys::None,
        flags: &[Flag::NoScript, Flag::Tells],
        differs: "Scripts are part of the replicated data. KILL finds nothing to kill: scripts stop by themselves. No debugger. SHOW is that of Valkey.",
        handler: Handler::Write(|txn, _, args| script(txn, args)),
        ..SCRIPTING
    },
];

const NO_SCRIPT: Reply = Reply::error("NOSCRIPT No matching script. Please use EVAL.");
const EXHAUSTED: Reply = Reply::error(
    "ERR the script was stopped: it does too much at once (more than 5000000 steps); nothing of it was done. Do the work in several calls",
);
const FULL: Reply = Reply::error(
    "ERR the script was stopped: it holds too much memory (more than 64 MB); nothing of it was done. Do the work in several calls",
);
const NO_ROOM: Reply = Reply::error("ERR this node has no memory for scripts; restart it");
const LARGE_REPLY: Reply = Reply::error(
    "ERR the reply of this script is too large (more than 32 MB); nothing of it was done. Ask for less at once",
);
const LARGE_SOURCE: Reply = Reply::error("ERR the script is too long (more than 1 MB)");

fn reply_of(result: Result<Reply, Reply>) -> Reply {
    result.unwrap_or_else(|error| error)
}

/// KEYS and ARGV.
type Words<'a> = (&'a [&'a [u8]], &'a [&'a [u8]]);

fn call_of<'a>(args: &Args<'a>) -> Result<Words<'a>, Reply> {
    let count = parse_integer(args[1]).ok_or(errors::NOT_AN_INTEGER)?;
    let words = &args.all()[2..];
    if count > words.len() as i64 {
        return Err(Reply::error("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Reply::error("ERR Number of keys can't be negative"))?;
    Ok(words.split_at(count))
}

/// A SHA-1 as a client writes it.
fn parse_sha(text: &[u8]) -> Option<[u8; 20]> {
    let mut sha = [0; 20];
    if text.len() != 40 {
        return None;
    }
    for (byte, digits) in sha.iter_mut().zip(text.chunks(2)) {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(sha)
}

fn known(view: &View<'_>, sha: &[u8]) -> Result<Bytes, Reply> {
    parse_sha(sha).and_then(|sha| view.script(&sha)).ok_or(NO_SCRIPT)
}

/// Whether the first line of a script forbids writing. An error if it says what nobody knows.
fn is_readonly(source: &[u8]) -> Result<bool, Reply> {
    if !source.starts_with(b"#!") {
        return Ok(false);
    }
    let Some(end) = source.iter().position(|byte| *byte == b'\n') else {
        return Err(Reply::error("ERR Invalid script shebang"));
    };
    let line = String::from_utf8_lossy(&source[..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Reply::Error(format!("ERR Unexpected engine in script shebang: {engine}").into()));
    }
    let mut is_readonly = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Reply::Error(format!("ERR Unknown lua shebang option: {word}").into()));
        };
        for flag in flags.split(',') {
            match flag {
                "no-writes" => is_readonly = true,
                "" | "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => {
                    return Err(Reply::Error(
                        format!("ERR Unexpected flag in script shebang: {other}").into(),
                    ));
                }
            }
        }
    }
    Ok(is_readonly)
}

fn evaluate(
    txn: &mut Txn<'_>,
    stamp: &Stamp,
    args: &Args<'_>,
    source: &Bytes,
    is_new: bool,
) -> Result<Reply, Reply> {
    let (keys, words) = call_of(args)?;
    if source.len() > SOURCE_BYTES_MAX {
        return Err(LARGE_SOURCE);
    }
    let is_readonly = is_readonly(source)?;
    let sha = script::sha1_hex(source);
    let seed = stamp.slot.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stamp.at_ms ^ u64::from(stamp.index) << 48;
    let script = Script { source, sha, keys, args: words, seed, only_compile: false };
    let ended = script::run(&script, &mut Writer { txn, db: args.db, is_readonly });
    let reply = match ended {
        Ended::NotCompiled(text) => return Err(Reply::Error(text)),
        Ended::Exhausted => return Err(EXHAUSTED),
        Ended::Full => return Err(FULL),
        Ended::NoRoom => {
            txn.poison(StoreError::new("no memory for an interpreter of scripts"));
            return Err(NO_ROOM);
        }
        Ended::Reply(reply) if reply.bytes_at_most() > REPLY_BYTES_MAX => return Err(LARGE_REPLY),
        Ended::Reply(reply) => reply,
        Ended::Failed(text) => Reply::Error(text),
        Ended::Compiled => Reply::Null,
    };
    if is_new && let Some(sha) = parse_sha(script.sha.as_bytes()) {
        txn.put_script(&sha, source, false);
    }
    // An error that the script returned, or failed with: what it did stays done (S2).
    txn.keep_despite_error();
    Ok(reply)
}

fn look(view: &View<'_>, args: &Args<'_>, source: &Bytes) -> Result<Reply, Reply> {
    let (keys, words) = call_of(args)?;
    if source.len() > SOURCE_BYTES_MAX {
        return Err(LARGE_SOURCE);
    }
    is_readonly(source)?;
    let sha = script::sha1_hex(source);
    let script = Script { source, sha, keys, args: words, seed: view.random(), only_compile: false };
    match script::run(&script, &mut Reader { view, db: args.db }) {
        Ended::Reply(reply) => Ok(reply),
        Ended::Failed(text) | Ended::NotCompiled(text) => Err(Reply::Error(text)),
        Ended::Exhausted => Err(EXHAUSTED),
        Ended::Full => Err(FULL),
        Ended::NoRoom => Err(NO_ROOM),
        Ended::Compiled => Ok(Reply::Null),
    }
}

const NOT_ALLOWED: Reply = Reply::error("ERR This Redis command is not allowed from script");
const UNKNOWN: Reply = Reply::error("ERR Unknown Redis command called from script");
const WRONG_COUNT: Reply = Reply::error("ERR Wrong number of args calling Redis command from script");
const READ_ONLY: Reply = Reply::error("ERR Write commands are not allowed from read-only scripts.");

/// What a script wants of its connection, with the number of arguments.
enum Own {
    /// Answered here.
    Reply(Reply),
    /// The database from now on.
    Select(u8),
}

type OwnCommand = (&'static str, Arity, fn(u64, &[&[u8]]) -> Own);

/// Commands of the connection that scripts use. The time is the log's.
const OWN: &[OwnCommand] = &[
    ("TIME", Arity::Exactly(0), |now_ms, _| {
        let [seconds, micros] =
            [now_ms / 1000, now_ms % 1000 * 1000].map(|part| Reply::Bulk(part.to_string().into()));
        Own::Reply(Reply::Array(vec![seconds, micros]))
    }),
    ("PING", Arity::AtLeast(0), |_, args| {
        Own::Reply(match args {
            [] => Reply::simple("PONG"),
            [text] => Reply::bulk(text),
            _ => errors::wrong_arity_of("ping"),
        })
    }),
    ("ECHO", Arity::Exactly(1), |_, args| Own::Reply(Reply::bulk(args[0]))),
    ("SELECT", Arity::Exactly(1), |_, args| database(args[0]).map_or_else(Own::Reply, Own::Select)),
];

/// Commands of the connection that Redis knows and refuses to scripts, after a look at the number of arguments: the others it does not know at all.
const REFUSED: &[(&str, Arity)] = &[
    ("AUTH", Arity::AtLeast(1)),
    ("CLIENT", Arity::AtLeast(1)),
    ("CONFIG", Arity::AtLeast(1)),
    ("DISCARD", Arity::Exactly(0)),
    ("EXEC", Arity::Exactly(0)),
    ("HELLO", Arity::AtLeast(0)),
    ("MONITOR", Arity::Exactly(0)),
    ("MULTI", Arity::Exactly(0)),
    ("PSUBSCRIBE", Arity::AtLeast(1)),
    ("PUNSUBSCRIBE", Arity::AtLeast(0)),
    ("QUIT", Arity::AtLeast(0)),
    ("RESET", Arity::Exactly(0)),
    ("SAVE", Arity::Exactly(0)),
    ("BGSAVE", Arity::AtLeast(0)),
    ("SUBSCRIBE", Arity::AtLeast(1)),
    ("UNSUBSCRIBE", Arity::AtLeast(0)),
    ("UNWATCH", Arity::Exactly(0)),
    ("WAIT", Arity::Exactly(2)),
    ("WATCH", Arity::AtLeast(1)),
    ("SLOWLOG", Arity::AtLeast(1)),
    ("LATENCY", Arity::AtLeast(1)),
    ("WARLOCK", Arity::AtLeast(0)),
];

/// What a script called: refused, answered, or a command of the table.
fn resolve(
    now_ms: u64,
    db: &mut u8,
    command: &[&[u8]],
    is_readonly: bool,
) -> Result<&'static CommandSpec, Reply> {
    let Some((name, args)) = command.split_first() else { return Err(UNKNOWN) };
    if let Some((_, arity, run)) = OWN.iter().find(|(own, ..)| is(name, own)) {
        if !arity.allows(args.len()) {
            return Err(WRONG_COUNT);
        }
        return Err(match run(now_ms, args) {
            Own::Reply(reply) => reply,
            Own::Select(chosen) => {
                *db = chosen;
                Reply::Ok
            }
        });
    }
    let Some(spec) = lookup(name) else {
        return Err(match REFUSED.iter().find(|(refused, _)| is(name, refused)) {
            None => UNKNOWN,
            Some((_, arity)) if !arity.allows(args.len()) => WRONG_COUNT,
            Some(_) => NOT_ALLOWED,
        });
    };
    match () {
        () if !spec.arity.allows(args.len()) => Err(WRONG_COUNT),
        () if spec.flags.contains(&Flag::NoScript) => Err(NOT_ALLOWED),
        () if is_readonly && spec.is_write() => Err(READ_ONLY),
        () => Ok(spec),
    }
}

/// Answers a script that may write.
struct Writer<'a, 'm> {
    txn: &'a mut Txn<'m>,
    db: u8,
    is_readonly: bool,
}

impl Host for Writer<'_, '_> {
    fn call(&mut self, command: &[&[u8]], work: &mut i64) -> Reply {
        let spec = match resolve(self.txn.stamp.at_ms, &mut self.db, command, self.is_readonly) {
            Ok(spec) => spec,
            Err(reply) => return reply,
        };
        self.txn.work.set(*work);
        let reply = if spec.is_write() {
            self.txn.attempt(|txn| txn.execute(self.db, command))
        } else {
            self.txn.execute(self.db, command)
        };
        *work = self.txn.work.left();
        self.txn.work = Work::default();
        reply
    }
}

/// Answers a script that may only look.
struct Reader<'a, 'v> {
    view: &'a View<'v>,
    db: u8,
}

impl Host for Reader<'_, '_> {
    fn call(&mut self, command: &[&[u8]], work: &mut i64) -> Reply {
        let spec = match resolve(self.view.now_ms(), &mut self.db, command, true) {
            Ok(spec) => spec,
            Err(reply) => return reply,
        };
        let Handler::Read(handler) = spec.handler else { return READ_ONLY };
        self.view.work.set(*work);
        let reply = handler(self.view, &Args::new(self.db, &command[1..]));
        *work = self.view.work.left();
        // The view may be used for other commands, which have no end.
        self.view.work.set(i64::MAX);
        reply
    }
}

const HELP: &[&str] = &[
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts, on every node.",
    "KILL",
    "    Kill the currently executing Lua script: there is never one to kill.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
    "SHOW <sha1>",
    "    Return the text of a script.",
    "HELP",
    "    Prints this help.",
];

fn script(txn: &mut Txn<'_>, args: &Args<'_>) -> Reply {
    match args.all() {
        [name, source] if is(name, "LOAD") => reply_of(load(txn, source)),
        [name, shas @ ..] if is(name, "EXISTS") && !shas.is_empty() => txn.look(|view| {
            Reply::Array(shas.iter().map(|sha| Reply::flag(known(view, sha).is_ok())).collect())
        }),
        [name, sha] if is(name, "SHOW") => {
            let source = txn.look(|view| known(view, sha));
            source.map_or_else(|_| Reply::error("NOSCRIPT No matching script."), Reply::Bulk)
        }
        [name, mode @ ..] if is(name, "FLUSH") => {
            if mode.len() > 1 || mode.iter().any(|mode| !is(mode, "ASYNC") && !is(mode, "SYNC")) {
                return Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
            }
            txn.flush_scripts();
            Reply::Ok
        }
        [name] if is(name, "KILL") => Reply::error("NOTBUSY No scripts in execution right now."),
        [name] if is(name, "HELP") => Reply::Array(HELP.iter().map(|line| Reply::simple(line)).collect()),
        [name, ..] => {
            let text = String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned();
            let is_known = ["LOAD", "EXISTS", "SHOW", "KILL", "HELP"].iter().any(|known| is(name, known));
            if is_known {
                return errors::wrong_arity_of(&format!("script|{}", text.to_lowercase()));
            }
            Reply::Error(format!("ERR unknown subcommand '{text}'. Try SCRIPT HELP.").into())
        }
        [] => errors::SYNTAX,
    }
}

/// Answers nobody: the script is only compiled.
struct Nobody;

impl Host for Nobody {
    fn call(&mut self, _: &[&[u8]], _: &mut i64) -> Reply {
        NOT_ALLOWED
    }
}

fn load(txn: &mut Txn<'_>, source: &[u8]) -> Result<Reply, Reply> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(LARGE_SOURCE);
    }
    is_readonly(source)?;
    let sha = script::sha1_hex(source);
    let script = Script { source, sha: sha.clone(), keys: &[], args: &[], seed: 0, only_compile: true };
    match script::run(&script, &mut Nobody) {
        Ended::Compiled => {}
        Ended::NotCompiled(text) | Ended::Failed(text) => return Err(Reply::Error(text)),
        Ended::Exhausted => return Err(EXHAUSTED),
        Ended::Full => return Err(FULL),
        Ended::NoRoom => {
            txn.poison(StoreError::new("no memory for an interpreter of scripts"));
            return Err(NO_ROOM);
        }
        Ended::Reply(_) => return Err(errors::SYNTAX),
    }
    if let Some(sha) = parse_sha(sha.as_bytes()) {
        txn.put_script(&sha, source, true);
    }
    Ok(Reply::Bulk(sha.into()))
}
