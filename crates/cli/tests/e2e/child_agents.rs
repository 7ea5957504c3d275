//! Agents as child processes: what they are told, what becomes of what they say, and what happens when
//! they or the server die.

use serde_json::{Value, json};

use crate::support::client::seqs;
use crate::support::server::BUILT_IN_AGENT;
use crate::support::{Client, Cut, Server, text, until};

fn kill(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn a_child_is_told_what_it_goes_on_from() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 2, "state": { "stage": "half", "current_step": 1 } })).await;
    while client.until("agent.thinking").await["seq"] != 2 {}
    client.thoughts(&id, 3).await;
    let told = server.puppet.told();
    let start = &told[0];
    assert_eq!(start["event"], "session.start");
    assert_eq!(start["session_id"], id.as_str());
    let content =
        json!({ "session_id": id, "state": null, "in_seq": 0, "state_seq": 0, "last_seq": 0 });
    assert_eq!(start["content"], content);
    let message = &told[1];
    assert!(text(&message["timestamp"]).ends_with('Z'));
    assert!(message["message_id"].is_string());

    kill(server.puppet.pids()[0]);
    client.tell(&id, json!("go on")).await;
    until("a second child is told", async || server.puppet.told().len() >= 5).await;
    let told = server.puppet.told();
    let content = &told[3]["content"];
    assert_eq!(told[3]["event"], "session.start");
    assert_eq!(content["state"], json!({ "stage": "half", "current_step": 1 }));
    assert_eq!(
        (&content["in_seq"], &content["state_seq"], &content["last_seq"]),
        (&json!(2), &json!(2), &json!(5))
    );
    assert_eq!((&told[4]["event"], &told[4]["in_seq"]), (&json!("user.message"), &json!(3)));
}

/// How a child ends.
#[derive(Clone, Copy)]
enum Death {
    OfChild,
    OfServer,
}

async fn die(server: &mut Server, client: Client, id: &str, death: Death, last_seq: u64) -> Client {
    match death {
        Death::OfChild => {
            kill(*server.puppet.pids().last().unwrap());
            client
        }
        Death::OfServer => {
            server.cut(client, Cut::Server).await;
            let mut client = server.connect().await;
            client.reconnect(id, json!({ "last_seq": last_seq })).await;
            client.notice("replay_complete").await;
            client
        }
    }
}

async fn what_the_state_does_not_cover_is_handed_over_again(death: Death) {
    let mut server = Server::start(&["--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 1, "state": { "stage": "one" } })).await;
    client.until("agent.thinking").await;
    // Three messages that it takes and does not cover, as it says what it covers.
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "say": [{ "event": "agent.two" }] })).await;
    client.tell(&id, json!({ "say": [{ "event": "agent.three" }] })).await;
    client.send(json!({ "event": "user.cancel", "session_id": id })).await;
    client.until("system.accepted").await;
    until("the child is at work", async || {
        server.puppet.heard().contains(&"user.message 2".into())
    })
    .await;
    let mut client = die(&mut server, client, &id, death, 1).await;
    until("another child is at work", async || server.puppet.pids().len() == 2).await;
    gate.open();
    let mut names = Vec::new();
    while names.len() < 3 {
        let frame = client.next().await;
        if frame["seq"].is_u64() {
            names.push((text(&frame["event"]), frame["seq"].as_u64().unwrap()));
        }
    }
    let expected =
        [("agent.two".into(), 2), ("agent.three".into(), 3), ("agent.cancelled".into(), 4)];
    assert_eq!(names, expected, "in order, each once");
    let told = server.puppet.told();
    let start = told.iter().rfind(|line| line["event"] == "session.start").unwrap();
    assert_eq!(start["content"]["state"], json!({ "stage": "one" }));
    assert_eq!(start["content"]["in_seq"], 1);
}

#[tokio::test]
async fn what_the_state_does_not_cover_is_handed_over_again_after_the_child_died() {
    what_the_state_does_not_cover_is_handed_over_again(Death::OfChild).await;
}

#[tokio::test]
async fn what_the_state_does_not_cover_is_handed_over_again_after_the_server_died() {
    what_the_state_does_not_cover_is_handed_over_again(Death::OfServer).await;
}

#[tokio::test]
async fn an_agent_that_names_in_seq_without_a_state_loses_nothing_either() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 1).await;
    server.cut(client, Cut::Server).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    let gate = server.puppet.gate("go");
    client.tell(&id, json!({ "wait": gate.path(), "say": [{ "event": "agent.two" }] })).await;
    client.tell(&id, json!({ "say": [{ "event": "agent.three" }] })).await;
    until("the child is at work", async || {
        server.puppet.heard().contains(&"user.message 2".into())
    })
    .await;
    server.cut(client, Cut::Server).await;
    gate.open();
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(client.until_seq(2).await["event"], "agent.two");
}

