//! What happens on a WebSocket shows over HTTP, and the other way round. The calls themselves have tests
//! of their own in the server's crate.

use serde_json::{Value, json};

use crate::support::client::seqs;
use crate::support::{Server, text};

/// The JSON in an answer of this status.
fn body(answer: &str, status: u16) -> Value {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or(Value::Null)
}

#[tokio::test]
async fn disconnect_drops_the_connection_as_a_network_would() {
    let server = Server::start(&["--takeover=reject"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 2).await;
    let answer = server.http("POST", &format!("/api/sessions/{id}/disconnect")).await;
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert!(!client.gone().await, "without a close frame");
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(seqs(&client.replay().await), [2]);
}

#[tokio::test]
async fn a_session_that_is_ended_elsewhere_closes_with_4101() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let answer = server.http("DELETE", &format!("/api/sessions/{id}")).await;
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(client.next().await["event"], "agent.session_ended");
    let closed = client.closed().await;
    assert_eq!((closed.code, &closed.reason["reason"]), (4101, &json!("session_ended")));
    assert!(closed.reason.get("retry_after_ms").is_none());
}

#[tokio::test]
async fn every_attempt_leaves_one_record_with_its_true_reason() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    let first = &created["metadata"]["reconnect_token"];
    let second = client.reconnect(&id, json!({ "reconnect_token": first })).await;
    client.notice("replay_complete").await;
    let second = &second["metadata"]["reconnect_token"];
    client.reconnect(&id, json!({ "reconnect_token": second })).await;
    client.notice("replay_complete").await;
    client.ask_back(&id, json!({ "reconnect_token": first })).await;
    client.error("TOKEN_REUSED").await;
    client.ask_back(&id, json!({ "reconnect_token": "x" })).await;
    client.error("TOKEN_INVALID").await;
    let answer = server.http("GET", &format!("/api/audit?session_id={id}")).await;
    let records = body(&answer, 200)["records"].as_array().unwrap().clone();
    let reasons: Vec<String> = records.iter().map(|record| text(&record["reason"])).collect();
    assert_eq!(reasons, ["invalid_token", "token_reused", "reconnected", "reconnected"]);
    assert!(records.iter().all(|record| record["session_id"] == id.as_str()));
}

#[tokio::test]
async fn a_restore_that_fails_is_recorded_under_the_session_it_names_or_under_none() {
    let server = Server::start(&["--state-ttl=1s", "--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let sealed = client.checkpoint(&id, 1, 1).await;
    client.ask_restore(&json!("v1.x.y"), json!({})).await;
    client.error("STATE_VERIFICATION_FAILED").await;
    // Nothing reports that a second has passed.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    client.ask_restore(&sealed, json!({})).await;
    client.error("STATE_EXPIRED").await;
    let records = server.get("/api/audit").await["records"].clone();
    let of = |index: usize| (&records[index]["session_id"], &records[index]["reason"]);
    assert_eq!(of(0), (&json!(id), &json!("token_expired")));
    assert_eq!(of(1), (&Value::Null, &json!("invalid_token")));
    let own = server.get(&format!("/api/audit?session_id={id}")).await;
    assert_eq!(own["records"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_refused_takeover_is_recorded_as_what_it_is() {
    let server = Server::start(&["--takeover=reject"]).await;
    let id = {
        let mut client = server.connect().await;
        let id = client.create().await;
        let mut other = server.connect().await;
        other.ask_back(&id, json!({})).await;
        other.error("SESSION_ALREADY_ACTIVE").await;
        id
    };
    let records = server.get(&format!("/api/audit?session_id={id}")).await["records"].clone();
    assert_eq!(records[0]["reason"], "session_already_active");
    assert_eq!(records[0]["success"], false);
}

#[tokio::test]
async fn what_was_evicted_or_never_was_does_not_count_as_unacked() {
    let server = Server::start(&["--buffer-size=3", "--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 8 })).await;
    client.until_seq(8).await;
    let health = server.get(&format!("/api/sessions/{id}/health")).await;
    assert_eq!((&health["buffer_size"], &health["unacked_events"]), (&json!(3), &json!(3)));
}

#[tokio::test]
async fn a_session_made_by_a_backend_can_be_come_back_to() {
    let server = Server::start(&["--takeover=reject"]).await;
    let made = body(&server.http("POST", "/api/sessions").await, 201);
    let (id, token) = (text(&made["session_id"]), &made["reconnect_token"]);
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "reconnect_token": token })).await;
    client.notice("replay_complete").await;
    client.thoughts(&id, 2).await;
    client.ack(&id, 1).await;
    client.tell(&id, json!("nothing")).await;
    let record = body(&server.http("GET", &format!("/api/sessions/{id}")).await, 200);
    assert_eq!((&record["status"], &record["attached"]), (&json!("active"), &json!(true)));
    assert_eq!((&record["last_seq"], &record["last_acked_seq"]), (&json!(2), &json!(1)));
}
