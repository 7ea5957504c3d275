//! `user.message`, `user.cancel` and `user.end_session`: what reaches the agent, once and in order.

use serde_json::{Value, json};

use crate::support::{Cut, Server, text};

fn message(session: &str, message_id: &str, content: Value) -> Value {
    json!({
        "event": "user.message", "session_id": session, "message_id": message_id, "content": content,
    })
}

fn accepted(message_id: &str, in_seq: u64, duplicate: bool) -> Value {
    json!({ "message_id": message_id, "in_seq": in_seq, "duplicate": duplicate })
}

#[tokio::test]
async fn messages_are_accepted_in_order_and_reach_the_agent_as_they_are() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let contents =
        [json!("text"), json!({ "a": [1, 2.5, null, "ü\u{0}\n"] }), json!(""), json!(false)];
    for (index, content) in contents.iter().enumerate() {
        client.send(message(&id, &format!("m{index}"), content.clone())).await;
    }
    for index in 0..contents.len() {
        let answer = client.next().await;
        assert_eq!(answer["event"], "system.accepted");
        assert_eq!(answer["session_id"], id.as_str());
        assert_eq!(answer["content"], accepted(&format!("m{index}"), index as u64 + 1, false));
    }
    let heard =
        ["session.start", "user.message 1", "user.message 2", "user.message 3", "user.message 4"];
    server.puppet.until_heard(&heard).await;
    for (line, (index, content)) in
        server.puppet.told()[1..].iter().zip(contents.iter().enumerate())
    {
        assert_eq!(line["content"], *content);
        assert_eq!(line["message_id"], format!("m{index}"));
        assert_eq!(line["session_id"], id.as_str());
    }
}

#[tokio::test]
async fn a_message_without_an_id_is_given_one() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let (one, two) = (client.tell(&id, json!("x")).await, client.tell(&id, json!("x")).await);
    assert_ne!(one["content"]["message_id"], two["content"]["message_id"]);
    assert_eq!((&one["content"]["in_seq"], &two["content"]["in_seq"]), (&json!(1), &json!(2)));
    server.puppet.until_heard(&["session.start", "user.message 1", "user.message 2"]).await;
    assert_eq!(server.puppet.told()[1]["message_id"], one["content"]["message_id"]);
}

both_ways!(a_message_sent_again_after_a_drop_is_entered_once);

async fn a_message_sent_again_after_a_drop_is_entered_once(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let wish = json!({ "say": [{ "event": "agent.answer" }] });
    client.send(message(&id, "m1", wish.clone())).await;
    assert_eq!(client.next().await["content"], accepted("m1", 1, false));
    assert_eq!(client.next().await["seq"], 1);
    server.cut(client, cut).await;

    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    client.notice("replay_complete").await;
    client.send(message(&id, "m1", wish.clone())).await;
    assert_eq!(client.next().await["content"], accepted("m1", 1, true));
    client.send(message(&id, "m2", wish.clone())).await;
    assert_eq!(client.next().await["content"], accepted("m2", 2, false));
    assert_eq!(client.next().await["seq"], 2);
    client.send(message(&id, "m1", json!("other"))).await;
    let refused = client.error("INVALID_MESSAGE").await;
    assert_eq!(refused["metadata"]["message_id"], "m1");
    let heard = server.puppet.heard();
    let of = |name: &str| heard.iter().filter(|line| *line == name).count();
    assert_eq!((of("user.message 1"), of("user.message 2")), (1, 1), "{heard:?}");
}

both_ways!(a_message_whose_answer_was_lost_is_at_work_all_the_same);

async fn a_message_whose_answer_was_lost_is_at_work_all_the_same(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    let wish = json!({ "wait": gate.path(), "say": [{ "event": "agent.answer" }] });
    client.send(message(&id, "m1", wish.clone())).await;
    server.puppet.until_heard(&["session.start", "user.message 1"]).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({})).await;
    client.notice("replay_complete").await;
    client.send(message(&id, "m1", wish)).await;
    assert_eq!(client.next().await["content"], accepted("m1", 1, true));
    gate.open();
    let answer = client.next().await;
    assert_eq!((&answer["event"], &answer["seq"]), (&json!("agent.answer"), &json!(1)));
    // Whoever took it over, it was done once: the next event is about the next message.
    client.thoughts(&id, 1).await;
}

