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

/// What becomes of a connection on which a request does not come whole.
enum Half {
    /// The server has taken it and waits for the rest.
    Waits(#[expect(dead_code, reason = "it is kept open")] TcpStream),
    /// It answered so, or cut the connection.
    Refused(String),
}

/// Connections that send `head`, `count` bytes, and nothing more.
async fn halves(address: SocketAddr, connections: usize, head: &str, count: usize) -> Vec<Half> {
    let mut all = Vec::new();
    for _ in 0..connections {
        all.push(half(address, head.as_bytes(), count).await);
    }
    all
}

/// How long a server that refuses something takes at most to say so.
const TO_REFUSE: Duration = Duration::from_millis(100);

async fn half(address: SocketAddr, head: &[u8], count: usize) -> Half {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head).await.unwrap();
    let sent = timeout(PATIENCE, stream.write_all(&vec![b'x'; count])).await.expect("it is read");
    let mut answer = Vec::new();
    match timeout(TO_REFUSE, stream.read_to_end(&mut answer)).await {
        Err(_) if sent.is_ok() && answer.is_empty() => Half::Waits(stream),
        _ => Half::Refused(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// The head of a POST with a body that is announced, but does not come whole.
fn head_of_half(address: SocketAddr, path: &str, key: &str, announced: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\n{key}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {announced}\r\n\r\n"
    )
}

fn key_of(who: &str) -> String {
    format!("X-API-Key: {}\r\n", secret(who))
}

/// Those that were refused have been told why, unless their connection was cut while they sent.
fn told_to_come_back(halves: &[Half]) -> usize {
    let answers = halves.iter().filter_map(|half| match half {
        Half::Waits(_) => None,
        Half::Refused(answer) => Some(answer),
    });
    let told = answers.filter(|answer| !answer.is_empty()).inspect(|answer| {
        let head = answer.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 503") && head.contains("retry-after: 1"), "{answer}");
        assert!(answer.contains("Too much is being received"), "{answer}");
    });
    told.count()
}

#[tokio::test]
async fn mcp_messages_that_never_become_whole() {
    let server = Server::with(&[]).await;
    let address = server.process.address();
    let head = head_of_half(address, "/mcp", &key_of("alice"), 15_000_000);
    let halves = halves(address, 40, &head, 14_000_000).await;
    server.holds_its_bounds().await;
    let waits = halves.iter().filter(|half| matches!(half, Half::Waits(_))).count();
    assert_eq!(waits, 1, "what one of the largest messages has");
    assert!(told_to_come_back(&halves) > 0);
    drop(halves);
    let largest = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "text": text(16_000_000) } });
    let answer = loop {
        let answer = server.mcp(None, &largest).await;
        if !answer.text.contains("Too much is being received") {
            break answer;
        }
    };
    assert_eq!(answer.status, 413, "it was read: {}", answer.text);
}

#[tokio::test]
async fn bodies_that_never_become_whole() {
    let server = Server::with(&[]).await;
    let address = server.process.address();
    let head = head_of_half(address, "/api/sessions", &key_of("alice"), 1_000_000);
    let halves = halves(address, 150, &head, 990_000).await;
    server.holds_its_bounds().await;
    assert!(told_to_come_back(&halves) > 0);
}

#[tokio::test]
async fn frames_that_never_become_whole() {
    let server = Server::with(&[]).await;
    let address = server.process.address();
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nHost: {address}\r\n{}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        key_of("alice")
    );
    // A text of 1,000,000 bytes with a mask of zeros, whole in one frame; and the first of several.
    for first in [0x81, 0x01] {
        let mut frame = vec![first, 0xFF];
        frame.extend(1_000_000_u64.to_be_bytes());
        frame.extend([0; 4]);
        let (mut sockets, mut closed) = (Vec::new(), 0);
        for _ in 0..100 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(upgrade.as_bytes()).await.unwrap();
            read_until(&mut socket, "system.connected").await;
            let _ = socket.write_all(&frame).await;
            let _ = socket.write_all(&vec![b'x'; 990_000]).await;
            let mut said = Vec::new();
            let _ = timeout(TO_REFUSE, socket.read_to_end(&mut said)).await;
            // A close of four bytes and more, with 4003.
            closed += usize::from(said.windows(2).any(|pair| pair == 4003_u16.to_be_bytes()));
            sockets.push(socket);
        }
        server.holds_its_bounds().await;
        assert!(closed > 50, "{closed}");
    }
}

/// Reads from a socket until these words have come.
async fn read_until(socket: &mut TcpStream, words: &str) {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(words) {
        let mut some = [0; 1024];
        let read = timeout(PATIENCE, socket.read(&mut some)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&all));
        all.extend(&some[..read]);
    }
}

#[tokio::test]
async fn calls_that_come_all_at_once() {
    let server = Server::with(&["--mcp", SILENT]).await;
    let session = server.mcp(None, &initialize(10)).await.session.unwrap();
    let address = server.process.address();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "t", "arguments": { "text": text(3_000_000) } } })
    .to_string();
    let head = format!("{}Mcp-Session-Id: {session}\r\n", key_of("alice"));
    let request = head_of_half(address, "/mcp", &head, body.len()) + &body;
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let request = request.clone();
            tokio::spawn(async move { half(address, request.as_bytes(), 0).await })
        })
        .collect();
    let mut most = 0;
    let mut answers = Vec::new();
    for call in calls {
        most = most.max(server.memory());
        answers.push(call.await);
    }
    let grown = most.saturating_sub(server.memory_before);
    assert!(grown <= TIMES * BOUND + MEMORY_MIB * MIB, "memory grew by {} MiB", grown / MIB);
    server.holds_its_bounds().await;
}

#[tokio::test]
async fn bodies_of_callers_without_authentication() {
    let process = ServerProcess::start(Vec::new(), "", &[]).await;
    let server = Server { process, memory_before: 0 };
    let (address, before) = (server.process.address(), server.memory());
    let head = head_of_half(address, "/mcp", "", 16_000_000);
    let halves = halves(address, 40, &head, 14_900_000).await;
    let grown = server.memory().saturating_sub(before);
    eprintln!("grown by {} MiB", grown / MIB);
    // One address: a sixteenth of the default of `max_buffered_bytes`, in buffers that may be half full.
    assert!(grown <= 2 * 64 * MIB + 16 * MIB, "memory grew by {} MiB", grown / MIB);
    assert!(told_to_come_back(&halves) > 0);
}
