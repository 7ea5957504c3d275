//! An agent in any language: one child process a session, JSON lines on its standard input and output.
//!
//! Every line is the envelope of the protocol. The child is told `session.start` (what it goes on from:
//! `content {session_id, state, in_seq, state_seq, last_seq}`), then `user.message` and `user.cancel`
//! as they come, with their `in_seq`, and `session.end` if the session ends. It says events; any of them
//! may carry `state` and `in_seq`, which are stored in one commit with the event, and `session.state`
//! sets the state alone.
//!
//! A child that never names an `in_seq` covers an entry by taking the next, once it has said anything.
//! One that will name them does well to say so first:
//! `{"event":"session.state","content":null,"in_seq":0}` covers nothing and is enough.

mod feed;
mod hear;

use std::ffi::OsString;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rejoin_core::record::Kind;
use rejoin_core::worker::Covering;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::feed::feed;
use self::hear::hear;
use crate::agent::{Agent, ChildEnd, Seat, stopped};
use crate::child::places::{Place, Places};
use crate::child::process::{LONGEST_END, Pipes, Process, Program};
use crate::child::stderr::LastLines;
use crate::metrics::Counted;
use crate::timeline::Death;

/// How many children there are at most, unless somebody says otherwise.
pub const MAX_CHILDREN: usize = 64;

/// How long what a child said before it ended may take to be read and stored …
const LAST_LINES: Duration = Duration::from_secs(10);

/// … and how long if somebody waits for that.
const LAST_LINES_IN_HASTE: Duration = Duration::from_secs(1);

/// How long its last words on standard error may take to be logged.
const LAST_ERRORS: Duration = Duration::from_millis(500);

/// Runs a command for each session.
///
/// ```no_run
/// # use std::sync::Arc;
/// use rejoin::agents::Command;
/// # use rejoin::{Sessions, ServerSettings, store::MemoryStore};
/// # use std::time::Duration;
/// # fn start() -> Result<Sessions, rejoin::store::Unavailable> {
/// let agent = Command::shell("python3 agent.py").max_children(16);
/// let agent_idle_ttl = Duration::from_secs(60 * 60); // a child is worth keeping for a while
/// let settings = ServerSettings { agent_idle_ttl, ..ServerSettings::default() };
/// Sessions::builder(Arc::new(MemoryStore::default())).settings(settings).agent(agent).start()
/// # }
/// ```
#[derive(Debug)]
pub struct Command {
    program: Program,
    places: Arc<Places>,
}

impl Command {
    /// Runs a program with these arguments.
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        let program = Program { name: program.into(), arguments };
        Self { program, places: Places::new(MAX_CHILDREN) }
    }

    /// Runs a command line as `sh -c` does, so that quotes, variables and pipes mean in it what they
    /// mean to whoever wrote it.
    pub fn shell(line: impl Into<OsString>) -> Self {
        Self::new("sh", [OsString::from("-c"), line.into()])
    }

    /// With at most so many children at a time. When there are so many and another session needs one,
    /// the child that has been idle longest is stopped; if none is, the session waits.
    #[must_use]
    pub fn max_children(mut self, count: usize) -> Self {
        self.places = Places::new(count);
        self
    }

    /// With at most so many of them for one principal, so that others have some left. To be said after
    /// [`Command::max_children`].
    #[must_use]
    pub fn max_children_per_principal(mut self, count: usize) -> Self {
        self.places = self.places.with_share(count);
        self
    }
}

#[async_trait]
impl Agent for Command {
    async fn run(&self, seat: Seat) {
        let Some(place) = self.places.take(&seat.start.record.about.principal, &seat.orders).await
        else {
            return;
        };
        let counted = Counted::by(&seat.shared.metrics.children(Kind::Agent));
        match Process::spawn(&self.program, counted).await {
            Ok((process, pipes)) => talk(seat, place, process, pipes).await,
            Err(error) => {
                let death = Death::silent(format!("it can't be started: {error}"));
                let _ = seat.child_end.set(ChildEnd { in_order: false, death });
            }
        }
    }

    fn covering(&self) -> Covering {
        Covering::Unknown
    }

    fn last_words(&self) -> Duration {
        LONGEST_END + LAST_LINES_IN_HASTE + LAST_ERRORS
    }
}

/// Why a child goes.
#[derive(Clone, Copy)]
enum Going {
    /// It was told to stop.
    Told,
    /// Its place is needed, and it has nothing to do.
    Displaced,
    /// It has ended by itself.
    Ended,
    /// It hears or says nothing more, or nobody takes what it says.
    Cut,
}

/// Goes between a session and its child until the child has gone.
async fn talk(seat: Seat, place: Place, mut process: Process, pipes: Pipes) {
    let Seat { start, mut inbox, voice, orders, resigned, child_end, shared, busy: _ } = seat;
    let session = start.record.id();
    let mut logging = JoinSet::new(); // ends with this function, if not before
    let (last_lines, speaker) = (LastLines::default(), session.clone());
    logging.spawn(last_lines.clone().follow(pipes.stderr, move |line| {
        tracing::info!(target: "rejoin::agent", session = %speaker, "{line}");
    }));
    let (mut told, mut fed) = (orders.clone(), orders.clone());
    let mut feeding = Box::pin(feed(pipes.stdin, &start, &mut inbox, &mut fed, shared.clock));
    let mut hearing = pin!(hear(pipes.stdout, &voice, session, &shared.agent_counts, &orders));
    let (mut says_more, mut status) = (true, None);
    let going = tokio::select! {
        biased; // an order before what follows from it
        _ = stopped(&mut told) => Going::Told,
        () = place.needed(orders.clone()) => Going::Displaced,
        exited = process.exited() => {
            status = exited.ok();
            Going::Ended
        }
        _ = &mut feeding => Going::Cut,
        () = &mut hearing => {
            says_more = false;
            Going::Cut
        }
    };
    resigned.store(matches!(going, Going::Displaced), Ordering::Release);
    // Its standard input is closed; before that one that was told to stop is told all there is to tell.
    let feeding = matches!(going, Going::Told).then_some(feeding);
    let closing = async {
        if let Some(feeding) = feeding {
            let _ = feeding.await; // it fails if the child has gone already
        }
    };
    let ending = async {
        match going {
            Going::Told | Going::Displaced | Going::Cut => process.end(closing).await,
            Going::Ended => status,
        }
    };
    let mut ending = pin!(ending);
    let status = tokio::select! {
        status = &mut ending => status,
        () = &mut hearing, if says_more => {
            says_more = false;
            ending.await
        }
    };
    if says_more {
        let patience = match going {
            Going::Told => LAST_LINES_IN_HASTE,
            Going::Displaced | Going::Ended | Going::Cut => LAST_LINES,
        };
        // Somebody who left the group may keep the pipe open for ever.
        let _ = timeout(patience, hearing).await;
    }
    let _ = timeout(LAST_ERRORS, logging.join_next()).await;
    if matches!(going, Going::Ended | Going::Cut) {
        let in_order = status.is_some_and(|status| status.success());
        let death = Death::of_child(status, last_lines.take());
        let _ = child_end.set(ChildEnd { in_order, death }); // nobody else sets it
    }
}
