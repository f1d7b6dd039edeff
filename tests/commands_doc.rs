//! docs/commands.md says what the tables of commands say.
//!
//! `make docs-commands` writes it; this test fails when it is stale.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use storage::commands::{Arity, CommandSpec};

/// A row of the document.
struct Row {
    name: &'static str,
    arguments: String,
    summary: &'static str,
    since: &'static str,
    differs: &'static str,
}

fn arguments(arity: Arity) -> String {
    match arity {
        Arity::Exactly(count) => count.to_string(),
        Arity::AtLeast(count) => format!("{count}+"),
    }
}

fn of_data(spec: &'static CommandSpec) -> Row {
    Row {
        name: spec.name,
        arguments: arguments(spec.arity),
        summary: spec.summary,
        since: spec.since,
        differs: spec.differs,
    }
}

/// The chapters in the order of their names, the commands in the order of theirs.
fn chapters() -> BTreeMap<&'static str, Vec<Row>> {
    let mut chapters: BTreeMap<_, Vec<Row>> = BTreeMap::new();
    for spec in storage::commands::all() {
        chapters.entry(spec.group.name()).or_default().push(of_data(spec));
    }
    for own in server::commands::all() {
        let row = Row {
            name: own.name,
            arguments: arguments(own.arity),
            summary: own.summary,
            since: "",
            differs: own.differs,
        };
        chapters.entry("connection and node").or_default().push(row);
    }
    chapters.values_mut().for_each(|rows| rows.sort_by_key(|row| row.name));
    chapters
}

fn document() -> String {
    let chapters = chapters();
    let total: usize = chapters.values().map(Vec::len).sum();
    let mut text = format!(
        "# Commands\n\n<!-- Written by `make docs-commands` from the tables of commands; do not edit. -->\n\n\
         {total} commands. The reference is Redis 7.0: where the last column is empty, replies and errors are meant to be the same, in RESP2 and RESP3; \
         `tests/differential/` compares those about data with a real Redis. *Arguments* does not count the name; *since* is the version of Redis, or of Warlock, that brought it.\n"
    );
    for (chapter, rows) in chapters {
        let _ = writeln!(
            text,
            "\n## {chapter}\n\n| command | arguments | what it does | since | where it differs from Redis, and why |"
        );
        text += "| --- | --- | --- | --- | --- |\n";
        for Row { name, arguments, summary, since, differs } in rows {
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{name}` | {arguments} | {} | {since} | {} |",
                cell(summary),
                cell(differs)
            );
        }
    }
    text
}

#[test]
fn the_document_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let document = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = document.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(
        document == written,
        "docs/commands.md is stale: run 'make docs-commands'. The first difference: {differs:#?}"
    );
}
