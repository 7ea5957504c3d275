//! `rejoin sessions`: a table of them, once or as it changes.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::api::Api;
use super::failure::Failure;
use super::out::{Ink, Out, tame};
use super::records::{Part, Record};
use super::selection::Selection;
use super::table::{Align, Cell, Table, cell, inked};
use super::target::Target;
use super::{interrupted, json_arg, limit_arg, when};

/// How often `--watch` looks again.
const REFRESH: Duration = Duration::from_secs(1);

/// To the first column of the first line.
const HOME: &str = "\x1b[H";
/// Everything from here to the end of the line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

pub(super) fn command() -> Command {
    let watch = Arg::new("watch")
        .long("watch")
        .action(ArgAction::SetTrue)
        .help("Look again every second, until Ctrl-C");
    let command = Command::new("sessions")
        .about("List the sessions: who is attached, how far each is, when it expires")
        .args([watch, json_arg(), limit_arg("100")]);
    Target::add_to(Selection::add_to(command))
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let selection = Selection::from_matches(matches);
    let limit = selection.limit;
    let show = |part: &Part| match matches.get_flag("json") {
        true => Ok(part.members.iter().map(|member| member.get().to_owned()).collect()),
        false => table(part, api, &selection, out),
    };
    let first = selection.fetch(api).await?;
    if !matches.get_flag("watch") {
        for line in show(&first)? {
            out.line(&line)?;
        }
        if first.more {
            out.note(&format!("there are more than {limit}; see them with --limit"));
        }
        return Ok(());
    }
    let mut clock = tokio::time::interval(REFRESH);
    let watching = async {
        loop {
            clock.tick().await;
            let lines = match selection.fetch(api).await {
                Ok(part) => show(&part)?,
                Err(failure) if failure.may_pass() => vec![failure.to_string()],
                Err(failure) => return Err(failure),
            };
            draw(&lines, out)?;
        }
    };
    tokio::select! {
        outcome = watching => outcome,
        () = interrupted() => match out.is_terminal() {
            true => out.line(""), // below the ^C
            false => Ok(()),
        },
    }
}

/// Writes over what was there before, or below it where that can't be.
fn draw(lines: &[String], out: &Out) -> Result<(), Failure> {
    if !out.is_terminal() {
        return lines.iter().try_for_each(|line| out.line(line));
    }
    let room = out.height().unwrap_or(usize::MAX).saturating_sub(1);
    let fits = lines.iter().take(room).map(|line| format!("{line}{REST_OF_LINE}\n"));
    let screen: String = fits.collect();
    out.raw(&format!("{HOME}{screen}{REST_OF_SCREEN}"))
}

fn table(part: &Part, api: &Api, selection: &Selection, out: &Out) -> Result<Vec<String>, Failure> {
    let records: Vec<Record> = part.read(api)?;
    if records.is_empty() {
        let nothing = selection.nothing();
        return Ok(vec![format!("{nothing}; make one with `rejoin new`, or see `rejoin demo`")]);
    }
    let mut table = Table::new([
        ("SESSION", Align::Left),
        ("STATUS", Align::Left),
        ("OVER", Align::Left),
        ("CLIENT", Align::Left),
        ("PRINCIPAL", Align::Left),
        ("SEQ", Align::Right),
        ("ACKED", Align::Right),
        ("HELD", Align::Right),
        ("AGE", Align::Left),
        ("EXPIRES IN", Align::Left),
    ]);
    for record in &records {
        table.add(row(record));
    }
    Ok(table.lines(out))
}

fn row(record: &Record) -> [Cell; 10] {
    let ink = match (record.is_active(), record.attached) {
        (true, true) => Ink::Green,
        (true, false) => Ink::Yellow,
        (false, _) => Ink::Dim,
    };
    [
        inked(tame(&record.session_id), Ink::Bold),
        inked(tame(record.standing()), ink),
        cell(tame(record.transport.as_deref().unwrap_or("-"))),
        cell(record.client_name()),
        cell(tame(&record.principal)),
        cell(record.last_seq.to_string()),
        cell(record.last_acked_seq.to_string()),
        cell(record.buffered.to_string()),
        cell(age(record)),
        cell(expires_in(record)),
    ]
}

/// How long ago it was made.
pub(super) fn age(record: &Record) -> String {
    when::moment(&record.created_at)
        .map_or_else(|| "?".to_owned(), |made| when::in_words(when::now().since(made)))
}

/// How long it has to live: that counts only while nobody is attached.
pub(super) fn expires_in(record: &Record) -> String {
    match (record.standing(), when::moment(&record.expires_at)) {
        ("parked", Some(end)) => when::in_words(end.since(when::now())),
        ("parked", None) => "?".to_owned(),
        _ => "-".to_owned(),
    }
}
