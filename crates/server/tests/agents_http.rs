//! An agent behind a URL: it gets every entry in order until it has taken it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use common::*;
use rejoin::agents::Http;
use rejoin::core::InSeq;
use rejoin::core::session::Publication;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A backend that notes what it is sent, and answers what it was told to: then 200.
#[derive(Clone, Default)]
struct Backend {
    sent: Arc<Mutex<Vec<Value>>>,
    answers: Arc<Mutex<VecDeque<u16>>>,
}

/// An answer that never comes.
const NEVER: u16 = 0;

impl Backend {
    fn answering(answers: &[u16]) -> Self {
        let backend = Self::default();
        backend.answers.lock().unwrap().extend(answers);
        backend
    }

    async fn listen(&self, address: &str) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().route("/agent", post(take)).with_state(self.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (address, serving)
    }

    async fn world(&self) -> World {
        let (address, _) = self.listen("127.0.0.1:0").await;
        world_at(address).await
    }

    /// The numbers of what it was sent.
    fn numbers(&self) -> Vec<u64> {
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|sent| sent["in_seq"].as_u64().unwrap()).collect()
    }

    async fn until_sent(&self, numbers: &[u64]) {
        until(async || self.numbers() == numbers).await;
    }
}

async fn take(State(backend): State<Backend>, body: String) -> StatusCode {
    let answer = backend.answers.lock().unwrap().pop_front().unwrap_or(200);
    backend.sent.lock().unwrap().push(serde_json::from_str(&body).unwrap());
    if answer == NEVER {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(answer).unwrap()
}

async fn world_at(address: SocketAddr) -> World {
    let agent = Http::new(&format!("http://{address}/agent")).unwrap().timeout(SECOND);
    world_with(settings(), |b| b.agent(agent)).await
}

#[tokio::test]
async fn an_entry_is_sent_whole_and_covered_when_it_is_taken() {
    let backend = Backend::default();
    let world = backend.world().await;
    world.publish(Publication { state: Some(body(r#"{"k":1}"#)), ..said() }).await;
    world.send(r#"{"content":["hi"],"message_id":"m-1"}"#).await;
    world.cancel().await;
    until(async || !world.record().await.has_work()).await;
    let id = world.id.as_str();
    let expected = [
        json!({"session_id": id, "event": "user.message", "message_id": "m-1", "in_seq": 1,
               "content": ["hi"], "state": {"k": 1}}),
        json!({"session_id": id, "event": "user.cancel", "message_id": null, "in_seq": 2,
               "content": null, "state": {"k": 1}}),
    ];
    assert_eq!(*backend.sent.lock().unwrap(), expected);
    assert_eq!(world.record().await.head.get(), 0, "it has said nothing itself");
    world.quiet().await;
}

#[tokio::test]
async fn what_is_not_taken_is_sent_again_and_what_follows_waits() {
    let backend = Backend::answering(&[500, 302, 404]);
    let world = backend.world().await;
    for message in ["one", "two"] {
        world.tell(json!(message)).await;
    }
    backend.until_sent(&[1, 1, 1, 1, 2]).await;
    until(async || !world.record().await.has_work()).await;
}

#[tokio::test]
async fn a_backend_that_does_not_answer_is_asked_again() {
    let backend = Backend::answering(&[NEVER]);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    backend.until_sent(&[1, 1]).await;
    until(async || !world.record().await.has_work()).await;
}

#[tokio::test]
async fn a_backend_that_is_not_there_is_waited_for() {
    let backend = Backend::default();
    let (address, serving) = backend.listen("127.0.0.1:0").await;
    serving.abort();
    let _ = serving.await;
    let world = world_at(address).await;
    world.tell(json!("one")).await;
    pass(SECOND / 2).await;
    assert!(world.record().await.has_work());
    backend.listen(&address.to_string()).await;
    backend.until_sent(&[1]).await;
    until(async || !world.record().await.has_work()).await;
}

#[tokio::test]
async fn an_entry_that_the_backend_covers_itself_is_not_sent_again() {
    let backend = Backend::answering(&[NEVER]);
    let world = backend.world().await;
    let _reader = world.attach().await; // who keeps the agent there
    world.tell(json!("one")).await;
    backend.until_sent(&[1]).await;
    world.publish(Publication { in_seq: Some(InSeq::new(1)), ..said() }).await;
    world.tell(json!("two")).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(backend.numbers(), [1, 2]);
}

#[tokio::test]
async fn attempts_end_with_the_session() {
    let backend = Backend::answering(&[500; 100]);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    backend.until_sent(&[1, 1]).await;
    world.sessions.end(&world.id).await.unwrap();
    world.quiet().await;
    let sent = backend.numbers().len();
    pass(SECOND).await;
    assert_eq!(backend.numbers().len(), sent);
}
