//! The server is killed with -9 and started again.

use serde_json::json;

use crate::clients::text_of;
use crate::rig::Rig;
use crate::server::Manager;

/// JSON-RPC: it may have run, and nobody can say.
const OUTCOME_UNKNOWN: i64 = -32050;

#[tokio::test]
async fn a_client_goes_on_after_the_server_was_killed() {
    let mut rig = Rig::start(Manager::Rejoin).await;
    assert_eq!(rig.client.call("counter", json!({})).await, "1");
    rig.kill_and_restart().await;
    for expected in ["1", "2"] {
        assert_eq!(rig.client.call("counter", json!({})).await, expected);
    }
}

#[tokio::test]
async fn with_rmcps_own_manager_no_client_recovers_from_a_killed_server() {
    let mut rig = Rig::start(Manager::Rmcp).await;
    assert_eq!(rig.client.call("counter", json!({})).await, "1");
    rig.kill_and_restart().await;
    for _ in 0..3 {
        let call = rig.client.begin_call("counter", json!({})).await;
        rig.client.answer(call).await.expect_err("its session has gone");
    }
}

#[tokio::test]
async fn calls_under_way_in_a_killed_server_run_again_or_end_with_a_clear_error() {
    let mut rig = Rig::start(Manager::Rejoin).await;
    let arguments = json!({ "ms": 2_000, "key": "killed" });
    let writes = rig.client.begin_call("slow", arguments.clone()).await;
    let reads = rig.client.begin_call("slow_readonly", arguments).await;
    rig.ran("start slow killed").await;
    rig.ran("start slow_readonly killed").await;
    rig.network.can_resume("\"slow\"").await;
    rig.network.can_resume("\"slow_readonly\"").await;
    rig.kill_and_restart().await;

    let error = rig.client.answer(writes).await.expect_err("nobody knows what became of it");
    assert_eq!(error["code"], OUTCOME_UNKNOWN, "{error}");
    let result = rig.client.answer(reads).await.expect("it was run again");
    assert_eq!(text_of(&result), "slept 2000 ms for killed");
    assert_eq!(rig.count("start slow killed"), 1, "what writes ran once");
    assert_eq!(rig.count("start slow_readonly killed"), 2);
}

#[tokio::test]
async fn with_rmcps_own_manager_calls_under_way_in_a_killed_server_are_lost() {
    let mut rig = Rig::start(Manager::Rmcp).await;
    let call = rig.begin_hopeless("slow_readonly", json!({ "ms": 2_000, "key": "killed" })).await;
    rig.ran("start slow_readonly killed").await;
    rig.network.can_resume("\"slow_readonly\"").await;
    rig.kill_and_restart().await;
    rig.client.answer(call).await.expect_err("its session has gone");
    assert_eq!(rig.count("start slow_readonly killed"), 1);
}
