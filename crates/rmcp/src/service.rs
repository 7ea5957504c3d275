//! rmcp's HTTP service, with what it can't know by itself: whose session it is, which tools may run again, and
//! what to answer a client whose stream can't be resumed.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rejoin::core::Principal;
use rejoin::store::Unavailable;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::call::{Refusal, calling};
use crate::error::ManagerError;
use crate::left_over::MayRunAgain;
use crate::limits::{RETRY_AFTER, STAY_AWAY};
use crate::manager::DurableSessionManager;

/// The header that names a session.
const SESSION_ID: &str = "mcp-session-id";

/// Where web pages may come from if nobody says otherwise: a page of a stranger, in a browser on this machine, could
/// speak to this server in the name of its user.
const LOOPBACK_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// An MCP server over Streamable HTTP whose sessions survive. See [`service`].
pub struct Service<S> {
    inner: StreamableHttpService<S, DurableSessionManager>,
    manager: Arc<DurableSessionManager>,
}

/// rmcp's `StreamableHttpService` on durable sessions, to be routed to like that one.
///
/// `factory` makes a handler for each session, and again for a session that goes on after a restart; such a
/// handler is told by rmcp's `SessionRestoreMarker` in the request's extensions. Of `config`, `session_store` and
/// `sse_retry` are not used: they are the manager's. If `allowed_origins` is empty, requests of web pages are
/// accepted from this machine only: any other `Origin` is rejected with 403.
///
/// A layer in front that knows who is calling puts a [`Principal`] into the request's extensions; a session is
/// then nobody's but its owner's. Without one all sessions belong to everybody who knows their id, as rmcp has it.
///
/// ```
/// # use std::sync::Arc;
/// # use rejoin_rmcp::{DurableSessionManager, store::MemoryStore};
/// # use rmcp::ServerHandler;
/// # #[derive(Clone, Default)] struct MyServer;
/// # impl ServerHandler for MyServer {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let manager = Arc::new(DurableSessionManager::builder(Arc::new(MemoryStore::default())).start()?);
/// let service = rejoin_rmcp::service(|| Ok(MyServer), manager, Default::default());
/// let router: axum::Router = axum::Router::new().route_service("/mcp", service);
/// # drop(router);
/// # Ok(())
/// # }
/// ```
pub fn service<S: ServerHandler + Send + 'static>(
    factory: impl Fn() -> Result<S, io::Error> + Send + Sync + 'static,
    manager: Arc<DurableSessionManager>,
    mut config: StreamableHttpServerConfig,
) -> Service<S> {
    let factory = Arc::new(factory);
    let tools = Arc::clone(&factory);
    let may_run_again: MayRunAgain = Arc::new(move |tool| says_it_may_run_again(&*tools, tool));
    let _ = manager.may_run_again.set(may_run_again); // of several services the first counts
    config.session_store = Some(Arc::new(manager.session_store()));
    config.sse_retry = None; // the manager begins streams, with ids that can be resumed from
    if config.allowed_origins.is_empty() {
        config.allowed_origins = LOOPBACK_ORIGINS.map(str::to_owned).to_vec();
    }
    let inner = StreamableHttpService::new(move || factory(), Arc::clone(&manager), config);
    Service { inner, manager }
}

/// Whether a tool is annotated as only reading, or as doing nothing more the second time.
fn says_it_may_run_again<S: ServerHandler>(
    factory: &(impl Fn() -> Result<S, io::Error> + ?Sized),
    tool: &str,
) -> bool {
    let tool = factory().ok().and_then(|handler| handler.get_tool(tool));
    let annotations = tool.and_then(|tool| tool.annotations);
    annotations
        .is_some_and(|says| says.read_only_hint == Some(true) || says.idempotent_hint == Some(true))
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl<S, B> tower_service::Service<Request<B>> for Service<S>
where
    S: ServerHandler + Send + 'static,
    B: Body + Send + 'static,
    B::Error: fmt::Display,
    B::Data: Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}

impl<S: ServerHandler + Send + 'static> Service<S> {
    async fn handle<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Error: fmt::Display,
    {
        let principal = request.extensions().get::<Principal>().cloned();
        let principal = principal.unwrap_or_else(Principal::anonymous);
        let named = request.headers().get(SESSION_ID).and_then(|value| value.to_str().ok());
        if let Some(named) = named.map(str::to_owned)
            && let Err(refusal) = self.check_owner(&named, &principal).await
        {
            return answer(&refusal);
        }
        let called = async { Ok(calling(principal, self.inner.handle(request)).await) };
        match self.manager.sessions().store().unless_stalled(called).await {
            Ok((answer, None)) => answer.map(|body| body.map_frame(without_empty_data).boxed()),
            Ok((_, Some(refusal))) => answer(&refusal),
            Err(stalled) => answer(&outcome_unknown(&stalled)),
        }
    }

    /// A session of somebody else looks like one that is unknown.
    async fn check_owner(&self, named: &str, principal: &Principal) -> Result<(), Refusal> {
        match self.manager.record(named).await {
            Ok(record) if record.about.principal == *principal => Ok(()),
            Ok(_) | Err(ManagerError::NoSession(_)) => Err(Refusal {
                status: StatusCode::NOT_FOUND,
                sentence:
                    "there is no such session, or it is over: begin another with `initialize`"
                        .into(),
            }),
            Err(error) => {
                let (status, sentence) = (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
                Err(Refusal { status, sentence })
            }
        }
    }
}

/// The store can't make commits, so nobody knows whether a call is done.
fn outcome_unknown(stalled: &Unavailable) -> Refusal {
    let sentence = format!("it is not known whether this was done: {stalled}");
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, sentence }
}

/// rmcp writes empty data beside everything that is no message. What tells a client to stay away stands alone: clients
/// of older revisions take empty data for a broken message, and without it they come back and fight for the stream.
fn without_empty_data(frame: Frame<Bytes>) -> Frame<Bytes> {
    let alone = || Bytes::from(format!("retry: {}\n\n", STAY_AWAY.as_millis()));
    frame.map_data(|data| if says_stay_away(&data) { alone() } else { data })
}

fn says_stay_away(event: &[u8]) -> bool {
    let stay_away = STAY_AWAY.as_millis().to_string();
    let Ok(text) = std::str::from_utf8(event) else { return false };
    let lines = text.lines().filter(|line| !line.is_empty());
    let mut fields = lines.map(|line| line.split_once(':').unwrap_or((line, "")));
    let mut retries = false;
    fields.all(|(name, value)| {
        retries |= name == "retry";
        (name == "retry" && value.trim() == stay_away)
            || (name == "data" && value.trim().is_empty())
    }) && retries
}

/// A refusal as HTTP and JSON-RPC say it.
fn answer(refusal: &Refusal) -> Answer {
    let Refusal { status, sentence } = refusal;
    let mut response = Response::new(Full::default().boxed());
    *response.status_mut() = *status;
    if *status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = http::HeaderValue::from(RETRY_AFTER.as_secs());
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds);
    }
    if *status != StatusCode::NO_CONTENT {
        let code = match *status {
            StatusCode::NOT_FOUND => -32001,
            StatusCode::SERVICE_UNAVAILABLE => -32002,
            _ => -32600,
        };
        let error = serde_json::json!({ "code": code, "message": sentence });
        let body = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error });
        *response.body_mut() = Full::new(Bytes::from(body.to_string())).boxed();
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    }
    response
}

impl<S> Clone for Service<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), manager: Arc::clone(&self.manager) }
    }
}

impl<S> fmt::Debug for Service<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Service").field(&self.manager).finish()
    }
}
