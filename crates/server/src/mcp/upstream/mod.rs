//! The ways to reach an MCP server. Whatever it is, it is spoken to over a [`Link`]: messages in, messages
//! out, and its end is known by the end of what comes out.

mod child;

use rejoin_core::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use child::Child;

/// Messages that may wait in a link, in each direction.
const WAITING: usize = 64;

/// A server that can be reached.
#[derive(Debug)]
pub(crate) enum Upstream {
    /// A command, run once for each session.
    Child(Child),
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
    keeper: JoinHandle<()>,
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) text: String,
    /// The request on whose own stream it came, where the transport tells.
    pub(crate) during: Option<u64>,
}

impl Upstream {
    /// Reaches the server for one session.
    pub(crate) async fn connect(&self, session: &SessionId) -> Result<Link, Unreachable> {
        match self {
            Self::Child(child) => child.start(session).await,
        }
    }
}

impl Link {
    /// Ends it, and waits until the server has gone.
    pub(crate) async fn close(self) {
        let Self { to, from, keeper } = self;
        drop((to, from));
        let _ = keeper.await; // it was aborted, or has said what it had to say
    }
}
