//! `rejoin show`: all that is known of one session.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde_json::value::RawValue;

use super::api::Api;
use super::audit::attempt_table;
use super::failure::Failure;
use super::out::{Ink, Out, tame};
use super::records::{Attempt, BufferHealth, Part, Record, Timeline, attempts};
use super::sessions::{age, expires_in};
use super::target::Target;
use super::{id_arg, json_arg, session_of};

/// How many of the latest attempts are shown.
const ATTEMPTS: usize = 5;

/// How many of the latest deaths of its agent are shown, and how many lines of standard error of each.
const DEATHS: usize = 3;
const LINES: usize = 5;

pub(super) fn command() -> Command {
    let command = Command::new("show")
        .about(
            "Show one session: its record, its buffer, how its agent died, attempts to get at it",
        )
        .args([id_arg(), json_arg()]);
    Target::add_to(command)
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let id = &session_of(matches, api).await?;
    let record: Box<RawValue> = api.ask(Method::GET, id, "").await?;
    // A session that has ended has a record, and no buffer.
    let health: Option<Box<RawValue>> = match api.ask(Method::GET, id, "/health").await {
        Ok(health) => Some(health),
        Err(Failure::Ended(_)) => None,
        Err(failure) => return Err(failure),
    };
    let timeline: Box<RawValue> = api.ask(Method::GET, id, "/timeline").await?;
    let latest = attempts(api, Some(id), ATTEMPTS).await?;
    if matches.get_flag("json") {
        let members: Vec<&str> = latest.members.iter().map(|member| member.get()).collect();
        let health = health.as_deref().map_or("null", RawValue::get);
        let attempts = members.join(",");
        return out.line(&format!(
            r#"{{"session":{record},"health":{health},"timeline":{timeline},"audit":[{attempts}]}}"#
        ));
    }
    let health = health.map(|health| read(&health, api)).transpose()?;
    about(&read(&record, api)?, health.as_ref(), out)?;
    died(&read(&timeline, api)?, out)?;
    tried(&latest, api, out)
}

fn read<T: serde::de::DeserializeOwned>(json: &RawValue, api: &Api) -> Result<T, Failure> {
    serde_json::from_str(json.get())
        .map_err(|error| Failure::Strange { url: api.url().to_owned(), why: error.to_string() })
}

fn about(record: &Record, health: Option<&BufferHealth>, out: &Out) -> Result<(), Failure> {
    let status = match &record.ended_reason {
        _ if record.is_active() => format!("active, {}", record.standing()),
        Some(reason) if *reason != record.status => tame(&format!("{}, {reason}", record.status)),
        Some(_) | None => tame(&record.status),
    };
    let over = record.transport.as_deref().map_or_else(String::new, |over| format!(" over {over}"));
    let mut fields = vec![
        ("status", format!("{status}{}", tame(&over))),
        ("client", format!("{} {}", record.client_name(), tame(&record.client.to_string()))),
        ("principal", tame(&record.principal)),
        ("created", format!("{} ({} ago)", tame(&record.created_at), age(record))),
        ("last activity", tame(&record.last_activity)),
        ("expires", expiry(record)),
        (
            "connections",
            format!("{} so far, {} reconnects", record.generation, record.reconnect_count),
        ),
        ("events", format!("{} so far, {} acked", record.last_seq, record.last_acked_seq)),
    ];
    fields.extend(health.map(|health| ("buffer", buffer(health))));
    out.line(&out.paint(Ink::Bold, &tame(&record.session_id)))?;
    fields.iter().try_for_each(|(name, value)| {
        out.line(&format!("  {} {value}", out.paint(Ink::Dim, &format!("{name:<13}"))))
    })
}

fn expiry(record: &Record) -> String {
    match (record.is_active(), record.attached) {
        (true, true) => "not while a client is attached".to_owned(),
        (true, false) => format!("in {} ({})", expires_in(record), tame(&record.expires_at)),
        (false, _) => "it has ended".to_owned(),
    }
}

fn buffer(health: &BufferHealth) -> String {
    let held = match (health.oldest_event_seq, health.newest_event_seq) {
        (Some(oldest), Some(newest)) => format!("events {oldest} to {newest}"),
        _ => "empty".to_owned(),
    };
    format!(
        "{held} ({} events, {} bytes, {:.1} % full, {} not acked)",
        health.buffer_size, health.buffer_bytes, health.buffer_usage_percent, health.unacked_events
    )
}

/// How its agent died, the latest death last.
fn died(timeline: &Timeline, out: &Out) -> Result<(), Failure> {
    let deaths: Vec<_> = timeline.moments.iter().filter(|m| m.what == "agent_died").collect();
    if deaths.is_empty() {
        return Ok(());
    }
    let title = format!("deaths of its agent ({} in the timeline)", deaths.len());
    out.line(&out.paint(Ink::Bold, &title))?;
    for death in &deaths[deaths.len().saturating_sub(DEATHS)..] {
        let at = out.paint(Ink::Dim, &tame(&death.at));
        let status = out.paint(Ink::Red, &tame(death.status.as_deref().unwrap_or("-")));
        out.line(&format!("  {at}  {status}"))?;
        let lines = death.stderr.as_deref().unwrap_or_default();
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            out.line(&format!("    {}", tame(line)))?;
        }
    }
    Ok(())
}

fn tried(latest: &Part, api: &Api, out: &Out) -> Result<(), Failure> {
    let attempts: Vec<Attempt> = latest.read(api)?;
    if attempts.is_empty() {
        return out.line("  nobody has tried to come back to it yet");
    }
    out.line(&out.paint(Ink::Bold, "latest attempts"))?;
    attempt_table(&attempts, out).iter().try_for_each(|line| out.line(&format!("  {line}")))
}
