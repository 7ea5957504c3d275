//! What rmcp's manager gets wrong on the wire, request by request, and what ours does instead.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::sync::Arc;

use common::{Events, Http, Tools, World};
use futures_util::StreamExt as _;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use rejoin_rmcp::DurableSessionManager;
use rejoin_rmcp::core::record::{Ending, Status};
use rejoin_rmcp::store::MemoryStore;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, InitializeRequestParams, InitializeResult};
use rmcp::service::RequestContext;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};

type Local = Http<StreamableHttpService<Tools, LocalSessionManager>>;

fn local() -> Local {
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(Tools::factory(), Arc::default(), config);
    Http { service, principal: None, header: None }
}

/// The steps that a stream reports before its answer.
async fn steps(events: &mut Events) -> Vec<u64> {
    let mut steps = Vec::new();
    loop {
        let message = events.message().await.message.unwrap();
        match message["params"]["progress"].as_f64() {
            Some(step) => steps.push(step as u64),
            None => return steps,
        }
    }
}

#[tokio::test]
async fn what_is_resumed_lies_strictly_after_the_event_that_is_named() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let mut events =
        world.http.call(&session, 1, "work", json!({ "seconds": 1, "steps": 3 })).await;
    let first = events.message().await;
    drop(events);
    let mut again = Events::of(world.http.resume(&session, &first.id.unwrap()).await);
    assert_eq!(steps(&mut again).await, [2, 3]);
}

