//! Settings that CONFIG shows, and those that it can change while the node runs.

use crate::face::Face;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use storage::commands::glob_matches;
use storage::machine::Notify;

/// What can be changed while the node runs. It is this node's, and lasts until it stops.
#[derive(Clone, Debug)]
pub struct Tunable {
    /// Open connections, at most.
    pub clients_max: usize,
    /// The password, if one is asked for.
    pub password: Option<String>,
    /// Whether clients from other machines are refused while there is no password.
    pub is_protected: bool,
    /// Replies that wait for one slow client, in bytes, at most: then it is not read from any more.
    pub output_bytes_max: usize,
    /// The same for what a client did not ask for (messages, MONITOR): then it is closed.
    pub push_bytes_max: usize,
    /// From how many microseconds on a command is slow; negative: never.
    pub slower_than_us: i64,
    /// How many slow commands are remembered.
    pub slow_max: usize,
    /// How old the state may be that a READONLY connection reads.
    pub stale_ms_max: u64,
    /// From how many milliseconds on LATENCY takes a sample; 0: never.
    pub latency_ms: u64,
    /// Which keyspace notifications this node's clients get.
    pub notify: Notify,
    /// How many keys are remembered for clients that cache; 0: no limit.
    pub tracked_keys_max: usize,
}

/// A parameter of CONFIG.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    get: fn(&Face) -> String,
    /// Nothing: it is fixed.
    set: Option<Set>,
    /// Its value as the configuration file has it; nothing: no setting of the file.
    in_file: Option<fn(&Tunable) -> String>,
}

type Set = fn(&mut Tunable, &str) -> Result<(), &'static str>;

const NOT_A_NUMBER: &str = "argument couldn't be parsed into an integer";
const NOT_A_SIZE: &str = "argument must be a memory value";
const NOT_A_SWITCH: &str = "argument must be 'yes' or 'no'";

fn fixed(name: &'static str, get: fn(&Face) -> String) -> Parameter {
    Parameter { name, get, set: None, in_file: None }
}

fn tunable(name: &'static str, get: fn(&Face) -> String, set: Set) -> Parameter {
    Parameter { name, get, set: Some(set), in_file: None }
}

impl Parameter {
    fn kept(self, in_file: fn(&Tunable) -> String) -> Parameter {
        Parameter { in_file: Some(in_file), ..self }
    }
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_string()
}

/// `1024`, `1kb`, `1mb`, `1gb`, as Redis reads them.
fn parse_size(text: &str) -> Result<usize, &'static str> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err(NOT_A_SIZE),
    };
    digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).ok_or(NOT_A_SIZE)
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| NOT_A_NUMBER)
}

fn output_limits(face: &Face) -> String {
    let tunable = face.tunable.borrow();
    format!("normal {} 0 0 slave 0 0 0 pubsub {} 0 0", tunable.output_bytes_max, tunable.push_bytes_max)
}

fn set_output_limits(tunable: &mut Tunable, text: &str) -> Result<(), &'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    for class in words.chunks_exact(4) {
        let hard = parse_size(class[1])?;
        // Without a limit one client could take all memory of the node.
        let hard = if hard == 0 { usize::MAX >> 1 } else { hard };
        match class[0] {
            "normal" => tunable.output_bytes_max = hard,
            "pubsub" => tunable.push_bytes_max = hard,
            "slave" | "replica" => {}
            _ => return Err("Invalid client class specified in buffer limit configuration."),
        }
    }
    Ok(())
}

