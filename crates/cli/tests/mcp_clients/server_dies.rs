//! The server behind the gateway is killed with -9.

use serde_json::json;

use crate::clients::{Kind, text_of};
use crate::rig::{Behind, Rig};

each_client_before!([stdio Stdio, http Http] client_goes_on_after_its_idle_server_was_killed);
each_client_before!([stdio Stdio, http Http] calls_under_way_in_a_killed_server_are_run_again_or_said_to_be_unknown);
each_client_before!([direct Direct] without_a_gateway_no_client_recovers_from_a_killed_server);

/// JSON-RPC: it may have run, and nobody can say.
pub(crate) const OUTCOME_UNKNOWN: i64 = -32050;

async fn client_goes_on_after_its_idle_server_was_killed(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    rig.client.request(json!({ "op": "set_level", "level": "error" })).await;
    assert_eq!(rig.client.call("counter", json!({})).await, "1");
    assert_eq!(rig.client.call("counter", json!({})).await, "2");
    let first = rig.server_id().await;
    rig.kill_server(&first).await;

    let second = rig.server_id().await;
    assert_ne!(first, second, "another process answers");
    assert_eq!(
        rig.client.call("counter", json!({})).await,
        "1",
        "the memory of the first has gone"
    );
    let quiet = json!({ "level": "info" });
    assert_eq!(rig.client.call("log", quiet).await, "logged 1");
    let loud = json!({ "level": "error" });
    assert_eq!(rig.client.call("log", loud).await, "logged 1");
    let notifications = rig.client.events_of("notification");
    let of_the_fixture = notifications.iter().filter(|line| line["params"]["logger"] == "fixture");
    let levels: Vec<_> = of_the_fixture.map(|line| &line["params"]["level"]).collect();
    assert_eq!(levels, ["error"], "the new process was told the level");
}

async fn calls_under_way_in_a_killed_server_are_run_again_or_said_to_be_unknown(
    kind: Kind,
    behind: Behind,
) {
    let mut rig = Rig::start(kind, behind).await;
    let server = rig.server_id().await;
    let arguments = json!({ "ms": 2_000, "key": "killed" });
    let writes = rig.client.begin_call("slow", arguments.clone()).await;
    let reads = rig.client.begin_call("slow_readonly", arguments).await;
    rig.runs.has_started("slow", "killed").await;
    rig.runs.has_started("slow_readonly", "killed").await;
    rig.kill_server(&server).await;

    let error = rig.client.answer(writes).await.expect_err("nobody knows what became of it");
    assert_eq!(error["code"], OUTCOME_UNKNOWN, "{error}");
    let result = rig.client.answer(reads).await.expect("it was run again");
    assert_eq!(text_of(&result), "slept 2000 ms for killed");
    assert_eq!(rig.runs.started("slow", "killed"), 1, "what writes ran once");
    assert_eq!(rig.runs.started("slow_readonly", "killed"), 2);
}

/// What the gateway is for; and a sign that these scenarios could fail.
async fn without_a_gateway_no_client_recovers_from_a_killed_server(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let server = rig.server_id().await;
    rig.kill_server(&server).await;
    for _ in 0..3 {
        let call = rig.client.begin_call("pid", json!({})).await;
        rig.client.answer(call).await.expect_err("its session has gone");
    }
}
