//! A server is upgraded from the binary of abd4e4b. What that one has left, once stopped by SIGTERM and once killed, is
//! in `upgrade/`, made by `scripts/upgrade-data`; every client goes on with what it knows, and nothing is lost.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::seqs;
use crate::support::{Server, text};

/// How the older server ended.
const ENDS: [&str; 2] = ["stopped", "killed"];

/// As the older server was started: what it has left is read for years to come.
const FLAGS: [&str; 6] = [
    "--session-ttl=87600h",
    "--token-ttl=87600h",
    "--state-ttl=87600h",
    "--buffer-retention=87600h",
    "--result-retention=87600h",
    "--auto-export-interval=1h",
];

/// A server on the data of an older one that has ended so, and what the clients of that one know.
async fn upgraded(end: &str) -> (Server, Value) {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/upgrade").into();
    let from = std::env::var_os("UPGRADE_DATA").map_or(own, PathBuf::from);
    let mut server = Server::start(&FLAGS).await;
    server.kill_nine().await;
    fs::remove_dir_all(server.data()).unwrap();
    fs::create_dir(server.data()).unwrap();
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(from.join(format!("{end}.tar.gz"))).arg("-C").arg(server.data());
    assert!(unpack.status().unwrap().success());
    server.restart().await;
    let known = fs::read_to_string(from.join(format!("{end}.json"))).unwrap();
    (server, serde_json::from_str(&known).unwrap())
}

/// What a client comes back with that has seen so much.
fn position(known: &Value, last_seq: u64) -> Value {
    let (epoch, token) = (&known["epoch"], &known["reconnect_token"]);
    json!({ "last_seq": last_seq, "epoch": epoch, "reconnect_token": token })
}

#[tokio::test]
async fn a_client_comes_back_with_its_position_and_its_token() {
    for end in ENDS {
        let (server, known) = upgraded(end).await;
        let (known, mut client) = (&known["attached"], server.connect().await);
        let id = text(&known["session_id"]);
        let back = client.reconnect(&id, position(known, 2)).await;
        assert_eq!(back["metadata"]["epoch"], known["epoch"], "{end}: {back}");
        assert_eq!(back["metadata"]["gap"], Value::Null, "{end}: {back}");
        let replay = client.replay().await;
        assert_eq!(seqs(&replay), [3, 4, 5], "{end}");
        assert_eq!(replay[0]["content"], "thought 3 ", "{end}");
        assert_eq!(seqs(&client.thoughts(&id, 2).await), [6, 7], "{end}: the numbering goes on");
    }
}

#[tokio::test]
async fn work_that_was_under_way_goes_on() {
    for end in ENDS {
        let (server, known) = upgraded(end).await;
        let (known, mut client) = (&known["busy"], server.connect().await);
        let back = client.reconnect(&text(&known["session_id"]), position(known, 2)).await;
        assert_eq!(back["metadata"]["gap"], Value::Null, "{end}: {back}");
        for seq in 3..=5 {
            let thought = client.until_seq(seq).await;
            assert_eq!(thought["content"], format!("thought {} ", seq - 2), "{end}: {thought}");
        }
    }
}

#[tokio::test]
async fn a_sealed_state_is_gone_on_from() {
    for end in ENDS {
        let (server, known) = upgraded(end).await;
        let (known, mut client) = (&known["sealed"], server.connect().await);
        let content = json!({ "last_seq": 2, "epoch": known["epoch"] });
        let restored = client.restore(&known["signed_state"], content).await;
        assert_eq!(restored["metadata"]["restored_step"], 3, "{end}: {restored}");
        assert_eq!(restored["metadata"]["original_session_id"], known["session_id"], "{end}");
        let replay = client.replay().await;
        let said: Vec<_> =
            replay.iter().filter(|frame| frame["event"] == "agent.thinking").collect();
        let contents: Vec<_> = said.iter().map(|frame| &frame["content"]).collect();
        assert_eq!(contents, ["thought 3 ", "thought 4 "], "{end}");
    }
}

#[tokio::test]
async fn a_token_is_good_over_http() {
    for end in ENDS {
        let (server, known) = upgraded(end).await;
        let known = &known["sealed"];
        let path = format!("/api/sessions/{}/reconnect", text(&known["session_id"]));
        let token = text(&known["reconnect_token"]);
        let forged = server.post(&path, &json!({ "token": token.replace('e', "f") })).await;
        assert!(forged.starts_with("HTTP/1.1 401"), "{end}: {forged}");
        let answer = server.post(&path, &json!({ "token": token })).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{end}: {answer}");
    }
}

#[tokio::test]
async fn an_mcp_client_goes_on_with_its_session_and_its_streams() {
    for end in ENDS {
        let (server, known) = upgraded(end).await;
        let known = &known["mcp"];
        let session = format!(
            "Mcp-Session-Id: {}\r\nMCP-Protocol-Version: 2025-06-18\r\n",
            text(&known["session_id"])
        );
        let both = format!("{session}Accept: application/json, text/event-stream\r\n");
        let call = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" }).to_string();
        let answer = server.ask_with(&both, "POST", "/mcp", &call).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{end}: {answer}");
        assert!(answer.contains(r#""tools":["#), "{end}: {answer}");
        let place = text(&known["first_event_id"]);
        let stream = format!("{session}Accept: text/event-stream\r\nLast-Event-ID: {place}\r\n");
        let resumed = server.ask_with(&stream, "GET", "/mcp", "").await;
        assert!(resumed.starts_with("HTTP/1.1 200"), "{end}: {resumed}");
        let data = resumed.lines().filter_map(|line| line.strip_prefix("data:"));
        let said = data.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        assert_eq!(Value::from(said.collect::<Vec<_>>()), known["said_after"], "{end}");
    }
}
