//! Between the two logs of an MCP session and the server behind it.
//!
//! The gateway is the agent of MCP sessions: it takes entries from the in log and hands them to the server,
//! and publishes what the server says. It answers for every request that the server can't answer any more,
//! so that nothing hangs, and hands nothing over a second time that may have had an effect.
//!
//! | file | concern |
//! |---|---|
//! | `book.rs` | what must be known to go on after anything died |
//! | `pending.rs` | requests under way, and which stream a message belongs to |
//! | `desk.rs` | one session's gateway: what it holds, and what it does when |
//! | `client_side.rs` | what the client sent |
//! | `server_side.rs` | what the server behind said |
//! | `connect.rs` | reaching the server, and introducing the client again |
//! | `lists.rs` | which lists of the server the client has, and whether they differ now |
//! | `session_tools.rs` | reconnect tokens in results, and the tool that takes them |
//! | `questions.rs` | what the server asks the client |
//! | `waiting.rs` | results that no client has fetched |
//! | `ids.rs` | the ids under which the server knows requests |
//! | `restarts.rs` | telling the model that the server was started again |
//! | `unsent.rs` | what the server has no room for yet |
//! | `rerun.rs` | what becomes of a request that the server died over |

mod book;
mod client_side;
mod connect;
mod desk;
mod ids;
mod lists;
mod pending;
mod questions;
mod rerun;
mod restarts;
mod server_side;
mod session_tools;
mod set_up;
mod unsent;
mod waiting;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use book::{Book, Handshake, Keeping, Question, Written};
pub(crate) use session_tools::uses_token;
pub(crate) use set_up::handshake_too_large;

use self::desk::Desk;
use super::upstream::{Child, Http, Upstream};
use crate::agent::{Agent, Seat};
use crate::agents::MAX_CHILDREN;
use crate::child::places::Places;
use crate::child::process::LONGEST_END;
use crate::outward::BadUrl;

/// The largest message, unless somebody says otherwise.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// How long what it still has to say may take when its session ends or the server stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Keeps MCP sessions alive before a server that knows nothing of it.
///
/// ```no_run
/// # use std::sync::Arc;
/// use rejoin::mcp::Gateway;
/// # use rejoin::{Sessions, store::MemoryStore};
/// # fn start() -> Result<Sessions, rejoin::store::Unavailable> {
/// let gateway = Gateway::command("npx -y @modelcontextprotocol/server-everything");
/// Sessions::builder(Arc::new(MemoryStore::default())).mcp(gateway).start()
/// # }
/// ```
#[derive(Debug)]
pub struct Gateway {
    upstream: Upstream,
    /// Places for children; nothing if the server is no child of ours.
    places: Option<Arc<Places>>,
    trusts_annotations: bool,
    session_tools: bool,
    /// Whether the first tool result after a restart of the server says so.
    tells_restarts: bool,
    /// The largest message of the server behind.
    max_bytes: usize,
}

impl Gateway {
    /// Before a command that speaks MCP on its standard input and output: one process a session, started
    /// when first needed. The line is read as `sh -c` does.
    pub fn command(line: impl Into<OsString>) -> Self {
        let places = Some(Places::new(MAX_CHILDREN));
        Self { places, ..Self::before(Upstream::Child(Child::shell(line))) }
    }

    /// Before a server that speaks Streamable HTTP, at a URL with scheme `http` or `https`: one session of
    /// it for each of ours. Nothing that a client sends in its headers is passed on, its `Authorization`
    /// least of all.
    ///
    /// ```
    /// use rejoin::mcp::Gateway;
    ///
    /// let gateway = Gateway::http("http://127.0.0.1:3000/mcp")?;
    /// # Ok::<(), rejoin::BadUrl>(())
    /// ```
    pub fn http(url: &str) -> Result<Self, BadUrl> {
        Ok(Self::before(Upstream::Http(Http::new(url)?)))
    }

    /// Before a small server of our own with tools that take their time, to try what a session survives.
    /// It runs in this process and forgets what it was told when that ends.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use rejoin::mcp::Gateway;
    /// # use rejoin::{Sessions, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rejoin::store::Unavailable> {
    /// let store = Arc::new(MemoryStore::default());
    /// let sessions = Sessions::builder(store).mcp(Gateway::built_in()).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn built_in() -> Self {
        Self::before(Upstream::BuiltIn)
    }

    fn before(upstream: Upstream) -> Self {
        Self {
            upstream,
            places: None,
            trusts_annotations: true,
            session_tools: false,
            tells_restarts: true,
            max_bytes: MAX_BYTES,
        }
    }

    /// With at most so many children at a time. When there are so many and another session needs one,
    /// the child that has been idle longest is stopped; if none is, the session waits.
    #[must_use]
    pub fn max_children(mut self, count: usize) -> Self {
        self.places = self.places.map(|_| Places::new(count));
        self
    }

    /// With at most so many of them for one principal, so that others have some left. To be said after
    /// [`Gateway::max_children`].
    #[must_use]
    pub fn max_children_per_principal(mut self, count: usize) -> Self {
        self.places = self.places.map(|places| places.with_share(count));
        self
    }

    /// Whether a tool's own word is taken for it that it only reads, or may run twice; otherwise no call
    /// is made again when the server died over it.
    #[must_use]
    pub fn trust_annotations(mut self, trust: bool) -> Self {
        self.trusts_annotations = trust;
        self
    }

    /// With messages of at most so many bytes from the server behind, in place of 16 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Whether the first tool result after the server was started again says so, in a text behind its content: what
    /// the server kept in memory is gone, and the model would not know. It does unless this is turned off.
    #[must_use]
    pub fn tell_restarts(mut self, on: bool) -> Self {
        self.tells_restarts = on;
        self
    }

    /// With the tool `reconnect_session`, and a reconnect token in the first result of each session.
    #[must_use]
    pub fn session_tools(mut self, on: bool) -> Self {
        self.session_tools = on;
        self
    }
}

#[async_trait]
impl Agent for Gateway {
    async fn run(&self, seat: Seat) {
        Desk::open(self, seat).work().await;
    }

    fn last_words(&self) -> Duration {
        LONGEST_END + LAST_WORDS
    }

    /// A server behind a URL outlives this process, and may know a request by the number of its entry.
    fn begins_early(&self) -> bool {
        !matches!(self.upstream, Upstream::Http(_))
    }
}
