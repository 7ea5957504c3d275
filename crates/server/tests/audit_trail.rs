//! What is in the audit trail besides attempts to come back: rejected credentials, and what administrators do.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use common::until;
use common::web::{Setup, Web};
use rejoin::core::codes::Reason;
use rejoin::store::audit::{AuditQuery, AuditRecord};

#[tokio::test]
async fn a_rejected_credential_leaves_a_record_with_its_reason() {
    let web = Setup::keyed().start().await;
    web.get("/api/sessions").send().await.expect(401);
    assert_eq!(trail(&web).await, [], "without a credential nothing was tried");
    web.get("/api/sessions").by("no such key").send().await.expect(401);
    until(async || trail(&web).await.len() == 1).await;
    let record = &trail(&web).await[0];
    assert_eq!((record.reason, &*record.action), (Reason::CredentialUnknownKey, "authenticate"));
    assert_eq!(record.address.as_deref(), Some("127.0.0.1"));
    assert!(!record.success());
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
    let actions: Vec<&str> = records.iter().rev().map(|record| &*record.action).collect();
    assert_eq!(actions, ["read", "token", "end"]);
    assert!(records.iter().all(|record| record.reason == Reason::AdminAccess));
    assert!(records.iter().all(|record| record.principal.as_str() == "root"));
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

/// The whole trail, newest first.
async fn trail(web: &Web) -> Vec<AuditRecord> {
    let query = AuditQuery { limit: 99, ..AuditQuery::default() };
    web.store.audit_trail(&query).await.unwrap().records
}