/// An agent that never names an `in_seq`: it answers each message, and dies when told so.
const FORGETFUL: &str = r#"--agent=while read -r line; do
  echo "$line" >> "$E2E_TOLD"
  case "$line" in
    *'"user.message"'*'"die"'*) kill -9 $$ ;;
    *'"user.message"'*) echo '{"event":"agent.answer"}' ;;
  esac
done"#;

#[tokio::test]
async fn an_agent_that_names_no_in_seq_gets_only_the_newest_again() {
    let home = tempfile::tempdir().unwrap();
    let told = home.path().join("told");
    let server =
        Server::start_with(&[FORGETFUL], "", &[("E2E_TOLD", told.to_str().unwrap())]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    for number in 1..=3 {
        client.tell(&id, json!(number)).await;
        client.until("agent.answer").await;
    }
    client.tell(&id, json!("die")).await;
    let failed = client.until("agent.failed").await; // it dies each time it gets that again
    assert_eq!(failed["metadata"]["error_code"], "AGENT_FAILED");
    let lines = std::fs::read_to_string(&told).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<u64> = lines.iter().filter_map(|line| line["in_seq"].as_u64()).collect();
    assert_eq!(messages, [1, 2, 3, 4, 4, 4, 4, 4]);
}

#[tokio::test]
async fn five_deaths_within_a_minute_end_the_attempts_until_a_message_comes() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 1 })).await;
    client.until("agent.thinking").await;
    client.tell(&id, json!({ "then": "die" })).await;
    let failed = client.next().await;
    assert_eq!((&failed["event"], &failed["seq"]), (&json!("agent.failed"), &json!(2)));
    assert_eq!(failed["metadata"]["error_code"], "AGENT_FAILED");
    assert!(failed["content"].is_string());
    assert_eq!(server.puppet.pids().len(), 5);
    // It is an event like any other: it is replayed.
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    assert_eq!(client.replay().await[0]["event"], "agent.failed");
}

#[tokio::test]
async fn lines_that_are_no_events_are_ignored() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let raw = [
        "not json",
        "",
        "[1,2]",
        "{",
        "null",
        "{}",
        "\u{0}",
        "\"text\"",
        r#"{"event":7}"#,
        r#"{"event":""}"#,
        r#"{"content":"no name"}"#,
        r#"{"event":"system.notice","metadata":{"code":"draining"}}"#,
        r#"{"event":"system.anything"}"#,
        r#"{"event":"session.start"}"#,
        r#"{"event":"session.end"}"#,
        r#"{"event":"agent.error"}"#,
        r#"{"event":"agent.session_created"}"#,
        r#"{"event":"agent.session_ended"}"#,
        r#"{"event":"agent.state_exported"}"#,
        r#"{"event":"agent.state_restored"}"#,
        r#"{"event":"error.recovery_failed"}"#,
        r#"{"event":"agent.bad","in_seq":"one"}"#,
        r#"{"event":"agent.bad","metadata":"none"}"#,
    ];
    client.tell(&id, json!({ "raw": raw, "say": [{ "event": "agent.ok" }] })).await;
    let event = client.next().await;
    assert_eq!((&event["event"], &event["seq"]), (&json!("agent.ok"), &json!(1)));
    assert!(server.log().contains("ignored"), "{}", server.log());
}

#[tokio::test]
async fn events_arrive_as_they_were_said_with_the_envelope_around_them() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let said = [
        json!({ "event": "plan.start", "content": { "steps": [1, 2, { "ü": "\u{1F600}" }] } }),
        json!({ "event": "solver.completed", "content": null, "metadata": { "took_ms": 12.5 } }),
        json!({ "event": "aggregator.x-y_z", "more": ["members"], "seq": 99, "session_id": "sess_forged", "event_id": "evt_forged" }),
        json!({ "event": "agent.failed", "content": "its own failure", "metadata": { "error_code": "AGENT_FAILED" } }),
    ];
    client.tell(&id, json!({ "say": said })).await;
    for (index, said) in said.iter().enumerate() {
        let event = client.next().await;
        assert_eq!(event["event"], said["event"]);
        assert_eq!((&event["seq"], &event["session_id"]), (&json!(index + 1), &json!(id)));
        assert_ne!(event["event_id"], "evt_forged");
        for member in ["content", "more"] {
            assert_eq!(event.get(member), said.get(member), "{event}");
        }
        let mut metadata = said.get("metadata").cloned().unwrap_or_else(|| json!({}));
        metadata["in_seq"] = json!(1); // the server says which message the agent had in hand
        metadata["message_id"] = event["metadata"]["message_id"].clone();
        assert!(metadata["message_id"].is_string(), "{event}");
        assert_eq!(event["metadata"], metadata);
    }
}

