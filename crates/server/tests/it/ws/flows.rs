//! The ways of coming back, in the order of section 3.

use std::time::Duration;

use rejoin::core::Principal;
use rejoin::core::limits::LogBounds;
use rejoin::core::record::Kind;
use rejoin::service::ServiceSettings;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::support::{Keys, Server, Setup, event, session};

#[tokio::test]
async fn a_new_session_is_confirmed_and_its_events_are_numbered_from_one() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    let created = client.create().await;
    assert_eq!(created["event"], "agent.session_created");
    let id = session(&created);
    assert_eq!(created["content"]["session_id"], id.as_str());
    let metadata = &created["metadata"];
    assert_eq!((&metadata["resumed"], &metadata["generation"]), (&json!(false), &json!(1)));
    assert_eq!((&metadata["last_seq"], &metadata["replay_from"]), (&json!(0), &json!(1)));
    assert_eq!(metadata["gap"], Value::Null);
    assert!(metadata["reconnect_token"].is_string() && metadata["capabilities"].is_array());
    assert_eq!(metadata["session_ttl_seconds"], 86_400);
    server.say(&id, (1..=3).map(event)).await;
    for seq in 1..=3 {
        let frame = client.next().await;
        assert_eq!((&frame["seq"], &frame["session_id"]), (&json!(seq), &json!(id)));
        assert_eq!(frame["content"], format!("thought {seq}"));
        assert_eq!(frame["metadata"]["replayed"], Value::Null);
    }
}

#[tokio::test]
async fn a_client_that_says_too_much_of_itself_gets_no_session_and_may_say_less() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    let says = |bytes: usize| {
        let content = json!({ "text": "x".repeat(bytes) });
        json!({ "event": "user.create_session", "content": content })
    };
    client.send(says(16 * 1024)).await;
    let refused = client.next().await;
    assert_eq!(refused["metadata"]["error_code"], "MESSAGE_TOO_LARGE", "{refused}");
    client.send(says(16 * 1000)).await;
    assert_eq!(client.next().await["event"], "agent.session_created");
}

#[tokio::test]
async fn a_client_that_comes_back_is_confirmed_replayed_to_told_and_then_live() {
    let server = Server::start(Setup::default()).await;
    let mut first = server.connect().await;
    let id = session(&first.create().await);
    server.say(&id, (1..=5).map(event)).await;
    drop(first);
    server.parked(&id).await;
    let mut client = server.connect().await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": 2 })).await;
    assert_eq!(confirmed["content"], "Session reconnected successfully");
    assert_eq!(confirmed["metadata"]["resumed"], true);
    assert_eq!(confirmed["metadata"]["generation"], 2);
    assert_eq!(confirmed["metadata"]["replay_from"], 3);
    for seq in 3..=5 {
        let frame = client.next().await;
        assert_eq!((&frame["seq"], &frame["metadata"]["replayed"]), (&json!(seq), &json!(true)));
    }
    let complete = client.next().await;
    let metadata = json!({ "code": "replay_complete", "replayed": 3, "from": 3, "to": 5 });
    assert_eq!(complete["metadata"], metadata);
    server.say(&id, [event(6)]).await;
    assert_eq!(client.next().await["seq"], 6);
}

#[tokio::test]
async fn a_replay_in_batches_comes_many_events_to_a_frame() {
    let server = Server::start(Setup::default()).await;
    let mut first = server.connect().await;
    let id = session(&first.create().await);
    server.say(&id, (1..=100).map(event)).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 0, "batch": true })).await;
    let batch = client.next().await;
    assert_eq!(batch["metadata"]["code"], "replay");
    let events = batch["content"]["events"].as_array().unwrap();
    assert_eq!(events.len(), 100);
    assert_eq!(
        (&events[99]["seq"], &events[99]["metadata"]["replayed"]),
        (&json!(100), &json!(true))
    );
    assert_eq!(client.next().await["metadata"]["code"], "replay_complete");
}

#[tokio::test]
async fn the_later_connection_wins_and_the_earlier_one_is_told() {
    let server = Server::start(Setup::default()).await;
    let mut first = server.connect().await;
    let id = session(&first.create().await);
    let mut second = server.connect().await;
    second.reconnect(&id, json!({})).await;
    assert_eq!(first.until("system.notice").await["metadata"]["code"], "superseded");
    assert_eq!(first.closed().await, 4100);
}

