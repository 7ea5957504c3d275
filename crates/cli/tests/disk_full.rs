//! A full disk, seen by clients of the binary: writes are refused, reads go on, no call hangs, and nothing is lost or
//! there twice once there is space again.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::server_process::ServerProcess;
use common::small_disk::{SmallDisk, run_mounted};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// However slow the machine, no call takes this long. Clients wait for about as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is looked at that nobody reports.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

struct Server {
    process: ServerProcess,
    disk: SmallDisk,
}

/// An answer, as far as it matters here.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(data.unwrap_or(&self.text)).unwrap_or(Value::Null)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// It says that the disk is full, and when to come again.
    fn is_refused(&self) -> bool {
        if self.status == 503 {
            assert!(self.header("retry-after").is_some(), "{self:?}");
        }
        self.status == 503
    }
}

impl Server {
    async fn start(size: &str, flags: &[&str], config: &str) -> Self {
        let disk = SmallDisk::mount(size);
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { process: ServerProcess::start(flags, config, &[]).await, disk }
    }

    fn address(&self) -> SocketAddr {
        self.process.address()
    }

    async fn call(&self, method: &str, path: &str, more: &str, body: &str) -> Answer {
        let address = self.address();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{more}\r\n",
            body.len()
        );
        let what = format!("{method} {path} {body:.100}");
        let answer = timeout(PATIENCE, exchange(address, head + body)).await;
        answer.unwrap_or_else(|_| panic!("no answer to {what}"))
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, "", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, "", &body.to_string()).await
    }

    async fn mcp(&self, session: &str, more: &str, message: &Value) -> Answer {
        let accept = "Accept: application/json, text/event-stream\r\n";
        let session = match session {
            "" => String::new(),
            id => format!("Mcp-Session-Id: {id}\r\n"),
        };
        self.call("POST", "/mcp", &format!("{accept}{session}{more}"), &message.to_string()).await
    }

    async fn create(&self) -> String {
        let made = self.post("/api/sessions", &json!({})).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["session_id"].as_str().unwrap().to_owned()
    }

    async fn publish(&self, session: &str, key: &str, content: &str) -> Answer {
        let body = json!({ "event": "said", "content": content }).to_string();
        let key = format!("Idempotency-Key: {key}\r\n");
        self.call("POST", &format!("/api/sessions/{session}/events"), &key, &body).await
    }

    async fn until_refused(&self) {
        while !self.post("/api/sessions", &json!({})).await.is_refused() {
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn until_accepted(&self) {
        while self.post("/api/sessions", &json!({})).await.is_refused() {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Every write over HTTP and MCP, but for coming back, is refused.
    async fn refuses_writes(&self, session: &str, mcp: &str, sse: &str) {
        let path = format!("/api/sessions/{session}");
        for answer in [
            self.post("/api/sessions", &json!({})).await,
            self.post(&format!("{path}/messages"), &json!({ "content": 1 })).await,
            self.publish(session, "refused", "x").await,
            self.mcp("", "", &initialize("2025-11-25")).await,
            self.mcp(mcp, "", &echo()).await,
            self.call("GET", "/sse", "Accept: text/event-stream\r\n", "").await,
            self.post(&format!("/message?sessionId={sse}"), &echo()).await,
        ] {
            assert!(answer.is_refused(), "{answer:?}");
        }
        let answer = self.stateless().await;
        assert!(answer.json()["error"]["code"].is_i64(), "{answer:?}");
    }

    /// A call without a session, of a client that has not called before.
    async fn stateless(&self) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "new here", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        }}});
        let more = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
        self.mcp("", more, &body).await
    }

    async fn begin_mcp(&self) -> String {
        let begun = self.mcp("", "", &initialize("2025-11-25")).await;
        assert_eq!(begun.status, 200, "{begun:?}");
        begun.header("mcp-session-id").unwrap().to_owned()
    }

    /// A session of `/sse`, and its stream.
    async fn begin_sse(&self) -> (String, BufReader<TcpStream>) {
        let address = self.address();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET /sse HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (mut reader, mut line) = (BufReader::new(stream), String::new());
        let session = loop {
            line.clear();
            timeout(PATIENCE, reader.read_line(&mut line)).await.unwrap().unwrap();
            if let Some((_, session)) = line.trim().split_once("sessionId=") {
                break session.to_owned();
            }
        };
        let path = format!("/message?sessionId={session}");
        assert_eq!(self.post(&path, &initialize("2024-11-05")).await.status, 202);
        (session, reader)
    }

    async fn connect(&self) -> Socket {
        let url = format!("ws://{}/ws", self.address());
        Socket(tokio_tungstenite::connect_async(url).await.unwrap().0)
    }

    /// What a session has said, by its contents.
    async fn said(&self, session: &str) -> Vec<String> {
        let (mut said, mut after) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/api/sessions/{session}/events?after={after}")).await;
            assert_eq!(page["gap"], Value::Null, "{}", page["gap"]);
            let events = page["events"].as_array().unwrap();
            if events.is_empty() {
                return said;
            }
            said.extend(events.iter().map(|event| event["content"].as_str().unwrap().to_owned()));
            after = events.last().unwrap()["seq"].as_u64().unwrap();
        }
    }
}

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// Sends a frame and waits for its answer.
    async fn ask(&mut self, frame: Value) -> Value {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
        self.until(|frame| frame["event"] != "said").await
    }

    /// The next frame that is meant.
    async fn until(&mut self, meant: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.expect("a frame comes");
            let Message::Text(text) = message.unwrap().unwrap() else { continue };
            let frame: Value = serde_json::from_str(&text).unwrap();
            let control = matches!(
                frame["event"].as_str(),
                Some("system.connected" | "system.heartbeat" | "system.notice")
            );
            if !control && meant(&frame) {
                return frame;
            }
        }
    }
}

