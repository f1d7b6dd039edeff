//! Probes and metrics of real nodes.
#![allow(missing_docs, clippy::unwrap_used, clippy::float_cmp)]

use harness::{Cluster, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {sample} in:\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_node_is_ready_while_it_has_a_master_and_alive_without() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    for node in cluster.all() {
        let alive = wait_for("a node that answers its probe", || cluster.http(node, "/healthz"));
        assert_eq!(alive, (200, "ok\n".to_string()));
        wait_for("a node that knows its master", || (cluster.http(node, "/readyz")?.0 == 200).then_some(()));
    }
    let last = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap();
    for node in cluster.all().into_iter().filter(|node| *node != last) {
        cluster.kill(node);
    }
    let why = wait_for("a node without a quorum that says so", || {
        cluster.http(last, "/readyz").filter(|(status, _)| *status == 503)
    });
    assert!(why.1.contains("no master"), "{why:?}");
    assert_eq!(cluster.http(last, "/healthz").unwrap().0, 200);
}

/// The page of a master that was busy: every family has a sample.
fn busy_page(cluster: &Cluster) -> String {
    let master = cluster.master();
    let mut client = cluster.client(master);
    for _ in 0..10 {
        client.must(&["INCR", "counter"]);
    }
    client.must(&["SET", "text", "v"]);
    assert!(client.ask(&["INCR", "text"]).unwrap().is_error("ERR"));
    assert!(client.ask(&["GET"]).unwrap().is_error("ERR wrong number"));
    // A peer's progress is told with its next answer.
    let page = wait_for("a master that knows how far its peers are", || {
        let (status, page) = cluster.http(master, "/metrics")?;
        (status == 200 && page.contains("\nwarlock_peer_lag_slots{")).then_some(page)
    });
    assert_eq!(cluster.http(master, "/nothing").unwrap().0, 404);
    page
}

#[test]
fn metrics_tell_what_the_node_did() {
    let cluster = Cluster::start(WARLOCK, 3);
    let page = busy_page(&cluster);
    let at_least = |sample: &str, least: f64| assert!(value(&page, sample) >= least, "{sample} in\n{page}");
    at_least("warlock_commit_seconds_count", 10.0);
    at_least("warlock_sync_seconds_count", 10.0);
    at_least("warlock_batch_commands_sum", 10.0);
    at_least("warlock_master", 1.0);
    at_least("warlock_ready", 1.0);
    at_least("warlock_master_changes_total", 1.0);
    at_least("warlock_ballot_round", 1.0);
    at_least("warlock_lease_left_seconds", 0.001);
    at_least("warlock_connections", 1.0);
    at_least("warlock_connections_total", 1.0);
    at_least("warlock_received_bytes_total", 100.0);
    at_least("warlock_applied_slot", 10.0);
    at_least("process_resident_memory_bytes", 1e6);
    // 11 INCR, one of which failed; GET was refused before it ran.
    let of = |family: &str, command: &str| value(&page, &format!("{family}{{command=\"{command}\"}}"));
    assert_eq!(of("warlock_commands_total", "incr"), 11.0);
    assert_eq!(of("warlock_commands_failed_total", "incr"), 1.0);
    assert_eq!(of("warlock_commands_rejected_total", "get"), 1.0);
    assert!(of("warlock_command_seconds_total", "incr") > 0.0);
    at_least("warlock_errors_total{error=\"ERR\"}", 2.0);
    let peers = page.lines().filter(|line| line.starts_with("warlock_peer_up{")).count();
    assert_eq!(peers, 2, "{page}");

    // Every family is described, once, before its first sample, and every sample is a number.
    let (mut described, mut names) = (BTreeSet::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(description) = line.strip_prefix("# TYPE ") {
            assert!(
                described.insert(description.split(' ').next().unwrap().to_string()),
                "{line} comes twice"
            );
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let family = family.filter(|family| described.contains(*family)).unwrap_or(name);
            assert!(described.contains(family), "{name} is not described");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            names.insert(name.to_string());
        }
    }
    every_query_of_the_dashboard_finds_something(&names);
    the_table_of_metrics_is_true(&page);
}

fn every_query_of_the_dashboard_finds_something(served: &BTreeSet<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/grafana/warlock.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut queries = Vec::new();
    collect(&dashboard, &mut queries);
    assert!(queries.len() > 30, "there are only {} queries", queries.len());
    let mut asked = BTreeSet::new();
    for query in &queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> =
            words.filter(|word| word.starts_with("warlock_") || word.starts_with("process_")).collect();
        assert!(!metrics.is_empty(), "{query} names no metric");
        for metric in metrics {
            assert!(
                served.contains(metric),
                "the dashboard asks for {metric}, which no node serves: {query}"
            );
            asked.insert(metric);
        }
    }
    // What an operator must see at a glance.
    for metric in ["warlock_commit_seconds_bucket", "warlock_sync_seconds_bucket", "warlock_commands_total"] {
        assert!(asked.contains(metric), "the dashboard does not show {metric}");
    }
}

/// Every `expr` of every panel, and every query of a variable.
fn collect(value: &serde_json::Value, queries: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == "expr" || name == "definition" => queries.push(text.to_string()),
                    _ => collect(field, queries),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| collect(value, queries)),
        _ => {}
    }
}

/// `docs/metrics.md` has what the page says of itself; `UPDATE_DOCS=1` writes it.
fn the_table_of_metrics_is_true(page: &str) {
    let said = |word: &str| -> BTreeMap<String, String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(word)?.split_once(' '));
        lines.map(|(name, text)| (name.to_string(), text.to_string())).collect()
    };
    let (help, kinds) = (said("# HELP "), said("# TYPE "));
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let pairs = rest.split("\",").map(|pair| pair.split('=').next().unwrap());
        labels.entry(name).or_default().extend(pairs.filter(|label| *label != "le"));
    }
    let mut text = String::from(
        "# Metrics\n\nWhat `/metrics` serves on the port of `--http`, in Prometheus's text format. Counts begin at 0 with the process; those of commands, errors and \
         traffic also with `CONFIG RESETSTAT`. [deploy/grafana/warlock.json](../deploy/grafana/warlock.json) shows most of it.\n\n\
         | metric | kind | labels | what |\n| --- | --- | --- | --- |\n",
    );
    for (name, kind) in &kinds {
        let labels: Vec<&str> = labels.get(name.as_str()).into_iter().flatten().copied().collect();
        writeln!(text, "| `{name}` | {kind} | {} | {} |", labels.join(", "), help[name]).unwrap();
    }
    text.push_str(
        "\nA histogram has `_bucket` (by `le`), `_sum` and `_count`. An empty node that waits for an invitation serves `warlock_info` and `warlock_ready` only.\n\n\
         This file is written by `make docs-metrics`.\n",
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/metrics.md is not what the nodes serve; 'make docs-metrics' writes it anew"
    );
}
