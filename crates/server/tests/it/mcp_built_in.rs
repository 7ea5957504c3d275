//! The built-in MCP server: tools that take their time, and what is lost of it when Rejoin is restarted.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::mcp_client::{Client, kept_in, serve, serve_on};
use crate::common::web::Web;
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

async fn begin() -> (Web, Client) {
    let web = serve(Gateway::built_in()).await;
    let client = Client::begin(&web).await;
    (web, client)
}

/// A server that keeps its sessions in files.
struct Kept {
    home: TempDir,
    web: Web,
}

impl Kept {
    async fn begin() -> (Self, Client) {
        let home = tempfile::tempdir().unwrap();
        let web = serve_on(kept_in(home.path()), Gateway::built_in()).await;
        let client = Client::begin(&web).await;
        (Self { home, web }, client)
    }

    /// Rejoin stops, and another one goes on; so does the client.
    async fn restart(&mut self, client: &mut Client) {
        self.web.service.close().await.unwrap();
        self.web = serve_on(kept_in(self.home.path()), Gateway::built_in()).await;
        *client = client.at(&self.web);
    }
}

#[tokio::test]
async fn every_tool_says_whether_it_only_reads_and_only_one_does_not() {
    let (_web, client) = begin().await;
    let list = client.ask(1, "tools/list", json!({})).await.answer().await;
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"].is_boolean()));
    let writes = tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false);
    assert_eq!(writes.map(|tool| &tool["name"]).collect::<Vec<_>>(), ["remember"]);
}

#[tokio::test]
async fn a_countdown_reports_progress_at_every_step() {
    let (_web, client) = begin().await;
    let mut call = client.call(1, "countdown", json!({ "from": 3, "interval_ms": 1 })).await;
    for step in 1..=3 {
        let report = call.next().await;
        let expected = json!({ "progressToken": 1, "progress": step, "total": 3, "message": format!("{} to go", 3 - step) });
        assert_eq!(report["params"], expected);
    }
    assert_eq!(call.text().await, "Counted down from 3.");
}

#[tokio::test]
async fn without_a_progress_token_no_progress_is_reported() {
    let (_web, client) = begin().await;
    let params = json!({ "name": "countdown", "arguments": { "from": 2, "interval_ms": 1 } });
    let mut call = client.ask(1, "tools/call", params).await;
    assert!(call.next().await.get("result").is_some());
}

#[tokio::test]
async fn research_logs_its_steps_unless_the_client_wants_less() {
    let (_web, client) = begin().await;
    let topic = json!({ "topic": "tides", "steps": 2, "step_ms": 1 });
    let mut call = client.call(1, "research", topic.clone()).await;
    let first = call.next().await;
    assert_eq!(first["params"]["data"], "step 1 of 2: collecting sources");
    assert!(call.text().await.contains("tides"));
    client.ask(2, "logging/setLevel", json!({ "level": "warning" })).await.answer().await;
    let mut call = client.call(3, "research", topic).await;
    assert_eq!(call.next().await["method"], "notifications/progress");
}

#[tokio::test]
async fn a_cancelled_call_has_no_effect_and_no_answer() {
    let (_web, client) = begin().await;
    let mut call = client.call(1, "remember", json!({ "note": "a", "delay_ms": 60_000 })).await;
    client.tell("notifications/cancelled", json!({ "requestId": 1 })).await;
    assert_eq!(call.next_or_end().await, None);
    assert_eq!(client.call(2, "recall", json!({})).await.text().await, "There are no notes.");
}

#[tokio::test]
async fn notes_are_of_one_session() {
    let (web, client) = begin().await;
    for (id, note) in [(1, "a"), (2, "b")] {
        client.call(id, "remember", json!({ "note": note })).await.text().await;
    }
    assert_eq!(client.call(3, "recall", json!({})).await.text().await, "a\nb");
    let other = Client::begin(&web).await;
    assert_eq!(other.call(1, "recall", json!({})).await.text().await, "There are no notes.");
}

#[tokio::test]
async fn after_a_restart_the_session_goes_on_and_is_told_that_the_notes_are_gone() {
    let (mut kept, mut client) = Kept::begin().await;
    client.call(1, "remember", json!({ "note": "a" })).await.text().await;
    kept.restart(&mut client).await;
    let mut general = client.listen().await;
    assert_eq!(client.call(2, "recall", json!({})).await.text().await, "There are no notes.");
    let told = general.notification("notifications/message").await;
    assert!(told["params"]["data"].as_str().unwrap().contains("memory"), "{told}");
}

#[tokio::test]
async fn a_call_that_only_reads_survives_a_restart_and_its_progress_never_goes_back() {
    let (mut kept, mut client) = Kept::begin().await;
    let mut call = client.call(1, "countdown", json!({ "from": 6, "interval_ms": 50 })).await;
    let before = call.notification("notifications/progress").await;
    assert_eq!(before["params"]["progress"], 1);
    kept.restart(&mut client).await;
    let mut call = client.go_on(&call).await;
    let (mut last, mut restarts) = (1, 0);
    let answer = loop {
        let message = call.next().await;
        match (message["params"]["progress"].as_u64(), &message["params"]["logger"]) {
            (Some(progress), _) => {
                assert!(progress > last, "{progress} after {last}");
                last = progress;
            }
            (None, Value::String(logger)) if logger == "rejoin" => restarts += 1,
            (None, _) => break message,
        }
    };
    assert_eq!(restarts, 1, "a client without a general stream is told here");
    assert_eq!(answer["result"]["content"][0]["text"], "Counted down from 6.");
}

#[tokio::test]
async fn of_a_call_that_writes_nobody_knows_after_a_restart_whether_it_did() {
    let (mut kept, mut client) = Kept::begin().await;
    let mut call = client.call(1, "remember", json!({ "note": "a", "delay_ms": 60_000 })).await;
    call.primed().await;
    // The call is under way when another one is answered.
    client.call(2, "recall", json!({})).await.text().await;
    kept.restart(&mut client).await;
    let (code, reason) = client.go_on(&call).await.error().await;
    assert_eq!((code, &*reason), (-32050, "upstream_lost"));
    assert_eq!(client.call(3, "recall", json!({})).await.text().await, "There are no notes.");
}

#[tokio::test]
async fn the_revision_is_the_one_that_was_asked_for_if_it_is_served() {
    let web = serve(Gateway::built_in()).await;
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let answer = Client::hello_in(&web, asked).await.answer().await;
        assert_eq!(answer["result"]["protocolVersion"], agreed);
    }
}

#[tokio::test]
async fn what_there_is_not_is_an_error_that_says_so() {
    let (_web, client) = begin().await;
    let code = async |id: u64, method: &str, params: Value| {
        client.ask(id, method, params).await.error().await.0
    };
    assert_eq!(code(1, "prompts/list", json!({})).await, -32601);
    assert_eq!(code(2, "tools/call", json!({ "name": "nothing" })).await, -32602);
    assert_eq!(code(3, "logging/setLevel", json!({ "level": "loud" })).await, -32602);
    let wrong = client.call(4, "slow_echo", json!({ "delay_ms": 1 })).await.answer().await;
    assert_eq!(wrong["result"]["isError"], true, "the model is told, to do better: {wrong}");
    let long = client.call(5, "countdown", json!({ "from": 0 })).await.answer().await;
    assert_eq!(long["result"]["isError"], true);
}