#[tokio::test]
async fn rmcps_own_manager_sends_the_event_that_is_named_once_more() {
    let http = local();
    let session = http.begin().await;
    let mut events = http.call(&session, 1, "work", json!({ "seconds": 1, "steps": 3 })).await;
    let first = events.message().await;
    drop(events);
    let mut again = Events::of(http.resume(&session, &first.id.unwrap()).await);
    assert_eq!(steps(&mut again).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_resume_that_can_bring_nothing_is_answered_so() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let mut events = world.http.call(&session, 1, "work", json!({})).await;
    let mut last = events.next().await.unwrap();
    while let Some(event) = events.next().await {
        last = event;
    }
    let finished = world.http.resume(&session, &last.id.clone().unwrap()).await;
    assert_eq!(finished.status(), StatusCode::NO_CONTENT, "everything has been sent");

    let malformed = world.http.resume(&session, "0").await;
    assert_eq!(malformed.status(), StatusCode::BAD_REQUEST);
    let body = malformed.into_body().collect().await.unwrap().to_bytes();
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("Last-Event-ID"), "{error}");

    let other = world.http.begin().await;
    let foreign = world.http.resume(&other, &last.id.unwrap()).await;
    assert_eq!(foreign.status(), StatusCode::BAD_REQUEST, "an id of another session");
    let unknown = world.http.resume("sess_of_nobody", "0").await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn rmcps_own_manager_answers_a_resume_that_brings_nothing_with_an_empty_stream() {
    let http = local();
    let session = http.begin().await;
    let mut events = http.call(&session, 1, "work", json!({})).await;
    let mut last = events.next().await.unwrap();
    while let Some(event) = events.next().await {
        last = event;
    }
    for place in [last.id.as_deref().unwrap(), "no place at all"] {
        let answer = http.resume(&session, place).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(Events::of(answer).next().await.is_none(), "and nothing in it");
    }
}

#[tokio::test]
async fn a_session_is_its_owners_alone() {
    let world = World::new(|builder| builder);
    let (alice, mallory) = (world.http.of("alice"), world.http.of("mallory"));
    let session = alice.begin().await;
    let mut events = alice.call(&session, 1, "work", json!({})).await;
    let place = events.next().await.unwrap().id.unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    for http in [&mallory, &world.http] {
        assert_eq!(http.post(&session, list.clone()).await.status(), StatusCode::NOT_FOUND);
        assert_eq!(http.resume(&session, &place).await.status(), StatusCode::NOT_FOUND);
        let delete = http.ask(Method::DELETE, Some(&session), None, None).await;
        assert_eq!(delete.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(alice.post(&session, list).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn delete_ends_a_session_and_its_handler() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    assert_eq!(world.manager.handlers(), 1);
    let deleted = world.http.ask(Method::DELETE, Some(&session), None, None).await;
    assert_eq!(deleted.status(), StatusCode::ACCEPTED);
    let status = world.record(&session).await.unwrap().status;
    assert!(matches!(status, Status::Ended { ending: Ending::Closed, .. }), "{status:?}");
    common::until("the handler has ended", async || world.manager.handlers() == 0).await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(world.http.post(&session, list).await.status(), StatusCode::NOT_FOUND);
}

/// Wants nobody.
struct Refuses;

impl ServerHandler for Refuses {
    async fn initialize(
        &self,
        _: InitializeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        Err(ErrorData::invalid_request("not today", None))
    }
}

#[tokio::test]
async fn a_session_that_never_begins_leaves_nothing_behind() {
    let manager = DurableSessionManager::builder(Arc::new(MemoryStore::default())).start().unwrap();
    let manager = Arc::new(manager);
    let config = StreamableHttpServerConfig::default();
    let service = rejoin_rmcp::service(|| Ok(Refuses), Arc::clone(&manager), config);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "a test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let http = Http { service, principal: None, header: None };
    let answer = http.ask(Method::POST, None, None, Some(hello)).await;
    assert_eq!(Events::of(answer).result().await["error"]["message"], "not today");
    let store = manager.sessions().store();
    common::until("nothing is left", async || {
        manager.handlers() == 0 && store.count(None).await.unwrap() == 0
    })
    .await;
}

#[tokio::test]
async fn clients_of_older_revisions_get_no_empty_events() {
    let world = World::new(|builder| builder);
    let session = world.http.begin_as("2025-06-18").await;
    let mut events = world.http.call(&session, 1, "work", json!({ "steps": 1 })).await;
    while let Some(event) = events.next().await {
        assert!(event.message.is_some() && event.id.is_some(), "{event:?}");
    }
    let session = world.http.begin().await;
    let mut events = world.http.call(&session, 1, "work", json!({})).await;
    let first = events.next().await.unwrap();
    assert!(first.message.is_none() && first.id.is_some(), "{first:?}");
}

/// The older one is told to stay away, so that the two never take the stream from each other in turn.
#[tokio::test]
async fn of_two_streams_of_one_session_the_newer_wins_and_the_older_stays_away() {
    let world = World::new(|builder| builder);
    for revision in ["2025-06-18", "2025-11-25"] {
        let session = world.http.begin_as(revision).await;
        let older = world.http.listen(&session).await;
        common::until("it is read", async || world.is_attached(&session).await).await;
        let mut newer = world.http.listen(&session).await;
        let told = older.rest().await;
        assert!(told.ends_with("retry: 3600000\n\n"), "{revision}: {told:?}");
        assert!(!told.contains("data: \nretry") && !told.contains("3600000\ndata"), "{told:?}");
        world.http.call(&session, 1, "announce", json!({})).await.result().await;
        let message = newer.message().await.message.unwrap();
        assert_eq!(message["method"], "notifications/tools/list_changed", "{revision}");
    }
}

#[tokio::test]
async fn a_page_of_a_stranger_is_not_served() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let names = [
        ("origin", "http://evil.example", false),
        ("origin", "null", false),
        ("origin", "http://localhost.evil.example:3000", false),
        ("host", "evil.example", false),
        ("origin", "http://localhost:6274", true),
        ("origin", "https://[::1]:1", true),
    ];
    for (name, value, served) in names {
        let http = world.http.with_header(name, value);
        let post = http.post(&session, list.clone()).await.status();
        let expected = if served { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(post, expected, "{name}: {value}");
        if !served {
            let get = http.ask(Method::GET, Some(&session), None, None).await;
            let delete = http.ask(Method::DELETE, Some(&session), None, None).await;
            assert_eq!((get.status(), delete.status()), (expected, expected), "{name}: {value}");
        }
    }
    assert!(world.is_alive(&session).await);
}

#[tokio::test]
async fn what_belongs_to_no_call_waits_for_whoever_listens() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let listening = world.http.listen(&session).await;
    common::until("it is read", async || world.is_attached(&session).await).await;
    let mut events = world.http.call(&session, 1, "announce", json!({})).await;
    assert_eq!(events.result().await["result"]["content"][0]["text"], "announced");
    drop(listening);
    let mut listening = world.http.listen(&session).await;
    let message = listening.message().await.message.unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_cancelled_call_ends_without_an_answer() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let mut events = world.http.call(&session, 1, "work", json!({ "seconds": 3_600 })).await;
    let place = events.next().await.unwrap().id.unwrap();
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": 1 } });
    assert_eq!(world.http.post(&session, cancel).await.status(), StatusCode::ACCEPTED);
    assert!(events.next().await.is_none());
    let again = world.http.resume(&session, &place).await;
    assert_eq!(again.status(), StatusCode::NO_CONTENT, "nobody asks for ever");
}

#[tokio::test]
async fn a_request_id_that_is_under_way_is_not_taken_twice() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let _events = world.http.call(&session, 1, "work", json!({ "seconds": 3_600 })).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let refused = world.http.post(&session, list).await;
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(world.is_alive(&session).await);
}

#[tokio::test]
async fn a_call_whose_handler_ends_is_told_so_and_the_session_goes_on() {
    let world = World::new(|builder| builder);
    let manager = &world.manager;
    let message =
        |message: Value| -> ClientJsonRpcMessage { serde_json::from_value(message).unwrap() };
    let (id, transport) = manager.create_session().await.unwrap();
    let handler = Tools::factory()().unwrap();
    let serving = tokio::spawn(async { rmcp::serve_server(handler, transport).await.unwrap() });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "a test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    manager.initialize_session(&id, message(hello)).await.unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    manager.accept_message(&id, message(ready)).await.unwrap();
    let handler = serving.await.unwrap();
    let params = json!({ "name": "work", "arguments": { "seconds": 3_600 } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let stream = manager.create_stream(&id, message(call)).await.unwrap();
    handler.cancel().await.unwrap();
    let events: Vec<_> = stream.collect().await;
    let answer = events.last().and_then(|event| event.message.as_deref()).unwrap();
    let answer = serde_json::to_value(answer).unwrap();
    assert_eq!(answer["error"]["code"], -32050, "{answer}");

    let mut events = world.http.call(&id, 2, "work", json!({})).await;
    assert_eq!(events.result().await["result"]["content"][0]["text"], "run 1");
}
