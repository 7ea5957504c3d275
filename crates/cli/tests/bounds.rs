//! What one principal can make the server hold stays within the numbers in `docs/configuration.md`, whatever it
//! calls; it is told when it has reached them, and another principal is served as before. Each test starts the
//! binary, pushes one route as hard as it can, and looks at the memory of the process and the size of its files.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use common::server_process::ServerProcess;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

const MIB: u64 = 1024 * 1024;

/// What one principal may hold in these tests.
const BOUND: u64 = 16 * MIB;

/// What the documentation allows for: so many times the bound, and so many MiB of the server's own.
const TIMES: u64 = 2;
const MEMORY_MIB: u64 = 64;
const DISK_MIB: u64 = 96;

/// However slow the machine, one request does not take this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An upstream MCP server that agrees to everything.
const AGREEABLE: &str = r#"exec python3 -c '
import json, sys
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"},
                  "capabilities": {"resources": {"subscribe": True}, "tools": {}}} if message["method"] == "initialize" else {}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
'"#;

/// A server with two principals, `alice` and `bob`.
struct Server {
    process: ServerProcess,
    memory_before: u64,
}

/// An answer, as far as it matters here.
struct Answer {
    status: u16,
    text: String,
    session: Option<String>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    fn is_busy(&self) -> bool {
        let named = self.text.contains("max_bytes_per_principal");
        assert_eq!(self.status == 503, named, "{}: {}", self.status, self.text);
        named
    }
}

impl Server {
    async fn with(flags: &[&str]) -> Self {
        let key = |name: &str| {
            let variable = format!("{}_KEY", name.to_uppercase());
            format!("[[api_keys]]\nname = \"{name}\"\npublish = true\nkey_env = \"{variable}\"\n")
        };
        let config = format!(
            "max_bytes_per_principal = {BOUND}\nmax_buffered_bytes = {}\n{}{}",
            16 * BOUND,
            key("alice"),
            key("bob")
        );
        // Nobody listens there: what is sent to the agent waits.
        let agent = ["--agent", "http://127.0.0.1:9/agent"];
        let flags = agent.iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
        let keys = [("ALICE_KEY", &*secret("alice")), ("BOB_KEY", &*secret("bob"))];
        let process = ServerProcess::start(flags, &config, &keys).await;
        let server = Self { process, memory_before: 0 };
        server.serves("bob").await; // so that what is made once is there
        let memory_before = server.memory();
        Self { memory_before, ..server }
    }

    async fn call(&self, who: &str, method: &str, path: &str, more: &str, body: &str) -> Answer {
        let address = self.process.address();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-API-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{more}\r\n",
            secret(who),
            body.len()
        );
        timeout(PATIENCE, exchange(address, head + body)).await.expect("an answer comes")
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("alice", "POST", path, "", &body.to_string()).await
    }

    async fn create(&self, client: &Value) -> Answer {
        let mut made = self.post("/api/sessions", &json!({ "client": client })).await;
        made.session = made.json()["session_id"].as_str().map(str::to_owned);
        made
    }

    async fn sessions(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.create(&json!({})).await.session.unwrap());
        }
        ids
    }

    /// Sends an MCP message of a session, or one that begins one.
    async fn mcp(&self, session: Option<&str>, message: &Value) -> Answer {
        let accept = "Accept: application/json\r\n";
        let session = session.map_or(String::new(), |id| format!("Mcp-Session-Id: {id}\r\n"));
        self.call("alice", "POST", "/mcp", &format!("{accept}{session}"), &message.to_string())
            .await
    }

    /// Another principal makes a session, is sent events and ends it.
    async fn serves(&self, who: &str) {
        let made = self.call(who, "POST", "/api/sessions", "", "{}").await;
        assert_eq!(made.status, 201, "{}", made.text);
        let id = made.json()["session_id"].as_str().unwrap().to_owned();
        let path = format!("/api/sessions/{id}");
        for (method, path, body) in [
            ("POST", format!("{path}/messages"), r#"{"content":"x"}"#),
            ("POST", format!("{path}/events"), r#"{"event":"e","content":"y"}"#),
            ("GET", format!("{path}/events"), ""),
            ("DELETE", path, ""),
        ] {
            let answer = self.call(who, method, &path, "", body).await;
            assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text);
        }
    }

    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// What it holds is within the numbers, and another principal does not notice.
    async fn holds_its_bounds(&self) {
        self.serves("bob").await;
        let grown = self.memory().saturating_sub(self.memory_before);
        let disk = size_of_files(&self.process.data());
        eprintln!("grown by {} MiB, {} MiB of files", grown / MIB, disk / MIB);
        assert!(grown <= TIMES * BOUND + MEMORY_MIB * MIB, "memory grew by {} MiB", grown / MIB);
        assert!(disk <= TIMES * BOUND + DISK_MIB * MIB, "{} MiB of files", disk / MIB);
    }
}

