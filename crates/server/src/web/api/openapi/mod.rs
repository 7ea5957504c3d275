//! The OpenAPI document of everything below `/api`, put together from a table of calls. It is written
//! by hand; tests compare its paths and methods with the router's, and `scripts/schemathesis` compares
//! what it says with what the server does.

mod calls;
mod looking;
mod schemas;

use axum::Json;
use serde_json::{Map, Value, json};

use self::calls::{ApiCall, Body, Parameter};

/// Statuses that any call may be answered with: a Host or parameter that is wrong, a caller that is
/// unknown or not allowed, a server that is full, going down or without its store.
const ANY_CALL: [u16; 4] = [400, 401, 403, 503];

/// `GET /openapi.json`.
pub(super) async fn serve() -> Json<Value> {
    Json(document())
}

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for place in super::PLACES {
        for call in calls::of_sessions() {
            add(&mut paths, &format!("{place}{}", call.path), &call);
        }
    }
    for call in calls::others() {
        add(&mut paths, call.path, &call);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Rejoin",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Sessions that outlive connections. `/api/sessions…` and \
                            `/api/mcp/sessions…` are the same resources.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        // With authentication off no credential is asked for.
        "security": [{}, { "bearer": [] }, { "api_key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "api_key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn add(paths: &mut Map<String, Value>, path: &str, call: &ApiCall) {
    let item = paths.entry(path).or_insert_with(|| json!({}));
    item[call.method] = operation(path, call);
}

fn operation(path: &str, call: &ApiCall) -> Value {
    let in_path = path.contains("{id}").then(|| Parameter::session().view());
    let parameters: Vec<_> =
        in_path.into_iter().chain(call.parameters.iter().map(Parameter::view)).collect();
    let mut operation = json!({
        "operationId": operation_id(path, call.method),
        "summary": call.summary,
        "parameters": parameters,
        "responses": responses(call),
    });
    match &call.body {
        Body::None => {}
        Body::Optional(schema) => operation["requestBody"] = body(schema, false),
        Body::Required(schema) => operation["requestBody"] = body(schema, true),
    }
    operation
}

fn operation_id(path: &str, method: &str) -> String {
    let words = path.split(['/', '.']).filter(|word| !word.is_empty() && *word != "{id}");
    words.fold(method.to_owned(), |id, word| id + "_" + word)
        + if path.contains("{id}") { "_of_one" } else { "" }
}

fn body(schema: &str, required: bool) -> Value {
    json!({
        "required": required,
        "content": { "application/json": { "schema": schemas::named(schema) } },
    })
}

fn responses(call: &ApiCall) -> Value {
    let mut responses = Map::new();
    let (status, schema) = call.answer;
    let mut good = json!({
        "description": "Done.",
        "content": { "application/json": { "schema": schemas::named(schema) } },
    });
    if call.streams {
        good["content"]["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    responses.insert(status.to_string(), good);
    for status in ANY_CALL.iter().chain(call.failures) {
        let mut failure = json!({
            "description": meaning(*status),
            "content": { "application/json": { "schema": schemas::named("Failure") } },
        });
        if matches!(status, 429 | 503) {
            failure["headers"] = json!({
                "Retry-After": { "schema": { "type": "integer", "minimum": 1 } },
            });
        }
        responses.insert(status.to_string(), failure);
    }
    Value::Object(responses)
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong; `detail` says how.",
        401 => "Nobody said who is calling, or the reconnect token is no good.",
        403 => "The caller may not do that, or the Host or Origin is not allowed.",
        404 => "There is no such session, or it is somebody else's.",
        410 => "The session has ended.",
        413 => "The body, or the state, is larger than is taken.",
        429 => "Too many attempts.",
        503 => "The server is full, going down, or its database is unavailable.",
        _ => "It was not done.",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::web::api::{PLACES, other_routes, session_routes};

    #[test]
    fn every_path_of_the_router_is_described_and_no_other() {
        let mut routed = BTreeSet::new();
        for place in PLACES {
            let paths = session_routes().map(|(path, _)| format!("{place}{path}"));
            routed.extend(paths);
        }
        routed.extend(other_routes().map(|(path, _)| path.to_owned()));
        let document = document();
        let described = document["paths"].as_object().unwrap().keys().cloned();
        assert_eq!(described.collect::<BTreeSet<_>>(), routed);
    }

    #[test]
    fn every_schema_that_is_named_exists() {
        let document = document();
        let known = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        let mut named = text.split("#/components/schemas/").skip(1).peekable();
        assert!(named.peek().is_some());
        for rest in named {
            let name = rest.split('"').next().unwrap();
            assert!(known.contains_key(name), "{name}");
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let document = document();
        let items = document["paths"].as_object().unwrap().values();
        let ids: Vec<_> = items
            .flat_map(|item| item.as_object().unwrap().values())
            .map(|operation| operation["operationId"].as_str().unwrap())
            .collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }
}
