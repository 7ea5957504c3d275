//! rmcp's own manager with our stores: what they keep outlives the manager.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::sync::Arc;

use common::{Events, Http, Tools};
use http::StatusCode;
use rejoin_rmcp::store::{MemoryStore, Store};
use rejoin_rmcp::{DurableEventStore, DurableSessionStore, Sessions};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    EventStore as _, ServerSseMessage, SessionStore as _,
};
use serde_json::json;

type Local = Http<StreamableHttpService<Tools, LocalSessionManager>>;

/// A server with rmcp's manager, on what another one may have left in `store`.
fn server(store: &Arc<dyn Store>) -> (Local, Sessions) {
    let sessions = Sessions::builder(Arc::clone(store)).start().unwrap();
    let events = Arc::new(DurableEventStore::new(sessions.clone()));
    let manager = Arc::new(LocalSessionManager::default().with_event_store(events));
    let mut config = StreamableHttpServerConfig::default();
    config.session_store = Some(Arc::new(DurableSessionStore::new(sessions.clone())));
    let service = StreamableHttpService::new(Tools::factory(), manager, config);
    (Http { service, principal: None, header: None }, sessions)
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

#[tokio::test]
async fn a_session_of_rmcps_own_manager_goes_on_in_another_server() {
    let store = memory();
    let (first, _sessions) = server(&store);
    let session = first.begin().await;
    drop(first);
    let (second, sessions) = server(&store);
    let mut events = second.call(&session, 1, "work", json!({})).await;
    assert_eq!(events.result().await["result"]["content"][0]["text"], "run 1");

    let known = DurableSessionStore::new(sessions);
    assert!(known.load(&session).await.unwrap().is_some());
    known.delete(&session).await.unwrap();
    assert!(known.load(&session).await.unwrap().is_none());
    let (third, _sessions) = server(&store);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(third.post(&session, list).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn events_of_rmcps_own_manager_are_there_in_another_server() {
    let store = memory();
    let (first, _sessions) = server(&store);
    let session = first.begin().await;
    let mut events = first.call(&session, 1, "work", json!({ "steps": 2 })).await;
    let place = events.next().await.unwrap().id.unwrap();
    events.result().await;
    drop((events, first));
    let (second, _sessions) = server(&store);
    let mut again = Events::of(second.resume(&session, &place).await);
    let mut messages = Vec::new();
    while let Some(event) = again.next().await {
        messages.push(event.message.unwrap());
    }
    let steps: Vec<_> = messages.iter().map(|said| &said["params"]["progress"]).collect();
    assert_eq!(steps[..2], [&json!(1.0), &json!(2.0)]);
    assert_eq!(messages[2]["result"]["content"][0]["text"], "run 1");
    assert_eq!(messages.len(), 3, "and the stream ended with its answer");
}

#[tokio::test]
async fn streams_do_not_mix_and_ids_of_others_are_refused() {
    let sessions = Sessions::builder(memory()).start().unwrap();
    let events = DurableEventStore::new(sessions);
    let empty = ServerSseMessage::retry(std::time::Duration::from_secs(3));
    let one = events.store_event("session-1:common", &empty).await.unwrap();
    let two = events.store_event("session-2:common", &empty).await.unwrap();
    assert_ne!(one, two);
    let (log, _) = one.rsplit_once('.').unwrap();
    for wrong in
        ["", "1", &format!("{log}.9"), &format!("{log}.0"), &one.replace("stream_", "sess_")]
    {
        assert!(events.replay_events_after(wrong).await.is_err(), "{wrong}");
    }
    assert!(events.replay_events_after(&two).await.is_ok());
}
