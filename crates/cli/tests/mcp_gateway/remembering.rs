//! What Rejoin knows of a session when it was killed: whose turn it is to be given a token, which results a client
//! has, and what the server has asked.

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::common::server_process::ServerProcess;
use crate::gateway;
use crate::upstream::Upstream;
use crate::wire::Answer;

/// The built-in server, with a session.
async fn begin() -> (ServerProcess, Caller) {
    let rejoin = ServerProcess::start(vec!["--log-level=warn".to_owned()], "", &[]).await;
    let caller = Caller::begin(rejoin.address(), 1, 1).await;
    (rejoin, caller)
}

async fn kill(rejoin: &mut ServerProcess) {
    rejoin.kill_nine().await;
    rejoin.restart().await;
}

/// Calls a tool that answers at once; says the token that its result brings, if it does.
async fn token(caller: &Caller, id: u64) -> Option<String> {
    let result = caller.result(id, "recall", json!({})).await;
    result["_meta"]["rejoin/session"]["reconnect_token"].as_str().map(str::to_owned)
}

/// Goes over to a session, and says the ids of the calls whose results wait there.
async fn go_over(caller: &Caller, to: &Caller, token: &str) -> Vec<u64> {
    let arguments = json!({ "session_id": to.session, "reconnect_token": token });
    let result = caller.result(100, "reconnect_session", arguments).await;
    let told: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    let waiting = told["waiting"].as_array().unwrap_or_else(|| panic!("{told}"));
    waiting.iter().map(|call| call["request"]["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_token_that_was_used_before_rejoin_was_killed_is_followed_by_another_one() {
    let (mut rejoin, lost) = begin().await;
    let first = token(&lost, 1).await.unwrap();
    let caller = Caller::begin(rejoin.address(), 1, 2).await;
    go_over(&caller, &lost, &first).await;
    kill(&mut rejoin).await;
    assert!(token(&caller, 2).await.is_some_and(|next| next != first));
    assert_eq!(token(&caller, 3).await, None);
    kill(&mut rejoin).await;
    assert_eq!(token(&caller, 4).await, None, "none was used since");
}

#[tokio::test]
async fn results_that_were_fetched_before_rejoin_was_killed_wait_no_more_but_for_the_newest() {
    let (mut rejoin, lost) = begin().await;
    let first = token(&lost, 1).await.unwrap();
    let slowly = |ms: u64| json!({ "text": "late", "delay_ms": ms });
    let mut left = lost.calling(2, "slow_echo", slowly(100)).await;
    left.event().await.unwrap().unwrap();
    left.cut();
    lost.result(3, "slow_echo", slowly(300)).await;
    lost.result(4, "recall", json!({})).await;
    kill(&mut rejoin).await;

    let caller = Caller::begin(rejoin.address(), 1, 2).await;
    assert_eq!(go_over(&caller, &lost, &first).await, [2, 4]);
    let next = token(&caller, 5).await.unwrap();
    kill(&mut rejoin).await;

    let another = Caller::begin(rejoin.address(), 1, 3).await;
    assert_eq!(go_over(&another, &lost, &next).await, [5], "the reply had them, and was fetched");
}

/// The next message of a stream with this method, and the id of its event.
async fn next(stream: &mut Answer, method: &str) -> (Value, String) {
    loop {
        let event = stream.event().await.unwrap().expect("a message, not the end");
        if event.message["method"] == method {
            return (event.message, event.id);
        }
    }
}

#[tokio::test]
async fn a_question_that_was_open_when_rejoin_was_killed_is_withdrawn() {
    let upstream = Upstream::start().await;
    let mut rejoin = gateway(&upstream, &[]).await;
    let caller = Caller::begin(rejoin.address(), 1, 1).await;
    let mut call = caller.calling(1, "ask", json!({})).await;
    let (question, place) = next(&mut call, "elicitation/create").await;
    kill(&mut rejoin).await;
    let mut call = caller.come_back(&place).await;
    let (withdrawn, _) = next(&mut call, "notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let answer = call.event().await.unwrap().unwrap().message;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32050)));
}
