//! Nobody gets at another principal's sessions: principals whose names collide, sessions of the same chosen
//! name, every route and transport, in an order from a seed. Everything that a principal sends has a mark of
//! its own; after every step no other mark was received, and no other principal's session has changed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Client, PATIENCE, Server, text};

/// One is the beginning of another, one differs by an accent, one has separators, and one is called like
/// everybody where there is no authentication.
const PRINCIPALS: [&str; 4] = ["ann", "ann:x~sess_1", "änn", "anonymous"];

/// What all of them call their sessions.
const NAMES: [&str; 2] = ["the-same-name-for-everybody", "sess_AAECAwQFBgcICQoLDA0ODw"];

/// Steps before, and after, the store is lost and a new one goes on under the same secret.
const STEPS: usize = 80;

const SECRET: &str = "a secret that outlives the store of its server";

const MODERN: &str = "2026-07-28";

/// Numbers from a seed, by xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// What the world knows of all principals together: an attacker may have any of it.
#[derive(Default)]
struct Loot {
    ids: Vec<String>,
    states: Vec<Value>,
    tokens: Vec<String>,
    event_ids: Vec<String>,
}

/// What came of all that was tried. Where nothing ever works, nothing is tested.
#[derive(Debug, Default)]
struct Tally {
    resumed: usize,
    restored: usize,
    answered: usize,
    recalled: usize,
}

struct World {
    server: Server,
    dice: Dice,
    loot: Loot,
    tally: Tally,
}

fn mark(principal: usize) -> String {
    format!("MARK-{principal}-SECRET")
}

impl World {
    async fn new(seed: u64) -> Self {
        let key = |number: usize| {
            Sha256::digest(format!("key-of-{number}"))
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        };
        let block = |(number, principal): (usize, &str)| {
            let (admin, hash) = (principal == "the admin", key(number));
            format!(
                "[[api_keys]]\nname = \"key{number}\"\nprincipal = \"{principal}\"\nadmin = {admin}\n\
                 publish = true\nkey_sha256 = \"{hash}\"\n"
            )
        };
        let all = PRINCIPALS.into_iter().chain(["the admin"]).enumerate().map(block);
        let flags = [
            "--client-session-ids=true",
            "--adopt-unknown-sessions=true",
            "--session-tools=true",
            "--auto-export-interval=1h",
        ];
        let environment = [("MCP_SESSION_SECRET", SECRET)];
        let server = Server::start_with(&flags, &all.collect::<String>(), &environment).await;
        let mut loot = Loot::default();
        loot.ids.extend(NAMES.map(str::to_owned));
        Self { server, dice: Dice(seed), loot, tally: Tally::default() }
    }

    /// Every principal makes a session of the same name over WebSocket, and one of another over `/sse`.
    async fn all_take_the_same_names(&mut self) {
        for (who, principal) in PRINCIPALS.into_iter().enumerate() {
            let mut client = self.connect(who).await;
            let (name, about) = (NAMES[0], json!({ "client_id": mark(who) }));
            let create =
                json!({ "event": "user.create_session", "session_id": name, "content": about });
            client.send(create).await;
            let created = client.next().await;
            assert_eq!(created["session_id"], name, "{principal}: {created}");
            let headers = format!("Accept: text/event-stream\r\nX-Session-ID: {}\r\n", NAMES[1]);
            let endpoint = format!("data: /message?sessionId={}", NAMES[1]);
            let answer = self.ask(who, "GET /sse", &headers, "", &endpoint).await;
            assert!(answer.contains(&endpoint), "{principal}: {answer}");
        }
    }

    /// The store is gone; what clients keep is not.
    async fn lose_the_store(&mut self) {
        self.server.kill_nine().await;
        std::fs::remove_dir_all(self.server.data()).unwrap();
        self.server.restart().await;
    }

