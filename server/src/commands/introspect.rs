//! COMMAND: what the tables say about commands.

use super::{Effect, InMulti, OwnCommand, error, is};
use crate::connection::{Connection, State};
use bytes::Bytes;
use storage::commands::{CommandSpec, Flag, Handler, glob_matches, lookup};
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[OwnCommand {
    name: "COMMAND",
    summary: "Tells about the commands: COUNT, DOCS, GETKEYS, INFO, LIST.",
    differs: "Subcommands (`client|list`) have no entries of their own, and there are no key specifications, tips or descriptions of arguments.",
    parts: &["COUNT", "DOCS", "GETKEYS", "INFO", "LIST", "HELP"],
    handler: command,
    ..OwnCommand::BASE
}];

const HELP: &[&str] = &[
    "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands.",
    "LIST [FILTERBY PATTERN <pattern>|ACLCAT <category>|MODULE <name>]",
    "    Return a list of all commands.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "HELP",
    "    Print this help.",
];

/// A command of either table.
enum Known {
    Data(&'static CommandSpec),
    Own(&'static OwnCommand),
}

fn text(text: &str) -> Reply {
    Reply::bulk(text.as_bytes())
}

impl Known {
    fn all() -> impl Iterator<Item = Known> {
        storage::commands::all().map(Known::Data).chain(super::all().map(Known::Own))
    }

    fn find(name: &[u8]) -> Option<Known> {
        lookup(name).map(Known::Data).or_else(|| super::lookup(name).map(Known::Own))
    }

    fn name(&self) -> String {
        match self {
            Known::Data(spec) => spec.name.to_ascii_lowercase(),
            Known::Own(own) => own.name.to_ascii_lowercase(),
        }
    }

    fn flags(&self) -> Vec<&'static str> {
        match self {
            Known::Data(spec) => {
                let class = if matches!(spec.handler, Handler::Read(_)) { "readonly" } else { "write" };
                let mut flags = vec![class];
                flags.extend(spec.flags.contains(&Flag::Grows).then_some("denyoom"));
                flags.extend(spec.flags.contains(&Flag::NoScript).then_some("noscript"));
                flags.extend(spec.may_block(&[]).then_some("blocking"));
                flags.extend(spec.flags.contains(&Flag::Fast).then_some("fast"));
                flags
            }
            Known::Own(own) => {
                let mut flags = vec!["noscript", "loading", "stale"];
                flags.extend(own.before_auth.then_some("no_auth"));
                flags.extend((own.in_multi == InMulti::Refused).then_some("no_multi"));
                flags
            }
        }
    }

    fn categories(&self) -> Vec<String> {
        let mut categories = match self {
            Known::Data(spec) => {
                let class = if spec.is_write() { "@write" } else { "@read" };
                vec![class.to_string(), format!("@{}", spec.group.name())]
            }
            Known::Own(_) => vec!["@connection".to_string()],
        };
        let flags = self.flags();
        categories.push(if flags.contains(&"fast") { "@fast" } else { "@slow" }.to_string());
        categories.extend(flags.contains(&"blocking").then(|| "@blocking".to_string()));
        categories
    }

    fn describe(&self) -> Reply {
        let (arity, keys) = match self {
            Known::Data(spec) => (spec.arity.as_redis(), spec.keys.as_redis()),
            Known::Own(own) => (own.arity.as_redis(), (0, 0, 0)),
        };
        let simple = |text: String| Reply::Simple(Bytes::from(text));
        Reply::Array(vec![
            text(&self.name()),
            Reply::Integer(arity),
            Reply::Set(self.flags().into_iter().map(Reply::simple).collect()),
            Reply::Integer(keys.0),
            Reply::Integer(keys.1),
            Reply::Integer(keys.2),
            Reply::Set(self.categories().into_iter().map(simple).collect()),
            Reply::Array(Vec::new()),
            Reply::Array(Vec::new()),
            Reply::Array(Vec::new()),
        ])
    }

    fn docs(&self) -> (Reply, Reply) {
        let (summary, since, group) = match self {
            Known::Data(spec) => (spec.summary, spec.since, spec.group.name()),
            Known::Own(own) => (own.summary, "1.0.0", "connection"),
        };
        let fields = [("summary", summary), ("since", since), ("group", group)];
        let fields = fields.into_iter().map(|(field, value)| (text(field), text(value)));
        (text(&self.name()), Reply::Map(fields.collect()))
    }
}

fn command(_: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let reply = match args {
        [] => Reply::Array(Known::all().map(|known| known.describe()).collect()),
        [what] if is(what, "COUNT") => Reply::count(Known::all().count()),
        [what] if is(what, "HELP") => super::help(HELP),
        [what] if is(what, "DOCS") => Reply::Map(Known::all().map(|known| known.docs()).collect()),
        [what, names @ ..] if is(what, "DOCS") => {
            Reply::Map(names.iter().filter_map(|name| Known::find(name)).map(|known| known.docs()).collect())
        }
        [what] if is(what, "INFO") => Reply::Array(Known::all().map(|known| known.describe()).collect()),
        [what, names @ ..] if is(what, "INFO") => {
            let one = |name: &&[u8]| Known::find(name).map_or(Reply::Null, |known| known.describe());
            Reply::Array(names.iter().map(one).collect())
        }
        [what, filter @ ..] if is(what, "LIST") => match list(filter) {
            Some(names) => Reply::Array(names.iter().map(|name| text(name)).collect()),
            None => return error("ERR syntax error"),
        },
        [what, command @ ..] if is(what, "GETKEYS") => return keys(command),
        [what, ..] if is(what, "COUNT") || is(what, "HELP") => {
            return super::wrong_subcommand_arity("command", what);
        }
        [what, ..] => return super::unknown_subcommand("COMMAND", what),
    };
    Effect::Reply(reply)
}

fn list(filter: &[&[u8]]) -> Option<Vec<String>> {
    let names = Known::all();
    match filter {
        [] => Some(names.map(|known| known.name()).collect()),
        [by, what, pattern] if is(by, "FILTERBY") && is(what, "PATTERN") => {
            let pattern = pattern.to_ascii_lowercase();
            Some(
                names
                    .map(|known| known.name())
                    .filter(|name| glob_matches(&pattern, name.as_bytes()))
                    .collect(),
            )
        }
        [by, what, category] if is(by, "FILTERBY") && is(what, "ACLCAT") => {
            let category = format!("@{}", String::from_utf8_lossy(category).to_lowercase());
            let fits = |known: &Known| known.categories().contains(&category);
            Some(names.filter(fits).map(|known| known.name()).collect())
        }
        [by, what, _] if is(by, "FILTERBY") && is(what, "MODULE") => Some(Vec::new()),
        _ => None,
    }
}

fn keys(command: &[&[u8]]) -> Effect {
    // Redis wants at least one argument of the command.
    let Some((name, args)) = command.split_first().filter(|(_, args)| !args.is_empty()) else {
        return error("ERR wrong number of arguments for 'command|getkeys' command");
    };
    let spec = match Known::find(name) {
        None => return error("ERR Invalid command specified"),
        Some(Known::Own(_)) => return error("ERR The command has no key arguments"),
        Some(Known::Data(spec)) => spec,
    };
    if !spec.arity.allows(args.len()) {
        return error("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<Reply> = spec.keys.positions(args).into_iter().map(|at| Reply::bulk(args[at])).collect();
    if keys.is_empty() {
        error("ERR The command has no key arguments")
    } else {
        Effect::Reply(Reply::Array(keys))
    }
}
