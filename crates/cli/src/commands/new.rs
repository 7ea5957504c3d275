//! `rejoin new`: makes a session, for a client that is given its id, or to try something.

use clap::{Arg, ArgMatches, Command};
use rejoin_core::SessionId;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::api::Api;
use super::failure::Failure;
use super::out::Out;
use super::target::Target;
use super::{json_arg, send};

pub(super) fn command() -> Command {
    let message = Arg::new("message")
        .long("message")
        .value_name("TEXT")
        .help("Send this to its agent, too; `rejoin tail` shows what comes of it");
    let command =
        Command::new("new").about("Make a session and print its id").args([message, json_arg()]);
    Target::add_to(command)
}

#[derive(Deserialize)]
struct Made {
    session_id: SessionId,
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let client = json!({ "client_id": "rejoin-cli", "app_version": env!("CARGO_PKG_VERSION") });
    let record: Box<RawValue> = api.create(&client).await?;
    let made: Made = serde_json::from_str(record.get())
        .map_err(|error| Failure::Strange { url: api.url().to_owned(), why: error.to_string() })?;
    if let Some(text) = matches.get_one::<String>("message") {
        send::say(api, &made.session_id, text).await?;
    }
    match matches.get_flag("json") {
        true => out.line(record.get()),
        false => out.line(made.session_id.as_str()),
    }
}