    /// The answer to a request of a principal: all of it, or of a stream what comes up to `enough`.
    async fn ask(&self, who: usize, line: &str, headers: &str, body: &str, enough: &str) -> String {
        let asking = async {
            let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
            let request = format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-API-Key: key-of-{who}\r\n\
                 Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
            loop {
                let text = String::from_utf8_lossy(&answer).into_owned();
                if !enough.is_empty() && text.contains(enough) {
                    return text;
                }
                match stream.read(&mut piece).await.unwrap_or(0) {
                    0 => return text,
                    read => answer.extend_from_slice(&piece[..read]),
                }
            }
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("no answer to {line}"))
    }

    /// What an administrator sees of every session, by its id: all that another's doing could change.
    async fn records(&self) -> BTreeMap<String, (String, Value)> {
        let admin = PRINCIPALS.len();
        let answer = self.ask(admin, "GET /api/sessions?limit=500", "", "", "").await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let list: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        let all = list["sessions"].as_array().unwrap().iter().map(|record| {
            // What an MCP session answers comes when it comes; an agent here has answered within its step.
            let agent = record["client"]["client_id"].is_string();
            let fields: &[&str] = match agent {
                true => &[
                    "status",
                    "ended_reason",
                    "generation",
                    "reconnect_count",
                    "last_seq",
                    "last_acked_seq",
                ],
                false => &["status", "ended_reason", "generation", "reconnect_count"],
            };
            let seen: Vec<&Value> = fields.iter().map(|field| &record[*field]).collect();
            (text(&record["session_id"]), (text(&record["principal"]), json!(seen)))
        });
        all.collect()
    }

    async fn connect(&self, who: usize) -> Client {
        self.server.connect_with(&[("x-api-key", &format!("key-of-{who}"))]).await
    }

    /// One step of one principal; everything that it received.
    async fn step(&mut self, who: usize) -> (String, String) {
        let kind = self.dice.below(8);
        let received = match kind {
            0 | 1 => self.talks_over_websocket(who).await,
            2 => self.restores(who).await,
            3 | 4 => self.calls_a_route(who).await,
            5 => self.calls_mcp(who).await,
            6 => self.calls_stateless(who).await,
            _ => self.opens_sse(who).await,
        };
        (format!("step {kind}"), received)
    }

    async fn talks_over_websocket(&mut self, who: usize) -> String {
        let mut client = self.connect(who).await;
        let id = self.dice.one_of(&self.loot.ids).clone();
        let mut received = String::new();
        let asked = match self.dice.below(3) {
            0 => {
                json!({ "event": "user.create_session", "session_id": id, "content": { "client_id": mark(who) } })
            }
            1 => {
                json!({ "event": "user.reconnect", "session_id": id, "content": { "last_seq": 0 } })
            }
            _ => {
                let token = self.loot.tokens.last().cloned().unwrap_or_default();
                json!({ "event": "user.reconnect", "session_id": id,
                        "content": { "last_seq": 0, "reconnect_token": token } })
            }
        };
        client.send(asked).await;
        let answer = client.next().await;
        received += &answer.to_string();
        if answer["event"] != "agent.session_created" {
            return received;
        }
        self.loot.tokens.push(text(&answer["metadata"]["reconnect_token"]));
        let session = text(&answer["session_id"]);
        if answer["metadata"]["resumed"] == true {
            self.tally.resumed += 1;
            while client_next(&mut client, &mut received).await["metadata"]["code"]
                != "replay_complete"
            {}
        }
        let say = json!({ "say": [{ "event": "agent.thinking", "content": mark(who) }],
                          "state": { "stage": mark(who), "current_step": 1 } });
        client
            .send(json!({ "event": "user.message", "session_id": session, "content": say }))
            .await;
        while client_next(&mut client, &mut received).await["content"] != mark(who).as_str() {}
        client.send(json!({ "event": "user.request_state", "session_id": session })).await;
        let exported = loop {
            let frame = client_next(&mut client, &mut received).await;
            if frame["event"] == "agent.state_exported" {
                break frame;
            }
        };
        self.loot.states.push(exported["metadata"]["signed_state"].clone());
        received
    }

