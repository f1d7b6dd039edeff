//! `warlock status`: the members of a cluster at a glance, once or over and over.

use super::access::{AccessFlags, REFUSED, complain};
use super::say::{note, say};
use clap::Args;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warlock::client::{Access, Client, ClientError, Value, show};
use warlock::settings;

/// A node that does not answer within this is shown as not answering.
const NODE_PATIENCE: Duration = Duration::from_secs(2);

/// What stands on the command line.
#[derive(Args, Debug)]
pub struct Flags {
    #[command(flatten)]
    access: AccessFlags,
    /// Show it again and again, until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
    /// How often.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = settings::time)]
    every: Duration,
    /// Print the members as JSON.
    #[arg(long)]
    json: bool,
}

/// One line of the table.
struct Row {
    name: String,
    role: String,
    condition: String,
    client: String,
    applied: Option<i64>,
    lag: Option<i64>,
    /// What the node itself says; nothing when it does not answer.
    said: Option<Said>,
    version: String,
}

struct Said {
    lease_ms: i64,
    /// Commands a second since the look before, but for our own.
    rate: Option<f64>,
    clients: i64,
    journal_bytes: i64,
    disk_free: Option<i64>,
}

/// A node that is asked again and again over one connection.
struct Watched {
    client: Client,
    /// Its commands, and when they were counted.
    before: Option<(i64, Instant)>,
}

/// What is our own doing at a node between two looks is not shown: STATUS and INFO, over one connection; at one of the nodes also MEMBERS, over another.
const OWN_COMMANDS: i64 = 2;
const OWN_CONNECTIONS: i64 = 1;

/// Shows the table.
pub fn run(flags: &Flags) -> ExitCode {
    let access = flags.access.access();
    let mut client = Client::new(access.clone());
    let mut watched: BTreeMap<String, Watched> = BTreeMap::new();
    // The first look only counts commands, so that the table has a rate.
    let mut is_first = !flags.json;
    loop {
        let members = match client.ask(&["WARLOCK", "MEMBERS"]) {
            Ok(Value::Error(text)) => {
                note!("warlock: {text}");
                return ExitCode::from(REFUSED);
            }
            Ok(members) => members,
            // One node is gone: watching goes on with another.
            Err(ClientError::Uncertain(..)) if flags.watch => continue,
            Err(error) => return complain(&error),
        };
        let mut is_heard = true;
        if flags.json {
            is_heard = say!("{}", show::json(&members));
        } else {
            let asked = client.address().map(str::to_string);
            let rows: Vec<Row> = members
                .elements()
                .iter()
                .map(|member| row(member, &access, &mut watched, asked.as_deref()))
                .collect();
            if !is_first {
                let clear = if flags.watch && std::io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
                is_heard = say!("{clear}{}", table(&rows));
            }
        }
        if !is_heard || (!flags.watch && !is_first) {
            return ExitCode::SUCCESS;
        }
        // What is awaited is time itself.
        std::thread::sleep(if is_first { Duration::from_millis(500) } else { flags.every });
        is_first = false;
    }
}

fn row(member: &Value, access: &Access, watched: &mut BTreeMap<String, Watched>, asked: Option<&str>) -> Row {
    let text = |name: &str| member.field(name).and_then(Value::text).unwrap_or_default();
    let number = |name: &str| member.field(name).and_then(Value::integer);
    let client = text("client");
    let node = watched.entry(client.clone()).or_insert_with(|| {
        let access = Access { nodes: vec![client.clone()], patience: NODE_PATIENCE, ..access.clone() };
        Watched { client: Client::new(access), before: None }
    });
    let more = i64::from(asked == Some(client.as_str()));
    Row {
        name: text("node"),
        role: text("role"),
        condition: text("condition"),
        applied: number("applied"),
        lag: number("lag"),
        said: said(node, more),
        version: text("version"),
        client,
    }
}

/// Asks a node about itself. `more`: 1 at the node that was asked for the members.
fn said(node: &mut Watched, more: i64) -> Option<Said> {
    let before = node.before.take();
    let status = node.client.ask(&["WARLOCK", "STATUS"]).ok()?;
    let info = node.client.ask(&["INFO"]).ok()?.text()?;
    let stated = |name: &str| status.field(name).and_then(Value::integer);
    let told = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let (commands, now) = (told("total_commands_processed"), Instant::now());
    node.before = Some((commands, now));
    Some(Said {
        lease_ms: stated("lease_left_ms").unwrap_or(0),
        rate: before.map(|(count, at)| {
            let others = (commands - count - OWN_COMMANDS - more).max(0);
            others as f64 / now.duration_since(at).as_secs_f64().max(0.001)
        }),
        clients: (told("connected_clients") - OWN_CONNECTIONS - more).max(0),
        journal_bytes: stated("journal_bytes").unwrap_or(0),
        disk_free: stated("disk_free_bytes"),
    })
}

fn table(rows: &[Row]) -> String {
    let head = [
        "node",
        "role",
        "condition",
        "client",
        "applied",
        "lag",
        "lease",
        "ops/s",
        "clients",
        "journal",
        "disk free",
        "version",
    ];
    let mut lines = vec![head.map(str::to_string)];
    for row in rows {
        let dash = || "-".to_string();
        let of_said = |show: &dyn Fn(&Said) -> String| row.said.as_ref().map_or_else(dash, show);
        let lease = match &row.said {
            Some(said) if said.lease_ms > 0 => format!("{} ms", said.lease_ms),
            _ => dash(),
        };
        lines.push([
            row.name.clone(),
            // Who does not answer is what it was at best.
            if row.said.is_some() { row.role.clone() } else { dash() },
            if row.said.is_some() { row.condition.clone() } else { format!("{}, no answer", row.condition) },
            row.client.clone(),
            row.applied.map_or_else(dash, |applied| applied.to_string()),
            row.lag.map_or_else(dash, |lag| lag.to_string()),
            lease,
            of_said(&|said| said.rate.map_or_else(dash, |rate| format!("{rate:.0}"))),
            of_said(&|said| said.clients.to_string()),
            of_said(&|said| bytes(said.journal_bytes)),
            of_said(&|said| said.disk_free.map_or_else(dash, bytes)),
            row.version.clone(),
        ]);
    }
    let silent = rows.iter().filter(|row| row.said.is_none()).count();
    let mut text = match rows.iter().find(|row| row.role == "master" && row.said.is_some()) {
        Some(master) => format!("{} members, {} is the master", rows.len(), master.name),
        None => format!("{} members, no master that answers", rows.len()),
    };
    match silent {
        0 => text.push('\n'),
        1 => text.push_str("; one member does not answer\n"),
        _ => text.push_str(&format!("; {silent} members do not answer\n")),
    }
    let mut widths = [0; 12];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for line in &lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text.pop();
    text
}

fn bytes(count: i64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{} KB", count / 1_000),
        10_000_000..=9_999_999_999 => format!("{} MB", count / 1_000_000),
        _ => format!("{} GB", count / 1_000_000_000),
    }
}
