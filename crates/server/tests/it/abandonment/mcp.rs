//! MCP: sessions that begin, calls, streams and their end.

use axum::body::Body;
use axum::http::Request;
use rejoin::core::SessionId;
use rejoin::store::Store as _;
use serde_json::{Value, json};

use crate::abandonment::world::{World, at_each_await, request};
use crate::common::{MINUTE, pass, until};

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_begins_with_its_handshake_or_not_at_all() {
    at_each_await(async |world, polls| {
        let answered = world.request(initialize(), polls).await;
        all_is_well(&world).await;
        for record in world.sessions().await {
            assert!(record.in_head.get() > 0, "a session without a handshake");
        }
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_call_that_is_abandoned_leaves_its_session_parked() {
    at_each_await(async |world, polls| {
        let id = begun(&world).await;
        let call = json!({
            "jsonrpc": "2.0", "id": 7, "method": "tools/list",
        });
        let answered = world.request(post(&id, &call), polls).await;
        all_is_well(&world).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_stream_that_is_abandoned_leaves_its_session_parked() {
    at_each_await(async |world, polls| {
        let id = begun(&world).await;
        let first = world.call(stream(&id)).await; // another one replaces it
        assert_eq!(first.status(), 200);
        let answered = world.request(stream(&id), polls).await;
        world.settles().await;
        // A stream that is open keeps its session attached, whoever wanted to replace it.
        pass(MINUTE).await;
        assert!(world.record(&id).await.attached.is_some() || answered.is_some());
        drop(first);
        all_is_well(&world).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_deleted_is_ended_for_everybody() {
    at_each_await(async |world, polls| {
        let id = begun(&world).await;
        let mut delete = request("DELETE", "/mcp", "");
        delete.headers_mut().insert("mcp-session-id", id.as_str().parse().unwrap());
        let answered = world.request(delete, polls).await;
        world.settles().await;
        let ended = !world.record(&id).await.is_active();
        assert_eq!(world.hook.times("closed", &id), usize::from(ended));
        if ended {
            until(async || world.service.sessions().live() == 0).await;
        }
        assert!(ended || answered.is_none());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn an_sse_stream_that_is_abandoned_leaves_its_session_parked() {
    at_each_await(async |world, polls| {
        let mut open = request("GET", "/sse", "");
        open.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        let answered = world.request(open, polls).await;
        all_is_well(&world).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_posted_message_is_entered_or_not() {
    at_each_await(async |world, polls| {
        let mut open = request("GET", "/sse", "");
        open.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        let stream = world.call(open).await;
        let id = world.sessions().await[0].id().clone();
        let path = format!("/message?sessionId={id}");
        let answered = world.request(request("POST", &path, hello().to_string()), polls).await;
        world.settles().await;
        let entered = world.record(&id).await.in_head.get();
        assert!(entered == 1 || (entered == 0 && answered.is_none()), "{entered}");
        drop(stream);
        all_is_well(&world).await;
        answered.is_some()
    })
    .await;
}

/// A stateless client, whose upstream session is made for it.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_stateless_request_that_is_abandoned_leaves_its_session_parked() {
    at_each_await(async |world, polls| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let discover = json!({
            "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta },
        });
        let mut discover = with_accept(request("POST", "/mcp", discover.to_string()));
        let headers = discover.headers_mut();
        headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        headers.insert("mcp-method", "server/discover".parse().unwrap());
        let answered = world.request(discover, polls).await;
        assert!(answered.is_none_or(|status| status == 200), "{answered:?}");
        all_is_well(&world).await;
        answered.is_some()
    })
    .await;
}

/// Whatever sessions there are: the hook knows them, and once their streams are gone nobody is attached.
async fn all_is_well(world: &World) {
    world.settles().await;
    world.hook_knows_all().await;
    for record in world.sessions().await {
        world.is_left(record.id()).await;
        // A stream that replaces another one is attached again, and both go once.
        let attached = world.hook.times("attached", record.id()) > 0;
        until(async || attached == (world.hook.times("disconnected", record.id()) > 0)).await;
    }
    assert_eq!(world.store.count(None).await, Ok(world.sessions().await.len()));
}

/// A session whose server is ready.
async fn begun(world: &World) -> SessionId {
    let response = world.call(initialize()).await;
    assert_eq!(response.status(), 200);
    let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let id = SessionId::parse(&id).unwrap();
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap(); // all of its stream
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(world.call(post(&id, &ready)).await.status(), 202);
    world.is_left(&id).await;
    id
}

fn hello() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn initialize() -> Request<Body> {
    with_accept(request("POST", "/mcp", hello().to_string()))
}

fn post(id: &SessionId, message: &Value) -> Request<Body> {
    let mut post = with_accept(request("POST", "/mcp", message.to_string()));
    post.headers_mut().insert("mcp-session-id", id.as_str().parse().unwrap());
    post
}

fn stream(id: &SessionId) -> Request<Body> {
    let mut get = with_accept(request("GET", "/mcp", ""));
    get.headers_mut().insert("mcp-session-id", id.as_str().parse().unwrap());
    get
}

fn with_accept(mut request: Request<Body>) -> Request<Body> {
    let accept = "application/json, text/event-stream".parse().unwrap();
    request.headers_mut().insert("accept", accept);
    request
}
