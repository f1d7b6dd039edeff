//! The documents name only what exists: files that they link to, targets of the Makefile, commands of ours.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every document, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let folders = ["", "docs", "deploy"];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let paths = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"));
    let all: Vec<_> = paths.map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap())).collect();
    assert!(all.len() >= 10, "only {} documents were found", all.len());
    all
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for (document, text) in documents() {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = document.parent().unwrap().join(target);
            assert!(path.exists(), "{} links to {link}, which is not there", document.display());
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links were found");
}

#[test]
fn every_target_and_command_is_real() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(':').map(|(target, _)| target)).collect();
    let main = std::fs::read_to_string(root().join("src/main.rs")).unwrap();
    let commands: BTreeSet<String> = main
        .lines()
        .filter_map(|line| {
            line.trim().split_once("(cli::")?.0.split_whitespace().last().map(str::to_lowercase)
        })
        .collect();
    assert!(commands.contains("server") && commands.len() > 8, "{commands:?}");
    for (document, text) in documents() {
        for (word, known) in [("`make ", None), ("`warlock ", Some(&commands))] {
            for rest in text.split(word).skip(1) {
                let name = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap();
                let is_known = known.map_or_else(|| targets.contains(name), |known| known.contains(name));
                assert!(
                    is_known || name.starts_with('-'),
                    "{}: {word}{name}` does not exist",
                    document.display()
                );
            }
        }
    }
}
