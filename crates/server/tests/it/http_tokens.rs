//! Reconnect tokens over HTTP: the order of the checks, one use, lost replies, budgets, the trail.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::failing::FailingStore;
use crate::common::web::{Setup, Web, later, ring, word};
use crate::common::{HOUR, MINUTE, SECOND};
use rejoin::core::token::{Grant, issue};
use rejoin::core::{Principal, SessionId, position::Generation};
use serde_json::{Value, json};

/// For the session `sess_golden` and the purpose `login`, signed with the tests' secret until 2100.
const FOR_ANOTHER_PURPOSE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX2lkIjoic2Vzc19nb2xkZW4iLCJpYXQ\
     iOjE3MDAwMDAwMDAsImV4cCI6NDEwMjQ0NDgwMCwianRpIjoiQUFBQUFBQUFBQUFBQUFBQUFBQUFBQSI\
     sInB1cnBvc2UiOiJsb2dpbiIsInN1YiI6ImFub255bW91cyIsImF1ZCI6InJlam9pbiIsImdlbmVyYXR\
     pb24iOjB9.gsk4bsVccMHp4HVzVozOGCt12BxlYLif666PkMus0po";

/// A token that is well made, but that no store knows.
fn unknown_token(web: &Web, id: &str) -> String {
    let grant = Grant {
        session_id: SessionId::parse(id).unwrap(),
        principal: Principal::anonymous(),
        generation: Generation::ZERO,
        lifetime: 15 * MINUTE,
    };
    issue(&ring(), &grant, [7; 16], web.service.now()).token.as_str().to_owned()
}

async fn refused(web: &Web, id: &str, token: &str) -> Value {
    let answer = web.reconnect(id, token).await.expect(401);
    let reason = word(&answer["reason"]);
    let exactly = json!({ "detail": format!("Reconnection failed: {reason}"), "reason": reason });
    assert_eq!(answer, exactly);
    answer["reason"].clone()
}

async fn reasons(web: &Web, id: &str) -> Vec<Value> {
    let page = web.get(&format!("/api/audit?session_id={id}")).send().await.expect(200);
    page["records"].as_array().unwrap().iter().map(|record| record["reason"].clone()).collect()
}

#[tokio::test]
async fn a_token_is_handed_out_and_not_kept_by_caches() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;
    for method in ["GET", "POST"] {
        let answer = web.request(method, &format!("/api/mcp/sessions/{id}/token")).send().await;
        let token = answer.expect(200);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!((&token["session_id"], &token["expires_in_minutes"]), (&json!(id), &json!(15)));
        web.reconnect(&id, &word(&token["reconnect_token"])).await.expect(200);
    }
}

#[tokio::test]
async fn reconnecting_renews_the_session_and_the_token_and_counts() {
    let web = Setup::open().start().await;
    let (id, mut token) = web.create().await;
    let path = format!("/api/sessions/{id}");
    let before = word(&web.get(&path).send().await.expect(200)["expires_at"]);
    for count in 1..=3 {
        later(SECOND).await;
        let answer = web.reconnect(&id, &token).await.expect(200);
        assert_eq!((&answer["success"], &answer["session_id"]), (&json!(true), &json!(id)));
        assert_eq!(answer["message"], "Session reconnected");
        assert_eq!((&answer["reconnect_count"], &answer["generation"]), (&json!(count), &json!(0)));
        assert_eq!(answer["expires_in_minutes"], 15);
        token = word(&answer["reconnect_token"]);
    }
    let record = web.get(&path).send().await.expect(200);
    assert!(word(&record["expires_at"]) > before);
    assert_eq!((&record["reconnect_count"], &record["attached"]), (&json!(3), &json!(false)));
}

#[tokio::test]
async fn reconnecting_supersedes_nobody() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let joined = web.attach(&id).await;
    let answer = web.reconnect(&id, &token).await.expect(200);
    assert_eq!(answer["generation"], joined.confirmed.record.generation.get());
    let record = web.get(&format!("/api/sessions/{id}")).send().await.expect(200);
    assert_eq!(record["attached"], true);
}

