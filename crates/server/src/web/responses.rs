//! Counts responses by kind of route and status: rejections at the gate too.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use crate::sessions::Sessions;

/// Counts the responses of a router's routes in the metrics of these sessions. [`router`](super::router) counts
/// its own; this is for routes beside it.
pub fn count_responses(router: Router, sessions: &Sessions) -> Router {
    router.layer(from_fn_with_state(sessions.clone(), count))
}

async fn count(State(sessions): State<Sessions>, request: Request, next: Next) -> Response {
    let route = kind_of_route(request.uri().path());
    let response = next.run(request).await;
    sessions.counted().responded(route, response.status().as_u16());
    response
}

/// What the first part of a path says. Paths come from strangers, so there are only these.
fn kind_of_route(path: &str) -> &'static str {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "ws" => "ws",
        "mcp" => "mcp",
        "sse" | "message" => "sse",
        "api" => "api",
        "metrics" => "metrics",
        "healthz" | "readyz" => "health",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_one_of_a_few_kinds() {
        for (path, kind) in [
            ("/ws", "ws"),
            ("/mcp", "mcp"),
            ("/mcp/files", "mcp"),
            ("/message", "sse"),
            ("/api/sessions/sess_1/events", "api"),
            ("/readyz", "health"),
            ("/", "other"),
            ("/apix", "other"),
        ] {
            assert_eq!(kind_of_route(path), kind, "{path}");
        }
    }
}
