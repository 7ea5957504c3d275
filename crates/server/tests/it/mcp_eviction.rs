//! What gives way where a session's log is full or grows old, and what clients are told of it: results go
//! last, and a call whose result is gone ends with an error.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::mcp::{Fake, Peer, call, notification, until_covered};
use crate::common::until;
use crate::common::web::{Setup, Web, later};
use rejoin::core::SessionId;
use rejoin::core::limits::LogBounds;
use rejoin::store::MemoryStore;
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";

async fn serve(fake: &Fake, bounds: LogBounds) -> Web {
    let store = Arc::new(MemoryStore::new(bounds, 100));
    fake.serve(Setup { store, ..Setup::open() }).await
}

async fn record(web: &Web, id: &str) -> rejoin::core::record::Record {
    web.store.session(&SessionId::parse(id).unwrap()).await.unwrap().unwrap()
}

/// Makes call 7, which is answered when nobody is there; says where its stream stood.
async fn answered_while_away(fake: &Fake, web: &Web, peer: &Peer<'_>) -> String {
    let mut asked = peer.call(7, json!({ "gate": "g" })).await;
    let place = asked.next().await.unwrap();
    drop(asked);
    fake.open("g");
    until_covered(web, &peer.session, 3).await;
    place.id
}

#[tokio::test]
async fn a_result_that_was_evicted_ends_its_call_with_32051() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { events: 4, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let place = answered_while_away(&fake, &web, &peer).await;
    for id in 10..15 {
        peer.call(id, json!({})).await.rest().await;
    }
    let mut resumed = peer.resume(&place).stream().await;
    let answer = resumed.answer(7).await;
    assert_eq!(answer["error"]["code"], -32051, "{answer}");
    assert_eq!(resumed.next().await, None);
}

#[tokio::test]
async fn of_several_results_that_were_evicted_none_is_lost_when_the_stream_breaks_between_them() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { events: 4, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, "2025-03-26").await;
    let calls = [7, 8, 9].map(|id| call(id, json!({ "progress": 1, "gate": "g" })));
    let mut asked = peer.post(&Value::from(calls.to_vec())).stream().await;
    let mut place = asked.message().await.id;
    drop(asked);
    fake.open("g");
    until_covered(&web, &peer.session, 5).await;
    for id in 10..15 {
        peer.call(id, json!({})).await.rest().await;
    }
    for id in [7, 8, 9] {
        let gone = peer.resume(&place).stream().await.message().await;
        assert_eq!((&gone.data["id"], &gone.data["error"]["code"]), (&json!(id), &json!(-32051)));
        assert_ne!(gone.id, place);
        place = gone.id;
    }
    assert_eq!(peer.resume(&place).send().await.status, 204);
}

#[tokio::test]
async fn progress_that_was_evicted_is_no_error() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { events: 4, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut asked = peer.call(7, json!({ "progress": 10, "gate": "g" })).await;
    let place = asked.next().await.unwrap();
    drop(asked);
    let head = async || record(&web, &peer.session).await.head.get();
    until(async || head().await == 11).await;
    let mut resumed = peer.resume(&place.id).stream().await;
    assert_eq!(resumed.message().await.data["params"]["progress"], 8);
    fake.open("g");
    assert!(resumed.answer(7).await["result"].is_object());
}

#[tokio::test]
async fn a_result_outlives_a_flood_of_progress() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { events: 8, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let place = answered_while_away(&fake, &web, &peer).await;
    peer.call(8, json!({ "progress": 50 })).await.rest().await;
    assert!(record(&web, &peer.session).await.oldest.get() > 40, "the log is over its bounds");
    for _ in 0..2 {
        let mut resumed = peer.resume(&place).stream().await;
        assert!(resumed.answer(7).await["result"].is_object());
        assert_eq!(resumed.next().await, None);
    }
}

#[tokio::test]
async fn a_large_flood_does_not_push_a_result_out_either() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { bytes: 20_000, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let place = answered_while_away(&fake, &web, &peer).await;
    let noise = json!({
        "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": "x".repeat(3_000) }
    });
    peer.call(8, json!({ "say": vec![noise; 40] })).await.rest().await;
    let mut resumed = peer.resume(&place).stream().await;
    assert!(resumed.answer(7).await["result"].is_object());
}

#[tokio::test]
async fn a_question_of_the_server_outlives_a_flood_of_progress() {
    let fake = Fake::new();
    let web = serve(&fake, LogBounds { events: 8, ..LogBounds::default() }).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut asked = peer.call(7, json!({ "ask": "q" })).await;
    let place = asked.next().await.unwrap();
    let head = record(&web, &peer.session).await.head;
    drop(asked);
    until(async || record(&web, &peer.session).await.head > head).await;
    peer.call(8, json!({ "progress": 50 })).await.rest().await;
    let mut resumed = peer.resume(&place.id).stream().await;
    let question = resumed.message().await.data;
    assert_eq!(question["method"], "sampling/createMessage", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "said": "yes" } });
    assert_eq!(peer.post(&answer).send().await.status, 202);
    let result = resumed.answer(7).await;
    assert!(result["result"]["content"][0]["text"].as_str().unwrap().contains("yes"), "{result}");
}

#[tokio::test]
async fn a_result_is_kept_for_result_retention_however_often_it_is_fetched() {
    let fake = Fake::new();
    let minute = Duration::from_secs(60);
    let bounds = LogBounds { result_retention: minute, ..LogBounds::default() };
    let web = serve(&fake, bounds).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let place = answered_while_away(&fake, &web, &peer).await;
    for _ in 0..2 {
        let answer = peer.resume(&place).stream().await.answer(7).await;
        assert!(answer["result"].is_object());
        later(minute / 3).await;
    }
    later(minute).await;
    until(async || record(&web, &peer.session).await.held() == 0).await;
    let mut resumed = peer.resume(&place).stream().await;
    let answer: Value = resumed.answer(7).await;
    assert_eq!(answer["error"]["data"]["reason"], "result_evicted", "{answer}");
    assert_eq!(resumed.next().await, None);
    let ready = peer.post(&notification("notifications/initialized")).send().await;
    assert_eq!(ready.status, 202, "the session goes on");
}
