//! `warlock status`: the members of a cluster at a glance, once or over and over.

use super::access::{AccessFlags, REFUSED, complain};
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
    commands: i64,
    clients: i64,
    journal_bytes: i64,
}

/// Shows the table.
pub fn run(flags: &Flags) -> ExitCode {
    let access = flags.access.access();
    let mut client = Client::new(access.clone());
    let mut before: BTreeMap<String, (i64, Instant)> = BTreeMap::new();
    // The first look only counts commands, so that the table has a rate.
    let mut is_first = !flags.json;
    loop {
        let members = match client.ask(&["WARLOCK", "MEMBERS"]) {
            Ok(Value::Error(text)) => {
                eprintln!("warlock: {text}");
                return ExitCode::from(REFUSED);
            }
            Ok(members) => members,
            // One node is gone: watching goes on with another.
            Err(ClientError::Uncertain(..)) if flags.watch => continue,
            Err(error) => return complain(&error),
        };
        if flags.json {
            println!("{}", show::json(&members));
        } else {
            let rows: Vec<Row> = members.elements().iter().map(|member| row(member, &access)).collect();
            let text = table(&rows, &mut before);
            if !is_first {
                let clear = if flags.watch && std::io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
                println!("{clear}{text}");
            }
        }
        if !flags.watch && !is_first {
            return ExitCode::SUCCESS;
        }
        // What is awaited is time itself.
        std::thread::sleep(if is_first { Duration::from_millis(500) } else { flags.every });
        is_first = false;
    }
}

fn row(member: &Value, access: &Access) -> Row {
    let text = |name: &str| member.field(name).and_then(Value::text).unwrap_or_default();
    let number = |name: &str| member.field(name).and_then(Value::integer);
    let client = text("client");
    Row {
        name: text("node"),
        role: text("role"),
        condition: text("condition"),
        applied: number("applied"),
        lag: number("lag"),
        said: said(&client, access),
        version: text("version"),
        client,
    }
}

/// Asks a node about itself.
fn said(address: &str, access: &Access) -> Option<Said> {
    let access = Access { nodes: vec![address.to_string()], patience: NODE_PATIENCE, ..access.clone() };
    let mut client = Client::new(access);
    let status = client.ask(&["WARLOCK", "STATUS"]).ok()?;
    let info = client.ask(&["INFO"]).ok()?.text()?;
    let stated = |name: &str| status.field(name).and_then(Value::integer).unwrap_or(0);
    let told = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Some(Said {
        lease_ms: stated("lease_left_ms"),
        commands: told("total_commands_processed"),
        clients: told("connected_clients"),
        journal_bytes: stated("journal_bytes"),
    })
}

fn table(rows: &[Row], before: &mut BTreeMap<String, (i64, Instant)>) -> String {
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
        "version",
    ];
    let mut lines = vec![head.map(str::to_string)];
    for row in rows {
        let dash = || "-".to_string();
        let now = Instant::now();
        let rate = row.said.as_ref().and_then(|said| {
            let (commands, at) = before.insert(row.name.clone(), (said.commands, now))?;
            let seconds = now.duration_since(at).as_secs_f64().max(0.001);
            Some(format!("{:.0}", (said.commands - commands).max(0) as f64 / seconds))
        });
        let of_said = |show: &dyn Fn(&Said) -> String| row.said.as_ref().map_or_else(dash, show);
        let lease = match &row.said {
            Some(said) if said.lease_ms > 0 => format!("{} ms", said.lease_ms),
            _ => dash(),
        };
        lines.push([
            row.name.clone(),
            row.role.clone(),
            if row.said.is_some() { row.condition.clone() } else { format!("{}, no answer", row.condition) },
            row.client.clone(),
            row.applied.map_or_else(dash, |applied| applied.to_string()),
            row.lag.map_or_else(dash, |lag| lag.to_string()),
            lease,
            rate.unwrap_or_else(dash),
            of_said(&|said| said.clients.to_string()),
            of_said(&|said| bytes(said.journal_bytes)),
            row.version.clone(),
        ]);
    }
    let master = rows.iter().find(|row| row.role == "master");
    let mut text = match master {
        Some(master) => format!("{} members, {} is the master\n", rows.len(), master.name),
        None => format!("{} members, no master\n", rows.len()),
    };
    let mut widths = [0; 11];
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
        _ => format!("{} MB", count / 1_000_000),
    }
}
