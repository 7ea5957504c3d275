//! Messages and states over HTTP.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::web::{Setup, word};
use rejoin::service::ServiceSettings;
use serde_json::json;

#[tokio::test]
async fn a_message_is_entered_once_however_often_it_is_sent() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    let message = json!({ "content": { "text": "hello" }, "message_id": "m1" });
    let first = web.post(&path).json(&message).send().await.expect(200);
    assert_eq!(first, json!({ "message_id": "m1", "in_seq": 1, "duplicate": false }));
    let again = web.post(&path).json(&message).send().await.expect(200);
    assert_eq!(again, json!({ "message_id": "m1", "in_seq": 1, "duplicate": true }));
    let other = json!({ "content": "other", "message_id": "m1" });
    let refused = web.post(&path).json(&other).send().await.expect(400);
    assert_eq!(refused["error_code"], "INVALID_MESSAGE");
}

#[tokio::test]
async fn a_message_that_is_written_otherwise_is_the_same() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    for (text, duplicate) in [
        (r#"{"content":{"a":1,"b":"\u00e9"},"message_id":"m1"}"#, false),
        (r#"{"message_id": "m1", "content": {"b": "é", "a": 1}}"#, true),
    ] {
        let post = web.post(&path).header("content-type", "application/json");
        let answer = post.body(text.as_bytes().to_vec()).send().await.expect(200);
        assert_eq!(answer["duplicate"], duplicate, "{text}");
    }
}

#[tokio::test]
async fn nothing_is_no_message_and_a_bad_id_is_the_message_s_fault() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    for message in [
        json!({ "content": null }),
        json!({ "content": "x", "message_id": "" }),
        json!({ "content": "x", "message_id": "x".repeat(129) }),
    ] {
        let refused = web.post(&path).json(&message).send().await.expect(400);
        assert_eq!(refused["error_code"], "INVALID_MESSAGE", "{message}");
    }
}

#[tokio::test]
async fn a_message_without_an_id_gets_one_of_its_own() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/mcp/sessions/{id}/messages");
    let message = json!({ "content": "hello" });
    let first = web.post(&path).json(&message).send().await.expect(200);
    let second = web.post(&path).json(&message).send().await.expect(200);
    assert_ne!(first["message_id"], second["message_id"]);
    assert_eq!((&first["in_seq"], &second["in_seq"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn an_agent_that_falls_behind_makes_senders_wait() {
    let mut setup = Setup::open();
    setup.sessions.session.max_waiting_bytes = 100;
    let web = setup.start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    let message = json!({ "content": "x".repeat(60) });
    web.post(&path).json(&message).send().await.expect(200);
    let answer = web.post(&path).json(&message).send().await;
    assert_eq!(answer.expect(503)["error_code"], "SERVER_BUSY");
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn messages_can_be_read_whether_the_agent_has_dealt_with_them_or_not() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    let none = web.get(&path).send().await.expect(200);
    assert_eq!(none, json!({ "messages": [], "last_in_seq": 0 }));
    for (id, content) in [("m1", json!({ "text": "first" })), ("m2", json!("second"))] {
        let message = json!({ "content": content, "message_id": id });
        web.post(&path).json(&message).send().await.expect(200);
    }
    web.publish(&id, json!({ "event": "a.b", "in_seq": 1 })).await;
    let answer = web.get(&path).send().await;
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let mut both = answer.expect(200);
    for message in both["messages"].as_array_mut().unwrap() {
        let at = message.as_object_mut().unwrap().remove("timestamp").unwrap();
        assert!(word(&at).ends_with('Z'), "{at}");
    }
    let expected = json!({
        "messages": [
            { "in_seq": 1, "message_id": "m1", "event": "user.message",
              "content": { "text": "first" }, "covered": true },
            { "in_seq": 2, "message_id": "m2", "event": "user.message",
              "content": "second", "covered": false },
        ],
        "last_in_seq": 2,
    });
    assert_eq!(both, expected);
    let rest = web.get(&format!("{path}?after=1")).send().await.expect(200);
    assert_eq!((&rest["messages"][0]["in_seq"], &rest["last_in_seq"]), (&json!(2), &json!(2)));
    let beyond = web.get(&format!("{path}?after=999")).send().await.expect(200);
    assert_eq!(
        beyond,
        json!({ "messages": [], "last_in_seq": 2 }),
        "what will come is not skipped"
    );
    let page = web.get(&path).header("origin", "http://localhost:3000").send().await;
    assert_eq!(page.header("access-control-allow-origin"), Some("http://localhost:3000"));
    web.get(&path).header("origin", "http://evil.example").send().await.expect(403);
    web.get(&format!("{path}?after=x")).send().await.expect(400);
    web.get("/api/sessions/sess_unknown/messages").send().await.expect(404);
}

#[tokio::test]
async fn a_reader_of_messages_can_wait_for_the_next() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    let waiting = web.get(&format!("{path}?wait=60s")).send();
    let sending = async {
        tokio::task::yield_now().await;
        web.post(&path).json(&json!({ "content": "hello" })).send().await.expect(200);
    };
    let (page, ()) = tokio::join!(waiting, sending);
    assert_eq!(page.expect(200)["messages"][0]["content"], "hello");
}

#[tokio::test]
async fn pages_of_messages_are_bounded_in_bytes_and_miss_nothing() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/messages");
    for _ in 0..5 {
        web.post(&path).json(&json!({ "content": "x".repeat(100_000) })).send().await.expect(200);
    }
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = web.get(&format!("{path}?after={after}")).send().await.expect(200);
        let messages = page["messages"].as_array().unwrap();
        if messages.is_empty() {
            break;
        }
        pages.push(messages.len());
        after = page["last_in_seq"].as_u64().unwrap();
    }
    assert_eq!(pages, [2, 2, 1]);
}

#[tokio::test]
async fn a_state_is_exported_sealed_and_never_cached() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/state");
    let new = web.post(&path).send().await.expect(200);
    assert_eq!((&new["seq"], &new["expire_after_hours"]), (&json!(0), &json!(24)));
    let state = json!({ "current_step": 4, "memory_snapshot": "x".repeat(5_000) });
    web.publish(&id, json!({ "event": "a", "state": state.clone() })).await;
    let answer = web.post(&path).send().await;
    let whole = answer.expect(200);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!((&whole["session_id"], &whole["seq"]), (&json!(id), &json!(1)));
    assert_eq!(whole["state_size"], word(&whole["signed_state"]).len());
    assert_eq!(whole["state"]["memory_snapshot"], state["memory_snapshot"]);
    assert_eq!(whole["state"]["current_step"], 4);
    assert!(word(&whole["snapshot_time"]).ends_with('Z'));
    let wanted = json!({ "include_memory": false, "include_plan": null });
    let part = web.post(&path).json(&wanted).send().await.expect(200);
    assert!(part["state_size"].as_u64() < whole["state_size"].as_u64());
    assert_eq!(part["state"].get("memory_snapshot"), None);
}

#[tokio::test]
async fn a_state_that_does_not_fit_is_too_large() {
    let service = ServiceSettings { max_state_bytes: 100, ..ServiceSettings::default() };
    let web = Setup { service, ..Setup::open() }.start().await;
    let (id, _) = web.create().await;
    let answer = web.post(&format!("/api/sessions/{id}/state")).send().await.expect(413);
    assert_eq!(answer["error_code"], "STATE_TOO_LARGE");
}
