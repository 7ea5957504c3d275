//! Every route and every frame that can change something has a test here. The routes are asked from the router and the frames
//! are read from its source, so one that is added without a test fails.

use std::collections::BTreeSet;
use std::path::Path;

use axum::body::to_bytes;

use crate::abandonment::world::{World, request};
use crate::abandonment::{api, frames, mcp};

type Test = fn();

/// Routes that change something, each with a test that abandons it.
const ROUTES: [(&str, Test); 15] = [
    ("POST /api/sessions", api::a_session_is_made_with_its_token_or_not_at_all),
    ("DELETE /api/sessions/{id}", api::a_session_that_is_ended_is_ended_for_everybody),
    (
        "POST /api/sessions/{id}/disconnect",
        api::a_session_that_is_cut_is_parked_and_the_hook_is_asked,
    ),
    ("POST /api/sessions/{id}/restart", api::an_agent_that_is_restarted_is_replaced_by_one),
    ("GET /api/sessions/{id}/token", api::a_token_that_is_issued_is_known_and_nothing_else_changes),
    (
        "POST /api/sessions/{id}/token",
        api::a_token_that_is_issued_is_known_and_nothing_else_changes,
    ),
    ("POST /api/sessions/{id}/reconnect", api::a_token_that_is_used_is_in_the_audit_trail),
    ("POST /api/sessions/{id}/events", api::what_is_published_is_told_to_who_is_attached),
    ("POST /api/sessions/{id}/messages", api::a_message_that_is_entered_reaches_the_agent),
    ("POST /api/sessions/{id}/state", api::a_state_that_is_exported_changes_nothing),
    ("POST /mcp", mcp::a_call_that_is_abandoned_leaves_its_session_parked),
    ("GET /mcp", mcp::a_stream_that_is_abandoned_leaves_its_session_parked),
    ("DELETE /mcp", mcp::a_session_that_is_deleted_is_ended_for_everybody),
    ("GET /sse", mcp::an_sse_stream_that_is_abandoned_leaves_its_session_parked),
    ("POST /message", mcp::a_posted_message_is_entered_or_not),
];

/// Routes that only read, or whose frames are [`FRAMES`].
const READS: [&str; 12] = [
    "GET /api/audit",
    "GET /api/openapi.json",
    "GET /api/overview",
    "GET /api/sessions",
    "GET /api/sessions/active",
    "GET /api/sessions/search",
    "GET /api/sessions/{id}",
    "GET /api/sessions/{id}/events",
    "GET /api/sessions/{id}/health",
    "GET /api/sessions/{id}/messages",
    "GET /api/sessions/{id}/timeline",
    "GET /metrics",
];

/// Frames, each with a test that abandons it.
const FRAMES: [(&str, Option<Test>); 9] = [
    ("user.authenticate", None), // it changes the connection only
    (
        "user.create_session",
        Some(frames::a_session_that_is_created_is_parked_when_its_client_has_gone),
    ),
    (
        "user.reconnect",
        Some(frames::a_session_that_is_reconnected_to_is_parked_when_its_client_has_gone),
    ),
    (
        "user.reconnect_with_state",
        Some(frames::a_session_that_is_restored_is_parked_when_its_client_has_gone),
    ),
    ("user.request_state", Some(frames::an_ack_is_kept_or_not_and_a_state_changes_nothing)),
    ("user.message", Some(frames::a_message_that_is_entered_reaches_the_agent)),
    ("user.cancel", Some(frames::a_cancel_is_entered_or_not)),
    ("user.ack", Some(frames::an_ack_is_kept_or_not_and_a_state_changes_nothing)),
    ("user.end_session", Some(frames::a_session_that_is_ended_is_ended_for_everybody)),
];

#[tokio::test(start_paused = true)]
async fn every_route_that_changes_something_is_abandoned_in_a_test() {
    let world = World::new();
    let mut there = BTreeSet::new();
    for path in paths(&world).await {
        for method in methods(&world, &path).await {
            there.insert(format!("{method} {path}"));
        }
    }
    let listed = ROUTES.iter().map(|(route, _)| *route).chain(READS);
    assert_eq!(there, listed.map(str::to_owned).collect());
}

/// The paths of the OpenAPI document, under the first of their names, and those that stand in the router's source.
async fn paths(world: &World) -> BTreeSet<String> {
    let document = world.call(request("GET", "/api/openapi.json", "")).await;
    let document = to_bytes(document.into_body(), usize::MAX).await.unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let described = document["paths"].as_object().unwrap().keys().cloned();
    let mut paths: BTreeSet<_> = described.chain(routed(&source("web"))).collect();
    paths.retain(|path| !path.starts_with("/api/mcp/") && path != "/ws");
    paths
}

/// What stands behind `.route(`.
fn routed(source: &str) -> Vec<String> {
    let arguments = source.split(".route(").skip(1).filter_map(|call| call.split_once(','));
    let path = |(argument, _): (&str, _)| match argument {
        "BEGIN" => Some("/sse".to_owned()),
        "path" | "&format!(\"{place}{path}\")" => None, // of the OpenAPI document
        literal => Some(literal.trim_matches('"').to_owned()),
    };
    arguments.filter_map(path).collect()
}

/// The methods that a path takes, as the router says when it is asked with another.
async fn methods(world: &World, path: &str) -> Vec<String> {
    let path = path.replace("{id}", "x");
    let refused = world.call(request("TRACE", &path, "")).await;
    assert_eq!(refused.status(), 405, "{path}");
    let allowed = refused.headers()["allow"].to_str().unwrap().to_owned();
    let methods = allowed.split(',').map(str::to_owned);
    methods.filter(|method| method != "HEAD").collect()
}

#[test]
fn every_frame_that_changes_something_is_abandoned_in_a_test() {
    let source = std::fs::read_to_string(sources().join("web/ws/frames.rs")).unwrap();
    let code = source.split("#[cfg(test)]").next().unwrap();
    let arms = code.split("\"user.").skip(1).filter_map(|rest| rest.split_once('"'));
    let there: BTreeSet<_> = arms.map(|(name, _)| format!("user.{name}")).collect();
    assert_eq!(there, FRAMES.iter().map(|(name, _)| (*name).to_owned()).collect());
}

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// All source below a directory.
fn source(directory: &str) -> String {
    let mut text = String::new();
    let mut left = vec![sources().join(directory)];
    while let Some(path) = left.pop() {
        match path.is_dir() {
            true => {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()))
            }
            false => text.push_str(&std::fs::read_to_string(&path).unwrap()),
        }
    }
    text
}
