//! What is known of an agent that died: its status and its last words, in the timeline of its session.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::mcp_client::{Client, kept_in, serve};
use crate::common::web::{Setup, Web};
use crate::common::{HOUR, until};
use rejoin::ServerSettings;
use rejoin::agents::Command;
use rejoin::mcp::Gateway;
use serde_json::{Value, json};

/// Any key will do where none is asked for.
const ANYBODY: &str = "anybody";

/// What is known of the deaths in a session, oldest first.
async fn deaths(web: &Web, id: &str, key: &str) -> Vec<Value> {
    let timeline =
        web.get(&format!("/api/sessions/{id}/timeline")).by(key).send().await.expect(200);
    let moments = timeline["moments"].as_array().unwrap().iter();
    moments.filter(|moment| moment["what"] == "agent_died").cloned().collect()
}

async fn until_died(web: &Web, id: &str, key: &str) -> Value {
    until(async || !deaths(web, id, key).await.is_empty()).await;
    deaths(web, id, key).await.remove(0)
}

async fn tell(web: &Web, id: &str, key: &str) {
    let path = format!("/api/sessions/{id}/messages");
    web.post(&path).by(key).json(&json!({ "content": "work" })).send().await.expect(200);
}

async fn served_by(agent: &str, setup: Setup) -> Web {
    Setup { agent: Some(Command::shell(agent)), ..setup }.start().await
}

#[tokio::test]
async fn a_death_is_told_with_its_status_and_its_last_words() {
    let agent = "read -r start; read -r message; echo one >&2; printf '<b>two</b>' >&2; exit 3";
    let web = served_by(agent, Setup::open()).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    let death = until_died(&web, &id, ANYBODY).await;
    assert_eq!(death["status"], "exit status: 3");
    assert_eq!(death["stderr"], json!(["one", "<b>two</b>"]));
    assert_eq!(death["generation"], 0);
}

#[tokio::test]
async fn of_a_child_that_says_much_the_last_twenty_lines_are_told() {
    let agent = "seq 1 5000 >&2; kill -9 $$";
    let web = served_by(agent, Setup::open()).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    let death = until_died(&web, &id, ANYBODY).await;
    assert_eq!(death["status"], "signal: 9 (SIGKILL)");
    let last: Vec<_> = (4981..=5000).map(|line| line.to_string()).collect();
    assert_eq!(death["stderr"], json!(last));
}

#[tokio::test]
async fn a_command_that_can_t_be_started_is_a_death_too() {
    let agent = Some(Command::new("/nonexistent/agent", [""; 0]));
    let web = Setup { agent, ..Setup::open() }.start().await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    let death = until_died(&web, &id, ANYBODY).await;
    let status = death["status"].as_str().unwrap();
    assert!(status.starts_with("it can't be started: "), "{status}");
}

#[tokio::test]
async fn a_child_that_ends_in_order_has_died_only_if_it_left_work() {
    let agent = r#"read -r start; read -r message; echo '{"event":"agent.done","in_seq":1}'"#;
    let sessions = ServerSettings { agent_idle_ttl: HOUR, ..ServerSettings::default() };
    let web = served_by(agent, Setup { sessions, ..Setup::open() }).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    until(async || {
        let path = format!("/api/sessions/{id}/messages");
        web.get(&path).send().await.expect(200)["messages"][0]["covered"] == true
    })
    .await;
    until(async || web.service.sessions().live() == 0).await; // nobody told it to end, so it has
    assert_eq!(deaths(&web, &id, ANYBODY).await, Vec::<Value>::new());
    tell(&web, &id, ANYBODY).await; // its successor does not cover that
    assert_eq!(until_died(&web, &id, ANYBODY).await["status"], "exit status: 0");
}

#[tokio::test]
async fn an_agent_that_is_restarted_on_request_is_told_as_such() {
    let web = served_by("exec sleep 1000", Setup::open()).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    let path = format!("/api/sessions/{id}/restart");
    until(async || web.post(&path).send().await.expect(200)["restarted"] == true).await;
    let death = until_died(&web, &id, ANYBODY).await;
    assert_eq!(death["status"], "it was ended by /restart");
}

#[tokio::test]
async fn last_words_are_for_those_who_look_after_the_server() {
    let web = served_by("echo secret of the insides >&2; exit 1", Setup::keyed()).await;
    let (id, _) = web.create_by("alice").await;
    tell(&web, &id, "alice").await;
    let alices = until_died(&web, &id, "alice").await;
    assert_eq!((&alices["status"], &alices["stderr"]), (&json!("exit status: 1"), &json!(null)));
    let admins = until_died(&web, &id, "admin").await;
    assert_eq!(admins["stderr"], json!(["secret of the insides"]));
}

#[tokio::test]
async fn without_authentication_last_words_are_for_callers_on_the_same_machine() {
    let peer = Some("192.0.2.7:4711".parse().unwrap());
    let web = served_by("echo secret >&2; exit 1", Setup { peer, ..Setup::open() }).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    assert_eq!(until_died(&web, &id, ANYBODY).await["stderr"], json!(null));
}

#[tokio::test]
async fn deaths_are_known_after_a_restart_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let setup = || Setup { store: kept_in(path), history: Some(path.to_owned()), ..Setup::open() };
    let web = served_by("echo last words >&2; exit 7", setup()).await;
    let (id, _) = web.create().await;
    tell(&web, &id, ANYBODY).await;
    let before = until_died(&web, &id, ANYBODY).await;
    web.service.close().await.unwrap();
    drop(web.kill().await);
    let web = setup().start().await;
    assert_eq!(deaths(&web, &id, ANYBODY).await[0], before);
    assert_eq!(before["stderr"], json!(["last words"]));
}

#[tokio::test]
async fn the_death_of_an_mcp_server_is_told_in_its_session() {
    const SERVER: &str = r#"
import json, sys
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if message.get("method") == "tools/list":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": []}}), flush=True)
    if message.get("method") == "tools/call":
        print("Traceback: no more", file=sys.stderr, flush=True)
        sys.exit(4)
"#;
    let home = tempfile::tempdir().unwrap();
    let script = home.path().join("server.py");
    std::fs::write(&script, SERVER).unwrap();
    let gateway = Gateway::command(format!("exec python3 '{}'", script.display()));
    let web = serve(gateway).await;
    let client = Client::begin(&web).await;
    client.call(1, "poke", json!({})).await.error().await;
    let sessions = web.get("/api/sessions").send().await.expect(200);
    let id = sessions["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    let death = until_died(&web, &id, ANYBODY).await;
    assert_eq!(death["status"], "exit status: 4");
    assert_eq!(death["stderr"], json!(["Traceback: no more"]));
}
