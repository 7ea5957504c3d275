//! The commands for people. All but `demo` ask a running server over HTTP, as anybody could with curl;
//! `demo` starts one of its own.
//!
//! | file | what it does |
//! |---|---|
//! | `new`, `sessions`, `show`, `tail`, `send`, `disconnect`, `end`, `audit` | a command each |
//! | `demo` | a session that outlives a broken network and a killed server, to watch |
//! | `named` | which session is meant, by the beginning of its id |
//! | `selection` | which sessions are listed, and in which order |
//! | `target` | which server is asked, and by whom |
//! | `api`, `sse`, `follow` | requests, a stream of events, and one that outlives its connections |
//! | `failure` | what went wrong, in one sentence, and the exit code |
//! | `records`, `line`, `when` | what the server says, and how people read it |
//! | `out`, `table` | terminals and pipes |

mod api;
mod audit;
mod demo;
mod disconnect;
mod end;
mod failure;
mod follow;
mod line;
mod named;
mod new;
mod out;
mod records;
mod selection;
mod send;
mod sessions;
mod show;
mod sse;
mod table;
mod tail;
mod target;
mod when;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::api::Api;
use self::failure::Failure;
use self::named::{id_arg, parse_id, session_of};
use self::out::Out;

pub(crate) use self::target::VARIABLES;

/// Every command of this kind, for the command line.
pub(crate) fn all() -> [Command; 9] {
    [
        demo::command(),
        new::command(),
        sessions::command(),
        show::command(),
        tail::command(),
        send::command(),
        disconnect::command(),
        end::command(),
        audit::command(),
    ]
}

/// Runs the command called `name`, if it is one of these.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Option<ExitCode> {
    if all().iter().all(|command| command.get_name() != name) {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(name, matches)),
        Err(error) => Err(Failure::Other(format!("the runtime can't be started: {error}"))),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    })
}

async fn dispatch(name: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let out = Out::of_process();
    if name == "demo" {
        return demo::run(matches, &out).await;
    }
    let api = Api::new(target::Target::from_matches(matches)?)?;
    match name {
        "new" => new::run(matches, &api, &out).await,
        "sessions" => sessions::run(matches, &api, &out).await,
        "show" => show::run(matches, &api, &out).await,
        "tail" => tail::run(matches, &api, &out).await,
        "send" => send::run(matches, &api, &out).await,
        "disconnect" => disconnect::run(matches, &api, &out).await,
        "end" => end::run(matches, &api, &out).await,
        _ => audit::run(matches, &api, &out).await,
    }
}

fn json_arg() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print what the server says, a JSON object a line")
}

/// How much of a list is wanted.
fn limit_arg(default: &'static str) -> Arg {
    Arg::new("limit")
        .long("limit")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..))
        .default_value(default)
        .help("Show at most so many")
}

fn limit_of(matches: &ArgMatches) -> usize {
    let limit = matches.get_one::<u32>("limit").copied().unwrap_or(1);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Waits for Ctrl-C, or for whoever else wants the process to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_well_formed() {
        all().into_iter().for_each(Command::debug_assert);
    }

    #[test]
    fn no_command_takes_a_key_on_the_command_line() {
        for command in all() {
            assert!(command.get_arguments().all(|arg| arg.get_long() != Some("key")));
        }
    }
}
