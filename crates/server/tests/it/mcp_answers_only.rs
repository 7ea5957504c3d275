//! Clients that accept no stream get answers and nothing else, and nobody else gets what was meant for them.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::mcp::{Fake, Peer, call};
use crate::common::web::Setup;
use serde_json::{Value, json};

const NEWEST: &str = "2025-11-25";

#[tokio::test]
async fn progress_of_such_a_call_is_not_told_to_another() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut other = peer.call(1, json!({ "gate": "g" })).await;
    fake.until_told("gate").await;
    let quiet = peer.post(&call(2, json!({ "progress": 2 }))).header("accept", "application/json");
    assert_eq!(quiet.send().await.expect(200)["id"], 2);
    fake.open("g");
    let told: Vec<_> = other.rest().await.into_iter().skip(1).map(|event| event.data).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["id"], 1);
}

#[tokio::test]
async fn progress_of_such_a_call_is_told_on_the_general_stream_if_somebody_reads_it() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, NEWEST).await;
    let mut general = peer.get().stream().await;
    general.next().await.unwrap();
    let _other = peer.call(1, json!({ "gate": "g" })).await;
    fake.until_told("gate").await;
    let quiet = peer.post(&call(2, json!({ "progress": 1 }))).header("accept", "application/json");
    assert_eq!(quiet.send().await.expect(200)["id"], 2);
    assert_eq!(general.message().await.data["params"]["progressToken"], 2);
}

#[tokio::test]
async fn a_batch_is_answered_with_answers_alone() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let peer = Peer::begin(&web, "2025-03-26").await;
    let batch = json!([call(1, json!({ "progress": 2 })), call(2, json!({ "progress": 2 }))]);
    let answers = peer.post(&batch).header("accept", "application/json").send().await.expect(200);
    let answers: Vec<&Value> = answers.as_array().unwrap().iter().collect();
    assert!(answers.iter().all(|answer| answer["result"].is_object()), "{answers:?}");
    assert_eq!(answers.len(), 2);
}
