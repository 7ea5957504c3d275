//! Long calls of revision 2026-07-28 as tasks, which no SDK's client knows yet: they outlive their client, and a
//! kill -9 of the gateway.

use serde_json::{Value, json};

use crate::clients::{Client, Kind};
use crate::rig::{Behind, Rig};

const TASK_AFTER: &str = "--task-after=300ms";

#[tokio::test]
async fn tasks_outlive_their_client_and_a_killed_gateway() {
    let mut rig = Rig::start_with(&[TASK_AFTER], Kind::Stateless, Behind::Stdio).await;
    let done = begin(&mut rig.client, "slow", "done", 600).await;
    assert_eq!(ended(&mut rig.client, &done).await["status"], "completed");
    let rerun = begin(&mut rig.client, "slow_readonly", "rerun", 4_000).await;
    let unknown = begin(&mut rig.client, "slow", "unknown", 60_000).await;
    assert_eq!(get(&mut rig.client, &rerun).await["status"], "working");

    rig.client = rig.another("another-process", Kind::Stateless).await;
    rig.kill_and_restart_gateway().await;
    let mut client = rig.another("yet-another", Kind::Stateless).await;

    let done = get(&mut client, &done).await;
    assert_eq!(done["result"]["content"][0]["text"], "slept 600 ms for done", "{done}");
    let unknown = ended(&mut client, &unknown).await;
    assert_eq!((&unknown["status"], &unknown["error"]["code"]), (&json!("failed"), &json!(-32050)));
    assert_eq!(unknown["error"]["data"]["reason"], "upstream_lost");
    let rerun = ended(&mut client, &rerun).await;
    assert_eq!(rerun["result"]["content"][0]["text"], "slept 4000 ms for rerun", "{rerun}");
    assert_eq!(
        rig.runs.started("slow", "unknown"),
        1,
        "what may have had an effect is not repeated"
    );
}

#[tokio::test]
async fn a_task_asks_its_client_and_goes_on_with_the_answer() {
    let mut rig = Rig::start_with(&["--task-after=0s"], Kind::Stateless, Behind::Stdio).await;
    let id = begin(&mut rig.client, "ask", "asking", 0).await;
    let task = reached(&mut rig.client, &id, "input_required").await;
    let (key, question) = task["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "action": "accept", "content": { "answer": "of course" } });
    let params = json!({ "taskId": id, "inputResponses": { key: answer, "unknown": {} } });
    let updated = request(&mut rig.client, "tasks/update", params).await;
    assert_eq!(updated["result"], json!({ "resultType": "complete" }));
    let task = ended(&mut rig.client, &id).await;
    assert_eq!(task["result"]["content"][0]["text"], "accept: of course", "{task}");
    assert_eq!(rig.runs.started("ask", "asking"), 1);
}

#[tokio::test]
async fn an_answer_reaches_a_call_that_runs_again_after_the_gateway_was_killed() {
    let mut rig = Rig::start(Kind::Stateless, Behind::Stdio).await;
    let mut params = json!({ "name": "ask_readonly", "arguments": { "key": "again" } });
    let required = request(&mut rig.client, "tools/call", params.clone()).await["result"].take();
    assert_eq!(required["resultType"], "input_required", "{required}");
    rig.kill_and_restart_gateway().await;
    let mut client = rig.another("rejoin-test-client", Kind::Stateless).await;
    let key = required["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answer = json!({ "action": "accept", "content": { "answer": "still yes" } });
    params["inputResponses"] = json!({ key: answer });
    params["requestState"] = required["requestState"].clone();
    let done = request(&mut client, "tools/call", params).await;
    assert_eq!(done["result"]["content"][0]["text"], "accept: still yes", "{done}");
    assert_eq!(rig.runs.started("ask_readonly", "again"), 2, "it only reads, so it ran again");
}

#[tokio::test]
async fn a_task_is_cancelled_and_is_nobody_elses() {
    let mut rig = Rig::start_with(&[TASK_AFTER], Kind::Stateless, Behind::Stdio).await;
    let id = begin(&mut rig.client, "slow", "long", 60_000).await;
    let cancelled = request(&mut rig.client, "tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(cancelled["result"], json!({ "resultType": "complete" }));
    assert_eq!(ended(&mut rig.client, &id).await["status"], "cancelled");
    rig.runs.was_cancelled("slow", "long").await;

    let changed = format!("{id}x");
    let unknown = request(&mut rig.client, "tasks/get", json!({ "taskId": changed })).await;
    assert_eq!(unknown["error"]["code"], -32602);
    let asked = json!({ "op": "request", "method": "tasks/get", "params": { "taskId": id } });
    let without = rig.client.request(asked).await;
    assert_eq!(
        (&without["status"], &without["body"]["error"]["code"]),
        (&json!(400), &json!(-32021))
    );
}

/// Begins a call that becomes a task: its id.
async fn begin(client: &mut Client, tool: &str, key: &str, ms: u64) -> String {
    let arguments = json!({ "key": key, "ms": ms });
    let params = json!({ "name": tool, "arguments": arguments });
    let answer = request(client, "tools/call", params).await;
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"]["taskId"].as_str().unwrap().to_owned()
}

async fn get(client: &mut Client, id: &str) -> Value {
    request(client, "tasks/get", json!({ "taskId": id })).await["result"].take()
}

async fn ended(client: &mut Client, id: &str) -> Value {
    loop {
        let task = get(client, id).await;
        if !matches!(task["status"].as_str(), Some("working")) {
            return task;
        }
    }
}

async fn reached(client: &mut Client, id: &str, status: &str) -> Value {
    let task = ended(client, id).await;
    assert_eq!(task["status"], status, "{task}");
    task
}

/// The answer to a request of a client that understands tasks and can be asked something.
async fn request(client: &mut Client, method: &str, params: Value) -> Value {
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    let capabilities = json!({ "elicitation": {}, "extensions": tasks });
    let request = json!({ "op": "request", "method": method, "params": params, "capabilities": capabilities });
    client.request(request).await["body"].take()
}
