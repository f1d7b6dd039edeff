//! Commands about one connection: who it is, which database, which protocol.

use super::{Behind, Effect, InMulti, OwnCommand, Paused, client, error, is};
use crate::connection::{Connection, Replies, State};
use crate::resp::Protocol;
use bytes::Bytes;
use storage::commands::{Arity, database};
use storage::reply::Reply;

/// Redis's answer to who asks for its version: from 7.4 on libraries expect commands that we do not have.
pub const REDIS_VERSION: &str = "7.2.4";

pub(super) const COMMANDS: &[OwnCommand] = &[
    OwnCommand {
        name: "PING",
        summary: "Answers PONG, or its argument.",
        arity: Arity::AtLeast(0),
        while_subscribed: true,
        handler: ping,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "ECHO",
        summary: "Answers its argument.",
        arity: Arity::Exactly(1),
        handler: |_, _, args| Effect::Reply(Reply::bulk(args[0])),
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "HELLO",
        summary: "Chooses the protocol, and tells about the node.",
        differs: "Announces Redis 7.2.4, which client libraries expect.",
        arity: Arity::AtLeast(0),
        before_auth: true,
        behind: Behind::Everything,
        is_secret: true,
        paused: Paused::Never,
        handler: hello,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "AUTH",
        summary: "Authenticates the connection.",
        arity: Arity::AtLeast(1),
        before_auth: true,
        is_secret: true,
        paused: Paused::Never,
        handler: auth,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "SELECT",
        summary: "Chooses the database.",
        arity: Arity::Exactly(1),
        selects: Some(|args| database(args[0]).ok()),
        handler: select,
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "READONLY",
        summary: "Lets reads be answered from this node's own state, if it is not too old, else with STALE.",
        arity: Arity::Exactly(0),
        behind: Behind::Everything,
        handler: |_, state, _| {
            state.is_readonly = true;
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "READWRITE",
        summary: "Lets reads see every write that was acknowledged before them, as they do from the start.",
        arity: Arity::Exactly(0),
        behind: Behind::Everything,
        handler: |_, state, _| {
            state.is_readonly = false;
            Effect::Reply(Reply::Ok)
        },
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "QUIT",
        summary: "Closes the connection.",
        arity: Arity::AtLeast(0),
        before_auth: true,
        in_multi: InMulti::Runs,
        while_subscribed: true,
        handler: |_, _, _| Effect::Close(Reply::Ok),
        ..OwnCommand::BASE
    },
    OwnCommand {
        name: "RESET",
        summary: "Makes the connection as new.",
        arity: Arity::Exactly(0),
        before_auth: true,
        behind: Behind::Everything,
        in_multi: InMulti::Runs,
        while_subscribed: true,
        handler: |connection, state, _| {
            connection.face.subscribe(|all| all.remove_all(connection.id, &mut state.subscribed));
            connection.face.stop_tracking(connection.id);
            state.caching = None;
            state.multi = None;
            state.watching.clear();
            state.set_replies(Replies::On);
            state.is_monitor = false;
            connection.face.set_monitor(connection.id, false);
            state.is_readonly = false;
            state.db = 0;
            state.protocol = Protocol::Resp2;
            state.name = Bytes::new();
            state.set_authenticated(connection.face.tunable.borrow().password.is_none());
            Effect::Reply(Reply::simple("RESET"))
        },
        ..OwnCommand::BASE
    },
];

fn ping(_: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    match args {
        [] if state.is_subscriber() => {
            Effect::Reply(Reply::Array(vec![Reply::bulk(b"pong"), Reply::bulk(b"")]))
        }
        [text] if state.is_subscriber() => {
            Effect::Reply(Reply::Array(vec![Reply::bulk(b"pong"), Reply::bulk(text)]))
        }
        [] => Effect::Reply(Reply::simple("PONG")),
        [text] => Effect::Reply(Reply::bulk(text)),
        _ => error("ERR wrong number of arguments for 'ping' command"),
    }
}

fn select(_: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    match database(args[0]) {
        Err(refused) => Effect::Reply(refused),
        Ok(db) => {
            state.db = db;
            Effect::Reply(Reply::Ok)
        }
    }
}

fn check_password(connection: &Connection, user: &[u8], password: &[u8]) -> bool {
    let tunable = connection.face.tunable.borrow();
    let wanted = tunable.password.as_ref();
    // Compared in full whatever differs first, so that the time tells nothing.
    let same = wanted.is_none_or(|wanted| {
        let wanted = wanted.as_bytes();
        wanted.len() == password.len()
            && wanted.iter().zip(password).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    });
    user == b"default" && same
}

const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn auth(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let (user, password) = match args {
        [password] => (&b"default"[..], *password),
        [user, password] => (*user, *password),
        _ => return error("ERR syntax error"),
    };
    if args.len() == 1 && connection.face.tunable.borrow().password.is_none() {
        return error(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        );
    }
    if !check_password(connection, user, password) {
        return error(WRONG_PASS);
    }
    state.set_authenticated(true);
    Effect::Reply(Reply::Ok)
}

fn wrong_option(option: &[u8]) -> Effect {
    error(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)))
}

fn hello(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let mut args = args.iter();
    let mut protocol = state.protocol;
    if let Some(version) = args.next() {
        protocol = match *version {
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            number if number.iter().all(u8::is_ascii_digit) && !number.is_empty() => {
                return error("NOPROTO unsupported protocol version");
            }
            _ => return error("ERR Protocol version is not an integer or out of range"),
        };
    }
    let mut name = None;
    while let Some(option) = args.next() {
        if is(option, "AUTH") {
            let (Some(user), Some(password)) = (args.next(), args.next()) else {
                return wrong_option(option);
            };
            if !check_password(connection, user, password) {
                return error(WRONG_PASS);
            }
            state.set_authenticated(true);
        } else if is(option, "SETNAME") {
            let Some(text) = args.next() else { return wrong_option(option) };
            if let Err(refused) = client::check_name(text) {
                return Effect::Reply(refused);
            }
            name = Some(Bytes::copy_from_slice(text));
        } else {
            return wrong_option(option);
        }
    }
    if !state.is_authenticated {
        return error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    state.protocol = protocol;
    if let Some(name) = name {
        state.name = name;
    }
    let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
    let text = |text: &str| Reply::bulk(text.as_bytes());
    Effect::Reply(Reply::Map(vec![
        (text("server"), text("redis")),
        (text("version"), text(REDIS_VERSION)),
        (text("proto"), Reply::Integer(number)),
        (text("id"), Reply::Integer(i64::try_from(connection.id).unwrap_or(i64::MAX))),
        (text("mode"), text("standalone")),
        (text("role"), text("master")),
        (text("modules"), Reply::Array(Vec::new())),
    ]))
}
