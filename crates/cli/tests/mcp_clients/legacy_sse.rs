//! Clients of revision 2024-11-05, over `/sse` and `/message`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::clients::{Kind, NO_HANG};
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

/// It comes back by itself, with a new stream. What it asks before that may be answered into the old one, so
/// it asks until it is answered.
#[tokio::test]
async fn typescript_goes_on_after_the_idle_gateway_was_killed() {
    let mut rig = Rig::start(Kind::TypeScript1Sse, Behind::Stdio).await;
    assert_eq!(rig.client.call("slow", json!({ "key": "before" })).await, "slept 0 ms for before");
    rig.kill_and_restart_gateway().await;
    let killed = Instant::now();
    let call = json!({ "op": "call", "name": "slow_readonly", "timeout_ms": 2_000 });
    loop {
        let pending = rig.client.begin(call.clone()).await;
        let answer = rig.client.answer(pending).await;
        if answer.is_ok() {
            return;
        }
        assert!(killed.elapsed() < NO_HANG, "it is never answered: {answer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await; // a refusal comes at once
    }
}
