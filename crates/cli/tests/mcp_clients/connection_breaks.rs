//! The connection of a client breaks while a tool works.

use serde_json::json;

use crate::clients::{Kind, text_of};
use crate::rig::{Behind, Rig};

each_client_before!([stdio Stdio, http Http, direct Direct] result_arrives_after_a_reset_in_mid_call);
each_client_before!([stdio Stdio, http Http, direct Direct] result_that_was_ready_while_the_client_was_away_arrives);
each_client_before!([stdio Stdio, http Http, direct Direct] progress_is_neither_lost_nor_repeated_by_a_reset);

/// Longer than clients wait before they come back, so that they do while the tool works.
const LONGER_THAN_RETRY_MS: u64 = 5_000;

async fn result_arrives_after_a_reset_in_mid_call(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let arguments = json!({ "ms": LONGER_THAN_RETRY_MS, "key": "reset" });
    let call = rig.client.begin_call("slow", arguments).await;
    rig.runs.has_started("slow", "reset").await;
    rig.network.can_resume("\"slow\"").await;
    rig.network.reset();
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "slept 5000 ms for reset");
    assert_eq!(rig.runs.started("slow", "reset"), 1, "the tool ran once");
    assert_eq!(rig.client.call("slow", json!({ "key": "after" })).await, "slept 0 ms for after");
}

async fn result_that_was_ready_while_the_client_was_away_arrives(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let arguments = json!({ "ms": 1_500, "key": "away" });
    let call = rig.client.begin_call("slow", arguments).await;
    rig.runs.has_started("slow", "away").await;
    rig.network.can_resume("\"slow\"").await;
    rig.network.go_down();
    rig.runs.has_ended("slow", "away").await;
    rig.network.come_up();
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "slept 1500 ms for away");
    assert_eq!(rig.runs.started("slow", "away"), 1, "the tool ran once");
}

async fn progress_is_neither_lost_nor_repeated_by_a_reset(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let call =
        rig.client.begin_call("progress", json!({ "n": 10, "ms": 500, "key": "steps" })).await;
    let third = |line: &serde_json::Value| line["params"]["progress"].as_f64() == Some(3.0);
    rig.client.heard("the third step", third).await;
    rig.network.reset();
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "10 steps");
    let progress = rig.client.events_of("progress");
    let steps: Vec<_> = progress.iter().map(|line| line["params"]["progress"].as_f64()).collect();
    let all: Vec<_> = (1..=10).map(|step| Some(f64::from(step))).collect();
    assert_eq!(steps, all);
}