#[tokio::test]
async fn the_first_check_that_fails_names_the_reason() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let (other, others) = web.create().await;
    assert_eq!(refused(&web, &id, "invalid-token").await, "invalid_token");
    assert_eq!(refused(&web, &id, "").await, "invalid_token");
    assert_eq!(refused(&web, &id, &format!("{token}x")).await, "invalid_token");
    assert_eq!(refused(&web, &id, &others).await, "session_id_mismatch");
    assert_eq!(refused(&web, "%00", &others).await, "session_id_mismatch");
    let golden = FOR_ANOTHER_PURPOSE;
    assert_eq!(refused(&web, "sess_golden", golden).await, "invalid_token_purpose");
    let nobodys = unknown_token(&web, "sess_nobodys");
    assert_eq!(refused(&web, "sess_nobodys", &nobodys).await, "session_not_found");
    assert_eq!(refused(&web, &id, &unknown_token(&web, &id)).await, "token_mismatch");
    web.request("DELETE", &format!("/api/sessions/{other}")).send().await.expect(200);
    assert_eq!(refused(&web, &other, &others).await, "session_already_disconnected");
    later(16 * MINUTE).await;
    assert_eq!(refused(&web, &id, &token).await, "token_expired");
    assert_eq!(
        refused(&web, &other, &token).await,
        "token_expired",
        "before the session is looked at"
    );
}

#[tokio::test]
async fn a_session_whose_time_ran_out_is_expired_to_a_token_that_outlived_it() {
    let mut setup = Setup::open();
    setup.sessions.session.token_ttl = 100 * HOUR;
    let web = setup.start().await;
    let (id, token) = web.create().await;
    later(25 * HOUR).await;
    assert_eq!(refused(&web, &id, &token).await, "session_expired");
}

#[tokio::test]
async fn a_foreign_session_is_unknown_even_with_its_token() {
    let web = Setup::keyed().start().await;
    let (id, token) = web.create_by("alice").await;
    let answer = web.presenting(&id, &token).by("bob").send().await.expect(401);
    assert_eq!(answer["reason"], "session_not_found");
    let answer = web.presenting(&id, &token).by("admin").send().await.expect(401);
    assert_eq!(
        answer["reason"], "session_not_found",
        "an administrator comes back to its own only"
    );
    web.presenting(&id, &token).by("alice").send().await.expect(200);
}

#[tokio::test]
async fn of_twenty_uses_at_once_all_get_the_same_answer_and_one_counts() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let uses = (0..20).map(|_| web.presenting(&id, &token).send());
    let answers = futures_util::future::join_all(uses).await;
    let first = answers[0].expect(200);
    assert_eq!(first["reconnect_count"], 1);
    for answer in &answers {
        assert_eq!(answer.expect(200), first);
    }
    assert_eq!(
        web.reconnect(&id, &word(&first["reconnect_token"])).await.expect(200)["reconnect_count"],
        2
    );
}

#[tokio::test]
async fn a_lost_reply_is_given_again_and_any_other_reuse_revokes_all_tokens() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    let first = web.reconnect(&id, &token).await.expect(200);
    later(9 * SECOND).await;
    assert_eq!(web.reconnect(&id, &token).await.expect(200), first);
    later(2 * SECOND).await;
    assert_eq!(refused(&web, &id, &token).await, "token_reused");
    let next = word(&first["reconnect_token"]);
    assert_eq!(refused(&web, &id, &next).await, "token_mismatch");
    let trail = reasons(&web, &id).await;
    assert_eq!(trail, ["token_mismatch", "token_reused", "reconnected", "reconnected"]);
}

