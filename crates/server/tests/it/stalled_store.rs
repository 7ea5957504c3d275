//! What callers are told while the store can't make commits: calls that wait are answered, with an outcome that is not
//! known, later ones are refused at once, and what was sent again under its name is there once.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;

use crate::common::failing::FailingStore;
use crate::common::http::Request;
use crate::common::mcp::{call, initialize, posting};
use crate::common::mcp_client::Client;
use crate::common::web::{Setup, Web, word};
use crate::common::{soon, until};
use futures_util::future::join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn server() -> (Web, Arc<FailingStore>) {
    let store = FailingStore::new();
    let mcp = Some(Gateway::built_in());
    (Setup { store: Arc::clone(&store) as _, mcp, ..Setup::open() }.start().await, store)
}

async fn connect(web: &Web) -> Socket {
    let url = format!("ws://{}/ws", web.address);
    let mut socket = soon(tokio_tungstenite::connect_async(url)).await.unwrap().0;
    assert_eq!(next(&mut socket).await["event"], "system.connected");
    socket
}

async fn send(socket: &mut Socket, frame: &Value) {
    socket.send(Message::text(frame.to_string())).await.unwrap();
}

async fn next(socket: &mut Socket) -> Value {
    let message = soon(socket.next()).await.unwrap().unwrap();
    serde_json::from_str(message.to_text().unwrap()).unwrap()
}

/// The answer to the next frame that is no heartbeat, which is an error.
async fn refused(socket: &mut Socket) -> Value {
    let frame = next(socket).await;
    assert_eq!(frame["metadata"]["recovery_action"], "retry_later", "{frame}");
    frame["metadata"]["error_code"].clone()
}

fn message(id: &str) -> Value {
    json!({ "event": "user.message", "session_id": id, "message_id": "m1", "content": 1 })
}

/// Everything that changes something over HTTP; MCP requests by themselves, as their errors have another form.
async fn changes(web: &Web, client: &Client) -> (Vec<Request>, Vec<Request>) {
    let (id, token) = web.create().await;
    let path = format!("/api/sessions/{id}");
    let http = vec![
        web.post("/api/sessions"),
        web.post(&format!("{path}/token")),
        web.presenting(&id, &token),
        web.post(&format!("{path}/messages")).json(&json!({ "message_id": "m", "content": 1 })),
        web.post(&format!("{path}/events"))
            .header("idempotency-key", "k")
            .json(&json!({ "event": "tick" })),
        web.request("DELETE", &format!("/api/sessions/{}", web.create().await.0)),
    ];
    let of_session =
        |body: &Value| posting(web.post("/mcp").header("mcp-session-id", &client.session), body);
    let mcp = vec![
        posting(web.post("/mcp"), &initialize("2025-11-25")),
        of_session(&call(1, json!({ "text": "x" }))),
        web.request("DELETE", "/mcp").header("mcp-session-id", &client.session),
    ];
    (http, mcp)
}

async fn expect_503(requests: &[Request], codes: &[&str]) {
    for answer in join_all(requests.iter().cloned().map(Request::send)).await {
        let said = answer.expect(503);
        assert!(answer.header("retry-after").is_some(), "{said}");
        let code = said["error_code"].as_str().or(said["reason"].as_str()).unwrap();
        assert!(codes.contains(&code), "{said}");
    }
}

#[tokio::test]
async fn every_change_that_waits_for_a_stalled_store_is_answered() {
    let (web, store) = server().await;
    let client = Client::begin(&web).await;
    let (http, mcp) = changes(&web, &client).await;
    let mut attached = connect(&web).await;
    send(&mut attached, &json!({ "event": "user.create_session" })).await;
    let id = word(&next(&mut attached).await["session_id"]);
    let (parked, _) = web.create().await;
    let (mut creates, mut comes_back) = (connect(&web).await, connect(&web).await);
    store.hold_writes();
    send(&mut attached, &message(&id)).await;
    send(&mut creates, &json!({ "event": "user.create_session" })).await;
    send(&mut comes_back, &json!({ "event": "user.reconnect", "session_id": parked })).await;
    let stalls = async {
        until(async || store.waiting() >= 6).await;
        store.stall();
    };
    let unknown = ["DATABASE_UNAVAILABLE", "database_unavailable"];
    let waits = async {
        let mcp = join_all(mcp.iter().cloned().map(Request::send));
        let (mcp, ()) = tokio::join!(mcp, expect_503(&http, &unknown));
        mcp
    };
    let (mcp_answers, ()) = tokio::join!(waits, stalls);
    for answer in mcp_answers {
        assert_eq!(answer.expect(503)["error"]["code"], -32002);
        assert!(answer.header("retry-after").is_some());
    }
    for socket in [&mut attached, &mut creates, &mut comes_back] {
        assert_eq!(refused(socket).await, "DATABASE_UNAVAILABLE");
    }
    // What comes now is answered as well, and reading goes on.
    expect_503(&http, &unknown).await;
    send(&mut creates, &json!({ "event": "user.create_session" })).await;
    assert_eq!(refused(&mut creates).await, "DATABASE_UNAVAILABLE");
    web.get(&format!("/api/sessions/{id}/events")).send().await.expect(200);

    store.go_on();
    // The client sends its message again, as it is told to: it was entered, and is there once.
    send(&mut attached, &message(&id)).await;
    let accepted = next(&mut attached).await;
    assert_eq!(accepted["content"], json!({ "message_id": "m1", "in_seq": 1, "duplicate": true }));
}

#[tokio::test]
async fn what_was_published_before_the_store_stalled_is_there_once_after_a_retry() {
    let (web, store) = server().await;
    let (id, _) = web.create().await;
    let path = format!("/api/sessions/{id}/events");
    let publish =
        || web.post(&path).header("idempotency-key", "k").json(&json!({ "event": "tick" }));
    store.hold_writes();
    let stalls = async {
        until(async || store.waiting() > 0).await;
        store.stall();
    };
    let (answer, ()) = tokio::join!(publish().send(), stalls);
    assert_eq!(answer.expect(503)["error_code"], "DATABASE_UNAVAILABLE");
    store.go_on();
    let published = publish().send().await.expect(200);
    assert_eq!((&published["first_seq"], &published["last_seq"]), (&json!(1), &json!(1)));
    let held = web.get(&path).send().await.expect(200);
    assert_eq!(held["events"].as_array().unwrap().len(), 1, "{held}");
}
