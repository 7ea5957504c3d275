//! What an MCP session is made of, for whoever brings a transport and a server of their own.
//!
//! A request is an [`Entry`] of the in log; everything the server says is an [`Event`] of the out log, in the
//! same commit with the session's [`Book`] where that changes; a stream is a [`Feed`], which reads the log; the
//! [`Hub`] of a session knows whether a client is there. `rejoin-rmcp` puts them behind rmcp's transport, as
//! this crate does behind its own.

pub use super::gateway::{Book, Handshake, Keeping, Question, Written};
pub use super::hub::{Hub, Present, Reading};
pub use super::logged::{Entry, Event, Notes, StreamName};
pub use super::message::{Kind, Message, NoMessage, RequestId};
pub use crate::web::mcp::event_id::{EventId, Owed, SessionTag};
pub use crate::web::mcp::feed::{Beginning, Feed, Next, Streams};

use std::sync::Arc;

use rejoin_core::SessionId;
use rejoin_store::Unavailable;

use crate::sessions::Sessions;

/// What the streams of one session share in this process.
pub fn hub(sessions: &Sessions, session: &SessionId) -> Arc<Hub> {
    sessions.hubs().of(session)
}

/// Does some work to its end, whether or not the caller waits for it: an HTTP client that hangs up drops its handler. For a
/// change and what must follow it.
pub async fn to_its_end<T: Send + 'static>(
    sessions: &Sessions,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Unavailable> {
    sessions.finish(|_| work).await
}

/// Whether the streams of a session of this revision begin with an empty event.
pub fn is_primed(revision: &str) -> bool {
    super::is_primed(revision)
}
