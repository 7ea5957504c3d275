//! Which sessions `rejoin sessions` lists, and in which order.

use std::cmp::Reverse;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::api::Api;
use super::failure::Failure;
use super::limit_of;
use super::records::{Part, Record, sessions};

/// What was asked for.
#[derive(Debug)]
pub(super) struct Selection {
    /// `active`, `closed` or `expired`; all of them if nothing is said.
    status: Option<String>,
    principal: Option<String>,
    attached: Option<bool>,
    sort: Option<String>,
    pub(super) limit: usize,
}

impl Selection {
    /// `command` with the flags that choose and order.
    pub(super) fn add_to(command: Command) -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let all = flag("all")
            .conflicts_with("status")
            .help("Show those that have ended, too, as long as they are remembered");
        let status = Arg::new("status")
            .long("status")
            .value_name("STATUS")
            .value_parser(["active", "closed", "expired"])
            .help("Only those of this status [default: active]");
        let principal = Arg::new("principal")
            .long("principal")
            .value_name("NAME")
            .value_parser(value_parser!(String))
            .help("Only those of this principal");
        let attached = flag("attached").help("Only those that a client is attached to");
        let parked =
            flag("parked").conflicts_with("attached").help("Only those that wait for their client");
        let sort = Arg::new("sort")
            .long("sort")
            .value_name("FIELD")
            .value_parser(["last_activity", "created", "expires", "buffered", "events"])
            .help("The newest, soonest or largest first [default: by id]");
        command.args([all, status, principal, attached, parked, sort])
    }

    pub(super) fn from_matches(matches: &ArgMatches) -> Self {
        let text = |name| matches.get_one::<String>(name).cloned();
        let (attached, parked) = (matches.get_flag("attached"), matches.get_flag("parked"));
        let active = || (!matches.get_flag("all")).then(|| "active".to_owned());
        Self {
            status: text("status").or_else(active),
            principal: text("principal"),
            attached: (attached || parked).then_some(attached),
            sort: text("sort"),
            limit: limit_of(matches),
        }
    }

    /// What is missing when none are found, in words.
    pub(super) fn nothing(&self) -> &'static str {
        match (&self.principal, self.attached, self.status.as_deref()) {
            (None, None, None) => "no sessions",
            (None, None, Some("active")) => "no active sessions (--all shows ended ones)",
            _ => "no sessions like that",
        }
    }

    fn wants(&self, record: &Record) -> bool {
        let is_theirs = self.principal.as_ref().is_none_or(|name| record.principal == *name);
        let stands = if record.attached { "attached" } else { "parked" };
        is_theirs
            && self
                .attached
                .is_none_or(|attached| record.standing() == stands && record.attached == attached)
    }

    /// The sessions that are wanted. To know which come first all of them are read; a page at a time would not say.
    pub(super) async fn fetch(&self, api: &Api) -> Result<Part, Failure> {
        let Some(sort) = &self.sort else {
            return sessions(api, self.status.as_deref(), self.limit, |record| self.wants(record))
                .await;
        };
        let all =
            sessions(api, self.status.as_deref(), usize::MAX, |record| self.wants(record)).await?;
        let records: Vec<Record> = all.read(api)?;
        let mut both: Vec<_> = records.into_iter().zip(all.members).collect();
        // Times are all of one length and one zone, so their text has their order.
        match sort.as_str() {
            "last_activity" => {
                both.sort_by_cached_key(|(record, _)| Reverse(record.last_activity.clone()))
            }
            "created" => both.sort_by_cached_key(|(record, _)| Reverse(record.created_at.clone())),
            "expires" => both.sort_by_cached_key(|(record, _)| record.expires_at.clone()),
            "buffered" => both.sort_by_key(|(record, _)| Reverse(record.buffered)),
            _ => both.sort_by_key(|(record, _)| Reverse(record.last_seq)),
        }
        let more = both.len() > self.limit;
        let members = both.into_iter().take(self.limit).map(|(_, member)| member).collect();
        Ok(Part { members, more })
    }
}
