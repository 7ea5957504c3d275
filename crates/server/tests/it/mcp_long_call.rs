//! A call that takes hours beside many short ones: these are answered, forgotten, and never in its way.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::mcp_client::{Calling, Client, kept_in, serve, serve_on};
use crate::common::upstream::Upstream;
use rejoin::core::limits::WAITING_ENTRIES;
use rejoin::mcp::Gateway;
use serde_json::json;

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::http(&upstream.url()).unwrap()
}

/// A call that is under way until it is let go.
async fn long_call(upstream: &Upstream, client: &Client) -> Calling {
    let mut long = client.call(1, "write_held", json!({})).await;
    long.primed().await;
    upstream.has_run("write_held", 1).await;
    long
}

#[tokio::test]
async fn more_short_calls_than_may_wait_are_answered_beside_one_that_takes_long() {
    let upstream = Upstream::start();
    let web = serve(gateway(&upstream)).await;
    let client = Client::begin(&web).await;
    let mut long = long_call(&upstream, &client).await;
    for number in 1..=WAITING_ENTRIES as u64 + 20 {
        let text = client.call(1 + number, "write_json", json!({})).await.text().await;
        assert_eq!(text, format!("run {number}"));
    }
    upstream.state.release.send_replace(true);
    assert_eq!(long.text().await, "run 1");
}

#[tokio::test]
async fn more_bytes_than_may_wait_are_answered_beside_a_call_that_takes_long() {
    let upstream = Upstream::start();
    let web = serve(gateway(&upstream)).await;
    let client = Client::begin(&web).await;
    let mut long = long_call(&upstream, &client).await;
    for number in 1..=6 {
        let much = json!({ "much": "x".repeat(1 << 20) });
        let text = client.call(1 + number, "write_json", much).await.text().await;
        assert_eq!(text, format!("run {number}"));
    }
    upstream.state.release.send_replace(true);
    assert_eq!(long.text().await, "run 1");
}

#[tokio::test]
async fn what_was_answered_before_an_older_call_does_not_run_again_after_a_restart() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let web = serve_on(kept_in(home.path()), gateway(&upstream)).await;
    let client = Client::begin(&web).await;
    let long = long_call(&upstream, &client).await;
    for number in 1..=3 {
        let text = client.call(1 + number, "read_json", json!({})).await.text().await;
        assert_eq!(text, format!("run {number}"));
    }
    web.service.close().await.unwrap();

    let web = serve_on(kept_in(home.path()), gateway(&upstream)).await;
    let client = client.at(&web);
    let told = client.go_on(&long).await.error().await;
    assert_eq!(told.0, -32050, "nobody knows what became of the one that was under way");
    assert_eq!(client.call(5, "read_json", json!({})).await.text().await, "run 4");
    assert_eq!(upstream.runs("read_json"), 4, "each of them ran once");
}
