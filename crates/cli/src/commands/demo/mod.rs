//! `rejoin demo`: a real server, a real client, a network that fails and a server that is killed, in
//! half a minute and without anything outside this machine. What it says at the end is counted from
//! what arrived.
//!
//! | file | what it does |
//! |---|---|
//! | `play` | the scenes, in their order |
//! | `server` | the server, a child process that can be killed and started again |
//! | `network` | what lies between client and server, and can fail |
//! | `tally` | what arrived, and whether that was everything, once |
//! | `screen` | lines, and one that moves where a person looks on |

mod network;
mod play;
mod screen;
mod server;
mod tally;

use clap::{Arg, ArgAction, ArgMatches, Command};
use rejoin_core::SessionId;

use self::play::Play;
use self::screen::Screen;
use self::server::Server;
use super::failure::Failure;
use super::interrupted;
use super::out::Out;

pub(super) fn command() -> Command {
    let keep = Arg::new("keep")
        .long("keep")
        .action(ArgAction::SetTrue)
        .help("Leave the server running at the end, to look at it, until Ctrl-C");
    Command::new("demo")
        .about("See a session outlive a broken network and a killed server, in half a minute")
        .arg(keep)
}

pub(super) async fn run(matches: &ArgMatches, out: &Out) -> Result<(), Failure> {
    let mut server = Server::prepare()?;
    let outcome = tokio::select! {
        outcome = acts(&mut server, Screen::new(*out)) => outcome,
        () = interrupted() => Err(Failure::Other("stopped; its server and its files are gone".into())),
    };
    let outcome = match outcome {
        Ok(session) if matches.get_flag("keep") => keep(&server, &session, out).await,
        other => other.map(drop),
    };
    server.kill().await; // its files go when it is dropped
    if outcome.is_err() && out.is_terminal() {
        out.line("")?; // below the line that moves
    }
    outcome
}

/// Plays all of it, and gives the session that it was about.
async fn acts(server: &mut Server, screen: Screen) -> Result<SessionId, Failure> {
    let mut play = Play::begin(server, screen).await?;
    play.network_fails().await?;
    play.server_is_killed().await?;
    play.conclude().await
}

/// Leaves the server running until somebody has looked enough.
async fn keep(server: &Server, session: &SessionId, out: &Out) -> Result<(), Failure> {
    let url = server.url();
    out.line(&format!(
        "\nthe server still runs, until Ctrl-C:\n  rejoin show {session} --url {url}\n  \
         rejoin sessions --url {url} --watch"
    ))?;
    interrupted().await;
    Ok(())
}
