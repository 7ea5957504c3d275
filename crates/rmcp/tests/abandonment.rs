//! Abandonment: a client may hang up at any moment, and its handler is dropped where it stands. Here each request is polled
//! so many times and then dropped, for every number of times until it is answered by itself. `scripts/planted-bugs` proves
//! that these tests fail where work ends with its caller.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;
#[path = "../../server/tests/it/common/failing.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
mod failing;

use std::sync::Arc;
use std::time::Duration;

use common::{Http, Tools, World, pass, until};
use failing::FailingStore;
use futures_util::FutureExt as _;
use http::{Method, StatusCode};
use rejoin_rmcp::DurableSessionStore;
use rejoin_rmcp::core::record::Record;
use rejoin_rmcp::store::{Query, Store as _};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore as _};
use serde_json::{Value, json};
use tokio::task::yield_now;

/// How many polls each call of the store takes before and after it does something.
const TURNS: usize = 2;

/// No request needs more polls than this.
const MOST_POLLS: usize = 400;

/// Longer than a session may take to begin.
const A_WHILE: Duration = Duration::from_secs(120);

struct Abandoned {
    world: World,
    store: Arc<FailingStore>,
}

impl Abandoned {
    fn new() -> Self {
        let store = FailingStore::new();
        store.take_turns(TURNS);
        Self { world: World::on(store.clone(), |builder| builder), store }
    }

    fn http(&self) -> &Http<rejoin_rmcp::Service<Tools>> {
        &self.world.http
    }

    async fn sessions(&self) -> Vec<Record> {
        self.store.sessions(&Query { limit: 99, ..Query::default() }).await.unwrap()
    }

    async fn record(&self, session: &str) -> Record {
        self.world.record(session).await.unwrap()
    }

    /// Sends a request and drops it after so many polls; its status, if it was answered.
    async fn ask(
        &self,
        method: Method,
        session: Option<&str>,
        last_event: Option<&str>,
        body: Option<Value>,
        polls: usize,
    ) -> Option<StatusCode> {
        let asking = self.http().ask(method, session, last_event, body);
        let answer = polled(asking, polls).await;
        answer.map(|answer| answer.status())
    }
}

/// Tries something with every number of polls, until it is answered.
async fn at_each_await(trial: impl AsyncFn(Abandoned, usize) -> bool) {
    let mut answered = 0;
    for polls in 0..MOST_POLLS {
        if trial(Abandoned::new(), polls).await {
            answered += 1;
            if answered == 3 {
                return; // the last ones have let it go on by itself for a while
            }
        }
    }
    panic!("it was never answered");
}

/// Polls a future so many times, with turns for everybody else in between, and drops it.
async fn polled<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Some(output) = (&mut future).now_or_never() {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

fn initialize() -> Value {
    let client = json!({ "name": "a test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

fn call(id: u64) -> Value {
    let params = json!({ "name": "work", "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[tokio::test(start_paused = true)]
async fn a_session_that_goes_on_has_a_handshake() {
    at_each_await(async |abandoned, polls| {
        let answered = abandoned.ask(Method::POST, None, None, Some(initialize()), polls).await;
        pass(A_WHILE).await;
        for record in abandoned.sessions().await.iter().filter(|record| record.is_active()) {
            let book = abandoned.store.snapshot(record.id()).await.unwrap();
            assert!(book.is_some(), "after {polls} polls a session waits for its handshake");
        }
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_entered_is_answered() {
    at_each_await(async |abandoned, polls| {
        let session = abandoned.http().begin().await;
        let answered =
            abandoned.ask(Method::POST, Some(&session), None, Some(call(1)), polls).await;
        pass(A_WHILE).await;
        let record = abandoned.record(&session).await;
        assert_eq!(record.covered, record.in_head, "after {polls} polls");
        assert!(record.in_head.get() == 1 || answered.is_none());
        is_left(&abandoned, &session).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_abandoned_leaves_its_session_parked() {
    at_each_await(async |abandoned, polls| {
        let session = abandoned.http().begin().await;
        let answered = abandoned.ask(Method::GET, Some(&session), None, None, polls).await;
        is_left(&abandoned, &session).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_resumed_and_abandoned_leaves_its_session_parked() {
    at_each_await(async |abandoned, polls| {
        let session = abandoned.http().begin().await;
        let place = abandoned.http().listen(&session).await.next().await.unwrap().id.unwrap();
        let answered = abandoned.ask(Method::GET, Some(&session), Some(&place), None, polls).await;
        is_left(&abandoned, &session).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_deleted_has_no_handler() {
    at_each_await(async |abandoned, polls| {
        let session = abandoned.http().begin().await;
        let answered = abandoned.ask(Method::DELETE, Some(&session), None, None, polls).await;
        let ended = async || !abandoned.record(&session).await.is_active();
        for _ in 0..50 * (TURNS + 1) {
            yield_now().await;
        }
        if ended().await {
            let sessions = abandoned.world.manager.sessions();
            until("no handler is left", async || abandoned.world.manager.handlers() == 0).await;
            until("no driver is left", async || sessions.live() == 0).await;
        }
        assert!(ended().await || answered.is_none());
        answered.is_some()
    })
    .await;
}

/// For rmcp's own manager.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_stored_has_a_handshake() {
    at_each_await(async |abandoned, polls| {
        let store = DurableSessionStore::new(abandoned.world.manager.sessions().clone());
        let params = initialize()["params"].clone();
        let state = SessionState::new(serde_json::from_value(params).unwrap());
        let stored = polled(store.store("a-session-of-rmcp", &state), polls).await;
        pass(A_WHILE).await;
        for record in abandoned.sessions().await {
            let book = abandoned.store.snapshot(record.id()).await.unwrap();
            assert!(book.is_some(), "after {polls} polls a session has no handshake");
        }
        stored.is_some_and(|stored| stored.is_ok())
    })
    .await;
}

async fn is_left(abandoned: &Abandoned, session: &str) {
    until("nobody is attached", async || !abandoned.world.is_attached(session).await).await;
}
