//! The scenarios of the seeds, end to end.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::client::seqs;
use crate::support::{Cut, Server, text, until};

both_ways!(
    brief_drop_while_the_agent_works,
    buffer_overflow_is_bridged_by_the_state,
    planned_export_and_coming_back_two_days_later,
    drop_in_the_middle_of_a_frame,
    many_drops_in_a_row_lose_nothing,
);

/// Seed 001, scenario 1, and seed 004, test 1.
async fn brief_drop_while_the_agent_works(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("answer");
    client.tell(&id, json!({ "count": 1 })).await;
    assert_eq!(client.until("agent.thinking").await["seq"], 1);
    let answers = json!([{ "event": "agent.tool_call" }, { "event": "agent.final_answer" }]);
    client.tell(&id, json!({ "wait": gate.path(), "say": answers })).await;
    server.puppet.until_heard(&["session.start", "user.message 1", "user.message 2"]).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.send(json!({ "event": "user.reconnect", "session_id": id })).await;
    assert_eq!(client.next().await["content"], "Session reconnected successfully");
    assert_eq!(seqs(&client.replay().await), [1], "it had not acked");
    gate.open();
    let (call, answer) = (client.next().await, client.next().await);
    assert_eq!((&call["event"], &call["seq"]), (&json!("agent.tool_call"), &json!(2)));
    assert_eq!((&answer["event"], &answer["seq"]), (&json!("agent.final_answer"), &json!(3)));
    client.ack(&id, 3).await;
    client.settled().await;
    let confirmed = client.reconnect(&id, json!({})).await;
    assert_eq!(confirmed["metadata"]["replay_from"], 4);
}

/// Seed 004, flow 2 and test 2.
async fn buffer_overflow_is_bridged_by_the_state(cut: Cut) {
    let mut server = Server::start(&["--buffer-size=10", "--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 5).await;
    let gate = server.puppet.gate("go");
    let plan = json!({ "stage": "planning", "plan_context": { "question": "q", "tasks": [1] } });
    client.tell(&id, json!({ "wait": gate.path(), "count": 40, "state": plan })).await;
    server.puppet.until_heard(&["session.start", "user.message 1", "user.message 2"]).await;
    server.cut(client, cut).await;
    gate.open();
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 5 })).await;
    client.until_seq(45).await;
    // A second device has seen no more than that, either.
    let mut client = server.connect().await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": 5 })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": 6, "to": 35 }));
    let gap = client.notice("gap").await;
    assert_eq!(gap["metadata"]["lost"], json!(null));
    let state = client.next().await;
    assert_eq!(state["metadata"]["session_state"]["plan_context"]["question"], "q");
    assert_eq!(state["metadata"]["current_operation"], "planning");
    assert_eq!(seqs(&client.replay().await), (36..=45).collect::<Vec<u64>>());
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 46, "operation resumes");
}

/// Seed 001, scenario 3.
async fn planned_export_and_coming_back_two_days_later(cut: Cut) {
    let mut server = Server::start(&["--state-ttl=72h", "--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client
        .tell(&id, json!({ "count": 2, "state": { "stage": "solving", "current_step": 2 } }))
        .await;
    while client.until("agent.thinking").await["seq"] != 2 {}
    let exported = client.export(&id, json!({})).await;
    assert_eq!(exported["metadata"]["expire_after_hours"], 72);
    client.send(json!({ "event": "user.cancel", "session_id": id })).await;
    assert_eq!(client.until("agent.cancelled").await["seq"], 3);
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    let signed_state = &exported["metadata"]["signed_state"];
    let restored = client.restore(signed_state, json!({ "last_seq": 3 })).await;
    let new = text(&restored["session_id"]);
    client.notice("replay_complete").await;
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 4);
}

/// Seed 004, test 4: half a message is no message, and half an event is not acked.
async fn drop_in_the_middle_of_a_frame(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 1).await;
    let message = json!({
        "event": "user.message", "session_id": id, "message_id": "half", "content": { "count": 1 },
    });
    let text = message.to_string();
    let length = (text.len() as u16).to_be_bytes();
    let mut bytes = vec![0x81, 0x80 | 126, length[0], length[1], 0, 0, 0, 0];
    bytes.extend_from_slice(&text.as_bytes()[..text.len() / 2]);
    client.bytes(&bytes).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    client.notice("replay_complete").await;
    client.raw(Message::text(text)).await;
    let accepted = client.next().await;
    let content = json!({ "message_id": "half", "in_seq": 2, "duplicate": false });
    assert_eq!(accepted["content"], content);
    assert_eq!(client.next().await["seq"], 2);
}

async fn many_drops_in_a_row_lose_nothing(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    // An agent that dies between two events of one message says them again, so then it says only one.
    let (rounds, count) = if cut == Cut::Server { (4, 1) } else { (15, 20) };
    // It names an in_seq, with a state, before anything goes wrong: from then on nothing is taken for
    // dealt with before it says so.
    client.tell(&id, json!({ "count": 1, "state": { "stage": "careful" } })).await;
    client.until("agent.thinking").await;
    let mut seen = 1;
    for round in 0..rounds {
        let message = json!({
            "event": "user.message", "session_id": id, "message_id": format!("m{round}"),
            "content": { "count": count },
        });
        client.send(message.clone()).await;
        // It reads a little, or nothing at all, before it is cut off.
        for _ in 0..(round % 3) * count / 4 {
            let frame = client.next().await;
            if let Some(seq) = frame["seq"].as_u64() {
                assert_eq!(seq, seen + 1);
                seen = seq;
            }
        }
        server.cut(client, cut).await;
        client = server.connect().await;
        client.reconnect(&id, json!({ "last_seq": seen })).await;
        client.send(message).await; // it may not have arrived
        loop {
            let frame = client.next().await;
            if frame["event"] == "system.accepted" {
                break;
            }
            if let Some(seq) = frame["seq"].as_u64() {
                assert_eq!(seq, seen + 1, "{frame}");
                seen = seq;
            }
        }
    }
    while seen < rounds * count + 1 {
        let frame = client.next().await;
        if let Some(seq) = frame["seq"].as_u64() {
            assert_eq!(seq, seen + 1, "{frame}");
            seen = seq;
        }
    }
    client.settled().await; // and nothing beyond
}

/// Seed 004, flow 3 and test 3.
#[tokio::test]
async fn an_expired_session_is_told_and_a_new_one_begins() {
    let server = Server::start(&["--session-ttl=100ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 2).await;
    drop(client);
    let mut client = server.connect().await;
    let ask = json!({
        "event": "user.reconnect_with_state", "session_id": id, "content": { "last_seq": 2 },
    });
    let mut witness = server.connect().await;
    until("the session has expired", async || {
        witness.send(json!({ "event": "user.request_state", "session_id": id })).await;
        witness.next().await["metadata"]["error_code"] == "SESSION_EXPIRED"
    })
    .await;
    client.send(ask).await;
    let failed = client.recovery_failed("SESSION_EXPIRED").await;
    assert_eq!(failed["content"], "Session expired, please create new session");
    assert_eq!(failed["metadata"]["recovery_strategy"], "create_new_session");
    let new = client.create().await;
    assert_ne!(new, id);
    assert_eq!(client.thoughts(&new, 1).await[0]["seq"], 1);
}
