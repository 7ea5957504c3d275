//! The server behind: Streamable HTTP with sessions, and two tools that take their time, report progress and are
//! counted. It runs in the test's process, so it outlives every Rejoin.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How often a call reports progress.
pub(crate) const REPORTS: u64 = 2;

/// The server. It ends with the test.
pub(crate) struct Upstream {
    address: SocketAddr,
    known: Arc<Known>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Known(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// What each remembers: how often it was asked to count.
    sessions: HashMap<String, u64>,
    made: u64,
    /// How often each call ran, by tool and key.
    runs: HashMap<String, u64>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = Arc::new(Known::default());
        let router = Router::new().route("/mcp", axum::routing::any(answer));
        let router = router.with_state(Arc::clone(&known));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, known, _task: task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// How often a call of a tool ran.
    pub(crate) fn runs(&self, tool: &str, key: &str) -> u64 {
        self.known.lock().runs.get(&format!("{tool} {key}")).copied().unwrap_or(0)
    }

    /// Sessions that were ever made.
    pub(crate) fn made(&self) -> u64 {
        self.known.lock().made
    }

    /// Forgets all sessions.
    pub(crate) fn forget(&self) {
        self.known.lock().sessions.clear();
    }

    /// Sessions that nobody has ended.
    pub(crate) fn sessions(&self) -> usize {
        self.known.lock().sessions.len()
    }
}

async fn answer(
    method: Method,
    State(known): State<Arc<Known>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let session = headers.get("mcp-session-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
    match (method.as_str(), message["method"].as_str()) {
        ("POST", Some("initialize")) => initialize(&known, &message),
        _ if !known.lock().sessions.contains_key(session) => {
            (StatusCode::NOT_FOUND, "Session not found").into_response()
        }
        ("DELETE", _) => {
            known.lock().sessions.remove(session);
            StatusCode::NO_CONTENT.into_response()
        }
        ("POST", Some("tools/list")) => {
            let read = json!({ "name": "read", "annotations": { "readOnlyHint": true } });
            let tools = json!({ "tools": [read, { "name": "write" }] });
            Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": tools })).into_response()
        }
        ("POST", Some("tools/call")) if message["params"]["name"] == "count" => {
            count(&known, session, &message)
        }
        ("POST", Some("tools/call")) if message["params"]["name"] == "ask" => ask(),
        ("POST", Some("tools/call")) => call(&known, &message),
        ("POST", _) => StatusCode::ACCEPTED.into_response(),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn initialize(known: &Known, message: &Value) -> Response {
    let session = {
        let mut inner = known.lock();
        inner.made += 1;
        let session = format!("behind-{}", inner.made);
        inner.sessions.insert(session.clone(), 0);
        session
    };
    let result = json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "load", "version": "1" },
    });
    let answer = Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    ([("mcp-session-id", session)], answer).into_response()
}

/// Answers how often it was called in this session.
fn count(known: &Known, session: &str, message: &Value) -> Response {
    let mut inner = known.lock();
    let count = inner.sessions.entry(session.to_owned()).or_default();
    *count += 1;
    let result = json!({ "content": [{ "type": "text", "text": count.to_string() }] });
    Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).into_response()
}

/// Asks the user something, and waits for the answer.
fn ask() -> Response {
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create" });
    let said = stream::once(async move { Ok(format!("data: {question}\n\n")) });
    let waits = stream::pending::<Result<String, Infallible>>();
    let body = Body::from_stream(stream::StreamExt::chain(said, waits));
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Takes `ms` milliseconds, and answers with the key and how often it ran.
fn call(known: &Known, message: &Value) -> Response {
    let params = &message["params"];
    let (tool, key) =
        (params["name"].as_str().unwrap(), params["arguments"]["key"].as_str().unwrap());
    let run = {
        let mut inner = known.lock();
        let runs = inner.runs.entry(format!("{tool} {key}")).or_default();
        *runs += 1;
        *runs
    };
    let token = &params["_meta"]["progressToken"];
    let step = Duration::from_millis(params["arguments"]["ms"].as_u64().unwrap() / (REPORTS + 1));
    let report = |n| {
        let params = json!({ "progressToken": token, "progress": n, "total": REPORTS });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    };
    let mut messages: Vec<Value> = (1..=REPORTS).map(report).collect();
    let content = json!([{ "type": "text", "text": format!("{key} run {run}") }]);
    let result = json!({ "content": content });
    messages.push(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    let paced = stream::unfold(messages.into_iter(), move |mut messages| async move {
        let message = messages.next()?;
        sleep(step).await;
        let event = format!("event: message\ndata: {message}\n\n");
        Some((Ok::<_, Infallible>(event), messages))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(paced)).into_response()
}
