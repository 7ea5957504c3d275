//! A tool that says nothing for longer than an idle handler is kept.

use std::time::Duration;

use serde_json::json;

use crate::clients::{Pending, text_of};
use crate::rig::Rig;
use crate::server::Manager;

/// The client would wait longer than the tool takes.
async fn a_tool_that_is_silent_for_long(manager: Manager) -> (Rig, Pending) {
    let idle = Some(Duration::from_secs(3));
    let mut rig = Rig::with(manager, |settings| settings.idle = idle).await;
    let call = rig.begin_hopeless("slow", json!({ "ms": 6_000, "key": "silent" })).await;
    (rig, call)
}

#[tokio::test]
async fn a_tool_that_is_silent_for_longer_than_the_idle_time_is_at_work() {
    let (mut rig, call) = a_tool_that_is_silent_for_long(Manager::Rejoin).await;
    let result = rig.client.answer(call).await.expect("the result arrives");
    assert_eq!(text_of(&result), "slept 6000 ms for silent");
}

#[tokio::test]
async fn rmcps_own_manager_ends_a_session_whose_tool_is_at_work() {
    let (mut rig, call) = a_tool_that_is_silent_for_long(Manager::Rmcp).await;
    rig.client.answer(call).await.expect_err("the session has been ended");
}

/// A client that is silent for long keeps its session; only the handler is let go, with its memory.
#[tokio::test]
async fn a_client_that_comes_back_after_the_idle_time_has_its_session() {
    let idle = Some(Duration::from_millis(200));
    let mut rig = Rig::with(Manager::Rejoin, |settings| settings.idle = idle).await;
    assert_eq!(rig.client.call("counter", json!({})).await, "1");
    rig.network.go_down();
    tokio::time::sleep(Duration::from_secs(2)).await; // nobody reports that a handler has gone
    rig.network.come_up();
    assert_eq!(rig.client.call("counter", json!({})).await, "2");
}
