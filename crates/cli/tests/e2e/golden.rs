//! The four flows, frame by frame, as they stand in docs/protocol.md. Whatever differs from run to run
//! (ids, times, tokens, epochs) is replaced by a placeholder, the same for the same value.
//!
//! `UPDATE_DOCS=1` writes the files and the page anew.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::client::Said;
use crate::support::{Client, Server, text};

/// Lines in the page are about this wide.
const WIDTH: usize = 100;

#[tokio::test]
async fn the_four_flows_are_as_documented() {
    let server = Server::start(&["--auto-export-interval=1h", "--disconnect-ttl=3s"]).await;
    let (client, created) = new_session(&server).await;
    let id = text(&created["session_id"]);
    let back = brief_drop(&server, client, &id).await;
    let known = reconnect_with_state(&server, back, &created).await;
    restore(&server, known, &id).await;
}

/// What a client sees from its first frame to the agent's answer.
async fn new_session(server: &Server) -> (Client, Value) {
    let mut client = server.connect().await;
    client.write_down();
    let created = client.created().await;
    let id = text(&created["session_id"]);
    let said = json!([
        { "event": "agent.thinking", "content": "Let me see" },
        { "event": "agent.final_answer", "content": "42" },
    ]);
    tell(&mut client, &id, "m1", json!({ "say": said })).await;
    client.ack(&id, 2).await;
    compare("new_session", &client.transcript());
    client.settled().await;
    (client, created)
}

/// The connection drops while the agent works, and the client knows its session id and nothing else.
async fn brief_drop(server: &Server, client: Client, id: &str) -> Client {
    let mut client = client;
    let said = json!([
        { "event": "agent.thinking", "content": "Still at it" },
        { "event": "agent.final_answer", "content": "43" },
    ]);
    tell(&mut client, id, "m2", json!({ "say": said })).await;
    drop(client); // with two events that it never acked
    let mut client = server.connect().await;
    client.write_down();
    client.reconnect(id, json!({})).await;
    client.replay().await;
    let said = json!([{ "event": "agent.final_answer", "content": "44" }]);
    tell(&mut client, id, "m3", json!({ "say": said })).await;
    compare("brief_drop", &client.transcript());
    client
}

/// It knows its last seq and epoch as well, sends a message again whose answer it did not see, and keeps
/// the agent's state for later.
async fn reconnect_with_state(server: &Server, client: Client, created: &Value) -> Client {
    drop(client);
    let id = text(&created["session_id"]);
    let mut client = server.connect().await;
    client.write_down();
    let content = json!({ "last_seq": 4, "epoch": created["metadata"]["epoch"] });
    let event = "user.reconnect_with_state";
    client.send(json!({ "event": event, "session_id": id, "content": content })).await;
    client.replay().await;
    let again = json!({ "say": [{ "event": "agent.final_answer", "content": "44" }] });
    let message = json!({
        "event": "user.message", "session_id": id, "message_id": "m3", "content": again,
    });
    client.send(message).await;
    client.next().await;
    let state =
        json!({ "stage": "solving", "current_step": 5, "plan_context": { "question": "why" } });
    let said = json!([{ "event": "plan.step", "content": "half way" }]);
    tell(&mut client, &id, "m4", json!({ "say": said, "state": state })).await;
    client.next().await; // the export that follows a change by itself
    compare("reconnect_with_state", &client.transcript());
    client
}

/// Much later, when the session has expired, the state that was kept is all there is.
async fn restore(server: &Server, client: Client, id: &str) {
    let mut client = client;
    let sealed = client.export(id, json!({})).await["metadata"]["signed_state"].clone();
    drop(client);
    server.expired(id).await;
    let mut client = server.connect().await;
    client.write_down();
    let restored = client.restore(&sealed, json!({ "last_seq": 6 })).await;
    client.replay().await;
    let said = json!([{ "event": "agent.final_answer", "content": "because" }]);
    tell(&mut client, &text(&restored["session_id"]), "m5", json!({ "say": said })).await;
    compare("restore", &client.transcript());
}

/// Sends a message and reads everything that it tells the agent to say.
async fn tell(client: &mut Client, id: &str, message_id: &str, content: Value) {
    let events = content["say"].as_array().unwrap().len();
    client
        .send(json!({
            "event": "user.message", "session_id": id, "message_id": message_id, "content": content,
        }))
        .await;
    for _ in 0..=events {
        client.next().await;
    }
}

