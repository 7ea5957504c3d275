//! The binary `rejoin`. Exit codes: 0 when all went well, 1 when something failed while it ran, 2 when
//! the settings or the command line are wrong.

mod access;
mod admission;
mod commands;
mod hardening;
mod hazards;
mod help;
mod keys;
mod limits;
mod listener;
mod logging;
mod serve;
mod settings;
mod stamp;
mod telemetry;
mod tls;
mod upkeep;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use self::settings::{Config, Environment, Flags, Sources, check_config};

/// Memory is taken on one thread and given back on another all the time here, between callers and the
/// store's writer: the system's allocator takes half as long again to open a store.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something failed while it ran.
const FAILED: u8 = 1;
/// The settings are wrong; clap uses the same code for a wrong command line.
const WRONG_SETTINGS: u8 = 2;

fn main() -> ExitCode {
    if std::env::args().skip(1).eq(["-h"]) {
        say(help::SCREEN);
        return ExitCode::SUCCESS;
    }
    let matches = command().get_matches();
    let (name, matches) = matches.subcommand().unwrap_or(("serve", &matches));
    match name {
        "check-config" => with_config(matches, |config, _| {
            say(&check_config(&config));
            complain(&hazards::hazards(&config).join("\n"));
            ExitCode::SUCCESS
        }),
        "keys" => {
            let (name, matches) = matches.subcommand().unwrap_or(("list", matches));
            with_config(matches, |config, _| {
                finish(keys::run(name, matches, &config).map(|t| say(&t)))
            })
        }
        "completions" => {
            say(&help::completions_of(&mut command(), matches));
            ExitCode::SUCCESS
        }
        "backup" | "verify" => {
            with_config(matches, |config, _| match upkeep::run(name, matches, &config) {
                Ok((text, whole)) => {
                    say(&text);
                    if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
                }
                Err(error) => finish(Err(error)),
            })
        }
        _ => commands::run(name, matches).unwrap_or_else(|| with_config(matches, serve)),
    }
}

fn command() -> Command {
    let serve = Command::new("serve").about("Run the server (what `rejoin` alone does, too)");
    let check = Command::new("check-config")
        .about("Check the settings and print those in force, each with where it came from");
    let rejoin = Command::new("rejoin")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Connections drop, sessions should not.");
    let server = [Flags::add_to(serve), Flags::add_to(check), keys::command()];
    Flags::add_to(rejoin)
        .args_conflicts_with_subcommands(true)
        .subcommands(server)
        .subcommands(upkeep::commands())
        .subcommand(help::completions())
        .subcommands(commands::all())
}

fn with_config(matches: &ArgMatches, run: impl FnOnce(Config, Sources) -> ExitCode) -> ExitCode {
    let sources = Sources::new(Flags::from_matches(matches), Environment::of_process());
    match sources.load() {
        Ok(config) => run(config, sources),
        Err(problems) => {
            complain(&problems.to_string());
            ExitCode::from(WRONG_SETTINGS)
        }
    }
}

fn serve(config: Config, sources: Sources) -> ExitCode {
    let settings = &config.settings;
    let undone = hardening::apply(&config); // before there is any other thread
    let telemetry = match telemetry::open(settings) {
        Ok(telemetry) => telemetry,
        Err(error) => return finish(Err(error)),
    };
    if let Err(error) = logging::init(settings.log, &settings.log_level, telemetry.as_ref()) {
        complain(&format!("the log can't be started: {error}"));
        return ExitCode::from(FAILED);
    }
    for sentence in undone.into_iter().chain(hazards::hazards(&config)) {
        tracing::warn!("{sentence}");
    }
    let outcome = serve::run(&config, sources);
    if let Some(telemetry) = telemetry {
        telemetry.finish();
    }
    finish(outcome)
}

fn finish(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Says something to the person who started it.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // Whoever closed the pipe does not want to hear it.
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Says what went wrong, on standard error, a sentence a line.
fn complain(sentences: &str) {
    use std::io::Write as _;
    let mut out = std::io::stderr().lock();
    for sentence in sentences.lines() {
        let _ = writeln!(out, "rejoin: {sentence}");
    }
}
