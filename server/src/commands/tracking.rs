//! CLIENT TRACKING and what belongs to it. The table is in `tracking`.

use super::{Effect, error, is};
use crate::connection::{Connection, State};
use crate::tracking::{Mode, Tracker};
use std::collections::BTreeSet;
use storage::reply::Reply;

/// `ON|OFF [REDIRECT id] [PREFIX p …] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
struct Options<'a> {
    redirect: Option<u64>,
    prefixes: Vec<&'a [u8]>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    skips_own: bool,
}

impl<'a> Options<'a> {
    fn parse(connection: &Connection, args: &[&'a [u8]]) -> Result<Options<'a>, &'static str> {
        const SYNTAX: &str = "ERR syntax error";
        let mut options = Options {
            redirect: None,
            prefixes: Vec::new(),
            is_broadcast: false,
            is_opt_in: false,
            is_opt_out: false,
            skips_own: false,
        };
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            if is(option, "REDIRECT") {
                let id = rest.next().ok_or(SYNTAX)?;
                if options.redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client");
                }
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse::<i64>().ok());
                let id = id.ok_or("ERR value is not an integer or out of range")?;
                let known = u64::try_from(id).ok().filter(|id| connection.face.is_connected(*id));
                options.redirect =
                    Some(known.ok_or("ERR The client ID you want redirect to does not exist")?);
            } else if is(option, "PREFIX") {
                options.prefixes.push(rest.next().ok_or(SYNTAX)?);
            } else {
                let switch = match option {
                    option if is(option, "BCAST") => &mut options.is_broadcast,
                    option if is(option, "OPTIN") => &mut options.is_opt_in,
                    option if is(option, "OPTOUT") => &mut options.is_opt_out,
                    option if is(option, "NOLOOP") => &mut options.skips_own,
                    _ => return Err(SYNTAX),
                };
                *switch = true;
            }
        }
        Ok(options)
    }

    fn mode(&self) -> Result<Mode, &'static str> {
        match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (_, true, true) => Err("ERR You can't specify both OPTIN mode and OPTOUT mode"),
            (true, true, _) | (true, _, true) => Err("ERR OPTIN and OPTOUT are not compatible with BCAST"),
            (true, ..) => Ok(Mode::Broadcast),
            (_, true, _) => Ok(Mode::OptIn),
            (.., true) => Ok(Mode::OptOut),
            _ => Ok(Mode::All),
        }
    }
}

/// CLIENT TRACKING.
pub(super) fn tracking(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let options = match Options::parse(connection, &args[1..]) {
        Ok(options) => options,
        Err(text) => return error(text),
    };
    if is(args[0], "OFF") {
        connection.face.stop_tracking(connection.id);
        state.caching = None;
        return Effect::Reply(Reply::Ok);
    }
    if !is(args[0], "ON") {
        return error("ERR syntax error");
    }
    if !options.is_broadcast && !options.prefixes.is_empty() {
        return error("ERR PREFIX option requires BCAST mode to be enabled");
    }
    let mode = match options.mode() {
        Ok(mode) => mode,
        Err(text) => return error(text),
    };
    let Options { redirect, skips_own, prefixes, .. } = options;
    let tracker = Tracker { mode, redirect, is_broken: false, skips_own, prefixes: BTreeSet::new() };
    let started = connection.face.tracking.borrow_mut().start(connection.id, tracker, &prefixes);
    match started {
        Ok(()) => {
            connection.face.listen_to_keys();
            Effect::Reply(Reply::Ok)
        }
        Err(text) => error(text),
    }
}

/// CLIENT CACHING YES|NO: about the next command.
pub(super) fn caching(connection: &Connection, state: &mut State, args: &[&[u8]]) -> Effect {
    let mode = connection.face.tracking.borrow().of(connection.id).map(|tracker| tracker.mode);
    let text = match (args[0], mode) {
        (_, None) => {
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
        }
        (word, Some(Mode::OptIn)) if is(word, "YES") => {
            state.caching = Some(true);
            return Effect::Reply(Reply::Ok);
        }
        (word, Some(Mode::OptOut)) if is(word, "NO") => {
            state.caching = Some(false);
            return Effect::Reply(Reply::Ok);
        }
        (word, _) if is(word, "YES") => {
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
        }
        (word, _) if is(word, "NO") => {
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
        }
        _ => "ERR syntax error",
    };
    error(text)
}

/// CLIENT GETREDIR: where notices go; 0: to the connection itself, -1: it does not track.
pub(super) fn redirection(connection: &Connection) -> Reply {
    let tracking = connection.face.tracking.borrow();
    let target = tracking.of(connection.id).map(|tracker| tracker.redirect.unwrap_or(0));
    Reply::Integer(target.map_or(-1, |target| i64::try_from(target).unwrap_or(i64::MAX)))
}

/// CLIENT TRACKINGINFO.
pub(super) fn info(connection: &Connection, state: &State) -> Reply {
    let text = |text: &str| Reply::bulk(text.as_bytes());
    let tracking = connection.face.tracking.borrow();
    let (mut flags, mut prefixes) = (vec![text("off")], Vec::new());
    if let Some(tracker) = tracking.of(connection.id) {
        flags = vec![text("on")];
        let mode = match tracker.mode {
            Mode::All => None,
            Mode::OptIn => Some("optin"),
            Mode::OptOut => Some("optout"),
            Mode::Broadcast => Some("bcast"),
        };
        flags.extend(mode.map(text));
        flags.extend(state.caching.map(|yes| text(if yes { "caching-yes" } else { "caching-no" })));
        flags.extend(tracker.skips_own.then(|| text("noloop")));
        flags.extend(tracker.is_broken.then(|| text("broken_redirect")));
        prefixes = tracker.prefixes.iter().cloned().map(Reply::Bulk).collect();
    }
    Reply::Map(vec![
        (text("flags"), Reply::Set(flags)),
        (text("redirect"), redirection(connection)),
        (text("prefixes"), Reply::Array(prefixes)),
    ])
}
