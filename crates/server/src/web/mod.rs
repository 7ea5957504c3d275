//! Sessions on the web: a router to embed in axum, or to serve as it is.
//!
//! | path | file |
//! |---|---|
//! | `/ws` | `ws/` |
//! | `/mcp`, `/sse`, `/message` | `mcp/` |
//! | `/api/sessions…`, `/api/mcp/sessions…`, `/api/audit`, `/api/overview` | `api/` |
//!
//! Before any of them stands the gate (`gate.rs`), and every call is made by somebody (`visitor.rs`).
//! Which status a failure gets is chosen in `answer.rs`.

mod answer;
mod api;
pub(crate) mod credentials;
mod gate;
mod guesses;
mod identity;
mod intake;
mod limits;
pub(crate) mod mcp;
mod receiving;
mod responses;
mod visitor;
mod ws;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};

use rejoin_core::Timestamp;
use rejoin_core::record::Record;

pub use gate::{AllowList, Allowed, gate};
pub use intake::Intake;
pub use mcp::{McpSettings, ModernSettings, ModernUpstream, Revisions};
pub use responses::count_responses;

use self::answer::Failure;
use self::credentials::Credentials;
use self::receiving::Receiving;
use self::visitor::Nearby;
use crate::access::Authenticate;
use crate::clock::WallClock;
use crate::service::{Denial, Service};

/// How the web side treats its clients.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// Who is called, and from where.
    pub allowed: Allowed,
    /// Whether anybody may come without a credential: then listing sessions, tokens and the audit
    /// trail are for peers on this machine only.
    pub open: bool,
    /// The largest frame that is read.
    pub max_frame_bytes: usize,
    /// Bytes of requests that one caller may have on their way at once; where anybody may come without a credential,
    /// one address. The largest request can always be sent.
    pub receiving_of_caller: u64,
    /// The same of all callers.
    pub receiving: u64,
    /// The waits between a client's attempts, as told to clients.
    pub reconnect_backoff: Vec<Duration>,
    /// How many refusals a client should take, as told to clients.
    pub max_reconnect_attempts: u32,
    /// A stream of events that has nothing to say says so this often.
    pub sse_keep_alive: Duration,
    /// Who may read `/metrics`.
    pub metrics: MetricsFor,
    /// How MCP clients are treated.
    pub mcp: McpSettings,
    /// What credentials are judged by.
    pub wall_clock: WallClock,
}

/// Who may read `/metrics`, which tells no session and no secret, but how much goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsFor {
    /// Whoever can reach the server.
    #[default]
    Anybody,
    /// Callers with an administrator's credential; where there is no authentication, those on this machine.
    Administrators,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            allowed: Allowed::default(),
            open: true,
            max_frame_bytes: 1024 * 1024,
            receiving_of_caller: limits::RECEIVING_OF_CALLER,
            receiving: limits::RECEIVING,
            reconnect_backoff: rejoin_core::limits::BACKOFF.to_vec(),
            max_reconnect_attempts: rejoin_core::limits::MAX_ATTEMPTS,
            sse_keep_alive: Duration::from_secs(15),
            metrics: MetricsFor::default(),
            mcp: McpSettings::default(),
            wall_clock: WallClock::default(),
        }
    }
}

/// Everything a request is answered from.
pub(crate) struct Front {
    pub(crate) service: Service,
    pub(crate) credentials: Credentials,
    pub(crate) settings: WebSettings,
    receiving: Arc<Receiving>,
    pub(crate) modern: mcp::Modern,
    pub(crate) left: mcp::Left,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

/// The routes, ready to be merged into a router or served; made inside the runtime that serves them. Serve it with
/// `into_make_service_with_connect_info::<SocketAddr>()`, so that callers have an address, and with
/// `TCP_NODELAY` set on every socket, or each event waits until the client's system acknowledges the one
/// before it, which may take 40 ms a token:
///
/// ```no_run
/// # use std::{net::SocketAddr, sync::Arc};
/// # use rejoin::{Open, service::Service, web};
/// use axum::serve::ListenerExt as _;
///
/// # async fn serve(service: Service) -> std::io::Result<()> {
/// let router = web::router(service, Arc::new(Open), web::WebSettings::default());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8181").await?.tap_io(|stream| {
///     let _ = stream.set_nodelay(true);
/// });
/// let service = router.into_make_service_with_connect_info::<SocketAddr>();
/// axum::serve(listener, service).await
/// # }
/// ```
pub fn router(service: Service, access: Arc<dyn Authenticate>, settings: WebSettings) -> Router {
    let allowed = settings.allowed.clone();
    let credentials = Credentials::new(access, settings.wall_clock.clone());
    let left = mcp::Left::by_restart(service.sessions().hubs().take_left());
    let modern = mcp::Modern::default();
    let sessions = service.sessions().clone();
    let receiving = Arc::new(Receiving::new(&settings));
    let front = Arc::new(Front { service, credentials, settings, receiving, modern, left });
    front.follow_revocations();
    let routes = Router::new()
        .route("/ws", any(ws::upgrade))
        .route("/metrics", get(metrics))
        .merge(api::routes(front.settings.max_frame_bytes))
        .merge(mcp::routes(&front.settings.mcp))
        .with_state(front);
    count_responses(gate(routes, allowed), &sessions)
}

/// A session as HTTP and hooks show it.
pub(crate) fn record_view(record: &Record, now: Timestamp) -> serde_json::Value {
    api::record_view(record, now)
}

/// What was counted, for Prometheus. Whoever asks for it may have to be allowed to.
async fn metrics(State(front): State<Arc<Front>>, request: Request) -> Result<Response, Failure> {
    match front.settings.metrics {
        // Nobody is asked who they are: a scraper without a credential would be counted as rejected.
        MetricsFor::Anybody => {}
        MetricsFor::Administrators => {
            let (mut parts, _) = request.into_parts();
            let Nearby(visitor) = Nearby::from_request_parts(&mut parts, &front).await?;
            if !visitor.caller.admin && !front.settings.open {
                return Err(Denial::Forbidden.into());
            }
        }
    }
    Ok(counted(&front).await)
}

async fn counted(front: &Front) -> Response {
    match front.service.sessions().metrics().await {
        Ok(text) => ([(CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
