//! `warlock server`: its flags follow from the table of settings.

use super::{Outcome, say};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use warlock::settings::{self, LogFormat, Settings, TABLE};
use warlock::startup;

/// What stands on the command line.
#[derive(Debug)]
pub struct Flags {
    values: BTreeMap<&'static str, String>,
    config: Option<PathBuf>,
    print_config: bool,
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &'static str| Some((name, matches.get_one::<String>(name)?.clone()));
        Ok(Flags {
            values: TABLE.iter().filter_map(|setting| value(setting.name)).collect(),
            config: matches.get_one::<PathBuf>("config").cloned(),
            print_config: matches.get_flag("print-config"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flags = TABLE.iter().map(|setting| {
            let default = match setting.default {
                "" => String::new(),
                default => format!(", default: {default}"),
            };
            let help = format!("{} [env: {}{default}]", setting.about, setting.variable());
            let flag = Arg::new(setting.name)
                .long(setting.name)
                .value_name(setting.value)
                .help(help)
                .allow_negative_numbers(true);
            if setting.is_switch { flag.num_args(0..=1).default_missing_value("true") } else { flag }
        });
        command
            .args(flags)
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .env("WARLOCK_CONFIG")
                    .hide_env(true)
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("A TOML file with the same names: lease = \"2s\". Flags and environment variables outweigh it. [env: WARLOCK_CONFIG]"),
            )
            .arg(
                Arg::new("print-config")
                    .long("print-config")
                    .action(ArgAction::SetTrue)
                    .help("Print what would count, as a configuration file, with where each value comes from; then stop."),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Runs a node until it is told to stop.
pub fn run(flags: &Flags) -> Outcome {
    // A local runtime, and the node as one of its tasks: inside a `LocalSet`, or as the future that is blocked on, every wake-up of a task costs
    // one more look at the sockets.
    let options = tokio::runtime::LocalOptions::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(options)?;
    // First of all: whoever is told to stop in its first milliseconds ends like any other, too.
    let stop = {
        let _inside = runtime.enter();
        stop_signal()?
    };
    let variable = |name: &str| std::env::var(name).ok();
    let given = settings::given(|name| flags.values.get(name).cloned(), variable, flags.config.as_deref())?;
    let mut settings = Settings::new(&given)?;
    settings.config_file.clone_from(&flags.config);
    if flags.print_config {
        say::bytes(settings::print(&given).as_bytes());
        return Ok(());
    }
    start_log(&settings)?;
    for (name, near) in
        settings::misspelt(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
    {
        tracing::warn!("the environment variable {name} means nothing to this node; did you mean {near}?");
    }
    let node = runtime.spawn_local(startup::run(settings, stop));
    runtime.block_on(node)??;
    Ok(())
}

fn start_log(settings: &Settings) -> Outcome {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would say on standard error that standard error is closed, and panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match settings.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Ready when the process is told to stop, from this call on. Must be called inside a runtime.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