/// All of them.
fn parameters() -> Vec<Parameter> {
    vec![
        tunable(
            "maxclients",
            |face| face.tunable.borrow().clients_max.to_string(),
            |tunable, text| {
                tunable.clients_max = parse(text)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.clients_max.to_string()),
        tunable(
            "requirepass",
            |face| face.tunable.borrow().password.clone().unwrap_or_default(),
            |tunable, text| {
                tunable.password = Some(text.to_string()).filter(|text| !text.is_empty());
                Ok(())
            },
        )
        .kept(|tunable| tunable.password.clone().unwrap_or_default()),
        tunable(
            "protected-mode",
            |face| yes_no(face.tunable.borrow().is_protected),
            |tunable, text| {
                tunable.is_protected = match text {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(NOT_A_SWITCH),
                };
                Ok(())
            },
        )
        .kept(|tunable| yes_no(tunable.is_protected)),
        tunable("client-output-buffer-limit", output_limits, set_output_limits)
            .kept(|tunable| tunable.output_bytes_max.to_string()),
        tunable(
            "slowlog-log-slower-than",
            |face| face.tunable.borrow().slower_than_us.to_string(),
            |tunable, text| {
                tunable.slower_than_us = parse(text)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.slower_than_us.to_string()),
        tunable(
            "slowlog-max-len",
            |face| face.tunable.borrow().slow_max.to_string(),
            |tunable, text| {
                // Each takes up to 4 KB.
                tunable.slow_max = parse::<usize>(text)?.min(100_000);
                Ok(())
            },
        )
        .kept(|tunable| tunable.slow_max.to_string()),
        tunable(
            "latency-monitor-threshold",
            |face| face.tunable.borrow().latency_ms.to_string(),
            |tunable, text| {
                tunable.latency_ms = parse(text)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.latency_ms.to_string()),
        tunable(
            "readonly-max-age-ms",
            |face| face.tunable.borrow().stale_ms_max.to_string(),
            |tunable, text| {
                tunable.stale_ms_max = parse(text)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.stale_ms_max.to_string()),
        tunable(
            "notify-keyspace-events",
            |face| face.tunable.borrow().notify.to_string(),
            |tunable, text| {
                let unknown = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                tunable.notify = Notify::parse(text).ok_or(unknown)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.notify.to_string()),
        tunable(
            "tracking-table-max-keys",
            |face| face.tunable.borrow().tracked_keys_max.to_string(),
            |tunable, text| {
                let negative = "argument must be between 0 and 9223372036854775807 inclusive";
                tunable.tracked_keys_max = usize::try_from(parse::<i64>(text)?).map_err(|_| negative)?;
                Ok(())
            },
        )
        .kept(|tunable| tunable.tracked_keys_max.to_string()),
        fixed("proto-max-bulk-len", |face| face.settings.limits.bulk_bytes_max.to_string()),
        fixed("client-query-buffer-limit", |face| face.settings.limits.request_bytes_max.to_string()),
        fixed("port", |face| face.engine().facts().address.rsplit(':').next().unwrap_or("0").to_string()),
        fixed("databases", |_| "16".to_string()),
        fixed("maxmemory", |_| "0".to_string()),
        fixed("maxmemory-policy", |_| "noeviction".to_string()),
        fixed("appendonly", |_| "yes".to_string()),
        fixed("appendfsync", |_| "always".to_string()),
        fixed("save", |_| String::new()),
        fixed("timeout", |_| "0".to_string()),
        fixed("tcp-keepalive", |_| "0".to_string()),
        fixed("cluster-enabled", |_| "no".to_string()),
        fixed("lua-time-limit", |_| "5000".to_string()),
    ]
}

/// CONFIG GET: names and values that match a pattern.
#[must_use]
pub fn matching(face: &Face, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
    let wanted = |name: &str| {
        patterns.iter().any(|pattern| glob_matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    };
    parameters()
        .into_iter()
        .filter(|parameter| wanted(parameter.name))
        .map(|parameter| (parameter.name, (parameter.get)(face)))
        .collect()
}

/// CONFIG SET: all of `pairs` or none.
///
/// # Errors
/// The text that the client gets.
pub fn set(face: &Face, pairs: &[&[u8]]) -> Result<(), String> {
    let known = parameters();
    let mut changed = face.tunable.borrow().clone();
    let mut names = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let name = String::from_utf8_lossy(pair[0]).to_lowercase();
        let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
        };
        let failed =
            |why: &str| format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
        if names.contains(&name) {
            return Err(failed("duplicate parameter"));
        }
        names.push(name.clone());
        let set = parameter.set.ok_or_else(|| failed("can't set immutable config"))?;
        let value = std::str::from_utf8(pair[1]).map_err(|_| failed("argument is no text"))?;
        set(&mut changed, value).map_err(failed)?;
    }
    *face.tunable.borrow_mut() = changed;
    face.listen_to_keys();
    Ok(())
}

/// CONFIG REWRITE: what CONFIG SET changed, into the file that the node was started with. Other lines stay as they are.
///
/// # Errors
/// The text that the client gets.
pub fn rewrite(face: &Face) -> Result<(), String> {
    let path = face.settings.config_file.as_ref().ok_or("ERR The server is running without a config file")?;
    let failed = |error: io::Error| format!("ERR Rewriting config file: {error}");
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let tunable = face.tunable.borrow();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for parameter in parameters() {
        let Some(in_file) = parameter.in_file else { continue };
        let (value, initial) = (in_file(&tunable), in_file(&face.initial));
        let new = format!("{} = {}", parameter.name, quoted(&value));
        match lines.iter_mut().find(|line| is_about(line, parameter.name)) {
            Some(line) => *line = new,
            None if value != initial => lines.push(new),
            None => {}
        }
    }
    replace(path, &(lines.join("\n") + "\n")).map_err(failed)
}

/// Whether a line of the file gives this setting a value.
fn is_about(line: &str, name: &str) -> bool {
    let key = line.split_once('=').map(|(key, _)| key.trim().trim_matches('"'));
    key == Some(name)
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    let escape = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04X}", u32::from(letter)),
        letter => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Exchanges the file at once: a crash leaves the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.set_permissions(std::fs::metadata(path)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_file() {
        assert!(
            is_about("maxclients = 5", "maxclients") && is_about(" \"maxclients\"=5 # few", "maxclients")
        );
        assert!(!is_about("# maxclients = 5", "maxclients") && !is_about("maxclients-x = 5", "maxclients"));
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000A""#);
    }
}