both_ways!(session_state_sets_the_state_alone);

async fn session_state_sets_the_state_alone(cut: Cut) {
    let mut server = Server::start(&["--auto-export-interval=0s"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let raw = json!({ "event": "session.state", "content": { "stage": "quiet", "current_step": 3 }, "in_seq": 1 });
    client.tell(&id, json!({ "raw": [raw.to_string()] })).await;
    let exported = client.next().await;
    assert_eq!(exported["event"], "agent.state_exported", "no event, but a changed state");
    assert_eq!(exported["metadata"]["session_state"]["stage"], "quiet");
    assert_eq!(exported["metadata"]["seq"], 0);
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({})).await;
    client.notice("replay_complete").await;
    let exported = client.export(&id, json!({})).await;
    assert_eq!(exported["metadata"]["session_state"]["current_step"], 3);
    client.thoughts(&id, 1).await;
    // Message 1 was covered: nobody was handed it twice.
    let again = server.puppet.heard().iter().filter(|line| *line == "user.message 1").count();
    assert_eq!(again, 1);
}

#[tokio::test]
async fn in_seq_only_grows() {
    let server = Server::start(&["--auto-export-interval=1h"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "say": [{ "event": "agent.a" }] })).await;
    client.tell(&id, json!({ "say": [{ "event": "agent.b" }] })).await;
    client.until("agent.b").await;
    client.tell(&id, json!({ "say": [{ "event": "agent.c", "in_seq": 1 }] })).await;
    client.until("agent.c").await;
    kill(server.puppet.pids()[0]);
    until("another child is told", async || server.puppet.heard().len() >= 6).await;
    assert_eq!(server.puppet.heard()[4..], ["session.start", "user.message 3"]);
    assert_eq!(server.puppet.told()[4]["content"]["in_seq"], 2);
}

#[tokio::test]
async fn what_a_child_says_on_standard_error_is_logged() {
    let agent = "--agent=echo 'a word for the operator' >&2; cat > /dev/null";
    let server = Server::start(&[agent]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!("x")).await;
    until("it is logged", async || server.log().contains("a word for the operator")).await;
}

#[tokio::test]
async fn an_idle_child_is_stopped_and_started_again_when_needed() {
    let server = Server::start(&["--child-idle-ttl=100ms"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 1, "state": { "stage": "kept" } })).await;
    client.until("agent.thinking").await;
    drop(client);
    let pid = server.puppet.pids()[0];
    until("the child is gone", async || !std::fs::exists(format!("/proc/{pid}")).unwrap()).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 1 })).await;
    client.notice("replay_complete").await;
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 2);
    let start = server.puppet.told().into_iter().rfind(|line| line["event"] == "session.start");
    assert_eq!(start.unwrap()["content"]["state"]["stage"], "kept");
}

#[tokio::test]
async fn with_max_children_an_idle_one_makes_room() {
    let server = Server::start(&["--max-children=1"]).await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (first, second) = (one.create().await, two.create().await);
    for _ in 0..2 {
        one.thoughts(&first, 1).await;
        two.thoughts(&second, 1).await;
    }
    assert_eq!(seqs(&one.thoughts(&first, 1).await), [3]);
}

#[tokio::test]
async fn a_chatty_child_is_not_lost_a_word() {
    let server = Server::start(&["--buffer-size=10000", "--buffer-bytes=16MiB"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let thoughts = client.thoughts(&id, 5_000).await;
    assert_eq!(seqs(&thoughts), (1..=5_000).collect::<Vec<u64>>());
}

both_ways!(the_built_in_example_works_through_a_drop);

async fn the_built_in_example_works_through_a_drop(cut: Cut) {
    let mut server = Server::start(&[BUILT_IN_AGENT]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!("What is the answer?")).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(client.next().await["seq"].as_u64());
    }
    server.cut(client, cut).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 2 })).await;
    loop {
        let frame = client.next().await;
        seen.extend(frame["seq"].as_u64());
        if frame["event"] == "agent.final_answer" {
            break;
        }
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<u64>>(), "without holes, each once");
}
