//! An MCP server over Streamable HTTP that misbehaves as the tools it is asked for say. What its tools are
//! named after `read_` only reads; `write_` says nothing of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, watch};

use super::until;

/// How tools behave, after `read_` or `write_`.
const WAYS: [&str; 20] = [
    "json",      // answers with JSON
    "sse",       // answers with a stream that has a log message in it
    "resumable", // its stream breaks, and can be gone on with
    "broken",    // its stream breaks the first time, and can't
    "failing",   // fails the first time
    "erring",    // fails, and says why in JSON-RPC
    "held",      // answers when it is let go
    "huge",      // answers with a megabyte
    "refused",   // is not allowed
    "moved",     // is elsewhere
    "garbled",   // answers with what is no JSON
    "marked",    // answers with a byte order mark before the JSON
    "doubled",   // answers behind another message, without anything between them
    "gone",      // is answered 503 by a proxy whose backend died over it the first time
    "invalid",   // is answered 400, with an error under its own id
    "unfound",   // is answered 404, with an error under its own id
    "listed",    // is answered 400, with that error in an array
    "worded",    // is answered 400, in the words for a session that is not known
    "denied",    // is answered 404, as if its session were not known
    "numbered",  // answers on a stream that stays open, under an id written otherwise
];

/// A server that can be killed and started again.
pub struct Upstream {
    runtime: Option<Runtime>,
    pub address: SocketAddr,
    pub state: Arc<Known>,
}

/// What it knows, and what it was told. It outlives the server, so that a test can look at it.
pub struct Known {
    inner: Mutex<Inner>,
    /// Lets `held` go.
    pub release: watch::Sender<bool>,
    /// What goes out on the general stream.
    general: broadcast::Sender<String>,
}

#[derive(Default)]
struct Inner {
    sessions: BTreeSet<String>,
    made: u64,
    heard: Vec<Heard>,
    runs: BTreeMap<String, u64>,
    manners: Manners,
}

/// How it treats its clients.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Whether it has a general stream.
    pub general: bool,
    /// What it says of a session that it does not know.
    pub stale: (u16, &'static str),
    /// Whether it forgets each session at once.
    pub forgetful: bool,
    /// How many requests it has no room for; it says when to come back.
    pub busy: u32,
    /// How many requests a proxy before it answers, which does not.
    pub away: u32,
    /// How many times it breaks off when it is asked for its tools.
    pub breaks_off: u32,
    /// Whether a POST to a session that it does not know is refused only when it is let go.
    pub refuses_late: bool,
    /// Whether it has a tool more than usual.
    pub more_tools: bool,
    /// Whether it says what its tools are only when it is let go.
    pub holds_lists: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            general: true,
            stale: (404, "Session not found"),
            forgetful: false,
            busy: 0,
            away: 0,
            breaks_off: 0,
            refuses_late: false,
            more_tools: false,
            holds_lists: false,
        }
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Heard {
    pub verb: String,
    pub headers: HeaderMap,
    pub message: Value,
}

impl Heard {
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Upstream {
    pub fn start() -> Self {
        let inner = Mutex::new(Inner::default());
        let (release, general) = (watch::Sender::new(false), broadcast::Sender::new(16));
        let state = Arc::new(Known { inner, release, general });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = Some(run(listener, Arc::clone(&state)));
        Self { runtime, address, state }
    }

    pub fn with(manners: Manners) -> Self {
        let upstream = Self::start();
        upstream.state.set(manners);
        upstream
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp?key=hunter2", self.address)
    }

    /// Ends it with all its connections; it forgets its sessions.
    pub fn kill(&mut self) {
        let runtime = self.runtime.take().unwrap();
        let end = move || runtime.shutdown_timeout(Duration::from_secs(5));
        std::thread::spawn(end).join().unwrap(); // a runtime can't end inside another
        self.forget();
    }

    /// Starts it again at the same address.
    pub async fn revive(&mut self) {
        let listener = loop {
            match std::net::TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await, // its last connections still go
            }
        };
        self.runtime = Some(run(listener, Arc::clone(&self.state)));
    }

    /// Forgets all sessions.
    pub fn forget(&self) {
        self.state.lock().sessions.clear();
    }

    /// Says something on the general stream, once somebody hears it.
    pub async fn announce(&self, text: &str) {
        until(async || self.state.general.receiver_count() > 0).await;
        let data = json!({ "level": "info", "data": text });
        let message =
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": data });
        self.state.general.send(format!("id: {text}\ndata: {message}\n\n")).unwrap();
    }

