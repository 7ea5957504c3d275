//! MCP over Streamable HTTP, `/mcp`: revisions 2025-03-26 to 2025-11-25; in `legacy/` the transport of the
//! revision before, 2024-11-05, and in `modern/` the one after, 2026-07-28.
//!
//! A POST brings messages and is answered on a stream of its own; a GET opens the session's general stream
//! or goes on with one that broke; a DELETE ends the session. All streams are readers of the out log.
//!
//! | file | concern |
//! |---|---|
//! | `request.rs` | what a request must be like |
//! | `revisions.rs` | the revisions that are offered |
//! | `post.rs`, `get.rs` | the calls |
//! | `feed.rs` | one stream of a session: what it is to be sent next |
//! | `sse.rs` | a feed as server-sent events |
//! | `early.rs` | the head of a response whose answer takes its time |
//! | `event_id.rs` | what an event's id says |
//! | `failure.rs` | what goes wrong, as HTTP and JSON-RPC say it |
//! | `legacy/` | `/sse` and `/message` |
//! | `modern/` | revision 2026-07-28, which has no sessions |

mod early;
pub(crate) mod event_id;
mod failure;
pub(crate) mod feed;
mod get;
mod legacy;
mod modern;
mod post;
mod request;
mod revisions;
mod sse;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use rejoin_core::record::Transport;

use self::failure::McpFailure;
pub(crate) use self::legacy::Left;
pub(crate) use self::modern::Modern;
pub use self::modern::{ModernSettings, ModernUpstream};
use self::request::Client;
pub use self::revisions::Revisions;
use super::Front;

/// How MCP clients are treated.
#[derive(Clone, Debug)]
pub struct McpSettings {
    /// When a client should come back whose stream broke.
    pub retry: Duration,
    /// The largest message.
    pub max_bytes: usize,
    /// Whether it must be known which results a client has fetched: the tool `reconnect_session` gives
    /// the others.
    pub session_tools: bool,
    /// Whether a message to a session that nobody knows makes one of that name, instead of being refused.
    pub adopt_unknown_sessions: bool,
    /// The status with which `/message` refuses a session that is gone.
    pub stale_session_status: StatusCode,
    /// Whether callers without a credential are known if they are on this machine and no proxy passes them on. If not, or
    /// if they come from elsewhere, nothing is found for them that they do not name: a client that comes back to
    /// `/sse` without a session id gets a new session, and stateless calls get an upstream session each and are
    /// cancelled when their stream breaks.
    pub knows_callers: bool,
    /// The revisions that clients are offered.
    pub revisions: Revisions,
    /// How clients of revision 2026-07-28 are treated.
    pub modern: ModernSettings,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            retry: Duration::from_secs(3),
            max_bytes: 16 * 1024 * 1024,
            session_tools: false,
            adopt_unknown_sessions: false,
            stale_session_status: StatusCode::GONE,
            knows_callers: true,
            revisions: Revisions::default(),
            modern: ModernSettings::default(),
        }
    }
}

/// The header that names a session.
pub(super) const SESSION_ID: &str = "mcp-session-id";

/// The header that names the revision that was agreed upon.
const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// What a client is known as in the audit trail.
const OVER: Transport = Transport::StreamableHttp;

/// The routes.
pub(super) fn routes(settings: &McpSettings) -> Router<Arc<Front>> {
    let calls = post(post::post).get(get::get).delete(delete).head(no_head);
    let legacy = match settings.revisions.has_legacy_transport() {
        true => legacy::routes(),
        false => Router::new(),
    };
    Router::new()
        .route("/mcp", calls)
        .merge(legacy)
        .layer(DefaultBodyLimit::max(settings.max_bytes))
}

/// A HEAD would open a stream to say nothing, and end the one that its client has.
async fn no_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

/// Ends a session.
async fn delete(
    client: Client,
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
) -> Result<StatusCode, McpFailure> {
    modern::check_has_sessions(&headers)?;
    let record = client.session(&front, &headers).await?;
    front.service.end(&client.visitor, record.id()).await?;
    Ok(StatusCode::NO_CONTENT)
}
