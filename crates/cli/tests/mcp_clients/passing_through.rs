//! Nothing breaks: what passes the gateway is what passes without it.

use serde_json::{Value, json};

use crate::clients::{Client, Kind, text_of};
use crate::fixture::{HttpFixture, Runs};
use crate::rig::{Behind, Rig};

each_client_before!([stdio Stdio, http Http, direct Direct] every_kind_of_traffic_passes);
each_client_before!([stdio Stdio, http Http, direct Direct] what_passes_is_unchanged);
each_client_before!([stdio Stdio, http Http, direct Direct] many_calls_at_once_get_their_own_answers);

async fn every_kind_of_traffic_passes(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    exchange_everything(&mut rig.client, 5).await;
}

/// Progress, elicitation, sampling and logging, each with its answer. Of five reports of progress the client
/// passes on at least `reports`.
pub(crate) async fn exchange_everything(client: &mut Client, reports: usize) {
    assert_eq!(client.call("progress", json!({ "n": 5 })).await, "5 steps");
    let messages: Vec<_> =
        client.events_of("progress").iter().map(|line| line["params"]["message"].clone()).collect();
    let all = ["step 1", "step 2", "step 3", "step 4", "step 5"];
    assert!(messages.len() >= reports && messages == all[..messages.len()], "{messages:?}");

    assert_eq!(client.call("ask", json!({ "message": "Really?" })).await, "accept: yes");
    assert_eq!(client.call("sample", json!({ "prompt": "Who?" })).await, "a-test: hello");
    let asked = client.events_of("asked");
    let methods: Vec<_> = asked.iter().map(|line| &line["method"]).collect();
    assert_eq!(methods, ["elicitation/create", "sampling/createMessage"]);
    assert_eq!(asked[0]["params"]["message"], "Really?");
    assert_eq!(asked[1]["params"]["messages"][0]["content"]["text"], "Who?");

    assert_eq!(client.call("log", json!({ "n": 3, "level": "warning" })).await, "logged 3");
    let third = |line: &Value| line["params"]["data"] == "message 3";
    client.heard("the third message", third).await;
    let logged = client.events_of("notification");
    let logged = logged.iter().filter(|line| line["method"] == "notifications/message");
    let data: Vec<_> = logged.map(|line| &line["params"]["data"]).collect();
    assert_eq!(data, ["message 1", "message 2", "message 3"]);
}

async fn what_passes_is_unchanged(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let runs = Runs::new();
    let fixture = HttpFixture::start(&runs).await;
    let mut plain = Client::connect(kind, &fixture.url()).await;
    let value =
        json!({ "a": [1, 2.5, null, "\u{2028}ü🙂\"\\"], "large": 9_007_199_254_740_991_u64 });
    let requests = [
        json!({ "op": "list_tools" }),
        json!({ "op": "list_prompts" }),
        json!({ "op": "list_resources" }),
        json!({ "op": "read", "uri": "test://static-binary" }),
        json!({ "op": "read", "uri": "test://nowhere" }),
        json!({ "op": "call", "name": "echo", "arguments": { "value": value } }),
        json!({ "op": "call", "name": "big", "arguments": { "n": 500_000 } }),
        json!({ "op": "call", "name": "test_error_handling" }),
        json!({ "op": "call", "name": "no_such_tool" }),
    ];
    for request in requests {
        let (through, straight) =
            (rig.client.begin(request.clone()).await, plain.begin(request.clone()).await);
        let (through, straight) = (rig.client.answer(through).await, plain.answer(straight).await);
        assert_eq!(through, straight, "{request}");
    }
}

async fn many_calls_at_once_get_their_own_answers(kind: Kind, behind: Behind) {
    let mut rig = Rig::start(kind, behind).await;
    let mut calls = vec![];
    for number in 0..20_u64 {
        // The first to be asked are the last to answer.
        let arguments = json!({ "ms": 400 - number * 20, "key": number.to_string() });
        calls.push((number, rig.client.begin_call("slow", arguments).await));
    }
    for (number, call) in calls {
        let result = rig.client.answer(call).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(text_of(&result), format!("slept {} ms for {number}", 400 - number * 20));
        assert_eq!(rig.runs.started("slow", &number.to_string()), 1);
    }
}
