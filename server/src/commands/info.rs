//! INFO: a section of text about each side of the node.

use super::session::REDIS_VERSION;
use super::{Effect, OwnCommand, is};
use crate::connection::{Connection, State};
use crate::face::Face;
use crate::stats::unix_time;
use bytes::Bytes;
use std::fmt::Write;
use storage::reply::Reply;

pub(super) const COMMANDS: &[OwnCommand] = &[OwnCommand {
    name: "INFO",
    summary: "Tells about the node.",
    differs: "Announces Redis 7.2.4, which client libraries expect; the section `warlock` tells about the cluster.",
    handler: info,
    ..OwnCommand::BASE
}];

/// A section: its name, whether it is told without being asked for, its lines.
type Section = (&'static str, bool, fn(&Face) -> String);

const SECTIONS: &[Section] = &[
    ("server", true, server),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, |_| {
        "loading:0\r\nasync_loading:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\n".to_string()
    }),
    ("stats", true, stats),
    ("replication", true, |face| {
        let offset = face.engine().facts().applied;
        format!("role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:{offset}\r\n")
    }),
    ("cpu", true, cpu),
    ("modules", true, |_| String::new()),
    ("commandstats", false, command_stats),
    ("errorstats", true, error_stats),
    ("cluster", true, |_| "cluster_enabled:0\r\n".to_string()),
    ("keyspace", true, keyspace),
    ("warlock", true, warlock),
];

fn info(connection: &Connection, _: &mut State, args: &[&[u8]]) -> Effect {
    let wanted = |name: &str, is_default: bool| {
        args.iter().any(|arg| {
            is(arg, name) || is(arg, "all") || is(arg, "everything") || (is_default && is(arg, "default"))
        }) || (args.is_empty() && is_default)
    };
    let mut text = String::new();
    for (name, _, lines) in SECTIONS.iter().filter(|(name, is_default, _)| wanted(name, *is_default)) {
        let mut title = (*name).to_string();
        title[..1].make_ascii_uppercase();
        if !text.is_empty() {
            text += "\r\n";
        }
        text += &format!("# {title}\r\n{}", lines(&connection.face));
    }
    Effect::Reply(Reply::Verbatim(*b"txt", Bytes::from(text)))
}

fn server(face: &Face) -> String {
    let facts = face.engine().facts();
    let seconds = face.stats.borrow().since.elapsed().as_secs();
    format!(
        "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nos:{} {}\r\narch_bits:64\r\nprocess_id:{}\r\ntcp_port:{}\r\n\
         server_time_usec:{}\r\nuptime_in_seconds:{seconds}\r\nuptime_in_days:{}\r\nwarlock_version:{}\r\n",
        std::env::consts::OS,
        std::env::consts::ARCH,
        std::process::id(),
        facts.address.rsplit(':').next().unwrap_or("0"),
        unix_time().as_micros(),
        seconds / 86_400,
        env!("CARGO_PKG_VERSION"),
    )
}

fn clients(face: &Face) -> String {
    let blocked =
        face.all().iter().filter(|connection| connection.look(State::is_blocked).unwrap_or(false)).count();
    format!(
        "connected_clients:{}\r\ncluster_connections:0\r\nmaxclients:{}\r\nblocked_clients:{blocked}\r\ntracking_clients:{}\r\n",
        face.clients(),
        face.tunable.borrow().clients_max,
        face.tracking.borrow().counts()[0],
    )
}

/// A field of a file of the system about this process; 0 where there is none.
fn process_number(file: &str, field: usize) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    // The second field of `stat` is a name in parentheses, which may have spaces in it.
    let rest = text.rsplit_once(')').map_or(text.as_str(), |(_, rest)| rest);
    rest.split_whitespace().nth(field).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn memory(_: &Face) -> String {
    // In pages of 4 KB on every system that we run on.
    let resident = process_number("statm", 1) * 4_096;
    format!(
        "used_memory:{resident}\r\nused_memory_human:{:.2}M\r\nused_memory_rss:{resident}\r\nmaxmemory:0\r\n\
         maxmemory_policy:noeviction\r\n",
        resident as f64 / (1 << 20) as f64
    )
}

fn cpu(_: &Face) -> String {
    // In hundredths of a second, after the name and the state.
    let seconds = |field| process_number("stat", field) as f64 / 100.0;
    format!("used_cpu_sys:{:.6}\r\nused_cpu_user:{:.6}\r\n", seconds(12), seconds(11))
}

fn stats(face: &Face) -> String {
    let stats = face.stats.borrow();
    let [_, keys, items, prefixes] = face.tracking.borrow().counts();
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\ntotal_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\n\
         rejected_connections:{}\r\nclient_output_buffer_limit_disconnections:{}\r\ntotal_error_replies:{}\r\nslowlog_len:{}\r\n\
         tracking_total_keys:{keys}\r\ntracking_total_items:{items}\r\ntracking_total_prefixes:{prefixes}\r\n",
        stats.accepted,
        stats.processed,
        stats.bytes_in,
        stats.bytes_out,
        stats.refused,
        stats.overflowed,
        stats.errors.values().sum::<u64>(),
        stats.slow.len(),
    )
}

fn command_stats(face: &Face) -> String {
    let mut text = String::new();
    for (name, count) in &face.stats.borrow().commands {
        let each = if count.calls == 0 { 0.0 } else { count.micros as f64 / count.calls as f64 };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={each:.2},rejected_calls={},failed_calls={}\r\n",
            name.to_ascii_lowercase(),
            count.calls,
            count.micros,
            count.rejected,
            count.failed
        );
    }
    text
}

fn error_stats(face: &Face) -> String {
    let stats = face.stats.borrow();
    stats.errors.iter().map(|(kind, count)| format!("errorstat_{kind}:count={count}\r\n")).collect()
}

fn keyspace(face: &Face) -> String {
    let mut text = String::new();
    face.engine().read(&mut |view| {
        for (db, database) in
            view.meta().databases.iter().enumerate().filter(|(_, database)| database.keys > 0)
        {
            let (keys, expires) = (database.keys, database.expiring);
            let _ = write!(text, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n");
        }
    });
    text
}

fn warlock(face: &Face) -> String {
    let facts = face.engine().facts();
    format!(
        "warlock_role:{}\r\nwarlock_node:n{}\r\nwarlock_master:{}\r\nwarlock_view:{}\r\nwarlock_ballot:{}\r\nwarlock_applied:{}\r\n\
         warlock_waiting:{}\r\nwarlock_mailed:{}\r\nwarlock_journal_bytes:{}\r\n",
        facts.role,
        facts.node,
        facts.master.as_deref().unwrap_or(""),
        facts.view,
        facts.ballot,
        facts.applied,
        facts.waiting,
        facts.mailed,
        facts.journal_bytes,
    )
}
