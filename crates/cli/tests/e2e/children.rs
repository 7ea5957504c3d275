//! When child agents are stopped, started again and given up, and that none is left behind.

use std::fs;

use serde_json::json;

use crate::support::{Client, Server, until};

/// Whether a process runs; one that nobody has waited for yet does not.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn an_idle_child_is_stopped_though_its_client_is_attached_and_started_for_work_only() {
    let flags = ["--child-idle-ttl=200ms", "--heartbeat-interval=1s"];
    let server = Server::start(&flags).await;
    let mut client = server.connect().await.seeing_heartbeats();
    let id = client.create().await;
    client.tell(&id, json!({ "count": 1, "state": { "stage": "one" } })).await;
    client.until("agent.thinking").await;
    until("the idle child is stopped", async || {
        server.puppet.pids().first().is_some_and(|pid| !lives(*pid))
    })
    .await;
    client.until("system.heartbeat").await;
    client.until("system.heartbeat").await;
    assert_eq!(server.puppet.pids().len(), 1, "company alone starts no other");
    client.tell(&id, json!({ "count": 1 })).await;
    assert_eq!(client.until("agent.thinking").await["seq"], 2);
    assert_eq!(server.puppet.pids().len(), 2);
    let told = server.puppet.told();
    let start = told.iter().rfind(|line| line["event"] == "session.start").unwrap();
    assert_eq!(start["content"]["state"], json!({ "stage": "one" }));
}

/// A session whose agent has died five times for want of a file, which is there now.
async fn given_up(server: &Server) -> (Client, String) {
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("there");
    let say = json!([{ "event": "agent.first", "content": 1 }]);
    client.tell(&id, json!({ "needs": gate.path(), "say": say })).await;
    let failed = client.until("agent.failed").await;
    assert_eq!((&failed["seq"], server.puppet.pids().len()), (&json!(1), 5));
    gate.open();
    (client, id)
}

#[tokio::test]
async fn an_agent_that_was_given_up_is_started_again_by_a_message() {
    let server = Server::start(&[]).await;
    let (mut client, id) = given_up(&server).await;
    client.tell(&id, json!({ "say": [{ "event": "agent.second" }] })).await;
    assert_eq!(client.until_seq(2).await["event"], "agent.first", "it was not dealt with");
    assert_eq!(client.until_seq(3).await["event"], "agent.second");
    assert_eq!(server.puppet.pids().len(), 6);
}

#[tokio::test]
async fn an_agent_that_was_given_up_is_started_again_by_a_client_that_comes_back() {
    let server = Server::start(&[]).await;
    let (client, id) = given_up(&server).await;
    drop(client);
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(client.until_seq(2).await["event"], "agent.first");
    assert_eq!(server.puppet.pids().len(), 6);
}

/// An agent whose shell has a child of its own; neither reads its input.
const DEAF: &str = r#"--agent=sleep 600 & echo $! $$ > "$E2E_PIDS"; wait"#;

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_that_is_killed_leaves_nobody_behind_also_if_they_do_not_listen() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pids");
    let mut server = Server::start_with(&[DEAF], "", &[("E2E_PIDS", file.to_str().unwrap())]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!("listen")).await;
    let pids = || -> Vec<u32> {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    until("the agent runs", async || pids().len() == 2).await;
    assert!(pids().into_iter().all(lives));
    server.kill_nine().await;
    until("its processes are gone", async || !pids().into_iter().any(lives)).await;
}
