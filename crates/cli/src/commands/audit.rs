//! `rejoin audit`: who tried to get at sessions, and what came of it.

use clap::{Arg, ArgMatches, Command};
use rejoin_core::SessionId;

use super::api::Api;
use super::failure::Failure;
use super::out::{Ink, Out, tame};
use super::records::{Attempt, attempts};
use super::table::{Align, Table, cell, inked};
use super::target::Target;
use super::{json_arg, limit_arg, limit_of, parse_id};

pub(super) fn command() -> Command {
    let session = Arg::new("session")
        .long("session")
        .value_name("ID")
        .value_parser(parse_id)
        .help("Only the attempts to get at this session");
    let command = Command::new("audit")
        .about("Show who tried to come back to sessions, newest first, and what came of it")
        .args([session, limit_arg("50"), json_arg()]);
    Target::add_to(command)
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let limit = limit_of(matches);
    let part = attempts(api, matches.get_one::<SessionId>("session"), limit).await?;
    if matches.get_flag("json") {
        part.members.iter().try_for_each(|member| out.line(member.get()))?;
    } else if part.members.is_empty() {
        out.line("no attempts are recorded; each reconnect, good or bad, leaves one")?;
    } else {
        let attempts: Vec<Attempt> = part.read(api)?;
        attempt_table(&attempts, out).iter().try_for_each(|line| out.line(line))?;
    }
    if part.more {
        out.note(&format!("there are more than {limit}; see them with --limit"));
    }
    Ok(())
}

/// Attempts as a table.
pub(super) fn attempt_table(attempts: &[Attempt], out: &Out) -> Vec<String> {
    let mut table = Table::new([
        ("AT", Align::Left),
        ("ACTION", Align::Left),
        ("OUTCOME", Align::Left),
        ("OVER", Align::Left),
        ("FROM", Align::Left),
        ("PRINCIPAL", Align::Left),
        ("SESSION", Align::Left),
    ]);
    for attempt in attempts {
        let ink = if attempt.success { Ink::Green } else { Ink::Red };
        table.add([
            inked(tame(&attempt.at), Ink::Dim),
            cell(tame(&attempt.action)),
            inked(tame(&attempt.reason), ink),
            cell(tame(&attempt.transport)),
            cell(tame(attempt.address.as_deref().unwrap_or("-"))),
            cell(tame(&attempt.principal)),
            cell(tame(attempt.session_id.as_deref().unwrap_or("-"))),
        ]);
    }
    table.lines(out)
}