#[tokio::test]
async fn a_stolen_token_is_known_as_such_although_the_budget_is_spent() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    web.reconnect(&id, &token).await.expect(200);
    later(11 * SECOND).await;
    for _ in 0..10 {
        assert_eq!(refused(&web, &id, "bad").await, "invalid_token");
    }
    web.reconnect(&id, &token).await.expect(429);
    assert_eq!(reasons(&web, &id).await[0], "token_reused");
}

#[tokio::test]
async fn the_eleventh_failure_of_a_minute_waits_and_a_good_token_does_not() {
    let web = Setup::open().start().await;
    let (id, token) = web.create().await;
    for _ in 0..10 {
        assert_eq!(refused(&web, &id, "bad").await, "invalid_token");
    }
    let answer = web.reconnect(&id, "bad").await;
    let body = answer.expect(429);
    assert_eq!(body["reason"], "rate_limited");
    assert_eq!(body["detail"], "Reconnection failed: rate_limited");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&wait), "{wait}");
    web.reconnect(&id, &token).await.expect(200);
    later(7 * SECOND).await;
    assert_eq!(refused(&web, &id, "bad").await, "invalid_token");
}

#[tokio::test]
async fn successes_have_a_rate_of_their_own() {
    let web = Setup::open().start().await;
    let (id, mut token) = web.create().await;
    tokio::time::pause(); // sixty requests take some time on a slow machine, and no budget comes back
    for _ in 0..60 {
        token = word(&web.reconnect(&id, &token).await.expect(200)["reconnect_token"]);
    }
    assert_eq!(web.reconnect(&id, &token).await.expect(429)["reason"], "rate_limited");
}

#[tokio::test]
async fn every_attempt_leaves_one_record_with_its_reason() {
    let web = Setup::keyed().start().await;
    let (id, token) = web.create_by("alice").await;
    web.presenting(&id, &token).by("bob").send().await.expect(401);
    web.presenting(&id, &token).by("alice").send().await.expect(200);
    let trail = async |key: &str, query: &str| {
        web.get(&format!("/api/audit?{query}")).by(key).send().await.expect(200)
    };
    let all = trail("admin", &format!("session_id={id}")).await;
    assert_eq!(all["next"], json!(null));
    let records = all["records"].as_array().unwrap();
    assert_eq!(records.len(), 2);
    let newest = &records[0];
    assert_eq!((&newest["principal"], &newest["reason"]), (&json!("alice"), &json!("reconnected")));
    assert_eq!((&newest["success"], &newest["action"]), (&json!(true), &json!("reconnect")));
    assert_eq!((&newest["address"], &newest["transport"]), (&json!("127.0.0.1"), &json!("http")));
    assert_eq!(newest["session_id"], json!(id));
    assert_eq!((&records[1]["principal"], &records[1]["success"]), (&json!("bob"), &json!(false)));

    let alices = trail("alice", "").await;
    assert_eq!(alices["records"].as_array().unwrap().len(), 1, "others' attempts are not hers");
    let first = trail("admin", "limit=1").await;
    assert_eq!(first["records"][0], *newest);
    let second = trail("admin", &format!("limit=1&before={}", first["next"])).await;
    assert_eq!((&second["records"][0], &second["next"]), (&records[1], &json!(null)));
}

#[tokio::test]
async fn a_store_that_does_not_work_is_nobodys_failure() {
    let store = FailingStore::new();
    let web = Setup { store: store.clone(), ..Setup::open() }.start().await;
    let (id, token) = web.create().await;
    store.break_down();
    let answer = web.reconnect(&id, &token).await;
    let body = answer.expect(503);
    assert_eq!(body["reason"], "database_unavailable");
    assert_eq!(body["detail"], "Reconnection failed: database_unavailable");
    assert!(answer.header("retry-after").is_some());
    let record = web.get(&format!("/api/sessions/{id}")).send().await.expect(503);
    assert_eq!(record["error_code"], "DATABASE_UNAVAILABLE");
}
