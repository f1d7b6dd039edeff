//! OBJECT and MEMORY: how a key is kept. Redis's words for it where a client could ask; they mean little here, everything is rows.

use crate::commands::args::is;
use crate::commands::number::{integer, parse_integer};
use crate::commands::spec::{Arity, CommandSpec, Group, Handler, Keys};
use crate::commands::{Args, errors, reply};
use crate::machine::{Found, Kind, View, layout};
use crate::reply::Reply;
use crate::store::Order;
use std::ops::ControlFlow;

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "OBJECT",
        summary: "A container for object introspection commands.",
        since: "2.2.3",
        group: Group::Generic,
        arity: Arity::AtLeast(1),
        keys: Keys::OfSubcommand,
        differs: "ENCODING is what Redis would choose for the value as it is now; REFCOUNT is 1 and IDLETIME 0 for every key: nothing is evicted.",
        handler: Handler::Read(|view, args| reply(object(view, args))),
        ..CommandSpec::BASE
    },
    CommandSpec {
        name: "MEMORY",
        summary: "A container for memory diagnostics commands.",
        since: "4.0.0",
        group: Group::Server,
        arity: Arity::AtLeast(1),
        keys: Keys::OfSubcommand,
        differs: "USAGE and HELP only; USAGE counts rows. A key whose time has passed has none; Redis counts it until it is removed.",
        handler: Handler::Read(|view, args| reply(memory(view, args))),
        ..CommandSpec::BASE
    },
];

const OBJECT_HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

const MEMORY_HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
    "HELP",
    "    Prints this help.",
];

fn help(lines: &'static [&'static str]) -> Reply {
    Reply::Array(lines.iter().map(|line| Reply::simple(line)).collect())
}

fn unknown(container: &str, word: &[u8]) -> Reply {
    let word = errors::until_nul(&word[..word.len().min(128)]);
    let text = [b"ERR unknown subcommand '", word, b"'. Try ", container.as_bytes(), b" HELP."].concat();
    Reply::Error(text.into())
}

/// OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key, OBJECT HELP
fn object(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    const SUBCOMMANDS: [(&str, usize); 5] =
        [("ENCODING", 2), ("FREQ", 2), ("IDLETIME", 2), ("REFCOUNT", 2), ("HELP", 1)];
    let Some((name, count)) = SUBCOMMANDS.into_iter().find(|(name, _)| is(args[0], name)) else {
        return Err(unknown("OBJECT", args[0]));
    };
    if args.len() != count {
        return Err(errors::wrong_arity_of(&format!("object|{}", name.to_ascii_lowercase())));
    }
    if name == "HELP" {
        return Ok(help(OBJECT_HELP));
    }
    let Some(found) = view.find_quietly(args.db, args[1]) else { return Ok(Reply::Null) };
    Ok(match name {
        "ENCODING" => Reply::simple_bulk(encoding(view, &found)),
        "FREQ" => Reply::error(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        "IDLETIME" => Reply::Integer(0),
        _ => Reply::Integer(1),
    })
}

fn encoding(view: &View<'_>, found: &Found<'_>) -> &'static str {
    match found.header.kind {
        Kind::String if parse_integer(found.body()).is_some() => "int",
        Kind::String if found.body().len() <= 44 => "embstr",
        Kind::String => "raw",
        Kind::List => "quicklist",
        Kind::Hash => {
            let (mut fields, mut is_small) = (0, true);
            each_member(view, found, |bytes| {
                fields += 1;
                is_small = fields <= 128 && bytes.iter().all(|bytes| *bytes <= 64);
                is_small
            });
            if is_small { "listpack" } else { "hashtable" }
        }
        _ => "raw",
    }
}

/// Shows the sizes of a member's name and value until it is enough.
fn each_member(view: &View<'_>, found: &Found<'_>, mut visit: impl FnMut([usize; 2]) -> bool) {
    let Some(object) = found.header.object else { return };
    view.each_row(&layout::members(object), Order::Ascending, &mut |row, value| {
        if visit([row.tail().len(), value.len()]) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
}

/// What a row takes beside its bytes, about.
const ROW_BYTES: usize = 80;

/// MEMORY USAGE key [SAMPLES n]
fn memory(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    if is(args[0], "HELP") {
        return if args.len() == 1 {
            Ok(help(MEMORY_HELP))
        } else {
            Err(errors::wrong_arity_of("memory|help"))
        };
    }
    if !is(args[0], "USAGE") {
        return Err(unknown("MEMORY", args[0]));
    }
    if args.len() < 2 {
        return Err(errors::wrong_arity_of("memory|usage"));
    }
    let mut samples = 5;
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        let value = rest.next().filter(|_| is(option, "SAMPLES")).ok_or(errors::SYNTAX)?;
        samples = usize::try_from(integer(value)?).map_err(|_| errors::SYNTAX)?;
    }
    let Some(found) = view.find_quietly(args.db, args[1]) else { return Ok(Reply::Null) };
    let own = ROW_BYTES + args[1].len() + found.body().len();
    let (mut seen, mut bytes) = (0, 0_usize);
    each_member(view, &found, |[name, value]| {
        seen += 1;
        bytes += ROW_BYTES + name + value;
        samples == 0 || seen < samples
    });
    // The key's row knows how many members there are.
    if let Some(each) = bytes.checked_div(seen) {
        let mut body = found.body().get(size_of::<u64>()..).unwrap_or_default();
        let count = crate::varint::take(&mut body).and_then(|count| usize::try_from(count).ok());
        bytes = each.saturating_mul(count.unwrap_or(seen));
    }
    Ok(Reply::count(own.saturating_add(bytes)))
}
