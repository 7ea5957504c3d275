//! The scenes of the demo, in their order.

use std::time::{Duration, Instant};

use hyper::Method;
use rejoin_client::{Event, Incoming, Joined, Session, SessionId, Status};

use super::super::api::Api;
use super::super::failure::Failure;
use super::super::line::text_of;
use super::super::out::{Ink, tame};
use super::super::records::Record;
use super::super::target::Target;
use super::network::Network;
use super::screen::{Screen, TICK};
use super::server::Server;
use super::tally::{Came, Tally};

/// How long the network is gone.
const NETWORK_GONE: Duration = Duration::from_millis(2_500);

/// How long the server stays dead.
const SERVER_DEAD: Duration = Duration::from_millis(1_500);

/// Nothing takes so long in a demo that works.
const STUCK: Duration = Duration::from_secs(20);

/// The pieces of an answer that are let through before the server is killed.
const PIECES: usize = 4;

/// A session on the stage.
pub(super) struct Play<'a> {
    server: &'a mut Server,
    network: Network,
    session: Session,
    session_id: Option<SessionId>,
    screen: Screen,
    tally: Tally,
    /// What is wrong at the moment, and since when.
    outage: Option<(&'static str, Instant)>,
    /// What the line that moves says.
    now: &'static str,
}

impl<'a> Play<'a> {
    /// Starts the server and a session on it.
    pub(super) async fn begin(server: &'a mut Server, screen: Screen) -> Result<Self, Failure> {
        screen.tick("starting a server")?;
        server.start().await?;
        let process = server.process().unwrap_or_default();
        let running = format!("a server runs on {} (process {process})", server.url());
        screen.scene(Ink::Bold, &running)?;
        let network = Network::to(server.address()).await?;
        let session = Session::builder(format!("ws://{}/ws", network.address()))
            .client_id("rejoin-demo")
            .app_version(env!("CARGO_PKG_VERSION"))
            .create_when_lost(false)
            .start()
            .await
            .map_err(|error| Failure::Other(format!("the demo's client: {error}")))?;
        let (tally, now) = (Tally::default(), "connecting");
        let mut play =
            Self { server, network, session, session_id: None, screen, tally, outage: None, now };
        while play.session_id.is_none() {
            play.show_next().await?;
        }
        Ok(play)
    }

    /// A message; while the agent works on it the network fails for a while.
    pub(super) async fn network_fails(&mut self) -> Result<(), Failure> {
        self.ask("What becomes of this answer when the network fails?").await?;
        self.until(|event| event.name() == "agent.tool_call").await?;
        self.network.go_down();
        self.outage = Some(("the network failed", Instant::now()));
        self.now = "the network is gone; the agent goes on";
        self.screen.scene(Ink::Red, "✂ the network fails; the agent does not know, and goes on")?;
        self.pass(NETWORK_GONE).await?;
        self.network.come_up();
        self.screen.scene(Ink::Bold, "  the network works again")?;
        self.until(|event| event.name() == "agent.final_answer").await
    }

    /// Another message; while the agent works on it the server is killed, and started again.
    pub(super) async fn server_is_killed(&mut self) -> Result<(), Failure> {
        self.ask("And when the server is killed?").await?;
        let mut pieces = 0;
        self.until(|event| {
            pieces += usize::from(event.name() == "agent.answer_delta");
            pieces == PIECES
        })
        .await?;
        let process = self.server.process().unwrap_or_default();
        self.outage = Some(("the server was killed", Instant::now()));
        self.now = "the server is dead";
        self.server.kill().await;
        self.screen
            .scene(Ink::Red, &format!("✂ kill -9 {process}: the server is dead, agent and all"))?;
        self.pass(SERVER_DEAD).await?;
        self.server.start().await?;
        let process = self.server.process().unwrap_or_default();
        let again = format!("  a new server runs on the same files (process {process})");
        self.screen.scene(Ink::Bold, &again)?;
        self.until(|event| event.name() == "agent.final_answer").await
    }

