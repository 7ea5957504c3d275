//! `user.ack`.

use serde_json::json;

use crate::support::Server;
use crate::support::client::seqs;

#[tokio::test]
async fn an_ack_has_no_answer_and_one_beyond_the_head_is_told() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 2).await;
    client
        .send(json!({
            "event": "user.ack", "session_id": id,
            "metadata": { "last_seq": 2, "received_count": 2, "gap_detected": false },
        }))
        .await;
    client.ack(&id, 3).await;
    let refused = client.error("ACK_AHEAD").await;
    assert_eq!(refused["session_id"], id.as_str());
    // It did not count.
    let confirmed = client.reconnect(&id, json!({})).await;
    assert_eq!(confirmed["metadata"]["replay_from"], 3);
}

#[tokio::test]
async fn a_client_that_missed_something_is_sent_it_again_as_a_replay() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let first = client.thoughts(&id, 6).await;
    client
        .send(json!({
            "event": "user.ack", "session_id": id,
            "metadata": { "last_seq": 3, "gap_detected": true },
        }))
        .await;
    let frames = client.replay().await;
    assert_eq!(seqs(&frames), [4, 5, 6]);
    assert!(frames[..3].iter().all(|frame| frame["metadata"]["replayed"] == true));
    assert_eq!(frames[0]["event_id"], first[3]["event_id"]);
    let metadata = &frames[3]["metadata"];
    assert_eq!(
        (&metadata["replayed"], &metadata["from"], &metadata["to"]),
        (&json!(3), &json!(4), &json!(6))
    );
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 7);
    // The ack itself counts as well.
    let confirmed = client.reconnect(&id, json!({})).await;
    assert_eq!(confirmed["metadata"]["replay_from"], 4);
}

#[tokio::test]
async fn sending_again_tells_what_is_gone_by_now() {
    let server = Server::start(&["--buffer-size=3"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.tell(&id, json!({ "count": 8 })).await;
    client.until_seq(8).await;
    client
        .send(json!({
            "event": "user.ack", "session_id": id,
            "metadata": { "last_seq": 2, "gap_detected": true },
        }))
        .await;
    let gap = client.notice("gap").await;
    assert_eq!((&gap["metadata"]["from"], &gap["metadata"]["to"]), (&json!(3), &json!(5)));
    assert_eq!(seqs(&client.replay().await), [6, 7, 8]);
}

#[tokio::test]
async fn acked_events_go_before_unacked_ones_and_only_those_that_go_are_missed() {
    let server = Server::start(&["--buffer-size=4"]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 4).await;
    client.ack(&id, 4).await;
    client.settled().await;
    client.thoughts(&id, 3).await;
    let confirmed = client.reconnect(&id, json!({})).await;
    assert_eq!(confirmed["metadata"]["gap"], json!(null), "nothing that was not acked is gone");
    assert_eq!(seqs(&client.replay().await), [5, 6, 7]);
}
