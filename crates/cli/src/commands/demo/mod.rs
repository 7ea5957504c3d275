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
    let screen = Screen::new(*out);
    let outcome = tokio::select! {
        outcome = acts(&mut server, screen, matches.get_flag("keep")) => outcome,
        () = interrupted() => Err(Failure::Other("stopped; its server and its files are gone".into())),
    };
    server.kill().await; // its files go when it is dropped
    if outcome.is_err() && out.is_terminal() {
        out.line("")?; // below the line that moves
    }
    outcome
}

async fn acts(server: &mut Server, screen: Screen, keep: bool) -> Result<(), Failure> {
    let mut play = Play::begin(server, screen).await?;
    play.network_fails().await?;
    play.server_is_killed().await?;
    let (screen, session) = play.conclude().await?;
    if keep {
        screen.line(&format!(
            "\nthe server still runs, until Ctrl-C:\n  rejoin show {session} --url {url}\n  rejoin \
             sessions --url {url} --watch",
            url = server.url(),
        ))?;
        interrupted().await;
    }
    Ok(())
}
