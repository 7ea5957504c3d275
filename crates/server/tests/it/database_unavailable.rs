//! What clients are told when the store does not work, over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;

use crate::common::failing::FailingStore;
use crate::common::soon;
use crate::common::web::{Setup, Web, word};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(web: &Web) -> Self {
        let url = format!("ws://{}/ws", web.address);
        let (socket, _) = soon(tokio_tungstenite::connect_async(url)).await.unwrap();
        let mut client = Self(socket);
        assert_eq!(client.next().await["event"], "system.connected");
        client
    }

    async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn message(&mut self) -> Message {
        soon(self.0.next()).await.unwrap().unwrap()
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(self.message().await.to_text().unwrap()).unwrap()
    }

    /// The next frame, which says that the store does not work.
    async fn unavailable(&mut self, event: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["event"], event, "{frame}");
        assert_eq!(frame["metadata"]["error_code"], "DATABASE_UNAVAILABLE", "{frame}");
        assert_eq!(frame["metadata"]["recovery_action"], "retry_later", "{frame}");
        assert!(frame["metadata"]["retry_after_ms"].is_u64(), "{frame}");
        frame
    }
}

async fn server() -> (Web, Arc<FailingStore>) {
    let store = FailingStore::new();
    let web = Setup { store: Arc::clone(&store) as _, ..Setup::open() }.start().await;
    (web, store)
}

#[tokio::test]
async fn a_client_whose_session_can_not_be_served_learns_why_and_is_closed_with_4003() {
    let (web, store) = server().await;
    let mut client = Client::connect(&web).await;
    client.send(json!({ "event": "user.create_session" })).await;
    let id = word(&client.next().await["session_id"]);
    store.break_down();
    let message =
        json!({ "event": "user.message", "session_id": id, "message_id": "m1", "content": 1 });
    client.send(message).await;
    let refused = client.unavailable("agent.error").await;
    assert_eq!(refused["metadata"]["message_id"], "m1");
    let Message::Close(Some(close)) = client.message().await else { panic!("no close") };
    let reason: Value = serde_json::from_str(&close.reason).unwrap();
    assert_eq!((u16::from(close.code), &reason["reason"]), (4003, &json!("busy")));
    assert!(reason["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{reason}");
}

#[tokio::test]
async fn whoever_asks_over_websocket_is_told_on_a_connection_that_stays_open() {
    let (web, store) = server().await;
    let (id, _) = web.create().await;
    let mut client = Client::connect(&web).await;
    store.break_down();
    client.send(json!({ "event": "user.create_session" })).await;
    client.unavailable("agent.error").await;
    client.send(json!({ "event": "user.reconnect", "session_id": id })).await;
    client.unavailable("agent.error").await;
    let event = "user.reconnect_with_state";
    client.send(json!({ "event": event, "session_id": id, "content": { "last_seq": 0 } })).await;
    client.unavailable("error.recovery_failed").await;
}

#[tokio::test]
async fn whoever_asks_over_http_gets_503_and_when_to_come_back() {
    let (web, store) = server().await;
    let (id, token) = web.create().await;
    store.break_down();
    let path = format!("/api/sessions/{id}");
    for request in [
        web.get("/api/sessions"),
        web.post("/api/sessions"),
        web.get(&path),
        web.request("DELETE", &path),
        web.get(&format!("{path}/health")),
        web.get(&format!("{path}/events")),
        web.post(&format!("{path}/token")),
        web.post(&format!("{path}/messages")).json(&json!({ "content": 1 })),
        web.post(&format!("{path}/events")).json(&json!({ "event": "tick" })),
    ] {
        let answer = request.clone().send().await;
        assert_eq!(answer.expect(503)["error_code"], "DATABASE_UNAVAILABLE", "{request:?}");
        assert!(answer.header("retry-after").is_some(), "{request:?}");
    }
    let answer = web.reconnect(&id, &token).await;
    assert_eq!(answer.expect(503)["reason"], "database_unavailable");
    assert!(answer.header("retry-after").is_some());
}