    async fn restores(&mut self, who: usize) -> String {
        if self.loot.states.is_empty() {
            return String::new();
        }
        let (state, last_seq) = (self.dice.one_of(&self.loot.states).clone(), self.dice.below(9));
        let mut client = self.connect(who).await;
        client.ask_restore(&state, json!({ "last_seq": last_seq })).await;
        let mut received = String::new();
        let answer = client_next(&mut client, &mut received).await;
        if answer["event"] == "agent.state_restored" {
            self.tally.restored += 1;
            self.loot.ids.push(text(&answer["session_id"]));
            while client_next(&mut client, &mut received).await["metadata"]["code"]
                != "replay_complete"
            {}
        }
        received
    }

    async fn calls_a_route(&mut self, who: usize) -> String {
        let id = self.dice.one_of(&self.loot.ids).clone();
        let base = ["/api", "/api/mcp"][self.dice.below(2)];
        let routes = [
            "GET {base}/sessions?limit=500",
            "GET {base}/sessions/search?q=MARK",
            "GET {base}/sessions/search?q=same-name",
            "GET {base}/sessions/{id}",
            "GET {base}/sessions/{id}/health",
            "GET {base}/sessions/{id}/timeline",
            "GET {base}/sessions/{id}/events?after=0",
            "GET {base}/sessions/{id}/messages?after=0",
            "GET /api/audit?session_id={id}",
            "GET /api/audit",
            "GET /api/overview",
            "POST {base}/sessions",
            "POST {base}/sessions/{id}/token",
            "POST {base}/sessions/{id}/reconnect",
            "POST {base}/sessions/{id}/events",
            "POST {base}/sessions/{id}/messages",
            "POST {base}/sessions/{id}/state",
            "POST {base}/sessions/{id}/disconnect",
            "POST {base}/sessions/{id}/restart",
            "DELETE {base}/sessions/{id}",
        ];
        let line = self.dice.one_of(&routes).replace("{base}", base).replace("{id}", &id);
        let body = match line.rsplit('/').next().unwrap() {
            "reconnect" => json!({ "token": self.loot.tokens.last().cloned().unwrap_or_default() }),
            "events" => json!({ "event": "agent.thinking", "content": mark(who) }),
            "messages" => json!({ "content": mark(who) }),
            _ if line.starts_with("POST") => json!({}),
            _ => Value::Null,
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.ask(who, &line, "", &body, "").await;
        let worked = line.contains(&id) && answer.starts_with("HTTP/1.1 200");
        self.tally.answered += usize::from(worked);
        let token =
            answer.split("\"reconnect_token\":\"").nth(1).and_then(|rest| rest.split('"').next());
        self.loot.tokens.extend(token.map(str::to_owned));
        answer
    }

    async fn calls_mcp(&mut self, who: usize) -> String {
        let revision = *self.dice.one_of(&["2025-03-26", "2025-06-18", "2025-11-25"]);
        let accept = "Accept: application/json, text/event-stream\r\n";
        let mut received = String::new();
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": mark(who), "version": "1" } } });
        let answer = self.ask(who, "POST /mcp", accept, &hello.to_string(), "").await;
        let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let own = id.unwrap_or_else(|| panic!("no session: {answer}")).trim().to_owned();
        received += &answer;
        self.loot.ids.push(own.clone());
        let named = match self.dice.below(2) {
            0 => own,
            _ => self.dice.one_of(&self.loot.ids).clone(),
        };
        let headers =
            format!("{accept}Mcp-Session-Id: {named}\r\nMCP-Protocol-Version: {revision}\r\n");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        received += &self.ask(who, "POST /mcp", &headers, &ready.to_string(), "").await;
        let call = self.call(who);
        let answer = self.ask(who, "POST /mcp", &headers, &call.to_string(), "").await;
        let ids = answer.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned);
        self.loot.event_ids.extend(ids);
        received += &answer;
        if let Some(last) = self.loot.event_ids.last() {
            let headers = format!("{headers}Last-Event-ID: {last}\r\n");
            received += &self.ask(who, "GET /mcp", &headers, "", "\r\n\r\n").await;
        }
        received
    }

