//! The session that a command is about, by its id or by the beginning of it.

use clap::{Arg, ArgMatches};
use hyper::Method;
use rejoin_core::SessionId;
use serde::de::IgnoredAny;

use super::api::Api;
use super::failure::Failure;
use super::records::{Record, sessions_after};

/// How many of the sessions that could be meant are told.
const CANDIDATES: usize = 5;

/// The argument that names a session.
pub(super) fn id_arg() -> Arg {
    Arg::new("id")
        .required(true)
        .value_name("ID")
        .value_parser(parse_id)
        .help("The session, as `rejoin sessions` shows it, or the beginning of its id")
}

pub(super) fn parse_id(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).map_err(|error| error.to_string())
}

/// The session that was named. An id that is known is that session, also where others begin with it; what is known to
/// nobody is the beginning of one.
pub(super) async fn session_of(matches: &ArgMatches, api: &Api) -> Result<SessionId, Failure> {
    let none = || Failure::Usage("no session was named".to_owned());
    let given: &SessionId = matches.get_one("id").ok_or_else(none)?;
    match api.ask::<IgnoredAny>(Method::GET, given, "").await {
        Ok(IgnoredAny) | Err(Failure::Ended(_)) => return Ok(given.clone()),
        Err(Failure::NotFound(_)) => {}
        Err(failure) => return Err(failure),
    }
    // Ids come in their order, so those that begin with it are the next ones.
    let next = sessions_after(api, given, CANDIDATES + 1).await?;
    let ids = next.read::<Record>(api)?.into_iter().map(|record| record.session_id);
    let mut ids: Vec<String> = ids.take_while(|id| id.starts_with(given.as_str())).collect();
    match ids.len() {
        0 => Err(Failure::NotFound(given.clone())),
        1 => SessionId::parse(&ids.swap_remove(0)).map_err(|error| Failure::Strange {
            url: api.url().to_owned(),
            why: error.to_string(),
        }),
        _ => Err(Failure::Ambiguous { prefix: given.clone(), candidates: told(&ids) }),
    }
}

fn told(ids: &[String]) -> String {
    let more = if ids.len() > CANDIDATES { " and more" } else { "" };
    format!("{}{more}", ids[..ids.len().min(CANDIDATES)].join(", "))
}
