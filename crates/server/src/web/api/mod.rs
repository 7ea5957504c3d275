//! Sessions over HTTP. The same resources are under `/api/sessions…` and, by the names that seed 000
//! gave them, under `/api/mcp/sessions…`.
//!
//! | file | paths |
//! |---|---|
//! | `records.rs` | `/sessions`, `/sessions/{id}`, `…/health`, `…/disconnect`, `…/restart` |
//! | `listing.rs` | `/sessions`, `/sessions/active` |
//! | `search.rs` | `/sessions/search` |
//! | `timeline.rs` | `…/timeline` |
//! | `tokens.rs` | `…/token`, `…/reconnect` |
//! | `events.rs`, `stream.rs` | `…/events` |
//! | `messages.rs` | `…/messages`, `…/state` |
//! | `audit.rs` | `/audit` |
//! | `overview.rs` | `/overview` |
//! | `openapi/` | `/openapi.json`, which describes all of them |
//!
//! How a request is read is in `request.rs`. Who may do what is for the service to say; which status
//! a failure gets, for `answer.rs`.

mod audit;
mod events;
mod listing;
mod messages;
mod openapi;
mod overview;
mod records;
mod request;
mod search;
mod stream;
mod timeline;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use rejoin_core::Timestamp;
use rejoin_core::record::Record;
use serde_json::Value;

use super::Front;
use super::answer::{Failure, refuse};

/// Where the session resources are.
const PLACES: [&str; 2] = ["/api/sessions", "/api/mcp/sessions"];

/// A session as it is shown to those who look after the server: under its id.
pub(super) fn record_view(record: &Record, now: Timestamp) -> Value {
    serde_json::to_value(records::RecordView::called(record.id().as_str(), record, now))
        .unwrap_or_default()
}

/// Everything below `/api`. Bodies over `max_body_bytes` are refused.
pub(super) fn routes(max_body_bytes: usize) -> Router<Arc<Front>> {
    let mut router = Router::new();
    for place in PLACES {
        for (path, methods) in session_routes() {
            router = router.route(&format!("{place}{path}"), methods);
        }
    }
    for (path, methods) in other_routes() {
        router = router.route(path, methods);
    }
    for path in ["/api", "/api/", "/api/{*rest}"] {
        router = router.route(path, any(unknown_path));
    }
    router
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .layer(map_response(keep_out_of_caches))
}

/// What there is at each of [`PLACES`].
fn session_routes() -> [(&'static str, MethodRouter<Arc<Front>>); 13] {
    [
        ("", get(listing::list).post(records::create)),
        ("/active", get(listing::list_active)),
        ("/search", get(search::search)),
        ("/{id}", get(records::one).delete(records::end)),
        ("/{id}/health", get(records::health)),
        ("/{id}/timeline", get(timeline::read)),
        ("/{id}/disconnect", post(records::disconnect)),
        ("/{id}/restart", post(records::restart)),
        ("/{id}/token", get(tokens::issue).post(tokens::issue)),
        ("/{id}/reconnect", post(tokens::reconnect)),
        ("/{id}/events", get(events::read).post(events::publish)),
        ("/{id}/messages", get(messages::read).post(messages::send)),
        ("/{id}/state", post(messages::export)),
    ]
}

fn other_routes() -> [(&'static str, MethodRouter<Arc<Front>>); 3] {
    [
        ("/api/audit", get(audit::read)),
        ("/api/overview", get(overview::read)),
        ("/api/openapi.json", get(openapi::serve)),
    ]
}

async fn unknown_path() -> Failure {
    refuse(StatusCode::NOT_FOUND, "There is nothing here; /api/openapi.json lists what there is")
}

async fn wrong_method() -> Failure {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "This path does not take that method; see Allow")
}

/// Answers hold credentials, or what will be out of date at once: no cache may keep any.
async fn keep_out_of_caches(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
