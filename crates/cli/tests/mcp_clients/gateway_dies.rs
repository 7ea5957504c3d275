//! Rejoin itself is killed with -9 and started again on the same data and port.

use std::time::Instant;

use serde_json::json;

use crate::clients::{Kind, NO_HANG, text_of};
use crate::rig::{Behind, Rig};
use crate::server_dies::OUTCOME_UNKNOWN;

each_client_before!([stdio Stdio, http Http] client_goes_on_after_the_idle_gateway_was_killed);
each_client_before!([stdio Stdio, http Http] calls_under_way_in_a_killed_gateway_end_with_a_result_or_a_clear_error);

/// A call is run again at most twice.
const MOST_RUNS: usize = 3;

async fn client_goes_on_after_the_idle_gateway_was_killed(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    assert_eq!(rig.client.call("slow", json!({ "key": "before" })).await, "slept 0 ms for before");
    rig.kill_and_restart_gateway().await;
    assert_eq!(rig.client.call("slow", json!({ "key": "after" })).await, "slept 0 ms for after");
    let tools = rig.client.request(json!({ "op": "list_tools" })).await;
    assert!(tools["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{tools}");
    assert_eq!(rig.runs.started("slow", "before"), 1, "what was answered did not run again");
}

async fn calls_under_way_in_a_killed_gateway_end_with_a_result_or_a_clear_error(
    kind: Kind,
    behind: Behind,
) {
    let mut rig = Rig::start(kind, behind).await;
    let arguments = json!({ "ms": 2_500, "key": "killed" });
    let writes = rig.client.begin_call("slow", arguments.clone()).await;
    let reads = rig.client.begin_call("slow_readonly", arguments.clone()).await;
    let repeats = rig.client.begin_call("slow_idempotent", arguments).await;
    for tool in ["slow", "slow_readonly", "slow_idempotent"] {
        rig.runs.has_started(tool, "killed").await;
        rig.network.can_resume(&format!("\"{tool}\"")).await;
    }
    let killed = Instant::now();
    rig.kill_and_restart_gateway().await;

    for (call, tool) in [(reads, "slow_readonly"), (repeats, "slow_idempotent")] {
        let answer = rig.client.answer(call).await;
        let result = answer.unwrap_or_else(|error| panic!("{tool}: {error}"));
        assert_eq!(text_of(&result), "slept 2500 ms for killed");
        assert!(rig.runs.started(tool, "killed") <= MOST_RUNS, "{tool} ran too often");
    }
    match rig.client.answer(writes).await {
        Err(error) => assert_eq!(error["code"], OUTCOME_UNKNOWN, "{error}"),
        // A server that outlived the gateway may still have the result.
        Ok(result) if behind == Behind::Http => {
            assert_eq!(text_of(&result), "slept 2500 ms for killed");
        }
        Ok(result) => panic!("its server died with the gateway, and yet it answered {result}"),
    }
    assert!(killed.elapsed() < NO_HANG, "it took {:?}", killed.elapsed());
    assert_eq!(rig.runs.started("slow", "killed"), 1, "what writes ran once");
    assert_eq!(rig.client.call("slow", json!({ "key": "after" })).await, "slept 0 ms for after");
}
