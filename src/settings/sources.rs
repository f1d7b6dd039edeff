//! Where a value comes from: a flag, the environment, the file, or the table's default.

use super::{Setting, SettingError, TABLE};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file.
    File(String),
    /// The table.
    Default,
}

impl Source {
    /// In words.
    #[must_use]
    pub fn of(&self, setting: &Setting) -> String {
        match self {
            Source::Flag => format!("the flag --{}", setting.name),
            Source::Environment => format!("the environment variable {}", setting.variable()),
            Source::File(path) => format!("the file {path}"),
            Source::Default => "the default".into(),
        }
    }
}

/// A setting's value, and where it comes from.
#[derive(Clone, Debug)]
pub struct Given {
    /// Which.
    pub setting: &'static Setting,
    /// As it was written.
    pub text: String,
    /// Where.
    pub source: Source,
}

/// The value of every setting, from the source that counts. `flag` and `variable` look one up by the setting's name and the variable's.
///
/// # Errors
/// When the file cannot be read, or names a setting that does not exist.
pub fn given(
    flag: impl Fn(&str) -> Option<String>,
    variable: impl Fn(&str) -> Option<String>,
    file: Option<&Path>,
) -> Result<Vec<Given>, SettingError> {
    let from_file = file.map(read_file).transpose()?.unwrap_or_default();
    let path = file.map(|path| path.display().to_string()).unwrap_or_default();
    let one = |setting: &'static Setting| {
        let (text, source) = if let Some(text) = flag(setting.name) {
            (text, Source::Flag)
        } else if let Some(text) = variable(&setting.variable()) {
            (text, Source::Environment)
        } else if let Some(text) = from_file.get(setting.name) {
            (text.clone(), Source::File(path.clone()))
        } else {
            (setting.default.to_string(), Source::Default)
        };
        Given { setting, text, source }
    };
    Ok(TABLE.iter().map(one).collect())
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, SettingError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        SettingError(format!(
            "cannot read the configuration file {shown}: {error}; give --config the right path"
        ))
    })?;
    let table: toml::Table = text
        .parse()
        .map_err(|error| SettingError(format!("the configuration file {shown} is no TOML: {error}")))?;
    let mut values = BTreeMap::new();
    for (name, value) in table {
        if !TABLE.iter().any(|setting| setting.name == name) {
            let near = nearest(&name).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            return Err(SettingError(format!(
                "the configuration file {shown} sets \"{name}\", which does not exist: {near}'warlock server --help' lists all settings"
            )));
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(is_on) => is_on.to_string(),
            toml::Value::Array(parts) if parts.iter().all(toml::Value::is_str) => {
                parts.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>().join(",")
            }
            _ => {
                return Err(SettingError(format!(
                    "the configuration file {shown} gives {name} a value of the wrong kind: write {name} = \"…\""
                )));
            }
        };
        values.insert(name, text);
    }
    Ok(values)
}

/// Variables that mean something to other commands and scripts of the project.
const NO_SETTINGS: [&str; 5] =
    ["WARLOCK_NODES", "WARLOCK_CONFIG", "WARLOCK_BIN", "WARLOCK_BINARY", "WARLOCK_DEV_DIR"];

/// Of these environment variables, those that are nearly a setting's, each with that one. Others are let be: an orchestrator makes names of its own
/// from the name of a service (`WARLOCK_SERVICE_HOST`).
pub fn misspelt(variables: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let is_known =
        |name: &str| NO_SETTINGS.contains(&name) || TABLE.iter().any(|setting| setting.variable() == name);
    let near = |name: String| {
        let wanted = nearest(name.strip_prefix("WARLOCK_").filter(|_| !is_known(&name))?)?;
        let setting = TABLE.iter().find(|setting| setting.name == wanted)?;
        Some((name, setting.variable()))
    };
    variables.into_iter().filter_map(near).collect()
}

/// The setting that differs in the fewest letters, if it is few.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted = name.replace('_', "-").to_ascii_lowercase();
    let candidates = TABLE.iter().map(|setting| (distance(&wanted, setting.name), setting.name));
    candidates.min().filter(|(distance, name)| *distance <= name.len() / 3).map(|(_, name)| name)
}

fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// All settings as a configuration file, each with where its value comes from. Secrets are not shown.
#[must_use]
pub fn print(given: &[Given]) -> String {
    let mut out = String::new();
    for Given { setting, text, source } in given {
        let from = source.of(setting);
        let shown = if setting.is_secret && !text.is_empty() {
            format!("# {} is set, and not shown", setting.name)
        } else if text.is_empty() {
            format!("# {} is not set", setting.name)
        } else {
            format!("{} = {}", setting.name, toml::Value::String(text.clone()))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{shown:<48} # {from}");
    }
    out
}
