//! Rejoin is killed at any moment of a `reconnect_session`. Whatever was done of it by then, its client ends up in the
//! session that it asked for: by its stream, or by asking again with the same token. The token counts once, its use is
//! no theft, and the token that follows it is good.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::caller::Caller;
use crate::common::server_process::ServerProcess;
use crate::random::Random;
use crate::seed;
use crate::wire::Answer;

/// How often it is killed; the moments are spread over the time that the call takes.
const KILLS: u64 = 60;

/// However slow the machine, nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

fn token_of(result: &Value) -> Option<String> {
    result["_meta"]["rejoin/session"]["reconnect_token"].as_str().map(str::to_owned)
}

fn arguments(session: &str, token: &str) -> Value {
    json!({ "session_id": session, "reconnect_token": token })
}

/// What the tool says in its result.
fn said(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

/// A session, and its token.
async fn session(rejoin: &ServerProcess, number: u64) -> (Caller, String) {
    let caller = Caller::begin(rejoin.address(), 1, number).await;
    let result = caller.result(1, "recall", json!({})).await;
    let token = token_of(&result).expect("the first result brings a token");
    (caller, token)
}

/// Reads a stream until its answer or its end; says the answer and the place it has come to.
async fn read(mut stream: Answer, place: &mut String) -> Option<Value> {
    while let Ok(Some(event)) = stream.event().await {
        *place = event.id;
        if event.message.get("result").is_some() || event.message.get("error").is_some() {
            return Some(event.message);
        }
    }
    None
}

/// Asks again until other requests are no longer in the way: the server runs the call again as well. Says the result.
async fn ask_again(caller: &Caller, session: &str, token: &str) -> Value {
    let asked = Instant::now();
    for id in 100.. {
        let result = caller.result(id, "reconnect_session", arguments(session, token)).await;
        if said(&result)["reason"] != "session_busy" {
            return result;
        }
        assert!(asked.elapsed() < PATIENCE, "{result}");
        sleep(Duration::from_millis(50)).await;
    }
    unreachable!("numbers do not end")
}

#[tokio::test]
async fn a_client_is_never_locked_out_by_a_kill_in_mid_reconnect() {
    let mut random = Random::of(seed(), 0);
    let mut rejoin = ServerProcess::start(vec!["--log-level=warn".to_owned()], "", &[]).await;
    let takes = {
        let ((to, token), from) =
            (session(&rejoin, 0).await, Caller::begin(rejoin.address(), 1, 1).await);
        let begun = Instant::now();
        assert_eq!(said(&ask_again(&from, &to.session, &token).await)["success"], true);
        begun.elapsed()
    };
    let (mut answered, mut resumed) = (0, 0);
    for kill in 0..KILLS {
        let (to, token) = session(&rejoin, kill).await;
        let from = Caller::begin(rejoin.address(), 1, kill).await;
        let micros = takes.as_micros() as u64 * 3 / 2;
        let moment = Duration::from_micros((kill * micros + random.between(0, micros)) / KILLS);
        let calling = async {
            let mut place = String::new();
            let answer = match from
                .try_calling(9, "reconnect_session", arguments(&to.session, &token))
                .await
            {
                Ok(stream) => read(stream, &mut place).await,
                Err(_) => None,
            };
            (answer, place)
        };
        let killing = async {
            sleep(moment).await;
            rejoin.kill_nine().await;
        };
        let (mut came, ()) = tokio::join!(calling, killing);
        rejoin.restart().await;
        answered += u64::from(came.0.is_some());
        if came.0.is_none() && !came.1.is_empty() {
            resumed += 1;
            let stream = from.come_back(&came.1.clone()).await;
            came.0 = timeout(PATIENCE, read(stream, &mut came.1)).await.expect("an answer comes");
        }
        let result = match &came.0 {
            Some(answer) => answer["result"].clone(),
            None => ask_again(&from, &to.session, &token).await,
        };
        let told = said(&result);
        assert_eq!(told["success"], true, "killed after {moment:?}: {told}");
        assert_eq!(used_tokens(&rejoin, &to.session).await, 1, "killed after {moment:?}");

        // Its own id is another name for the session from now on, and the next token is good.
        let recalled = from.result(200, "recall", json!({})).await;
        assert_eq!(recalled["isError"], false, "killed after {moment:?}: {recalled}");
        assert_eq!(status(&rejoin, &from.session).await, "restored", "killed after {moment:?}");
        assert_eq!(status(&rejoin, &to.session).await, "active", "killed after {moment:?}");
        let next = token_of(&result).or(token_of(&recalled));
        let next = next.unwrap_or_else(|| panic!("no token: {recalled}"));
        assert_ne!(next, token, "killed after {moment:?}");
        let another = Caller::begin(rejoin.address(), 1, 1_000 + kill).await;
        let told = said(&ask_again(&another, &to.session, &next).await);
        assert_eq!(told["success"], true, "killed after {moment:?}: {told}");
        assert_eq!(used_tokens(&rejoin, &to.session).await, 2, "killed after {moment:?}");
    }
    eprintln!("{answered} were answered before the kill, {resumed} went on with their stream");
    let trail = get(&rejoin, "/api/audit?limit=1000").await.to_string();
    assert!(!trail.contains("token_reused"), "{trail}");
}

async fn get(rejoin: &ServerProcess, path: &str) -> Value {
    let answer = crate::wire::send(rejoin.address(), "GET", path, &[], "").await;
    serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap()
}

/// How many tokens of a session were used.
async fn used_tokens(rejoin: &ServerProcess, session: &str) -> usize {
    let timeline = get(rejoin, &format!("/api/sessions/{session}/timeline")).await;
    let tokens = timeline["tokens"].as_array().unwrap_or_else(|| panic!("{timeline}"));
    tokens.iter().filter(|token| token["state"] == "used").count()
}

/// Whether a session goes on, or why it does not.
async fn status(rejoin: &ServerProcess, session: &str) -> String {
    let record = get(rejoin, &format!("/api/sessions/{session}")).await;
    let told = record["ended_reason"].as_str().or(record["status"].as_str());
    told.unwrap_or_else(|| panic!("{record}")).to_owned()
}
