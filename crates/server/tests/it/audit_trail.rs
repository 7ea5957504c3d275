//! What is in the audit trail besides attempts to come back: rejected credentials, and what administrators do.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::until;
use crate::common::web::{Setup, Web};
use futures_util::SinkExt as _;
use rejoin::core::codes::Reason;
use rejoin::store::audit::{AuditQuery, AuditRecord};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_rejected_credential_leaves_a_record_with_its_reason() {
    let web = Setup::keyed().start().await;
    web.get("/api/sessions").send().await.expect(401);
    assert_eq!(trail(&web).await, [], "without a credential nothing was tried");
    web.get("/api/sessions").by("no such key").send().await.expect(401);
    until(async || trail(&web).await.len() == 1).await;
    let record = &trail(&web).await[0];
    assert_eq!(
        (record.reason, &*record.attempt.action),
        (Reason::CredentialUnknownKey, "authenticate")
    );
    assert_eq!(record.attempt.address.as_deref(), Some("127.0.0.1"));
    assert!(!record.success());
}

#[tokio::test]
async fn a_record_of_a_rejected_credential_says_over_what_it_came() {
    let web = Setup::keyed().start().await;
    web.get("/api/sessions").by("no such key").send().await.expect(401);
    web.get("/mcp").by("no such key").send().await.expect(401);
    web.get("/sse").by("no such key").send().await.expect(401);
    let url = format!("ws://{}/ws", web.address);
    let mut socket = tokio_tungstenite::connect_async(url).await.unwrap().0;
    let frame = r#"{"event":"user.authenticate","content":{"token":"no such key"}}"#;
    socket.send(Message::text(frame)).await.unwrap();
    until(async || trail(&web).await.len() == 4).await;
    let mut over: Vec<_> =
        trail(&web).await.iter().map(|record| record.attempt.transport.to_string()).collect();
    over.sort();
    assert_eq!(over, ["http", "mcp", "sse", "websocket"]);
}

#[tokio::test]
async fn an_administrator_who_lists_the_sessions_of_others_leaves_one_record_a_minute() {
    let web = Setup::keyed().start().await;
    web.get("/api/sessions").by("admin").send().await.expect(200);
    web.create_by("alice").await;
    web.get("/api/sessions").by("alice").send().await.expect(200);
    assert_eq!(trail(&web).await, [], "nobody has seen what is another's");
    for path in ["/api/sessions", "/api/sessions/active", "/api/sessions"] {
        web.get(path).by("admin").send().await.expect(200);
    }
    let records = trail(&web).await;
    let actions: Vec<&str> = records.iter().map(|record| &*record.attempt.action).collect();
    assert_eq!((actions, records[0].reason), (vec!["list"], Reason::AdminAccess));
}

#[tokio::test]
async fn what_an_administrator_does_with_the_session_of_another_leaves_a_record() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("alice").await;
    let path = format!("/api/sessions/{id}");
    web.get(&path).by("alice").send().await.expect(200);
    assert_eq!(trail(&web).await, [], "it is her own");
    for _ in 0..3 {
        web.get(&format!("{path}/events")).by("admin").send().await.expect(200);
    }
    web.post(&format!("{path}/token")).by("admin").send().await.expect(200);
    web.request("DELETE", &path).by("admin").send().await.expect(200);
    let records = trail(&web).await;
    let actions: Vec<&str> = records.iter().rev().map(|record| &*record.attempt.action).collect();
    assert_eq!(actions, ["read", "token", "end"]);
    assert!(records.iter().all(|record| record.reason == Reason::AdminAccess));
    assert!(records.iter().all(|record| record.attempt.principal.as_str() == "root"));
}

#[tokio::test]
async fn how_a_callers_own_session_ended_is_told_whatever_others_have_guessed() {
    let web = Setup::keyed().start().await;
    let (id, token) = web.create_by("bob").await;
    web.request("DELETE", &format!("/api/sessions/{id}")).by("bob").send().await.expect(200);
    for number in 0..40 {
        let guess = format!("sess_{number:022}");
        web.presenting(&guess, "nonsense").by("alice").send().await;
    }
    for _ in 0..40 {
        let told = web.presenting(&id, &token).by("bob").send().await.expect(401);
        assert_eq!(told["reason"], "session_already_disconnected");
    }
    let told = web.presenting("sess_0000000000000000000000", "nonsense").by("alice").send().await;
    assert_eq!(told.status, 429, "who guesses is held up");
}

#[tokio::test]
async fn what_one_caller_guesses_wrong_is_not_held_against_another_of_the_same_address() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("bob").await;
    let told = async |id: &str, by: &str| {
        let told = web.presenting(id, "nonsense").by(by).send().await;
        (told.status, told.json()["reason"].clone())
    };
    let never = "sess_0000000000000000000000";
    for number in 0..40 {
        told(&format!("sess_{number:022}"), "alice").await;
    }
    for _ in 0..15 {
        told(&id, "carol").await;
    }
    assert_eq!(told(&id, "carol").await.0, 429, "who guesses at one session is held up");
    assert_eq!(told(never, "alice").await.0, 429, "who guesses at many is");
    assert_eq!(told(&id, "bob").await, (401, "invalid_token".into()));
    assert_eq!(told(never, "bob").await, (401, "invalid_token".into()));
}

/// Whoever has no credential at all must not be able to make the server write without end.
#[tokio::test]
async fn rejected_credentials_of_one_address_leave_so_many_records_in_a_minute() {
    let web = Setup::keyed().start().await;
    let reject = async || {
        web.get("/api/sessions").header("authorization", "Basic eA==").send().await.expect(401);
    };
    for _ in 0..150 {
        reject().await;
    }
    until(async || trail(&web).await.len() >= 30).await;
    reject().await;
    let records = trail(&web).await;
    assert!(records.iter().all(|record| record.reason == Reason::CredentialMalformed));
    assert!(records.len() < 60, "{}: thirty, and one more for every two seconds", records.len());
}

/// The whole trail, newest first.
async fn trail(web: &Web) -> Vec<AuditRecord> {
    let query = AuditQuery { limit: 99, ..AuditQuery::default() };
    web.store.audit_trail(&query).await.unwrap().records
}
