//! The client's connection breaks while a tool works.

use serde_json::json;

use crate::clients::text_of;
use crate::rig::Rig;
use crate::server::Manager;

/// A connection is reset after the third of ten steps.
async fn reset_in_mid_call(manager: Manager) -> Rig {
    let mut rig = Rig::start(manager).await;
    let arguments = json!({ "n": 10, "ms": 500, "key": "steps" });
    let call = rig.client.begin_call("progress", arguments).await;
    let third = |line: &serde_json::Value| line["params"]["progress"].as_f64() == Some(3.0);
    rig.client.heard("the third step", third).await;
    rig.network.reset();
    let result = rig.client.answer(call).await.expect("the tool works on");
    assert_eq!(text_of(&result), "10 steps");
    assert_eq!(rig.count("start progress steps"), 1, "the tool ran once");
    rig
}

#[tokio::test]
async fn after_a_reset_in_mid_call_nothing_is_lost_or_repeated() {
    let rig = reset_in_mid_call(Manager::Rejoin).await;
    assert_eq!(rig.steps(), (1..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn rmcps_own_manager_repeats_the_step_that_the_client_names() {
    let rig = reset_in_mid_call(Manager::Rmcp).await;
    let repeated = rig.steps().windows(2).any(|pair| pair[0] == pair[1]);
    assert!(repeated, "rmcp no longer has this defect: {:?}", rig.steps());
}

/// The result is ready while the client is away.
async fn away_when_it_is_ready(manager: Manager) -> (Rig, crate::clients::Pending) {
    let mut rig = Rig::start(manager).await;
    let call = rig.begin_hopeless("slow", json!({ "ms": 1_500, "key": "away" })).await;
    rig.ran("start slow away").await;
    rig.network.can_resume("\"slow\"").await;
    rig.network.go_down();
    rig.ran("end slow away").await;
    rig.network.come_up();
    (rig, call)
}

#[tokio::test]
async fn a_result_that_was_ready_while_the_client_was_away_arrives() {
    let (mut rig, call) = away_when_it_is_ready(Manager::Rejoin).await;
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "slept 1500 ms for away");
    assert_eq!(rig.count("start slow away"), 1, "the tool ran once");
}

#[tokio::test]
async fn rmcps_own_manager_loses_a_result_that_was_ready_while_the_client_was_away() {
    let (mut rig, call) = away_when_it_is_ready(Manager::Rmcp).await;
    rig.timed_out(call).await;
}

/// Thirty-nine steps are reported while the client is away.
async fn misses_many_events(manager: Manager) -> Rig {
    let mut rig = Rig::start(manager).await;
    let arguments = json!({ "n": 40, "ms": 5_000, "key": "many" });
    let call = json!({ "op": "call", "name": "burst", "arguments": arguments, "progress": true });
    let call = rig.client.begin(call).await;
    let first = |line: &serde_json::Value| line["params"]["progress"].as_f64() == Some(1.0);
    rig.client.heard("the first step", first).await;
    rig.network.go_down();
    rig.ran("end burst many").await;
    rig.network.come_up();
    let result = rig.client.answer(call).await.expect("the tool works on");
    assert_eq!(text_of(&result), "40 steps");
    rig
}

#[tokio::test]
async fn however_many_events_a_client_has_missed_it_gets_them() {
    let rig = misses_many_events(Manager::Rejoin).await;
    assert_eq!(rig.steps(), (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn rmcps_own_manager_loses_all_but_sixteen_events_without_a_word() {
    let rig = misses_many_events(Manager::Rmcp).await;
    let steps = rig.steps();
    assert!(steps.len() < 40 && steps.contains(&40), "rmcp no longer has this defect: {steps:?}");
    let complaints = rig.client.events_of("complaint");
    let told = complaints.iter().any(|line| line.to_string().contains("lost"));
    assert!(!told, "it says so now: {complaints:?}");
}
