//! Clients of revision 2026-07-28, which has no sessions, before a server that keeps them.

use serde_json::{Value, json};

use crate::clients::{Kind, text_of};
use crate::rig::{Behind, Rig};

each_stateless_client_before!([stdio Stdio, http Http] a_client_takes_the_newest_revision_and_everything_passes);
each_stateless_client_before!([stdio Stdio, http Http] state_is_kept_between_calls_and_apart_from_another_clients);
each_stateless_client_before!([stdio Stdio, http Http] a_call_issued_again_after_a_broken_stream_ran_once);
each_stateless_client_before!([stdio Stdio, http Http] two_equal_calls_side_by_side_both_run);
each_stateless_client_before!([stdio Stdio] a_client_goes_on_when_the_gateway_was_killed);

async fn a_client_takes_the_newest_revision_and_everything_passes(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let client = &mut rig.client;
    let connected = client.events_of("connected");
    assert_eq!(connected[0]["revision"], "2026-07-28");
    let tools = client.request(json!({ "op": "list_tools" })).await;
    let named = |tool: &Value| tool["name"] == "slow";
    assert!(tools["tools"].as_array().unwrap().iter().any(named), "{tools}");
    assert_eq!(client.call("progress", json!({ "n": 3, "ms": 20 })).await, "3 steps");
    let progress = client.events_of("progress");
    assert_eq!(progress.last().unwrap()["params"]["progress"].as_f64(), Some(3.0), "{progress:?}");
    assert_eq!(client.call("ask", json!({ "message": "Really?" })).await, "accept: yes");
    assert_eq!(client.call("sample", json!({ "prompt": "Who?" })).await, "a-test: hello");
    let asked = client.events_of("asked");
    let methods: Vec<_> = asked.iter().map(|line| &line["method"]).collect();
    assert_eq!(methods, ["elicitation/create", "sampling/createMessage"]);
    assert_eq!(rig.runs.started("ask", "-"), 1, "the answer went into the call that had asked");
    let begun = rig.client.begin(json!({ "op": "read", "uri": "test://no-such-thing" })).await;
    let missing = rig.client.answer(begun).await.expect_err("there is no such resource");
    assert_eq!(missing["code"], -32602);
}

async fn state_is_kept_between_calls_and_apart_from_another_clients(kind: Kind, behind: Behind) {
    // The HTTP fixture keeps its counter for all of its sessions.
    let mut rig = Rig::start(kind, behind).await;
    let mut other = rig.another("another-client", kind).await;
    assert_eq!(rig.client.call("counter", json!({})).await, "1");
    assert_eq!(rig.client.call("counter", json!({})).await, "2");
    let (mine, theirs) = (rig.server_id().await, other.call("pid", json!({})).await);
    if behind == Behind::Stdio {
        assert_eq!(other.call("counter", json!({})).await, "1", "its own server");
        assert_ne!(mine, theirs);
    }
    let mut again = rig.another("rejoin-test-client", kind).await;
    assert_eq!(
        again.call("counter", json!({})).await,
        "3",
        "the same client, on another connection"
    );
}

async fn a_call_issued_again_after_a_broken_stream_ran_once(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let arguments = json!({ "ms": 3_000, "key": "again" });
    let call = rig.client.begin_call("slow", arguments.clone()).await;
    rig.runs.has_started("slow", "again").await;
    rig.network.reset();
    let first = rig.client.answer(call).await;
    let result = match first {
        Ok(result) => text_of(&result), // a client that issues it again by itself
        Err(_) => {
            // What has become of the client object is its own affair: Python's is gone with the connection.
            let mut client = rig.another("rejoin-test-client", kind).await;
            client.call("slow", arguments).await
        }
    };
    assert_eq!(result, "slept 3000 ms for again");
    assert_eq!(rig.runs.started("slow", "again"), 1, "the second call joined the first");
}

async fn two_equal_calls_side_by_side_both_run(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let arguments = json!({ "ms": 300, "key": "twice" });
    let one = rig.client.begin_call("slow", arguments.clone()).await;
    let two = rig.client.begin_call("slow", arguments).await;
    for call in [one, two] {
        let result = rig.client.answer(call).await.expect("it succeeds");
        assert_eq!(text_of(&result), "slept 300 ms for twice");
    }
    assert_eq!(rig.runs.started("slow", "twice"), 2);
}

async fn a_client_goes_on_when_the_gateway_was_killed(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let call = rig.client.begin_call("slow", json!({ "ms": 60_000, "key": "lost" })).await;
    rig.runs.has_started("slow", "lost").await;
    // A call may begin a moment before it is durable; once a later one is answered, it is.
    assert_eq!(rig.client.call("slow", json!({ "key": "beside" })).await, "slept 0 ms for beside");
    rig.network.has_replied("\"lost\"", ": nothing new").await;
    rig.kill_and_restart_gateway().await;
    if kind == Kind::PythonAuto {
        // TypeScript tells it when the call's time is up, a minute later.
        rig.client.answer(call).await.expect_err("its stream broke");
    }
    let client = &mut rig.client; // the same one
    let again = client.begin_call("slow", json!({ "ms": 60_000, "key": "lost" })).await;
    let unknown = client.answer(again).await.expect_err("nobody knows what became of it");
    assert_eq!(unknown["code"], -32050, "{unknown}");
    assert_eq!(
        rig.runs.started("slow", "lost"),
        1,
        "it was not run again only because it was asked again"
    );
    assert_eq!(client.call("slow", json!({ "key": "after" })).await, "slept 0 ms for after");
}
