//! `rejoin disconnect`: cuts a session's connection as a network might, and keeps the session.

use clap::{ArgMatches, Command};
use hyper::Method;
use serde::Deserialize;

use super::api::Api;
use super::failure::Failure;
use super::out::Out;
use super::target::Target;
use super::{id_arg, session_of};

pub(super) fn command() -> Command {
    let command = Command::new("disconnect")
        .about("Cut a session's connection and keep the session, to see its client come back")
        .arg(id_arg());
    Target::add_to(command)
}

#[derive(Deserialize)]
struct Cut {
    disconnected: bool,
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let id = &session_of(matches, api).await?;
    let cut: Cut = api.ask(Method::POST, id, "/disconnect").await?;
    out.line(match cut.disconnected {
        true => "its connection was cut; the session is kept, and its client may come back",
        false => "nobody was connected; the session is kept as it was",
    })
}
