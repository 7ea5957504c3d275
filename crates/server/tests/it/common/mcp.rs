//! An MCP server that does as it is told, a gateway before it, and clients that do nothing by themselves.

use std::fs;

use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{Request, SentEvent, Stream};
use super::until;
use super::web::{Setup, Web};

const FAKE: &str = include_str!("fake_mcp.py");

/// The server behind, and what it notes.
pub struct Fake {
    home: TempDir,
}

impl Fake {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("fake.py"), FAKE).unwrap();
        Self { home }
    }

    pub fn gateway(&self) -> Gateway {
        let home = self.home.path().display();
        Gateway::command(format!("exec python3 {home}/fake.py {home}"))
    }

    /// A gateway before it, on a real socket.
    pub async fn serve(&self, setup: Setup) -> Web {
        Setup { mcp: Some(self.gateway()), ..setup }.start().await
    }

    /// Lets calls go on that wait for this.
    pub fn open(&self, gate: &str) {
        fs::write(self.home.path().join(gate), "").unwrap();
    }

    /// Every line it was told.
    pub fn told(&self) -> Vec<String> {
        let text = fs::read_to_string(self.home.path().join("told")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits until it was told something with these words in it.
    pub async fn until_told(&self, words: &str) -> String {
        let found = || self.told().into_iter().find(|line| line.contains(words));
        until(async || found().is_some()).await;
        found().unwrap()
    }
}

/// A client of Streamable HTTP with a session.
pub struct Peer<'a> {
    web: &'a Web,
    pub session: String,
    key: Option<&'a str>,
}

pub fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub fn notification(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}

/// A call of a tool that does this, and reports progress under its id.
pub fn call(id: u64, arguments: Value) -> Value {
    let params = json!({ "name": "t", "arguments": arguments, "_meta": { "progressToken": id } });
    request(id, "tools/call", params)
}

pub fn initialize(revision: &str) -> Value {
    let info = json!({ "name": "peer", "version": "1" });
    let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": info });
    request(0, "initialize", params)
}

/// A message over MCP, for whatever path.
pub fn posting(request: Request, body: &Value) -> Request {
    let accepts = "application/json, text/event-stream";
    request.header("content-type", "application/json").header("accept", accepts).json(body)
}

impl<'a> Peer<'a> {
    pub async fn begin(web: &'a Web, revision: &str) -> Self {
        Self::begin_as(web, revision, None).await
    }

    pub async fn begin_as(web: &'a Web, revision: &str, key: Option<&'a str>) -> Self {
        let mut peer = Self { web, session: String::new(), key };
        let asking = peer.signed(posting(web.post("/mcp"), &initialize(revision)));
        let mut stream = asking.stream().await;
        peer.session = stream.header("mcp-session-id").unwrap().to_owned();
        assert_eq!(stream.answer(0).await["result"]["protocolVersion"], revision);
        let ready = peer.post(&notification("notifications/initialized")).send().await;
        assert_eq!(ready.status, 202);
        peer
    }

    fn signed(&self, request: Request) -> Request {
        match self.key {
            Some(key) => request.by(key),
            None => request,
        }
    }

    fn named(&self, request: Request) -> Request {
        self.signed(request).header("mcp-session-id", &self.session)
    }

    pub fn post(&self, body: &Value) -> Request {
        posting(self.named(self.web.post("/mcp")), body)
    }

    pub async fn call(&self, id: u64, arguments: Value) -> Stream {
        self.post(&call(id, arguments)).stream().await
    }

    pub fn get(&self) -> Request {
        self.named(self.web.get("/mcp")).header("accept", "text/event-stream")
    }

    pub fn resume(&self, last: &str) -> Request {
        self.get().header("last-event-id", last)
    }

    pub fn delete(&self) -> Request {
        self.named(self.web.request("DELETE", "/mcp"))
    }
}

impl Stream {
    /// The next event that is a message.
    pub async fn message(&mut self) -> SentEvent {
        loop {
            let event = self.next().await.expect("a message, not the end");
            if event.data.is_object() {
                return event;
            }
        }
    }

    /// The answer to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let data = self.message().await.data;
            if data["id"] == id && data.get("method").is_none() {
                return data;
            }
        }
    }

    /// Every event until the end.
    pub async fn rest(&mut self) -> Vec<SentEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

/// Waits until an answer to the entry of this number is stored.
pub async fn until_covered(web: &Web, session: &str, in_seq: u64) {
    let id = rejoin::core::SessionId::parse(session).unwrap();
    let covered = async || web.store.session(&id).await.unwrap().unwrap().covered.get();
    until(async || covered().await >= in_seq).await;
}