    /// A call of a tool that says something of its arguments, or of the tool that reconnects.
    fn call(&mut self, who: usize) -> Value {
        let (name, arguments) = match self.dice.below(3) {
            0 => ("remember", json!({ "note": mark(who) })),
            1 => ("recall", json!({})),
            _ => {
                let token = self.loot.tokens.last().cloned().unwrap_or_default();
                let id = self.dice.one_of(&self.loot.ids).clone();
                ("reconnect_session", json!({ "session_id": id, "reconnect_token": token }))
            }
        };
        tool_call(name, arguments)
    }

    /// All of them have a client of the same name, whose server takes notes.
    async fn calls_stateless(&mut self, who: usize) -> String {
        let remember = tool_call("remember", json!({ "note": mark(who) }));
        let calls = [remember, tool_call("recall", json!({})), self.call(who)];
        let mut received = String::new();
        for mut call in calls {
            call["params"]["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": { "name": "the same client", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let name = text(&call["params"]["name"]);
            let headers = format!(
                "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\n\
                 Mcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
            );
            let answer = self.ask(who, "POST /mcp", &headers, &call.to_string(), "").await;
            self.tally.recalled += usize::from(name == "recall" && answer.contains(&mark(who)));
            received += &answer;
        }
        received
    }

    async fn opens_sse(&mut self, who: usize) -> String {
        let id = self.dice.one_of(&self.loot.ids).clone();
        let headers = format!("Accept: text/event-stream\r\nX-Session-ID: {id}\r\n");
        let mut received = self.ask(who, "GET /sse", &headers, "", "sessionId=").await;
        let id = self.dice.one_of(&self.loot.ids).clone();
        let line = format!("POST /message?sessionId={id}");
        let call = self.call(who);
        received += &self.ask(who, &line, "", &call.to_string(), "").await;
        received
    }
}

fn tool_call(name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

/// The next frame, noting what was received.
async fn client_next(client: &mut Client, received: &mut String) -> Value {
    let frame = client.next().await;
    *received += &frame.to_string();
    frame
}

async fn run(seed: u64) {
    let mut world = World::new(seed).await;
    for number in 0..2 * STEPS {
        if number == STEPS {
            world.lose_the_store().await;
        }
        if number % STEPS == 0 {
            world.all_take_the_same_names().await;
        }
        let who = world.dice.below(PRINCIPALS.len());
        let before = world.records().await;
        let (step, received) = world.step(who).await;
        let what = format!("seed {seed}, number {number}, {step} of {:?}", PRINCIPALS[who]);
        for other in (0..PRINCIPALS.len()).filter(|other| *other != who) {
            assert!(!received.contains(&mark(other)), "{what} received of {other}: {received}");
        }
        let after = world.records().await;
        let foreign = before.iter().filter(|(_, (principal, _))| *principal != PRINCIPALS[who]);
        for (id, (principal, seen)) in foreign {
            assert_eq!(
                after.get(id),
                Some(&(principal.clone(), seen.clone())),
                "{what} changed {id}"
            );
        }
        world.loot.ids.extend(after.into_keys().filter(|id| !before.contains_key(id)));
    }
    let Tally { resumed, restored, answered, recalled } = world.tally;
    let least = [resumed, restored, answered, recalled].into_iter().min();
    assert!(least > Some(0), "seed {seed}: {:?}", world.tally);
}

#[tokio::test]
async fn no_principal_reaches_the_sessions_of_another_in_any_order() {
    for seed in [1, 0x9e37_79b9_7f4a_7c15] {
        run(seed).await;
    }
}
