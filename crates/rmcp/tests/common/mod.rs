//! A server in this process and whoever calls it, without sockets, so that time can be skipped.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rejoin_rmcp::core::record::Record;
use rejoin_rmcp::core::{Principal, SessionId};
use rejoin_rmcp::store::{MemoryStore, Store};
use rejoin_rmcp::{Builder, DurableSessionManager};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ProgressNotificationParam, RequestMetaObject, ServerCapabilities, ServerConfig};
use rmcp::{Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_service::Service;

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Tools that take as long as they are told.
pub(crate) struct Tools {
    tool_router: ToolRouter<Self>,
    runs: Arc<AtomicU64>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Work {
    #[serde(default)]
    seconds: u64,
    #[serde(default)]
    steps: u32,
}

#[tool_router]
impl Tools {
    #[tool(description = "Takes its time")]
    async fn work(
        &self,
        Parameters(Work { seconds, steps }): Parameters<Work>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> String {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        for step in 1..=steps {
            if let Some(token) = meta.get_progress_token() {
                let report = ProgressNotificationParam::new(token, f64::from(step));
                let _ = client.notify_progress(report).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        format!("run {run}")
    }

    #[tool(description = "Says that there are other tools now")]
    async fn announce(&self, client: Peer<RoleServer>) -> String {
        let _ = client.notify_tool_list_changed().await;
        "announced".to_owned()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

impl Tools {
    pub(crate) fn factory() -> impl Fn() -> Result<Self, std::io::Error> + Send + Sync + 'static {
        let runs = Arc::new(AtomicU64::new(0));
        move || Ok(Self { tool_router: Self::tool_router(), runs: Arc::clone(&runs) })
    }
}

/// A server that keeps its sessions in memory.
pub(crate) struct World {
    pub(crate) manager: Arc<DurableSessionManager>,
    pub(crate) http: Http<rejoin_rmcp::Service<Tools>>,
}

impl World {
    pub(crate) fn new(build: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(Arc::new(MemoryStore::default()), build)
    }

    pub(crate) fn on(store: Arc<dyn Store>, build: impl FnOnce(Builder) -> Builder) -> Self {
        let manager = build(DurableSessionManager::builder(store)).start().unwrap();
        let manager = Arc::new(manager);
        let config = rmcp::transport::StreamableHttpServerConfig::default();
        let service = rejoin_rmcp::service(Tools::factory(), Arc::clone(&manager), config);
        Self { manager, http: Http { service, principal: None, header: None } }
    }

    pub(crate) async fn record(&self, session: &str) -> Option<Record> {
        let id = SessionId::parse(session).unwrap();
        self.manager.sessions().store().session(&id).await.unwrap()
    }

    pub(crate) async fn is_alive(&self, session: &str) -> bool {
        self.record(session).await.is_some_and(|record| record.is_active())
    }

    pub(crate) async fn is_attached(&self, session: &str) -> bool {
        self.record(session).await.is_some_and(|record| record.attached.is_some())
    }
}

/// Whoever calls a service.
#[derive(Clone)]
pub(crate) struct Http<S> {
    pub(crate) service: S,
    pub(crate) principal: Option<Principal>,
    /// A header that every request has.
    pub(crate) header: Option<(&'static str, &'static str)>,
}

impl<S> Http<S>
where
    S: Service<Request<Full<Bytes>>, Response = Answer, Error = Infallible> + Clone,
{
    /// The same for somebody else.
    pub(crate) fn of(&self, principal: &str) -> Self {
        Self { principal: Some(Principal::new(principal)), ..self.clone() }
    }

    /// The same with this header in place of its own.
    pub(crate) fn with_header(&self, name: &'static str, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self.clone() }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        session: Option<&str>,
        last_event: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri("http://localhost/mcp");
        request = request.header("host", "localhost").header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
            request = request.header("mcp-protocol-version", "2025-11-25");
        }
        if let Some(last_event) = last_event {
            request = request.header("last-event-id", last_event);
        }
        if let Some(principal) = &self.principal {
            request = request.extension(principal.clone());
        }
        if let Some((name, value)) = self.header {
            request.headers_mut().unwrap().insert(name, value.parse().unwrap());
            if name == "host" {
                request = request.uri(format!("http://{value}/mcp"));
            }
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.service.clone().call(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    pub(crate) async fn post(&self, session: &str, body: Value) -> Answer {
        self.ask(Method::POST, Some(session), None, Some(body)).await
    }

    pub(crate) async fn resume(&self, session: &str, last_event: &str) -> Answer {
        self.ask(Method::GET, Some(session), Some(last_event), None).await
    }

    /// A session that has begun, of this revision.
    pub(crate) async fn begin_as(&self, revision: &str) -> String {
        let params = json!({
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": { "name": "a test", "version": "1" },
        });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let answer = self.ask(Method::POST, None, None, Some(hello)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        Events::of(answer).result().await;
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&session, ready).await.status(), StatusCode::ACCEPTED);
        session
    }

    pub(crate) async fn begin(&self) -> String {
        self.begin_as("2025-11-25").await
    }

    /// The stream of a call.
    pub(crate) async fn call(
        &self,
        session: &str,
        id: u64,
        tool: &str,
        arguments: Value,
    ) -> Events {
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": { "progressToken": id },
        });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let answer = self.post(session, call).await;
        assert_eq!(answer.status(), StatusCode::OK);
        Events::of(answer)
    }

    /// The stream of what belongs to no call.
    pub(crate) async fn listen(&self, session: &str) -> Events {
        let answer = self.ask(Method::GET, Some(session), None, None).await;
        assert_eq!(answer.status(), StatusCode::OK);
        Events::of(answer)
    }
}

/// One event of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// Nothing for an empty event.
    pub(crate) message: Option<Value>,
}

/// A stream that is being read. Dropping it is a broken connection.
pub(crate) struct Events {
    body: BoxBody<Bytes, Infallible>,
    text: String,
}

impl Events {
    pub(crate) fn of(answer: Answer) -> Self {
        Self { body: answer.into_body(), text: String::new() }
    }

    /// The next event; nothing once the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = block.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(|value| value.trim_start_matches([':', ' '])).next_back()
                };
                let Some(data) = field("data") else { continue }; // a comment
                let id = field("id").map(str::to_owned);
                return Some(Event { id, message: serde_json::from_str(data).ok() });
            }
            let frame = self.body.frame().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// All that is still to come, as it is written.
    pub(crate) async fn rest(mut self) -> String {
        while let Some(frame) = self.body.frame().await {
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        self.text
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> Event {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if event.message.is_some() {
                return event;
            }
        }
    }

    /// The answer at the end of the stream.
    pub(crate) async fn result(&mut self) -> Value {
        loop {
            let message = self.message().await.message.unwrap();
            if message.get("result").is_some() || message.get("error").is_some() {
                return message;
            }
        }
    }
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