#[tokio::test]
async fn a_thousand_messages_wait_and_the_next_is_refused() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let gate = server.puppet.gate("go");
    // It names what it covers, so nothing counts as covered because the next was taken.
    client.tell(&id, json!({ "say": [{ "event": "agent.ready" }] })).await;
    client.until("agent.ready").await;
    client.tell(&id, json!({ "wait": gate.path(), "say": [{ "event": "agent.done" }] })).await;
    for number in 2..=1_000 {
        client.send(message(&id, &format!("m{number}"), json!("wait"))).await;
        if number % 50 == 0 {
            for _ in 0..if number == 50 { 49 } else { 50 } {
                assert_eq!(client.next().await["event"], "system.accepted");
            }
        }
    }
    client.send(message(&id, "one too many", json!("wait"))).await;
    let refused = client.error("SERVER_BUSY").await;
    assert_eq!(refused["metadata"]["message_id"], "one too many");
    assert!(refused["metadata"]["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0));
    // Nothing was entered: sent again later it is new.
    gate.open();
    assert_eq!(client.until("agent.done").await["seq"], 2);
    client.send(message(&id, "one too many", json!("wait"))).await;
    assert_eq!(client.next().await["content"], accepted("one too many", 1_002, false));
}

#[tokio::test]
async fn messages_wait_up_to_buffer_bytes() {
    let server = Server::start(&["--buffer-bytes=64KiB"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "say": [{ "event": "agent.ready" }] })).await;
    client.until("agent.ready").await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "say": [{ "event": "agent.done" }] })).await;
    let big = json!("x".repeat(30 * 1024));
    for number in 1..=2 {
        client.send(message(&id, &format!("m{number}"), big.clone())).await;
        assert_eq!(client.next().await["event"], "system.accepted");
    }
    client.send(message(&id, "m3", big)).await;
    client.error("SERVER_BUSY").await;
    gate.open();
}

#[tokio::test]
async fn a_cancel_is_entered_like_a_message() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!("work")).await;
    client.send(json!({ "event": "user.cancel", "session_id": id })).await;
    let answer = client.next().await;
    assert_eq!(answer["event"], "system.accepted");
    assert_eq!(
        (&answer["content"]["in_seq"], &answer["content"]["duplicate"]),
        (&json!(2), &json!(false))
    );
    assert!(!text(&answer["content"]["message_id"]).is_empty());
    let cancelled = client.next().await;
    assert_eq!((&cancelled["event"], &cancelled["seq"]), (&json!("agent.cancelled"), &json!(1)));
    server.puppet.until_heard(&["session.start", "user.message 1", "user.cancel 2"]).await;
}

both_ways!(a_cancel_with_an_id_is_entered_once);

async fn a_cancel_with_an_id_is_entered_once(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let cancel = json!({ "event": "user.cancel", "session_id": id, "message_id": "c1" });
    client.send(cancel.clone()).await;
    assert_eq!(client.next().await["content"], accepted("c1", 1, false));
    client.until("agent.cancelled").await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    client.notice("replay_complete").await;
    client.send(cancel).await;
    assert_eq!(client.next().await["content"], accepted("c1", 1, true));
}

#[tokio::test]
async fn a_session_that_its_user_ends_is_over_and_the_connection_stays_open() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let created = client.created().await;
    let id = text(&created["session_id"]);
    client.thoughts(&id, 3).await;
    client.send(json!({ "event": "user.end_session", "session_id": id })).await;
    let ended = client.next().await;
    assert_eq!(
        (&ended["event"], &ended["session_id"]),
        (&json!("agent.session_ended"), &json!(id))
    );
    server.puppet.until_heard(&["session.start", "user.message 1", "session.end"]).await;

    client.ask_back(&id, json!({})).await;
    client.error("SESSION_CLOSED").await;
    client
        .ask_back(&id, json!({ "reconnect_token": created["metadata"]["reconnect_token"] }))
        .await;
    client.error("SESSION_CLOSED").await;
    client.send(json!({ "event": "user.reconnect_with_state", "session_id": id, "content": { "last_seq": 1 } })).await;
    client.recovery_failed("SESSION_CLOSED").await;
    client.send(json!({ "event": "user.request_state", "session_id": id })).await;
    let refused = client.error("SESSION_INACTIVE").await;
    assert_eq!(refused["content"], "Session is not active");
    client.send(message(&id, "m", json!(1))).await;
    client.error("SESSION_CLOSED").await;
    client.send(json!({ "event": "user.end_session", "session_id": id })).await;
    client.error("SESSION_CLOSED").await;
    client.ack(&id, 1).await;
    client.error("SESSION_CLOSED").await;
    let next = client.create().await;
    client.thoughts(&next, 1).await;
}

both_ways!(an_ended_session_stays_ended);

async fn an_ended_session_stays_ended(cut: Cut) {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 1).await;
    client.end(&id).await;
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.ask_back(&id, json!({ "last_seq": 0 })).await;
    client.error("SESSION_CLOSED").await;
}
