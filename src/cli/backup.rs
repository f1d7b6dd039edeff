//! `warlock admin backup FILE`: copies everything that was acknowledged until now into one file, while the cluster goes on.
//!
//! The file appears under its name only when it is complete, checked row by row, and durable.

use super::Outcome;
use super::say::{note, say};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use warlock::client::{Access, Client, Value};
use warlock::snapshots::Loaded;

/// The node may have to write a snapshot first.
const PATIENCE: Duration = Duration::from_secs(900);

/// Makes the backup.
pub fn run(access: Access, file: &Path) -> Outcome {
    if file.exists() {
        return Err(format!("{} exists already; give another name", file.display()).into());
    }
    // Before the node is asked to write a snapshot for nothing.
    let partial = file.with_added_extension("partial");
    let out =
        File::create(&partial).map_err(|error| format!("cannot write {}: {error}", partial.display()))?;
    let made = make(access, file, &partial, out);
    if made.is_err() {
        // Half a backup is worse than none.
        let _ = fs::remove_file(&partial);
    }
    made
}

fn make(access: Access, file: &Path, partial: &Path, out: File) -> Outcome {
    let mut client = Client::new(Access { patience: access.patience.max(PATIENCE), ..access });
    note!("the node writes a snapshot …");
    let begun = ask(&mut client, &["WARLOCK", "BACKUP"])?;
    let number = |name: &str| -> Result<u64, String> {
        let value = begun.field(name).and_then(Value::integer).and_then(|number| u64::try_from(number).ok());
        value.ok_or_else(|| format!("the node did not say the {name} of its snapshot"))
    };
    let (slot, total) = (number("slot")?, number("bytes")?);
    let node = client.address().unwrap_or_default().to_string();
    copy(&mut client, &node, slot, total, out)?;
    let loaded = Loaded::read(partial)?;
    File::open(partial)?.sync_all()?;
    fs::rename(partial, file)?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()?;
    say!("{}: {total} bytes, everything up to slot {}, checked", file.display(), loaded.slot);
    Ok(())
}

fn copy(client: &mut Client, node: &str, slot: u64, total: u64, mut out: File) -> Outcome {
    let (mut offset, mut shown) = (0, 0);
    while offset < total {
        let words = ["WARLOCK".to_string(), "BACKUP".into(), slot.to_string(), offset.to_string()];
        let Value::Bulk(piece) = ask(client, &words)? else {
            return Err("the node gave no piece of its snapshot".into());
        };
        if piece.is_empty() || client.address() != Some(node) {
            return Err("the connection to the node was lost; try again".into());
        }
        out.write_all(&piece)?;
        offset += piece.len() as u64;
        let percent = offset * 100 / total.max(1);
        if percent >= shown + 10 || offset == total {
            note!("{percent:3} %  {offset} of {total} bytes");
            shown = percent;
        }
    }
    Ok(())
}

fn ask<A: AsRef<[u8]>>(client: &mut Client, words: &[A]) -> Result<Value, Box<dyn std::error::Error>> {
    match client.ask(words)? {
        Value::Error(error) => Err(error.into()),
        reply => Ok(reply),
    }
}