#[tokio::test]
async fn evicted_events_are_told_before_what_is_left() {
    let bounds = LogBounds { events: 3, ..LogBounds::default() };
    let setup = Setup { bounds: Some(bounds), ..Setup::default() };
    let server = Server::start(setup).await;
    let mut first = server.connect().await;
    let id = session(&first.create().await);
    drop(first);
    server.parked(&id).await;
    let state = json!({ "event": "plan.made", "state": { "stage": "planned", "current_step": 2 } });
    server.say(&id, [event(1), state]).await;
    server.say(&id, (3..=8).map(event)).await;
    let mut client = server.connect().await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": 2, "to": 5 }));
    assert_eq!(confirmed["metadata"]["replay_from"], 6);
    let gap = client.next().await;
    let lost = json!({ "from": 3, "to": 5 });
    let expected = json!({ "code": "gap", "reason": "evicted", "from": 2, "to": 5, "lost": lost });
    assert_eq!(gap["metadata"], expected);
    let state = client.next().await;
    assert_eq!(state["event"], "agent.state_exported");
    assert_eq!(state["metadata"]["seq"], 2);
    assert_eq!(state["metadata"]["session_state"]["stage"], "planned");
    assert_eq!(client.next().await["seq"], 6);
}

#[tokio::test]
async fn a_saved_state_makes_a_new_session_that_goes_on_with_the_numbering() {
    let server = Server::start(Setup::default()).await;
    let mut first = server.connect().await;
    let id = session(&first.create().await);
    let state = json!({ "event": "plan.made", "state": { "stage": "planned", "current_step": 2 } });
    server.say(&id, [event(1), state]).await;
    let exported = first.until("agent.state_exported").await;
    let signed_state = exported["metadata"]["signed_state"].clone();
    server.say(&id, (3..=4).map(event)).await;
    drop(first);
    server.parked(&id).await;

    let restore = json!({
        "event": "user.reconnect_with_state", "signed_state": signed_state,
        "content": { "last_seq": 2 },
    });
    let mut client = server.connect().await;
    client.send(restore.clone()).await;
    let restored = client.next().await;
    assert_eq!(restored["event"], "agent.state_restored", "{restored}");
    assert_eq!(restored["content"], "State restored successfully");
    let metadata = &restored["metadata"];
    let new = metadata["new_session_id"].as_str().unwrap().to_owned();
    assert_eq!(metadata["original_session_id"], id.as_str());
    assert_ne!(new, id);
    assert_eq!((&metadata["restored_step"], &metadata["replayed"]), (&json!(2), &json!(2)));
    for seq in 3..=4 {
        let frame = client.next().await;
        assert_eq!((&frame["seq"], &frame["session_id"]), (&json!(seq), &json!(new)));
    }
    assert_eq!(client.next().await["metadata"]["replayed"], 2);
    server.say(&new, [event(5)]).await;
    assert_eq!(client.next().await["seq"], 5);

    // A second device with the same snapshot meets it in the same session.
    let mut other = server.connect().await;
    other.send(restore).await;
    assert_eq!(other.next().await["metadata"]["new_session_id"], new.as_str());
    assert_eq!(client.closed().await, 4100);
}

#[tokio::test]
async fn messages_are_accepted_once_and_in_order() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    let id = session(&client.create().await);
    for number in 1..=3 {
        let message_id = format!("m{number}");
        let frame = json!({
            "event": "user.message", "session_id": id, "content": number, "message_id": message_id,
        });
        client.send(frame.clone()).await;
        client.send(frame).await;
    }
    for number in 1..=3 {
        for duplicate in [false, true] {
            let accepted = client.next().await;
            assert_eq!(accepted["event"], "system.accepted");
            let content = json!({
                "message_id": format!("m{number}"), "in_seq": number, "duplicate": duplicate,
            });
            assert_eq!(accepted["content"], content);
        }
    }
    let other = json!({
        "event": "user.message", "session_id": id, "content": "other", "message_id": "m1",
    });
    client.send(other).await;
    let refused = client.next().await;
    assert_eq!(refused["metadata"]["error_code"], "INVALID_MESSAGE");
    assert_eq!(refused["metadata"]["message_id"], "m1");
}

#[tokio::test]
async fn a_client_that_ends_its_session_stays_connected() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    let id = session(&client.create().await);
    client.send(json!({ "event": "user.end_session", "session_id": id })).await;
    assert_eq!(client.next().await["event"], "agent.session_ended");
    client.send(json!({ "event": "user.request_state", "session_id": id })).await;
    assert_eq!(client.next().await["metadata"]["error_code"], "SESSION_INACTIVE");
    let refused = client.reconnect(&id, json!({})).await;
    assert_eq!(refused["metadata"]["error_code"], "SESSION_CLOSED");
    assert_eq!(client.create().await["event"], "agent.session_created");
}

