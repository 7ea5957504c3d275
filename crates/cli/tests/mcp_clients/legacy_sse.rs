//! Clients of revision 2024-11-05, over `/sse` and `/message`.

use serde_json::json;

use crate::clients::{Kind, text_of};
use crate::passing_through::exchange_everything;
use crate::rig::{Behind, Rig};

#[tokio::test]
async fn every_kind_of_traffic_passes_to_typescript() {
    let mut rig = Rig::start(Kind::TypeScript1Sse, Behind::Stdio).await;
    // This client forgets who wanted to hear of progress when the answer comes, and looks at reports that
    // came in one piece with the answer only after that: how many it passes on is chance.
    exchange_everything(&mut rig.client, 0).await;
}

#[tokio::test]
async fn every_kind_of_traffic_passes_to_python() {
    let mut rig = Rig::start(Kind::PythonSse, Behind::Stdio).await;
    exchange_everything(&mut rig.client, 5).await;
}

/// It comes back by itself, with a new stream and without the name of its session. What it asks before that is
/// answered on that stream: it has its session again.
#[tokio::test]
async fn typescript_is_answered_after_the_idle_gateway_was_killed() {
    let mut rig = Rig::start(Kind::TypeScript1Sse, Behind::Stdio).await;
    assert_eq!(rig.client.call("slow", json!({ "key": "before" })).await, "slept 0 ms for before");
    rig.kill_and_restart_gateway().await;
    assert_eq!(rig.client.call("slow", json!({ "key": "after" })).await, "slept 0 ms for after");
}

#[tokio::test]
async fn typescript_is_answered_when_the_gateway_was_killed_in_mid_call() {
    let mut rig = Rig::start(Kind::TypeScript1Sse, Behind::Stdio).await;
    let arguments = json!({ "ms": 1_000, "key": "again" });
    let call = rig.client.begin_call("slow_readonly", arguments).await;
    rig.runs.has_started("slow_readonly", "again").await;
    // A call may begin a moment before it is durable; once a later one is answered, it is.
    assert_eq!(rig.client.call("slow", json!({ "key": "beside" })).await, "slept 0 ms for beside");
    rig.kill_and_restart_gateway().await;
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "slept 1000 ms for again");
}
