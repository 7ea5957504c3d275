//! `rejoin tail`: follows what an agent says, as an observer whom nobody notices.

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Method;
use rejoin_core::SessionId;

use super::api::Api;
use super::failure::Failure;
use super::follow::{Follower, Seen};
use super::line::gap_line;
use super::out::Out;
use super::records::Record;
use super::target::Target;
use super::{id_arg, interrupted, json_arg, session_of};

/// How many of the latest events are shown if nobody says from where.
const LATEST: u64 = 10;

pub(super) fn command() -> Command {
    let from = Arg::new("from")
        .long("from")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..))
        .help(
            "Begin with event N, or with the oldest after it that is held [default: the last 10]",
        );
    let json = json_arg().help("Print each event as it came, a JSON object a line");
    let command = Command::new("tail")
        .about("Follow a session's events, across restarts of the server, until Ctrl-C")
        .args([id_arg(), from, json]);
    Target::add_to(command)
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let id = &session_of(matches, api).await?;
    let after = match matches.get_one::<u64>("from") {
        Some(from) => from - 1,
        None => oldest_of_latest(api, id).await?,
    };
    let mut follower = Follower::after(api, id, Some(after)).await?;
    let mut last = after;
    let following = async {
        loop {
            let seen = follower.next().await?;
            if let Seen::Event(event, _) = &seen {
                last = event.seq;
            }
            show(seen, matches.get_flag("json"), out)?;
        }
    };
    let outcome: Result<(), Failure> = tokio::select! {
        outcome = following => outcome,
        () = interrupted() => {
            out.note(&format!("go on with `rejoin tail {id} --from {}`", last + 1));
            return Ok(());
        }
    };
    match outcome {
        Err(Failure::Ended(_)) => {
            out.note("the session has ended");
            Ok(())
        }
        other => other,
    }
}

/// The place right before the latest events that are held.
async fn oldest_of_latest(api: &Api, id: &SessionId) -> Result<u64, Failure> {
    let record: Record = api.ask(Method::GET, id, "").await?;
    Ok(record.last_seq.saturating_sub(LATEST.min(record.buffered)))
}

/// Writes what was seen: events and gaps as data, everything else as a note.
pub(super) fn show(seen: Seen, json: bool, out: &Out) -> Result<(), Failure> {
    match seen {
        Seen::Event(_, envelope) if json => out.line(&envelope),
        Seen::Event(event, _) => out.line(&event.line(out)),
        Seen::Gap(gap) if json => out.line(&serde_json::json!({ "gap": gap }).to_string()),
        Seen::Gap(gap) => out.line(&gap_line(&gap, out)),
        Seen::Lost(failure) => {
            out.note(&format!("{failure} (waiting for it)"));
            Ok(())
        }
        Seen::Back => {
            out.note("the server is back; going on where it was");
            Ok(())
        }
    }
}
