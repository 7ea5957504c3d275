//! An agent behind a URL: it gets every entry in order until it has taken it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::*;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use rejoin::agents::Http;
use rejoin::core::InSeq;
use rejoin::core::worker::Publication;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A backend that notes what it is sent, and answers what it was told to: then 200.
#[derive(Clone, Default)]
struct Backend {
    sent: Arc<Mutex<Vec<Value>>>,
    signatures: Arc<Mutex<Vec<(String, String)>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// Responses that are open, and how many were at once.
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
}

/// What a backend answers.
enum Answer {
    Status(u16),
    /// This body, complete.
    Whole(&'static str, String),
    /// Whatever the test sends, until it hangs up; a message that can't be sent breaks the response.
    Stream(&'static str, mpsc::UnboundedReceiver<Option<String>>),
}

/// An answer that never comes.
const NEVER: u16 = 0;

const NDJSON: &str = "application/x-ndjson; charset=utf-8";
const SSE: &str = "text/event-stream";

impl Backend {
    fn answering(answers: &[u16]) -> Self {
        Self::with(answers.iter().map(|status| Answer::Status(*status)))
    }

    fn with(answers: impl IntoIterator<Item = Answer>) -> Self {
        let backend = Self::default();
        backend.answers.lock().unwrap().extend(answers);
        backend
    }

    /// One that streams what the test says.
    fn streaming(kind: &'static str) -> (Self, mpsc::UnboundedSender<Option<String>>) {
        let (sender, lines) = mpsc::unbounded_channel();
        (Self::with([Answer::Stream(kind, lines)]), sender)
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

    fn opened(&self) -> Opened {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_open.fetch_max(open, Ordering::SeqCst);
        Opened(Arc::clone(&self.open))
    }
}

/// A request that is under way.
struct Opened(Arc<AtomicUsize>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn take(State(backend): State<Backend>, headers: HeaderMap, body: String) -> Response {
    let opened = backend.opened();
    let answer = backend.answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200));
    let signature = headers["rejoin-signature"].to_str().unwrap().to_owned();
    backend.signatures.lock().unwrap().push((signature, body.clone()));
    backend.sent.lock().unwrap().push(serde_json::from_str(&body).unwrap());
    let (kind, body) = match answer {
        Answer::Status(NEVER) => std::future::pending().await,
        Answer::Status(status) => return StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Whole(kind, text) => (kind, Body::from(text)),
        Answer::Stream(kind, lines) => {
            let next = |(mut lines, opened): (mpsc::UnboundedReceiver<Option<String>>, Opened)| async {
                let line = lines.recv().await?;
                let line = line.map(Bytes::from).ok_or("a network that fails");
                Some((line, (lines, opened)))
            };
            (kind, Body::from_stream(futures_util::stream::unfold((lines, opened), next)))
        }
    };
    ([("content-type", kind)], body).into_response()
}

/// The events of the session: name, content, and what their metadata says of the entry.
async fn said_in(world: &World) -> Vec<(String, Value, Value)> {
    let limit = rejoin::store::PageLimit::default();
    let page = world.store.read(&world.id, rejoin::core::Seq::ZERO, limit).await.unwrap().unwrap();
    let events = page.events.iter().map(|event| {
        let event: Value = serde_json::from_slice(&event.body).unwrap();
        let name = event["event"].as_str().unwrap().to_owned();
        (name, event["content"].clone(), event["metadata"].clone())
    });
    events.collect()
}

async fn until_said(world: &World, count: usize) {
    until(async || said_in(world).await.len() == count).await;
}

async fn world_at(address: SocketAddr) -> World {
    let agent =
        Http::new(&format!("http://{address}/agent")).unwrap().idle_timeout(SECOND).secret(b"hush");
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

#[tokio::test]
async fn a_response_may_bring_events_as_lines_and_its_end_covers_the_entry() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.send(r#"{"content":"hi","message_id":"m-1"}"#).await;
    says.send(Some("{\"event\":\"a.delta\",\"content\":\"on".into())).unwrap();
    says.send(Some("e\"}\n\n{\"event\":\"a.delta\",\"content\":\"two\"}\r\n".into())).unwrap();
    until_said(&world, 2).await;
    assert!(world.record().await.has_work(), "the response goes on");
    says.send(Some(r#"{"event":"a.final","metadata":{"k":1},"state":{"n":1}}"#.into())).unwrap();
    drop(says);
    until(async || !world.record().await.has_work()).await;
    let entry = json!({ "in_seq": 1, "message_id": "m-1" });
    let expected = [
        ("a.delta".to_owned(), json!("one"), entry.clone()),
        ("a.delta".to_owned(), json!("two"), entry),
        ("a.final".to_owned(), Value::Null, json!({ "k": 1, "in_seq": 1, "message_id": "m-1" })),
    ];
    assert_eq!(said_in(&world).await, expected);
    let state = world.store.snapshot(&world.id).await.unwrap().unwrap();
    assert_eq!(text(&state.body), r#"{"n":1}"#);
    assert_eq!(backend.numbers(), [1]);
}

#[tokio::test]
async fn a_response_may_bring_server_sent_events() {
    let events = concat!(
        ": begun\n\n",
        "event: a.delta\ndata: {\"event\":\"a.delta\",\n",
        "data: \"content\":1}\n\n",
        "data: {\"event\":\"session.state\",\"content\":[7],\"in_seq\":1}\n\n",
    );
    let backend = Backend::with([Answer::Whole(SSE, events.to_owned())]);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(said_in(&world).await[0].1, 1);
    let state = world.store.snapshot(&world.id).await.unwrap().unwrap();
    assert_eq!(text(&state.body), "[7]");
}

#[tokio::test]
async fn no_second_request_is_made_while_a_response_goes_on_however_long() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    world.tell(json!("two")).await;
    for _ in 0..8 {
        says.send(Some("\n".into())).unwrap(); // a byte is enough
        pass(SECOND / 2).await;
    }
    assert_eq!(backend.numbers(), [1]);
    drop(says);
    backend.until_sent(&[1, 2]).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(backend.most_open.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_came_before_a_response_broke_is_kept_and_the_entry_delivered_again() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    says.send(Some("{\"event\":\"a.kept\"}\n{\"event\":\"a.cut_off\"".into())).unwrap();
    until_said(&world, 1).await;
    says.send(None).unwrap();
    backend.until_sent(&[1, 1]).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(said_in(&world).await.len(), 1);
}

#[tokio::test]
async fn an_entry_that_was_covered_before_its_response_broke_is_not_delivered_again() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    says.send(Some("{\"event\":\"a.done\",\"in_seq\":1}\n".into())).unwrap();
    until(async || !world.record().await.has_work()).await;
    pass(3 * SECOND / 2).await; // it is silent for too long as well
    world.tell(json!("two")).await;
    backend.until_sent(&[1, 2]).await;
}

#[tokio::test]
async fn a_response_that_covers_its_entry_early_may_go_on() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    says.send(Some("{\"event\":\"a.first\",\"in_seq\":1}\n".into())).unwrap();
    until(async || !world.record().await.has_work()).await;
    for number in 2..=6 {
        pass(SECOND / 2).await;
        says.send(Some("{\"event\":\"a.more\"}\n".into())).unwrap();
        until_said(&world, number).await;
    }
    drop(says);
    assert_eq!(said_in(&world).await[5].2["in_seq"], 1);
    world.quiet().await;
}

#[tokio::test]
async fn a_response_that_brings_nothing_for_too_long_is_ended() {
    let (backend, _says) = Backend::streaming(SSE);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    backend.until_sent(&[1, 1]).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(backend.most_open.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_cancel_ends_the_response_that_is_open_and_overtakes_what_waits() {
    let (backend, says) = Backend::streaming(NDJSON);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    says.send(Some("{\"event\":\"a.begun\"}\n".into())).unwrap();
    until_said(&world, 1).await;
    world.tell(json!("two")).await;
    world.cancel().await;
    until(async || says.is_closed()).await;
    backend.until_sent(&[1, 3, 2]).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(backend.sent.lock().unwrap()[1]["event"], "user.cancel");
    assert_eq!(backend.most_open.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn another_body_is_an_error_that_is_counted_and_covers_the_entry() {
    let body = r#"{"event":"a.b"}"#.to_owned();
    let backend = Backend::with([
        Answer::Whole("application/json", body.clone()),
        Answer::Whole("text/plain", " \n".into()),
    ]);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    world.tell(json!("two")).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(backend.numbers(), [1, 2]);
    let counts = world.sessions.agent_counts();
    assert_eq!(counts.bad_responses.load(Ordering::Relaxed), 1);
    assert!(said_in(&world).await.is_empty());
}

#[tokio::test]
async fn lines_that_are_no_events_are_counted_and_ignored() {
    let lines = "no JSON\n{\"event\":\"user.message\"}\n{\"event\":\"a.good\"}\n[]\n";
    let backend = Backend::with([Answer::Whole(NDJSON, lines.to_owned())]);
    let world = backend.world().await;
    world.tell(json!("one")).await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(said_in(&world).await.len(), 1);
    let counts = world.sessions.agent_counts();
    assert_eq!(counts.ignored_lines.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn requests_are_signed_as_hooks_are() {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let backend = Backend::default();
    let world = backend.world().await;
    world.tell(json!("one")).await;
    backend.until_sent(&[1]).await;
    let (signature, body) = backend.signatures.lock().unwrap()[0].clone();
    let (time, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let expected = Hmac::<sha2::Sha256>::new_from_slice(b"hush").unwrap();
    let expected = expected.chain_update(format!("{time}.{body}")).finalize().into_bytes();
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mac, expected);
}
