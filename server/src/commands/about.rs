//! Commands about the node and its commands.

use super::session::REDIS_VERSION;
use super::{Effect, InMulti, OwnCommand, error, is};
use crate::connection::{Connection, State};
use bytes::Bytes;
use storage::commands::{Arity, Handler};
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "INFO",
        summary: "Tells about the node.",
        arity: Arity::AtLeast(0),
        handler: info,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "COMMAND",
        summary: "Tells about the commands.",
        arity: Arity::AtLeast(0),
        handler: command,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "ROLE",
        summary: "Tells that this node takes writes.",
        arity: Arity::Exactly(0),
        handler: |_, _, _| {
            let parts = vec![Reply::bulk(b"master"), Reply::Integer(0), Reply::Array(Vec::new())];
            Effect::Reply(Reply::Array(parts))
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "CONFIG",
        summary: "Tells settings.",
        arity: Arity::AtLeast(1),
        handler: config,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "WAIT",
        summary: "Answers at once: a write is acknowledged only when a majority holds it.",
        arity: Arity::Exactly(2),
        handler: |_, _, _| Effect::Reply(Reply::Integer(0)),
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "WARLOCK",
        summary: "Administers the cluster; WARLOCK HELP lists what there is.",
        arity: Arity::AtLeast(1),
        in_multi: InMulti::Refused,
        handler: |_, _, args| Effect::Admin(args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect()),
        ..OwnCommand::BASE
    },
];

fn info(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let facts = connection.face.engine.facts();
    let face = &connection.face;
    let sections = [
        (
            "server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nwarlock_version:{}\r\nredis_mode:standalone\r\nos:Linux\r\nprocess_id:{}\r\ntcp_port:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
                facts.address.rsplit(':').next().unwrap_or("0"),
            ),
        ),
        ("clients", format!("connected_clients:{}\r\n", face.clients())),
        ("memory", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_string()),
        ("persistence", "loading:0\r\n".to_string()),
        (
            "stats",
            format!(
                "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n",
                face.accepted.get(),
                face.commands.get()
            ),
        ),
        ("replication", "role:master\r\nconnected_slaves:0\r\n".to_string()),
        (
            "warlock",
            format!(
                "warlock_role:{}\r\nwarlock_node:n{}\r\nwarlock_master:{}\r\nwarlock_view:{}\r\nwarlock_ballot:{}\r\n\
                 warlock_applied:{}\r\nwarlock_waiting:{}\r\nwarlock_journal_bytes:{}\r\n",
                facts.role,
                facts.node,
                facts.master.as_deref().unwrap_or(""),
                facts.view,
                facts.ballot,
                facts.applied,
                facts.waiting,
                facts.journal_bytes,
            ),
        ),
    ];
    let wanted = |name: &str| {
        args.is_empty()
            || args
                .iter()
                .any(|arg| is(arg, name) || is(arg, "all") || is(arg, "everything") || is(arg, "default"))
    };
    let mut text = String::new();
    for (name, lines) in sections.iter().filter(|(name, _)| wanted(name)) {
        let mut title = (*name).to_string();
        title[..1].make_ascii_uppercase();
        text += &format!("{}# {title}\r\n{lines}", if text.is_empty() { "" } else { "\r\n" });
    }
    Effect::Reply(Reply::Verbatim(*b"txt", Bytes::from(text)))
}

fn describe(name: &str, arity: i64, flags: &[&'static str], keys: (i64, i64, i64)) -> Reply {
    Reply::Array(vec![
        Reply::bulk(name.to_ascii_lowercase().as_bytes()),
        Reply::Integer(arity),
        Reply::Set(flags.iter().map(|flag| Reply::simple(flag)).collect()),
        Reply::Integer(keys.0),
        Reply::Integer(keys.1),
        Reply::Integer(keys.2),
    ])
}

fn describe_all(wanted: impl Fn(&str) -> bool) -> Vec<Reply> {
    let data = storage::commands::all().filter(|spec| wanted(spec.name)).map(|spec| {
        let class = if matches!(spec.handler, Handler::Read(_)) { "readonly" } else { "write" };
        describe(spec.name, spec.arity.as_redis(), &[class], spec.keys.as_redis())
    });
    let own = super::all()
        .filter(|own| wanted(own.name))
        .map(|own| describe(own.name, own.arity.as_redis(), &["loading", "stale", "fast"], (0, 0, 0)));
    data.chain(own).collect()
}

fn command(_: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    match args {
        [] => Effect::Reply(Reply::Array(describe_all(|_| true))),
        [what] if is(what, "COUNT") => {
            Effect::Reply(Reply::count(storage::commands::all().count() + super::all().count()))
        }
        [what, ..] if is(what, "DOCS") => Effect::Reply(Reply::Map(Vec::new())),
        [what] if is(what, "LIST") => {
            let data = storage::commands::all().map(|spec| spec.name);
            let names = data.chain(super::all().map(|own| own.name));
            Effect::Reply(Reply::Array(
                names.map(|name| Reply::bulk(name.to_ascii_lowercase().as_bytes())).collect(),
            ))
        }
        [what, names @ ..] if is(what, "INFO") => {
            let one = |name: &&[u8]| describe_all(|known| is(name, known)).pop().unwrap_or(Reply::NullArray);
            Effect::Reply(Reply::Array(names.iter().map(one).collect()))
        }
        [what, ..] => {
            error(format!("ERR unknown subcommand '{}'. Try COMMAND HELP.", String::from_utf8_lossy(what)))
        }
    }
}

fn config(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let settings = [
        ("maxclients", connection.face.settings.clients_max.to_string()),
        ("maxmemory", "0".to_string()),
        ("maxmemory-policy", "noeviction".to_string()),
        ("appendonly", "yes".to_string()),
        ("appendfsync", "always".to_string()),
        ("save", String::new()),
        ("databases", "16".to_string()),
    ];
    match args {
        [what, wanted @ ..] if is(what, "GET") && !wanted.is_empty() => {
            let matches = |name: &str| wanted.iter().any(|one| is(one, name) || *one == b"*");
            let found = settings.iter().filter(|(name, _)| matches(name));
            let text = |text: &str| Reply::bulk(text.as_bytes());
            Effect::Reply(Reply::Map(found.map(|(name, value)| (text(name), text(value))).collect()))
        }
        [what] if is(what, "RESETSTAT") => Effect::Reply(Reply::Ok),
        [what, ..] => error(format!(
            "ERR CONFIG {} is not supported; settings are flags of the server",
            String::from_utf8_lossy(what)
        )),
        [] => error("ERR wrong number of arguments for 'config' command"),
    }
}