#[tokio::test]
async fn a_token_works_once_and_a_lost_reply_is_given_again() {
    let server = Server::start(Setup::default()).await;
    let mut first = server.connect().await;
    let created = first.create().await;
    let (id, token) = (session(&created), created["metadata"]["reconnect_token"].clone());
    drop(first);
    let mut next = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        let confirmed = client.reconnect(&id, json!({ "reconnect_token": token })).await;
        next.push(confirmed["metadata"]["reconnect_token"].clone());
    }
    assert_eq!(next[0], next[1]);
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "reconnect_token": next[0] })).await;
    assert_eq!(client.next().await["metadata"]["code"], "replay_complete");
    let refused = client.reconnect(&id, json!({ "reconnect_token": token })).await;
    assert_eq!(refused["metadata"]["error_code"], "TOKEN_REUSED");
    let refused = client.reconnect(&id, json!({ "reconnect_token": "x" })).await;
    assert_eq!(refused["metadata"]["error_code"], "TOKEN_INVALID");
}

#[tokio::test]
async fn a_session_of_an_mcp_client_is_none_here() {
    let server = Server::start(Setup::default()).await;
    let made = server.sessions.create(&Principal::anonymous(), Kind::Mcp, "{}").await.unwrap();
    let refused = server.connect().await.reconnect(made.id().as_str(), json!({})).await;
    assert_eq!(refused["metadata"]["error_code"], "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn nobody_reaches_a_session_of_somebody_else() {
    let server = Server::start(Setup { keys: Some(Keys), ..Setup::default() }).await;
    let mut alice = server.connect_as(Some("key-alice")).await;
    let created = alice.create().await;
    let (id, token) = (session(&created), created["metadata"]["reconnect_token"].clone());
    let mut bob = server.connect_as(Some("key-bob")).await;
    for content in [json!({}), json!({ "reconnect_token": token })] {
        let refused = bob.reconnect(&id, content).await;
        assert_eq!(refused["metadata"]["error_code"], "SESSION_NOT_FOUND");
    }
    let mut nobody = server.connect().await;
    nobody.send(json!({ "event": "user.create_session" })).await;
    assert_eq!(nobody.next().await["metadata"]["error_code"], "UNAUTHORIZED");
    nobody.send(json!({ "event": "user.authenticate", "content": { "token": "key-alice" } })).await;
    assert_eq!(nobody.next().await["event"], "system.authenticated");
    assert_eq!(nobody.reconnect(&id, json!({})).await["metadata"]["resumed"], true);
    let mut wrong = server.connect().await;
    wrong.send(json!({ "event": "user.authenticate", "content": { "token": "nonsense" } })).await;
    assert_eq!(wrong.closed().await, 4102);
}

#[tokio::test]
async fn a_connection_ends_with_the_credential_it_came_with() {
    let server = Server::start(Setup { keys: Some(Keys), ..Setup::default() }).await;
    let mut client = server.connect_as(Some("key-brief")).await;
    client.create().await;
    assert_eq!(client.closed().await, 4102);
}

#[tokio::test]
async fn bad_input_is_answered_and_a_hundred_of_it_end_the_connection() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    let id = session(&client.create().await);
    client.raw(Message::binary(vec![0, 255])).await;
    assert_eq!(client.next().await["metadata"]["error_code"], "INVALID_MESSAGE");
    for _ in 0..99 {
        client.raw(Message::text("{")).await;
    }
    assert_eq!(client.closed().await, 4103);
    let mut client = server.connect().await;
    assert_eq!(client.reconnect(&id, json!({})).await["metadata"]["resumed"], true);
}

#[tokio::test]
async fn a_frame_over_the_limit_closes_with_1009() {
    let server = Server::start(Setup::default()).await;
    let mut client = server.connect().await;
    client.raw(Message::text("x".repeat(1024 * 1024 + 1))).await;
    assert_eq!(client.closed().await, 1009);
}

#[tokio::test]
async fn two_heartbeats_without_an_answer_park_the_session() {
    let mut setup = Setup::default();
    setup.settings.session.heartbeat_interval = Duration::from_millis(50);
    setup.settings.session.heartbeat_timeout = Duration::from_millis(200);
    let server = Server::start(setup).await;
    let mut client = server.connect().await;
    let id = session(&client.create().await);
    // Acks keep it alive for longer than the timeout …
    for _ in 0..10 {
        let beat = client.until("system.heartbeat").await;
        assert_eq!(beat["metadata"]["seq"], 0);
        let ack = json!({ "event": "user.ack", "session_id": id, "metadata": { "last_seq": 0 } });
        client.send(ack).await;
    }
    // … and a client that does not even read, so that no pong goes out, is given up.
    server.parked(&id).await;
}

#[tokio::test]
async fn there_are_no_more_sessions_than_allowed() {
    let service = ServiceSettings { max_sessions: 1, ..ServiceSettings::default() };
    let server = Server::start(Setup { service, ..Setup::default() }).await;
    let mut client = server.connect().await;
    client.create().await;
    let refused = client.create().await;
    assert_eq!(refused["metadata"]["error_code"], "SERVER_BUSY");
    assert!(refused["metadata"]["retry_after_ms"].is_u64());
}