/// Compares a transcript with its file and with the page, or writes both.
fn compare(name: &str, transcript: &[Said]) {
    let text = Names::default().transcript(transcript);
    let file = tests().join(format!("golden/{name}.txt"));
    let page = root().join("docs/protocol.md");
    let before = fs::read_to_string(&page).unwrap_or_default();
    let after = with_transcript(&before, name, &text);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &text).unwrap();
        fs::write(&page, after).unwrap();
        return;
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == text,
        "{name} has changed; if that is meant, UPDATE_DOCS=1. Now it is\n{text}"
    );
    assert!(before == after, "docs/protocol.md shows another {name}; UPDATE_DOCS=1 writes it anew");
}

/// The page with this text between the marks of that name.
fn with_transcript(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- transcript {name} -->\n"), "<!-- end -->");
    let start = page.find(&begin).unwrap_or_else(|| panic!("no {begin} in the page")) + begin.len();
    let stop = start + page[start..].find(end).expect("the end of the transcript");
    format!("{}```text\n{text}```\n{}", &page[..start], &page[stop..])
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The order of members in a frame; others follow.
const ORDER: [&str; 8] = [
    "event",
    "session_id",
    "seq",
    "event_id",
    "timestamp",
    "message_id",
    "signed_state",
    "content",
];

/// What each volatile value is called.
#[derive(Default)]
struct Names {
    known: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl Names {
    fn transcript(&mut self, frames: &[Said]) -> String {
        let mut text = String::new();
        for said in frames {
            let (who, frame) = match said {
                Said::ByClient(frame) => ("client", frame),
                Said::ByServer(frame) => ("server", frame),
            };
            let frame = self.stable("", frame);
            writeln!(text, "{who}  {}", render(&frame, 8, 8)).unwrap();
        }
        text
    }

    /// The value with placeholders for what differs from run to run.
    fn stable(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                members.iter().map(|(key, value)| (key.clone(), self.stable(key, value))).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.stable(key, item)).collect(),
            Value::String(text) => json!(self.name(key, text)),
            Value::Number(_) if key == "state_size" => json!("<bytes>"),
            Value::Number(_) | Value::Bool(_) | Value::Null => value.clone(),
        }
    }

    fn name(&mut self, key: &str, text: &str) -> String {
        let kind = match key {
            "session_id" | "new_session_id" | "original_session_id" => "session",
            "event_id" | "last_event_id" => "event",
            "connection_id" => "connection",
            "epoch" => "epoch",
            "reconnect_token" => "token",
            "signed_state" => "sealed",
            "server_version" => return "<version>".into(),
            "timestamp"
            | "created_at"
            | "server_time"
            | "snapshot_time"
            | "exported_at"
            | "valid_until"
            | "reconnect_token_expires_at" => return "<time>".into(),
            _ => return text.to_owned(),
        };
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let name = format!("<{kind} {count}>");
        self.known.insert(text.to_owned(), name.clone());
        name
    }
}

/// JSON as people write it: on one line if it fits after `used` characters, else as many members a line
/// as do.
fn render(value: &Value, indent: usize, used: usize) -> String {
    let flat = one_line(value);
    if used + flat.chars().count() <= WIDTH {
        return flat;
    }
    let inner = indent + 2;
    let (open, close, pieces): (_, _, Vec<String>) = match value {
        Value::Object(members) => {
            let piece = |(key, value): (&String, &Value)| {
                let key = json!(key).to_string();
                let used = inner + key.len() + 3; // with colon, space and comma
                format!("{key}: {}", render(value, inner, used))
            };
            ("{", "}", ordered(members).into_iter().map(piece).collect())
        }
        Value::Array(items) => {
            ("[", "]", items.iter().map(|item| render(item, inner, inner + 1)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return flat,
    };
    let pad = " ".repeat(inner);
    format!("{open}\n{pad}{}\n{}{close}", fill(&pieces, inner), " ".repeat(indent))
}

/// The pieces with commas between, as many a line as fit; one of several lines has them for itself.
fn fill(pieces: &[String], indent: usize) -> String {
    let (mut text, mut used) = (String::new(), indent);
    for (index, piece) in pieces.iter().enumerate() {
        let several = piece.contains('\n');
        if index > 0 {
            let fits = used + piece.chars().count() + 3 <= WIDTH && used > indent && !several;
            text.push_str(if fits { ", " } else { ",\n" });
            if !fits {
                text.push_str(&" ".repeat(indent));
                used = indent;
            }
        }
        text.push_str(piece);
        used = if several { WIDTH } else { used + piece.chars().count() + 2 };
    }
    text
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".into(),
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| format!("{}: {}", json!(key), one_line(value));
            let members: Vec<String> = ordered(members).into_iter().map(member).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn ordered(members: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<(&String, &Value)> = members.iter().collect();
    let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
    all.sort_by_key(|(key, _)| place(key));
    all
}
