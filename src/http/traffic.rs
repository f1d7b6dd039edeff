//! What clients do at a node: connections, bytes, and commands by name.
//!
//! The counts are those of INFO, so CONFIG RESETSTAT sets them back; to Prometheus that looks like a restart.

use super::exposition::Page;
use server::Face;
use server::stats::Count;

/// A family with one sample per command.
type Column = (&'static str, &'static str, fn(&Count) -> f64);

const COLUMNS: [Column; 4] = [
    ("warlock_commands_total", "Commands that were answered, by name.", |count| count.calls as f64),
    ("warlock_command_seconds_total", "Time from a command to its answer, added up by name.", |count| {
        count.micros as f64 / 1e6
    }),
    ("warlock_commands_failed_total", "Commands that were answered with an error, by name.", |count| {
        count.failed as f64
    }),
    ("warlock_commands_rejected_total", "Commands that were refused before they ran, by name.", |count| {
        count.rejected as f64
    }),
];

/// Adds what clients do to the page.
pub fn write(page: &mut Page, face: &Face) {
    page.gauge("warlock_connections", "Clients that are connected to this node.", face.clients() as f64);
    let stats = face.stats.borrow();
    let totals = [
        ("warlock_connections_total", "Connections that were taken.", stats.accepted),
        ("warlock_connections_refused_total", "Connections beyond maxclients.", stats.refused),
        ("warlock_received_bytes_total", "Bytes that clients sent.", stats.bytes_in),
        ("warlock_sent_bytes_total", "Bytes that clients were sent.", stats.bytes_out),
    ];
    for (name, help, value) in totals {
        page.counter(name, help, value as f64);
    }
    for (name, help, value) in COLUMNS {
        page.family(name, help, "counter");
        for (command, count) in &stats.commands {
            page.sample(name, &[("command", &command.to_ascii_lowercase())], value(count));
        }
    }
    page.family("warlock_errors_total", "Errors that clients were told, by their first word.", "counter");
    for (kind, count) in &stats.errors {
        page.sample("warlock_errors_total", &[("error", kind)], *count as f64);
    }
}