fn secret(who: &str) -> String {
    format!("{who}: a key of 32 characters or more, for tests").replace(' ', "-")
}

async fn exchange(address: SocketAddr, request: String) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let sent = stream.write_all(request.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await; // a server that refused early may have cut it
    let text = String::from_utf8_lossy(&bytes);
    let (head, text) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{sent:?}: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let session = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    Answer { status, text: text.to_owned(), session }
}

fn size_of_files(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    files.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[test]
fn the_numbers_are_those_of_the_documentation() {
    let page = include_str!("../../../docs/configuration.md");
    for (what, more) in [("memory", MEMORY_MIB), ("files", DISK_MIB)] {
        let row = format!("| {what} | {TIMES} × `max_bytes_per_principal` + {more} MiB |");
        assert!(page.contains(&row), "{row}");
    }
}

#[tokio::test]
async fn records_of_sessions() {
    let server = Server::with(&[]).await;
    let mut busy = 0;
    for _ in 0..1_200 {
        busy += usize::from(server.create(&json!({ "text": text(15_000) })).await.is_busy());
    }
    assert!(busy > 300, "{busy}");
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn sessions_that_are_made_and_ended() {
    let server = Server::with(&[]).await;
    for _ in 0..1_500 {
        let made = server.create(&json!({ "text": text(15_000) })).await;
        let id = made.session.unwrap_or_else(|| panic!("{}", made.text));
        let path = format!("/api/sessions/{id}");
        assert_eq!(server.call("alice", "DELETE", &path, "", "").await.status, 200);
    }
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn messages_that_no_agent_takes() {
    let server = Server::with(&[]).await;
    let sessions = server.sessions(20).await;
    let mut busy = 0;
    for number in 0..100 {
        let path = format!("/api/sessions/{}/messages", sessions[number % 20]);
        busy +=
            usize::from(server.post(&path, &json!({ "content": text(500_000) })).await.is_busy());
    }
    assert!(busy > 50, "{busy}");
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn events_and_idempotency_keys() {
    let server = Server::with(&[]).await;
    let sessions = server.sessions(40).await;
    for number in 0..200 {
        let path = format!("/api/sessions/{}/events", sessions[number % 40]);
        let body = json!({ "event": "e", "content": text(500_000) }).to_string();
        let key = format!("Idempotency-Key: {number}\r\n");
        let answer = server.call("alice", "POST", &path, &key, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn states() {
    let server = Server::with(&[]).await;
    let sessions = server.sessions(80).await;
    let mut busy = 0;
    for session in &sessions {
        let path = format!("/api/sessions/{session}/events");
        let body = json!({ "event": "e", "content": "x", "state": { "text": text(400_000) } });
        busy += usize::from(server.post(&path, &body).await.is_busy());
    }
    assert!(busy > 30, "{busy}");
    server.holds_its_bounds().await;
}

/// Tokens of one session that are good at a time.
const LIVE_TOKENS: usize = 4;

#[tokio::test]
async fn of_the_tokens_of_a_session_the_newest_are_good() {
    let server = Server::with(&[]).await;
    let session = server.sessions(1).await.remove(0);
    let mut tokens = Vec::new();
    for _ in 0..=LIVE_TOKENS {
        let issued = server.post(&format!("/api/sessions/{session}/token"), &json!({})).await;
        tokens.push(issued.json()["reconnect_token"].as_str().unwrap().to_owned());
    }
    let reconnect = format!("/api/sessions/{session}/reconnect");
    for (token, status) in [(&tokens[0], 401), (&tokens[1], 200)] {
        let answer = server.post(&reconnect, &json!({ "token": token })).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
}

#[tokio::test]
async fn records_of_refused_attempts() {
    let server = Server::with(&["--audit-max", "50"]).await;
    for session in &server.sessions(20).await {
        for _ in 0..20 {
            let token = json!({ "token": text(2_000) });
            server.post(&format!("/api/sessions/{session}/reconnect"), &token).await;
        }
    }
    let (mut records, mut next) = (0, String::new());
    loop {
        let page = server.call("alice", "GET", &format!("/api/audit?limit=30{next}"), "", "").await;
        records += page.json()["records"].as_array().unwrap().len();
        let Some(before) = page.json()["next"].as_u64() else { break };
        next = format!("&before={before}");
    }
    assert_eq!(records, 50);
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn frames_that_create_sessions() {
    let server = Server::with(&[]).await;
    let url = format!("ws://{}/ws", server.process.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let hello = json!({ "event": "user.authenticate", "content": { "token": secret("alice") } });
    socket.send(Message::text(hello.to_string())).await.unwrap();
    for _ in 0..60 {
        let content = json!({ "text": text(900_000) });
        let frame = json!({ "event": "user.create_session", "content": content });
        socket.send(Message::text(frame.to_string())).await.unwrap();
        let refused = loop {
            let frame = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            let Message::Text(frame) = frame else { continue };
            if frame.contains("error_code") {
                break frame;
            }
        };
        assert!(refused.contains("MESSAGE_TOO_LARGE"), "{refused}");
    }
    server.holds_its_bounds().await;
}

fn initialize(bytes: usize) -> Value {
    let capabilities = json!({ "experimental": { "x": { "text": text(bytes) } } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    }})
}

#[tokio::test]
async fn introductions_of_mcp_clients() {
    let server = Server::with(&[]).await;
    for _ in 0..60 {
        assert_eq!(server.mcp(None, &initialize(1_000_000)).await.status, 413);
    }
    let mut busy = 0;
    for _ in 0..300 {
        busy += usize::from(server.mcp(None, &initialize(60_000)).await.status == 503);
    }
    assert!(busy > 50, "{busy}");
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn subscriptions_of_mcp_clients() {
    let server = Server::with(&["--mcp", AGREEABLE]).await;
    let mut refused = 0;
    for _ in 0..4 {
        let begun = server.mcp(None, &initialize(10)).await;
        let session = begun.session.unwrap_or_else(|| panic!("{}", begun.text));
        for number in 0..20 {
            let uri = format!("x:{number}/{}", text(100_000));
            let message = json!({ "jsonrpc": "2.0", "id": number + 2, "method": "resources/subscribe",
                "params": { "uri": uri } });
            let answer = server.mcp(Some(&session), &message).await;
            refused += usize::from(answer.text.contains("too_many_subscriptions"));
        }
    }
    assert_eq!(refused, 4 * 19);
    server.holds_its_bounds().await;
}

/// Calls a tool without a session.
async fn stateless(server: &Server, client: &str) -> Answer {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": client, "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    let more = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                Mcp-Method: tools/list\r\n";
    server.call("alice", "POST", "/mcp", more, &body.to_string()).await
}

#[tokio::test]
async fn calls_with_an_upstream_session_each() {
    let server = Server::with(&["--modern-upstream", "per_request"]).await;
    for _ in 0..400 {
        let answer = stateless(&server, "tester").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let left = server.call("alice", "GET", "/api/sessions?limit=1000", "", "").await.json();
    assert!(left["sessions"].as_array().unwrap().len() < 20, "the last ones may be ending still");
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn clients_without_sessions_of_many_names() {
    let server = Server::with(&[]).await;
    for number in 0..400 {
        stateless(&server, &format!("{number}{}", text(100_000))).await;
    }
    server.holds_its_bounds().await;
}

/// An upstream MCP server that answers no call of a tool.
const SILENT: &str = r#"exec python3 -c '
import json, sys
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
'"#;

/// Calls a tool without a session and hangs up before it is answered.
async fn broken_call(server: &Server, client: &str, number: usize) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "t", "arguments": { "number": number }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": client, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
    }}})
    .to_string();
    let address = server.process.address();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n\r\n",
        secret("alice"),
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut begun)).await.expect("a head comes").unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200", "the call has begun");
}

#[tokio::test]
async fn broken_calls_of_clients_with_long_names() {
    let server = Server::with(&["--mcp", SILENT, "--reissue-window", "10m"]).await;
    let name = text(1_000_000);
    for number in 0..150 {
        broken_call(&server, &name, number).await;
    }
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn records_of_attempts_with_the_longest_names() {
    let server = Server::with(&[]).await;
    for number in 0..1_500 {
        let id = format!("{number:0>128}");
        let path = format!("/api/sessions/{id}/reconnect");
        let answer = server.post(&path, &json!({ "token": text(2_000) })).await;
        assert!(matches!(answer.status, 401 | 429), "{}", answer.text);
        let path = format!("/api/sessions/{id}/timeline");
        assert_eq!(server.call("alice", "GET", &path, "", "").await.status, 404);
    }
    let page = server.call("alice", "GET", "/api/audit?limit=1000", "", "").await;
    assert!(page.text.len() < (MIB + MIB / 16) as usize, "{} bytes", page.text.len());
    server.holds_its_bounds().await;
}
