//! Every event has an id that no other event of its session has, also those that stand in no log.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::http::SentEvent;
use crate::common::mcp::{Fake, Peer, call, posting};
use crate::common::web::Setup;
use rejoin::core::limits::LogBounds;
use rejoin::store::MemoryStore;
use serde_json::json;

const NEWEST: &str = "2025-11-25";
const WITH_BATCHES: &str = "2025-03-26";

fn all_differ<'a>(ids: impl IntoIterator<Item = &'a String>) -> bool {
    let mut seen = HashSet::new();
    ids.into_iter().all(|id| !id.is_empty() && seen.insert(id.clone()))
}

fn ids(events: &[SentEvent]) -> impl Iterator<Item = &String> {
    events.iter().map(|event| &event.id)
}

#[tokio::test]
async fn calls_that_end_with_their_session_are_answered_under_an_id_each() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    let calls =
        json!([call(1, json!({ "gate": "never" })), call(2, json!({ "gate": "not-ever" }))]);
    let mut asked = peer.post(&calls).stream().await;
    fake.until_told("not-ever").await;
    assert_eq!(peer.delete().send().await.status, 204);
    let answers = asked.rest().await;
    let codes: Vec<_> = answers.iter().map(|event| &event.data["error"]["code"]).collect();
    assert_eq!(codes, [-32001, -32001]);
    assert!(all_differ(ids(&answers)), "{answers:?}");
}

/// Nothing remembers them, so they come in one piece: no connection can break between them.
#[tokio::test]
async fn all_that_is_refused_of_a_batch_is_answered_in_one_event() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, WITH_BATCHES).await;
    let large = |id: u64| call(id, json!({ "gate": "g", "much": "x".repeat(3 << 19) }));
    let mut asked = peer.post(&json!([large(1), large(2), large(3), large(4)])).stream().await;
    let refused = asked.next().await.unwrap();
    let told: Vec<_> = refused.data.as_array().unwrap().iter().map(|told| &told["id"]).collect();
    assert_eq!(told, [3, 4]);
    drop(asked);
    fake.open("g");
    let answers = peer.resume(&refused.id).stream().await.rest().await;
    let told: HashSet<_> = answers.iter().map(|event| event.data["id"].as_u64()).collect();
    assert_eq!(told, HashSet::from([Some(1), Some(2)]));
    assert!(all_differ(ids(&answers).chain([&refused.id])), "{answers:?}");
}

#[tokio::test]
async fn a_stream_that_is_gone_on_with_begins_with_an_id_of_its_own() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut places = vec![peer.call(1, json!({ "gate": "g" })).await.next().await.unwrap().id];
    for _ in 0..2 {
        let last = places.last().unwrap();
        places.push(peer.resume(last).stream().await.next().await.unwrap().id);
    }
    fake.open("g");
    let answer = peer.resume(places.last().unwrap()).stream().await.message().await;
    assert_eq!(answer.data["id"], 1);
    places.push(answer.id);
    for _ in 0..2 {
        places.push(peer.get().stream().await.next().await.unwrap().id);
    }
    places.push(peer.resume(places.last().unwrap()).stream().await.next().await.unwrap().id);
    assert!(all_differ(&places), "{places:?}");
}

/// The stream of the oldest revision begins with an address, and says when something is gone.
#[tokio::test]
async fn over_the_oldest_revision_what_stands_in_no_log_has_an_id_of_its_own_too() {
    let fake = Fake::new();
    let store = Arc::new(MemoryStore::new(LogBounds { events: 4, ..LogBounds::default() }, 100));
    let web = fake.serve(Setup { store, ..Setup::open() }).await;
    let first = web.get("/sse").stream().await.next().await.unwrap();
    let (_, session) = first.text.split_once('=').unwrap();
    let again = || web.get("/sse").header("x-session-id", session);
    let second = again().header("last-event-id", &first.id).stream().await.next().await.unwrap();

    posting(web.post(&first.text), &call(1, json!({ "progress": 20 }))).send().await;
    fake.until_told("tools/call").await;
    let mut third = again().header("last-event-id", &second.id).stream().await;
    let mut events = vec![first, second];
    while events.last().is_none_or(|event| event.data["id"] != 1) {
        events.push(third.next().await.unwrap());
    }
    let tells_of_a_gap = |event: &SentEvent| event.text.contains("no longer kept");
    assert!(events.iter().any(tells_of_a_gap), "some are gone: {events:?}");
    assert!(all_differ(ids(&events)), "{events:?}");
}
