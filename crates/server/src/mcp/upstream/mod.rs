//! The ways to reach an MCP server. Whatever it is, it is spoken to over a [`Link`]: messages in, messages
//! out, and its end is known by the end of what comes out.

mod built_in;
mod child;
mod http;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rejoin_core::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use child::Child;
pub(crate) use http::Http;

use super::message::RequestId;
use crate::metrics::Counted;
use crate::timeline::Death;

/// Messages that may wait in a link, in each direction. Each may be as large as a message may be.
const WAITING: usize = 16;

/// A server that can be reached.
#[derive(Debug)]
pub(crate) enum Upstream {
    /// A command, run once for each session.
    Child(Child),
    /// A server that speaks Streamable HTTP.
    Http(Http),
    /// The example tools of this process.
    BuiltIn,
}

/// Why a server can't be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    /// The command can't be run.
    #[error("it can't be started: {0}")]
    NotStarted(std::io::Error),
    /// It went away before it had answered the handshake.
    #[error("it went away before it had answered `initialize`")]
    WentAway,
    /// It could not be given the handshake, though that was tried for a while.
    #[error("{0}")]
    NotDelivered(Box<str>),
    /// It broke off in the middle.
    #[error("it broke off before it had answered")]
    BrokeOff,
    /// It did not answer the handshake.
    #[error("it did not answer `{0}` in time")]
    Silent(Box<str>),
    /// It refused the handshake that it had accepted before.
    #[error("it refused `initialize`: {0}")]
    Refused(Box<str>),
}

/// The way to a server that runs.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) to: mpsc::Sender<String>,
    pub(crate) from: mpsc::Receiver<Heard>,
    /// What the server calls the session, once it has said so and if it does.
    theirs: Theirs,
    keeper: JoinHandle<Option<Death>>,
}

/// See [`Link`].
type Theirs = Arc<OnceLock<Box<str>>>;

/// A session that a server may still have from before we were started.
#[derive(Debug)]
pub(crate) struct Before {
    /// What the server calls it.
    pub(crate) theirs: Box<str>,
    /// The revision that was agreed upon.
    pub(crate) revision: String,
    /// Whether the client had said that it is ready.
    pub(crate) initialized: bool,
}

/// What is heard of a server.
#[derive(Debug)]
pub(crate) enum Heard {
    /// It said something; where the transport tells, on the own stream of a request.
    Said { text: String, during: Option<u64> },
    /// A request could not be given to it, though that was tried for a while: it certainly did not run.
    NotTaken { id: RequestId, why: Box<str> },
    /// A request was given to it and the answer was lost on the way. The server itself goes on.
    Lost { id: RequestId },
    /// It says that it did not run a request, because it has forgotten the session. The link ends.
    Refused { id: RequestId },
    /// It did not run a request: it never got it. The link ends.
    DidNotRun { id: RequestId },
}

impl Heard {
    /// Something that belongs to no request, as far as the transport tells.
    pub(crate) fn said(text: impl Into<String>) -> Self {
        Self::Said { text: text.into(), during: None }
    }
}

impl Upstream {
    /// Reaches the server for one session, or goes on with one that it has from before. A message of it
    /// has at most so many bytes. If it is a child it is counted while it runs.
    pub(crate) async fn connect(
        &self,
        session: &SessionId,
        max_bytes: usize,
        before: Option<Before>,
        counted: Counted,
    ) -> Result<Link, Unreachable> {
        match self {
            Self::Child(child) => child.start(session, max_bytes, counted).await,
            Self::Http(http) => Ok(http.connect(session, max_bytes, before)),
            Self::BuiltIn => Ok(built_in::connect()),
        }
    }
}

impl Unreachable {
    /// Whether it is of no use to try again at once.
    pub(crate) fn was_tried_for_a_while(&self) -> bool {
        match self {
            Self::NotDelivered(_) => true,
            Self::NotStarted(_)
            | Self::WentAway
            | Self::BrokeOff
            | Self::Silent(_)
            | Self::Refused(_) => false,
        }
    }
}

/// The waits between attempts to reach a server.
pub(crate) const WAITS: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

impl Link {
    /// A link that `keeper` serves until it is ended or dropped. It returns how the server died, if it did and somebody
    /// saw it.
    fn kept_by(
        keeper: impl Future<Output = Option<Death>> + Send + 'static,
        to: mpsc::Sender<String>,
        from: mpsc::Receiver<Heard>,
        theirs: Theirs,
    ) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the gateway of its session waits for it")]
        let keeper = tokio::spawn(keeper);
        Self { to, from, theirs, keeper }
    }

    /// What the server calls the session, if it has said so.
    pub(crate) fn theirs(&self) -> Option<Box<str>> {
        self.theirs.get().cloned()
    }

    /// Ends it, and waits until the server has gone; says how, if it had died before.
    pub(crate) async fn close(self) -> Option<Death> {
        let Self { to, from, keeper, .. } = self;
        drop((to, from));
        keeper.await.ok().flatten() // it fails if it was aborted
    }

    /// Ends it for a while: a server that has a session of its own keeps it for whoever comes next.
    pub(crate) async fn leave(self) {
        match self.theirs.get() {
            Some(_) => self.keeper.abort(),
            None => drop(self.close().await),
        }
    }
}
