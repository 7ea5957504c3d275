//! A disk that is nearly full: sessions and calls are refused with 503, streams are read, and all goes on when there is
//! space again.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;
#[path = "../../cli/tests/common/small_disk.rs"]
mod small_disk;

use std::sync::Arc;
use std::time::Duration;

use common::{Http, Tools, until};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use rejoin_rmcp::DurableSessionManager;
use serde_json::{Value, json};
use small_disk::{SmallDisk, run_mounted};
use tokio::time::timeout;

/// However slow the machine, no answer takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

fn call(id: u64) -> Value {
    let params = json!({ "name": "work", "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

fn initialize() -> Value {
    let client = json!({ "name": "a test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

type Server = Http<rejoin_rmcp::Service<Tools>>;

/// It is refused for now, and said when to come again.
async fn refused(http: &Server, session: Option<&str>, message: Value) {
    let answer = http.ask(Method::POST, session, None, Some(message));
    let answer = timeout(PATIENCE, answer).await.expect("an answer comes");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("retry-after"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["error"]["code"], -32002, "{error}");
}

#[test]
fn below_the_reserve_sessions_and_calls_are_refused_with_503() {
    run_mounted("low_disk");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "is run by the test above, with a small disk"]
async fn low_disk() {
    let disk = SmallDisk::mount("128m");
    let directory = tempfile::tempdir().unwrap();
    let manager: Arc<DurableSessionManager> =
        Arc::new(rejoin_rmcp::open(directory.path()).unwrap().start().unwrap());
    let config = rmcp::transport::StreamableHttpServerConfig::default();
    let service = rejoin_rmcp::service(Tools::factory(), Arc::clone(&manager), config);
    let http = Http { service, principal: None, header: None };
    let session = http.begin().await;
    let mut events = http.call(&session, 1, "work", json!({})).await;
    let first = events.message().await;
    assert_eq!(first.message.unwrap()["result"]["content"][0]["text"], "run 1");

    disk.fill();
    until("nothing new is taken", async || manager.sessions().store().is_paused()).await;
    refused(&http, None, initialize()).await;
    refused(&http, Some(&session), call(2)).await;
    let resumed = http.resume(&session, &first.id.unwrap()).await;
    assert_eq!(resumed.status(), StatusCode::NO_CONTENT, "the stream is finished, and is read");

    disk.make_room();
    until("what is new is taken", async || !manager.sessions().store().is_paused()).await;
    let mut events = http.call(&session, 3, "work", json!({})).await;
    assert_eq!(events.result().await["result"]["content"][0]["text"], "run 2");
}