fn initialize(revision: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": revision, "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    }})
}

fn echo() -> Value {
    let params = json!({ "name": "echo", "arguments": { "text": "x" } });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

async fn exchange(address: SocketAddr, request: String) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request.as_bytes()).await; // a server that refused early may have cut it
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes);
    let (head, text) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), text: unchunked(head, text) }
}

/// A body that came in chunks, in one.
fn unchunked(head: &str, mut text: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return text.to_owned();
    }
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap().min(rest.len());
        whole += &rest[..size];
        text = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// An agent behind a URL that answers its first request when it is told to.
async fn backend() -> (String, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/agent", listener.local_addr().unwrap());
    let (go, mut told) = oneshot::channel::<()>();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 16 * 1024];
            let _ = stream.read(&mut request).await;
            let _ = (&mut told).await;
            let event = json!({ "event": "said", "content": "by the agent" });
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{event}\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            told = oneshot::channel().1;
        }
    });
    (url, go)
}

#[test]
fn below_the_reserve_every_transport_refuses_writes_and_serves_reads() {
    run_mounted("low_disk");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "is run by the test above, with a small disk"]
async fn low_disk() {
    let (url, agent_answers) = backend().await;
    let server = Server::start("96m", &["--agent", &url], "").await;
    let (session, mcp) = (server.create().await, server.begin_mcp().await);
    let (sse, _stream) = server.begin_sse().await;
    let mut socket = server.connect().await;
    let back = json!({ "event": "user.reconnect", "session_id": session });
    assert_eq!(socket.ask(back.clone()).await["event"], "agent.session_created");
    let message = |id: &str| json!({ "event": "user.message", "session_id": session, "message_id": id, "content": 1 });
    assert_eq!(socket.ask(message("m1")).await["event"], "system.accepted");

    server.disk.fill();
    server.until_refused().await;
    server.refuses_writes(&session, &mcp, &sse).await;
    assert_eq!(socket.ask(message("m2")).await["metadata"]["error_code"], "SERVER_BUSY");
    let mut other = server.connect().await;
    let refused = other.ask(json!({ "event": "user.create_session" })).await;
    assert_eq!(refused["metadata"]["error_code"], "SERVER_BUSY", "{refused}");
    for path in ["", "/health", "/events", "/messages", "/timeline"] {
        server.get(&format!("/api/sessions/{session}{path}")).await;
    }
    server.get("/api/sessions").await;
    server.get("/api/audit").await;
    assert_eq!(other.ask(back).await["event"], "agent.session_created", "coming back goes on");
    // What the agent says meanwhile waits, and is not lost.
    agent_answers.send(()).unwrap();

    server.disk.make_room();
    server.until_accepted().await;
    let said = other.until(|frame| frame["content"] == "by the agent").await;
    assert_eq!(said["seq"], 1, "{said}");
    assert_eq!(server.said(&session).await, ["by the agent"], "once");
    assert_eq!(other.ask(message("m2")).await["event"], "system.accepted");
    assert_eq!(server.mcp(&mcp, "", &echo()).await.status, 200);
}

#[test]
fn calls_in_the_commit_that_finds_the_disk_full_are_answered_and_nothing_is_there_twice() {
    run_mounted("full_disk");
}

/// Without a reserve, so that a commit finds out that the disk is full.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is run by the test above, with a small disk"]
async fn full_disk() {
    let agent = ["--agent", "http://127.0.0.1:9/agent"];
    let server = &mut Server::start("96m", &agent, "disk_reserve = 0\n").await;
    let (session, mcp) = (server.create().await, server.begin_mcp().await);
    let (sse, _stream) = server.begin_sse().await;
    let mut socket = server.connect().await;
    let back = json!({ "event": "user.reconnect", "session_id": session });
    assert_eq!(socket.ask(back.clone()).await["event"], "agent.session_created");

    server.disk.fill();
    let large = "x".repeat(200_000);
    let mut keys = Vec::new();
    let refused = loop {
        let key = format!("k{}", keys.len());
        keys.push(key.clone());
        let answer = server.publish(&session, &key, &format!("{key} {large}")).await;
        if answer.status != 200 {
            break answer;
        }
        assert!(keys.len() < 1_000, "the disk is never full");
    };
    assert!(refused.is_refused(), "{refused:?}");
    assert_eq!(refused.json()["error_code"], "DATABASE_UNAVAILABLE", "not known: {refused:?}");
    server.refuses_writes(&session, &mcp, &sse).await;
    let message =
        json!({ "event": "user.message", "session_id": session, "message_id": "m1", "content": 1 });
    let told = socket.ask(message.clone()).await;
    assert_eq!(told["metadata"]["recovery_action"], "retry_later", "{told}");
    let told = server.connect().await.ask(json!({ "event": "user.create_session" })).await;
    assert_eq!(told["metadata"]["recovery_action"], "retry_later", "{told}");
    let told = server.connect().await.ask(back).await;
    assert_eq!(told["metadata"]["error_code"], "DATABASE_UNAVAILABLE", "{told}");
    server.get(&format!("/api/sessions/{session}")).await;
    server.get(&format!("/api/sessions/{session}/events")).await;

    server.disk.make_room();
    server.until_accepted().await;
    let last = keys.last().unwrap();
    let again = server.publish(&session, last, &format!("{last} {large}")).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["last_seq"], keys.len(), "{again:?}");
    assert_eq!(server.mcp(&mcp, "", &echo()).await.status, 200);
    for _ in 0..2 {
        let head = server.get(&format!("/api/sessions/{session}")).await["last_seq"].clone();
        assert_eq!(head, keys.len(), "every key is there once");
        server.process.kill_nine().await;
        server.process.restart().await;
    }
}
