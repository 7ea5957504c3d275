//! `rejoin end`: ends a session for good.

use clap::{ArgMatches, Command};
use hyper::Method;

use super::api::Api;
use super::failure::Failure;
use super::out::Out;
use super::records::Record;
use super::target::Target;
use super::{id_arg, session_of};

pub(super) fn command() -> Command {
    let command = Command::new("end")
        .about("End a session for good: its events and its agent's state are deleted")
        .arg(id_arg());
    Target::add_to(command)
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let id = &session_of(matches, api).await?;
    let left: Record = api.ask(Method::DELETE, id, "").await?;
    out.line(&format!("session {id} has ended, after {} events", left.last_seq))
}