    /// Compares what arrived with what the server has, and says what came of it.
    pub(super) async fn conclude(self) -> Result<SessionId, Failure> {
        let Self { server, session, session_id, screen, tally, network, .. } = self;
        let id = session_id.ok_or_else(|| Failure::Other("there never was a session".into()))?;
        session.close().await;
        drop(network);
        let record: Record =
            Api::new(Target::open(server.url()))?.ask(Method::GET, &id, "").await?;
        let (out, head) = (screen.out, record.last_seq);
        let (live, replayed) = (tally.count(Came::Live), tally.count(Came::Replayed));
        screen.line("")?;
        screen.line(&format!("  {}   ■ live  □ replayed", tally.strip(head, &out)))?;
        for outage in tally.outages() {
            screen.line(&format!("  {outage} until the client was back, by itself"))?;
        }
        let complaints = tally.verdict(head).complaints();
        if !complaints.is_empty() {
            return Err(Failure::Other(complaints.join("\n")));
        }
        let verdict = format!("{head} events, each exactly once: {live} live, {replayed} replayed");
        screen.line(&format!("  {verdict}; {}", out.paint(Ink::Green, "no hole, no duplicate")))?;
        screen.line(
            "\ntry next:\n  rejoin                        a server of your own\n  \
             rejoin sessions --watch       what happens on it\n  \
             rejoin send ID \"hi\" --wait    talk to its agent; `rejoin tail ID` looks on",
        )?;
        Ok(id)
    }

    async fn ask(&mut self, question: &str) -> Result<(), Failure> {
        let posted = self.session.handle().post(question).await;
        // What becomes of it is seen by what the agent says.
        drop(posted.map_err(|error| Failure::Other(error.to_string()))?);
        self.now = "the agent works";
        self.screen.scene(Ink::Bold, &format!("> {question}"))
    }

    /// Shows what comes, up to an event that is the one.
    async fn until(&mut self, mut is_it: impl FnMut(&Event) -> bool) -> Result<(), Failure> {
        loop {
            let shown = self.show_next().await?;
            if matches!(&shown, Incoming::Event(event) if is_it(event)) {
                return Ok(());
            }
        }
    }

    /// Shows one thing, which must come before long.
    async fn show_next(&mut self) -> Result<Incoming, Failure> {
        let incoming = self.next(Instant::now() + STUCK).await?.ok_or_else(|| {
            Failure::Other(format!("nothing has arrived for {} s", STUCK.as_secs()))
        })?;
        self.show(&incoming)?;
        Ok(incoming)
    }

    /// Shows what comes for a while.
    async fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        while let Some(incoming) = self.next(end).await? {
            self.show(&incoming)?;
        }
        Ok(())
    }

    /// What comes next, if it does before `end`.
    async fn next(&mut self, end: Instant) -> Result<Option<Incoming>, Failure> {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                incoming = self.session.next() => {
                    let ended = || Failure::Other("the client has given up".into());
                    return incoming.map(Some).ok_or_else(ended);
                }
                () = tokio::time::sleep_until(end.into()) => return Ok(None),
                _ = ticks.tick() => self.screen.tick(self.now)?,
            }
        }
    }

    fn show(&mut self, incoming: &Incoming) -> Result<(), Failure> {
        match incoming {
            Incoming::Event(event) => {
                let came = if event.replayed { Came::Replayed } else { Came::Live };
                let seq = event.seq.get();
                self.tally.event(seq, came);
                let (name, text) = (tame(event.name()), text_of(event.content_json()));
                self.screen.event(seq, came, &name, text.trim_end())
            }
            Incoming::Gap(_) => {
                self.tally.gap();
                self.screen.scene(Ink::Red, "the server says that events are gone")
            }
            Incoming::Status(status) => self.stands(status),
            Incoming::State(_) | Incoming::Refused(_) | Incoming::KeepFailed(_) => Ok(()),
        }
    }

    fn stands(&mut self, status: &Status) -> Result<(), Failure> {
        match status {
            Status::Connected { session_id, how: Joined::Created } => {
                let sentence = format!("a client has made session {session_id}");
                self.session_id = Some(session_id.clone());
                self.screen.scene(Ink::Bold, &sentence)
            }
            Status::Connected { session_id, how: Joined::Resumed | Joined::Restored } => {
                if self.session_id.as_ref() != Some(session_id) {
                    return Err(Failure::Other(format!("the session has become {session_id}")));
                }
                let Some((what, since)) = self.outage.take() else { return Ok(()) };
                let lasted = since.elapsed();
                self.tally.outage(what, lasted);
                self.now = "the agent works";
                let back = format!("↻ the client is back after {:.1} s", lasted.as_secs_f64());
                self.screen.scene(Ink::Green, &back)
            }
            Status::Stopped { reason } => {
                Err(Failure::Other(format!("the client has given up: {reason:?}")))
            }
            Status::Expired { code } => Err(Failure::Other(format!("the session is gone: {code}"))),
            Status::Connecting
            | Status::CaughtUp
            | Status::Draining
            | Status::ConnectionLost
            | Status::Reconnecting { .. }
            | Status::Restoring => Ok(()),
        }
    }
}
