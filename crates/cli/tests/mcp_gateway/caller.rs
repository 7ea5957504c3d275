//! A client of `/mcp` with one session. It comes back to a stream that broke, by the id of the last event it has,
//! and cuts its own connections as a bad network would.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::random::Random;
use crate::wire::{Answer, send};

const REVISION: &str = "2025-11-25";

/// A server that was killed is back within this.
const BACK: Duration = Duration::from_secs(30);

/// How long to wait before the next attempt to reach a server that is down.
const PAUSE: Duration = Duration::from_millis(50);

/// A client and its session.
pub(crate) struct Caller {
    address: SocketAddr,
    pub(crate) session: String,
    random: Random,
    /// Which of all clients it is; part of the keys of its calls.
    number: u64,
}

/// One call, and what came of it.
#[derive(Debug)]
pub(crate) struct Testimony {
    pub(crate) tool: &'static str,
    pub(crate) key: String,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    /// Every answer that came, of which there should be one.
    pub(crate) answers: Vec<Value>,
    /// The progress that was reported, in the order in which it came.
    pub(crate) progress: Vec<u64>,
    /// How often the client cut its connection.
    pub(crate) cuts: u64,
    /// The connection broke before there was an event to come back to, so nobody can.
    pub(crate) without_place: bool,
    /// Whether the stream is over for those who ask again.
    pub(crate) finished: bool,
}

/// How reading a stream ended.
enum Read {
    Answered,
    Broken,
}

impl Caller {
    /// Begins a session.
    pub(crate) async fn begin(address: SocketAddr, seed: u64, number: u64) -> Self {
        let random = Random::of(seed, number);
        let mut caller = Self { address, session: String::new(), random, number };
        let client = json!({ "name": "load", "version": "1" });
        let params =
            json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        let hello =
            json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params });
        let answer = caller.post(&hello).await.unwrap();
        caller.session = answer.header("mcp-session-id").expect("a session").to_owned();
        let said = answer.text().await.unwrap();
        assert!(said.contains("serverInfo"), "{said}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(caller.post(&ready).await.unwrap().status, 202);
        caller
    }

    /// Calls a tool and stays with it until it is answered, whatever breaks.
    pub(crate) async fn call(&mut self, id: u64) -> Testimony {
        let tool = if self.random.between(0, 2) == 0 { "read" } else { "write" };
        let (key, ms) = (format!("{}-{id}", self.number), self.random.between(30, 600));
        let params = json!({
            "name": tool,
            "arguments": { "key": key, "ms": ms },
            "_meta": { "progressToken": id },
        });
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let now = Instant::now();
        let mut testimony = Testimony {
            tool,
            key,
            begun: now,
            ended: now,
            answers: Vec::new(),
            progress: Vec::new(),
            cuts: 0,
            without_place: false,
            finished: false,
        };
        let answer = self.posted(&request).await;
        self.follow(answer, id, ms, &mut testimony).await;
        testimony.ended = Instant::now();
        testimony
    }

    /// Calls a tool without arguments in fair weather; says the text that it answers.
    pub(crate) async fn ask(&self, id: u64, tool: &str) -> String {
        let result = self.result(id, tool, json!({})).await;
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    /// Calls a tool in fair weather; says its result.
    pub(crate) async fn result(&self, id: u64, tool: &str, arguments: Value) -> Value {
        let mut stream = self.calling(id, tool, arguments).await;
        loop {
            let event = stream.event().await.unwrap().expect("an answer, not the end");
            if event.message["id"] == id {
                return event.message["result"].clone();
            }
        }
    }

    /// Calls a tool; gives the stream on which it answers.
    pub(crate) async fn calling(&self, id: u64, tool: &str, arguments: Value) -> Answer {
        self.try_calling(id, tool, arguments).await.unwrap()
    }

    /// The same where the server may be killed meanwhile.
    pub(crate) async fn try_calling(
        &self,
        id: u64,
        tool: &str,
        arguments: Value,
    ) -> io::Result<Answer> {
        let params = json!({ "name": tool, "arguments": arguments });
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.post(&request).await
    }

    /// Ends the session.
    pub(crate) async fn end(self) {
        let answer = self.send("DELETE", &[], "").await.unwrap();
        assert_eq!(answer.status, 204);
    }

    /// Posts a call until it has surely arrived or nobody knows.
    async fn posted(&self, request: &Value) -> Option<Answer> {
        let tried = Instant::now();
        loop {
            match self.post(request).await {
                Ok(answer) if answer.status == 200 => return Some(answer),
                Ok(answer) => answer.refuse().await,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
            assert!(tried.elapsed() < BACK, "the server is not back");
            sleep(PAUSE).await;
        }
    }

    async fn follow(&mut self, answer: Option<Answer>, id: u64, ms: u64, seen: &mut Testimony) {
        let mut place = String::new();
        let mut next = answer;
        loop {
            if let Some(answer) = next.take()
                && let Read::Answered = self.read(answer, id, ms, &mut place, seen).await
            {
                break;
            }
            if place.is_empty() {
                seen.without_place = true;
                return;
            }
            next = Some(self.come_back(&place).await);
        }
        seen.finished = self.come_back(&place).await.status == 204;
    }

    /// Reads a stream until the answer, its end, or the moment at which the network breaks.
    async fn read(
        &mut self,
        mut stream: Answer,
        id: u64,
        ms: u64,
        place: &mut String,
        seen: &mut Testimony,
    ) -> Read {
        assert_eq!(stream.status, 200, "a stream that has not brought its answer goes on");
        let breaks = self.random.between(0, 1) == 0 && seen.cuts < 3;
        let lasts = match breaks {
            true => Duration::from_millis(self.random.between(0, ms)),
            false => BACK,
        };
        // It may be cut only once there is something to come back to.
        let begun = timeout(BACK, take(&mut stream, id, place, seen)).await;
        if begun.expect("a call hangs") {
            let rest = async { while take(&mut stream, id, place, seen).await {} };
            if timeout(lasts, rest).await.is_err() {
                assert!(breaks, "a call hangs: {seen:?}");
                seen.cuts += 1;
                stream.cut();
            }
        }
        if seen.answers.is_empty() { Read::Broken } else { Read::Answered }
    }

    /// Goes on with a stream, as soon as the server is there.
    pub(crate) async fn come_back(&self, place: &str) -> Answer {
        let tried = Instant::now();
        loop {
            let headers = [("accept", "text/event-stream"), ("last-event-id", place)];
            match self.send("GET", &headers, "").await {
                Ok(answer) if matches!(answer.status, 200 | 204) => return answer,
                Ok(answer) => answer.refuse().await,
                Err(_) => assert!(tried.elapsed() < BACK, "the server is not back"),
            }
            sleep(PAUSE).await;
        }
    }

    async fn post(&self, message: &Value) -> io::Result<Answer> {
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ];
        self.send("POST", &headers, &message.to_string()).await
    }

    async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Answer> {
        let mut headers = headers.to_vec();
        if !self.session.is_empty() {
            headers.push(("mcp-session-id", &self.session));
        }
        send(self.address, method, "/mcp", &headers, body).await
    }
}

/// Takes the next event of a stream; says whether there was one.
async fn take(stream: &mut Answer, id: u64, place: &mut String, seen: &mut Testimony) -> bool {
    let Ok(Some(event)) = stream.event().await else { return false };
    *place = event.id;
    if event.message["id"] == id && event.message.get("method").is_none() {
        seen.answers.push(event.message);
    } else if event.message["method"] == "notifications/progress" {
        seen.progress.push(event.message["params"]["progress"].as_u64().unwrap());
    }
    true
}
