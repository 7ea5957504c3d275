//! An MCP client that does nothing by itself, and servers with a gateway for it to call.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin::Clock;
use rejoin::core::limits::LogBounds;
use rejoin::core::state::Recovery;
use rejoin::mcp::Gateway;
use rejoin::store::embedded::{EmbeddedStore, Options};
use rejoin::store::{MemoryStore, Store};
use serde_json::{Value, json};

use super::HOUR;
use super::http::{Request, Stream};
use super::web::{Setup, Web, later};

const REVISION: &str = "2025-11-25";

/// A server with this gateway.
pub async fn serve(gateway: Gateway) -> Web {
    serve_on(Arc::new(MemoryStore::default()), gateway).await
}

/// The same, on a store that others may have used before.
pub async fn serve_on(store: Arc<dyn Store>, gateway: Gateway) -> Web {
    let web = Setup { store, mcp: Some(gateway), ..Setup::open() }.start().await;
    web.service.sessions().resume_work().await.unwrap();
    web
}

/// A store in files, which a server may close and another open again.
pub fn kept_in(directory: &Path) -> Arc<dyn Store> {
    let recovery = Recovery { now: Clock::start().now(), keep_for: HOUR, longest: HOUR };
    let options = Options {
        directory: directory.to_owned(),
        bounds: LogBounds::default(),
        audit_max: 1_000,
        memory_bytes: 1 << 20,
        disk_reserve: 0,
        notice_copies: true,
        accept_data_loss: false,
        max_buffered_bytes: u64::MAX,
        max_bytes_per_principal: u64::MAX,
        recovery,
        random: Box::new(|bytes| bytes.fill(7)),
    };
    Arc::new(EmbeddedStore::open(options).unwrap().0)
}

/// Waits for something while time flies.
pub async fn in_haste<T>(what: impl Future<Output = T>) -> T {
    let mut what = std::pin::pin!(what);
    loop {
        tokio::select! {
            done = &mut what => return done,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                later(Duration::from_millis(500)).await;
            }
        }
    }
}

/// A client of the newest revision with sessions.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    pub session: String,
}

impl Client {
    /// Begins a session and says that it is ready.
    pub async fn begin(web: &Web) -> Self {
        let mut calling = Self::hello(web).await;
        let session = calling.header("mcp-session-id");
        let answer = calling.answer().await;
        assert!(answer["result"].is_object(), "{answer}");
        let client = Self { address: web.address, session };
        client.tell("notifications/initialized", json!({})).await;
        client
    }

    /// Begins a session, whatever comes of it.
    pub async fn hello(web: &Web) -> Calling {
        Self::hello_in(web, REVISION).await
    }

    /// The same, in words of this revision.
    pub async fn hello_in(web: &Web, revision: &str) -> Calling {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let request =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let request = Request::new(web.address, "POST", "/mcp").json(&request);
        Calling::of(request.header("content-type", "application/json").stream().await)
    }

    /// The same client at another server.
    pub fn at(&self, web: &Web) -> Self {
        Self { address: web.address, session: self.session.clone() }
    }

    fn request(&self, method: &str) -> Request {
        let request = Request::new(self.address, method, "/mcp");
        let request = request.header("mcp-session-id", &self.session);
        request.header("content-type", "application/json")
    }

    /// Sends a request.
    pub async fn ask(&self, id: u64, method: &str, params: Value) -> Calling {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        // A credential that is none of the server's behind.
        let request = self.request("POST").header("authorization", "Bearer the client's own");
        Calling::of(request.json(&message).stream().await)
    }

    /// Calls a tool. Its progress is reported under the request's id.
    pub async fn call(&self, id: u64, tool: &str, arguments: Value) -> Calling {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        self.ask(id, "tools/call", params).await
    }

    /// Sends a notification.
    pub async fn tell(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send(&message).await;
    }

    /// Sends what gets no answer.
    pub async fn send(&self, message: &Value) {
        let request = self.request("POST").header("accept", "application/json, text/event-stream");
        assert_eq!(request.json(message).send().await.status, 202);
    }

    /// Opens the general stream.
    pub async fn listen(&self) -> Calling {
        let stream = self.request("GET").stream().await;
        assert_eq!(stream.status, 200);
        Calling::of(stream)
    }

    /// Goes on with a stream that broke.
    pub async fn go_on(&self, broken: &Calling) -> Calling {
        let request = self.request("GET").header("last-event-id", &broken.last);
        let stream = request.stream().await;
        assert_eq!(stream.status, 200);
        Calling::of(stream)
    }

    /// Ends the session.
    pub async fn end(&self) {
        assert_eq!(self.request("DELETE").send().await.status, 204);
    }
}

/// A stream of messages.
pub struct Calling {
    stream: Stream,
    /// Where it stands.
    last: String,
}

impl Calling {
    fn of(stream: Stream) -> Self {
        Self { stream, last: String::new() }
    }

    pub fn header(&self, name: &str) -> String {
        let found = self.stream.headers.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no {name} with {}", self.stream.status)).1.clone()
    }

    /// The next message; nothing at the end.
    pub async fn next_or_end(&mut self) -> Option<Value> {
        loop {
            let event = self.stream.next().await?;
            self.last = event.id;
            if !event.text.is_empty() {
                return Some(event.data);
            }
        }
    }

    /// Reads the empty event with which a stream begins.
    pub async fn primed(&mut self) {
        let event = self.stream.next().await.expect("the stream has ended");
        assert_eq!(event.text, "");
        self.last = event.id;
    }

    /// The next message.
    pub async fn next(&mut self) -> Value {
        self.next_or_end().await.expect("the stream has ended")
    }

    /// The next message that is no question and no notification.
    pub async fn answer(&mut self) -> Value {
        loop {
            let message = self.next().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The next notification of this method.
    pub async fn notification(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The text that a tool answers.
    pub async fn text(&mut self) -> String {
        let answer = self.answer().await;
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
    }

    /// The code and the reason of an error.
    pub async fn error(&mut self) -> (i64, String) {
        let answer = self.answer().await;
        let error = &answer["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"));
        (code, error["data"]["reason"].as_str().unwrap_or_default().to_owned())
    }
}