    /// Breaks the general stream.
    pub fn break_general(&self) {
        self.state.general.send(String::new()).unwrap();
    }

    /// How often a tool has run.
    pub fn runs(&self, tool: &str) -> u64 {
        self.state.lock().runs.get(tool).copied().unwrap_or(0)
    }

    /// The requests that came with this verb of HTTP or this method of MCP.
    pub fn heard(&self, what: &str) -> Vec<Heard> {
        let heard = &self.state.lock().heard;
        heard.iter().filter(|h| h.verb == what || h.method() == what).cloned().collect()
    }

    /// Waits until it has heard so many of them.
    pub async fn has_heard(&self, what: &str, count: usize) {
        until(async || self.heard(what).len() >= count).await;
    }

    /// Waits until a tool has begun to run so often.
    pub async fn has_run(&self, tool: &str, count: u64) {
        until(async || self.runs(tool) >= count).await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn run(listener: std::net::TcpListener, state: Arc<Known>) -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let router = Router::new().route("/mcp", axum::routing::any(answer)).with_state(state);
        axum::serve(listener, router).await
    });
    runtime
}

impl Known {
    /// Changes how it treats its clients.
    pub fn set(&self, manners: Manners) {
        self.lock().manners = manners;
    }

    fn breaks_off(&self) -> bool {
        let left = &mut self.lock().manners.breaks_off;
        let breaks_off = *left > 0;
        *left = left.saturating_sub(1);
        breaks_off
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

async fn answer(
    method: Method,
    State(state): State<Arc<Known>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message = serde_json::from_slice(&body).unwrap_or_default();
    let heard = Heard { verb: method.to_string(), headers, message };
    state.lock().heard.push(heard.clone());
    if let Some(refusal) = refusal(&state, &heard) {
        if heard.verb == "POST" && state.lock().manners.refuses_late {
            state.release.subscribe().wait_for(|released| *released).await.unwrap();
        }
        return refusal;
    }
    match &*heard.verb {
        "GET" => listen(&state, &heard),
        "POST" => take(&state, &heard.message).await,
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// What it says to what it does not want.
fn refusal(state: &Known, heard: &Heard) -> Option<Response> {
    let mut inner = state.lock();
    if inner.manners.busy > 0 {
        inner.manners.busy -= 1;
        return Some((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response());
    }
    if inner.manners.away > 0 {
        inner.manners.away -= 1;
        return Some(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    if heard.verb == "GET" && !inner.manners.general && heard.header("last-event-id").is_none() {
        return Some(StatusCode::METHOD_NOT_ALLOWED.into_response());
    }
    let known = heard.header("mcp-session-id").is_some_and(|id| inner.sessions.contains(id));
    let (status, text) = inner.manners.stale;
    let stale = heard.method() != "initialize" && !known;
    stale.then(|| (StatusCode::from_u16(status).unwrap(), text).into_response())
}

/// A GET: a stream that broke, or the general one.
fn listen(state: &Known, heard: &Heard) -> Response {
    if let Some(id) = heard.header("last-event-id").and_then(|id| id.strip_prefix("request-")) {
        let id: u64 = id.parse().unwrap();
        let result = json!({ "content": [{ "type": "text", "text": "at last" }] });
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        return events(vec![Ok(event(&answer))]);
    }
    let said = stream::unfold(state.general.subscribe(), async |mut said| {
        let text = said.recv().await.ok().filter(|text| !text.is_empty())?;
        Some((Ok::<_, Infallible>(text), said))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(said)).into_response()
}

async fn take(state: &Known, message: &Value) -> Response {
    let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match message["method"].as_str().unwrap() {
        "initialize" => return begin(state, message),
        "tools/call" => return call(state, message).await,
        "tools/list" if state.breaks_off() => {
            return events(vec![Err(io::Error::other("broken on purpose"))]);
        }
        "tools/list" => list(state).await,
        _ => json!({}),
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

fn begin(state: &Known, message: &Value) -> Response {
    let mut inner = state.lock();
    inner.made += 1;
    let session = format!("upstream-{}", inner.made);
    if !inner.manners.forgetful {
        inner.sessions.insert(session.clone());
    }
    let result = json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": { "tools": {}, "logging": {} },
        "serverInfo": { "name": "fake", "version": "1" },
    });
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    ([("mcp-session-id", session)], Json(answer)).into_response()
}

async fn list(state: &Known) -> Value {
    let Manners { more_tools, holds_lists, .. } = state.lock().manners.clone();
    if holds_lists {
        state.release.subscribe().wait_for(|released| *released).await.unwrap();
    }
    let more = more_tools.then(|| json!({ "name": "more", "inputSchema": { "type": "object" } }));
    json!({ "tools": tools().into_iter().chain(more).collect::<Vec<_>>() })
}

fn tools() -> Vec<Value> {
    let tool = |kind: &str, way: &str| {
        let annotations = json!({ "readOnlyHint": kind == "read" });
        json!({ "name": format!("{kind}_{way}"), "inputSchema": { "type": "object" }, "annotations": annotations })
    };
    WAYS.iter().flat_map(|way| [tool("read", way), tool("write", way)]).collect()
}

async fn call(state: &Known, message: &Value) -> Response {
    let tool = message["params"]["name"].as_str().unwrap();
    let run = {
        let mut inner = state.lock();
        let run = inner.runs.entry(tool.to_owned()).or_default();
        *run += 1;
        *run
    };
    let result = |text: &str| {
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })
    };
    let answer = result(&format!("run {run}"));
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": tool } });
    let broken = || Err(io::Error::other("broken on purpose"));
    let (_, way) = tool.split_once('_').unwrap();
    match (way, run) {
        ("sse", _) => events(vec![Ok(event(&log)), Ok(event(&answer))]),
        ("resumable", _) => {
            let place = format!("id: request-{}\nretry: 10\ndata:\n\n", message["id"]);
            events(vec![Ok(place), Ok(event(&log)), broken()])
        }
        ("broken", 1) => events(vec![Ok(event(&log)), broken()]),
        ("failing", 1) => (StatusCode::INTERNAL_SERVER_ERROR, "oops").into_response(),
        ("erring", _) => {
            let error =
                json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -7, "message": "no" } });
            (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response()
        }
        ("invalid" | "unfound", _) => {
            let status = if way == "invalid" { 400 } else { 404 };
            let error =
                json!({ "code": -32000, "message": format!("run {run} of no valid session") });
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            (StatusCode::from_u16(status).unwrap(), Json(answer)).into_response()
        }
        ("listed", _) => {
            let error = json!({ "code": -32000, "message": "no valid session" });
            let answer = json!([{ "jsonrpc": "2.0", "id": message["id"], "error": error }]);
            (StatusCode::BAD_REQUEST, Json(answer)).into_response()
        }
        ("worded", _) => (StatusCode::BAD_REQUEST, "Session not found").into_response(),
        ("denied", _) => (StatusCode::NOT_FOUND, "Session not found").into_response(),
        ("held", _) => {
            state.release.subscribe().wait_for(|released| *released).await.unwrap();
            Json(answer).into_response()
        }
        ("huge", _) => Json(result(&"x".repeat(1 << 20))).into_response(),
        ("garbled", _) => answer.to_string().replace("\"run", "NaN, \"run").into_response(),
        ("marked", _) => format!("\u{feff}{answer}").into_response(),
        ("doubled", _) => format!("{log}{answer}").into_response(),
        ("gone", 1) => (StatusCode::SERVICE_UNAVAILABLE, "backend died").into_response(),
        ("numbered", _) => {
            let text = answer
                .to_string()
                .replace(&format!("{},", message["id"]), &format!("{}.0,", message["id"]));
            let open =
                stream::once(async move { Ok::<_, Infallible>(format!("data: {text}\n\n")) });
            let open = futures_util::StreamExt::chain(open, stream::pending());
            ([("content-type", "text/event-stream")], Body::from_stream(open)).into_response()
        }
        ("refused", _) => (StatusCode::UNAUTHORIZED, "who are you?").into_response(),
        ("moved", _) => {
            (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response()
        }
        _ => Json(answer).into_response(),
    }
}

fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

fn events(events: Vec<io::Result<String>>) -> Response {
    let headers = [("content-type", "text/event-stream")];
    let one_by_one = stream::unfold(events.into_iter(), async |mut events| {
        tokio::task::yield_now().await; // what is there goes out before the stream breaks
        Some((events.next()?, events))
    });
    (headers, Body::from_stream(one_by_one)).into_response()
}
