//! What people are told of outages: how long clients were away, and what happened before the server was
//! started again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::Server;

/// Long enough to be told from the time that a server takes to start.
const OUTAGE: Duration = Duration::from_secs(3);

async fn moments(server: &Server, id: &str) -> Vec<Value> {
    let timeline = server.get(&format!("/api/sessions/{id}/timeline")).await;
    timeline["moments"].as_array().unwrap().clone()
}

fn kinds(moments: &[Value]) -> Vec<&str> {
    moments.iter().map(|moment| moment["what"].as_str().unwrap()).collect()
}

fn last_away(moments: &[Value]) -> f64 {
    let away = moments.iter().rev().find_map(|moment| moment["away_seconds"].as_f64());
    away.expect("somebody came back")
}

/// A client that was attached at `attached` and lost its server at `left` was away for that long.
fn assert_away(away: f64, attached: Instant, left: Instant) {
    let (least, most) = (left.elapsed().as_secs_f64(), attached.elapsed().as_secs_f64());
    let is_right = away + 0.5 >= least && away <= most;
    assert!(is_right, "{away} s are told, between {least} and {most} s were right");
}

#[tokio::test]
async fn a_client_is_away_while_the_server_is_down() {
    let mut server = Server::start(&[]).await;
    let attached = Instant::now();
    let mut client = server.connect().await;
    let id = client.create().await;
    server.kill_nine().await;
    drop(client);
    let left = Instant::now();
    sleep(OUTAGE).await;
    server.restart().await;
    server.connect().await.reconnect(&id, json!({})).await;
    assert_away(last_away(&moments(&server, &id).await), attached, left);
    let longer = server.metric(r#"rejoin_reconnect_away_seconds_bucket{le="1"}"#).await;
    assert_eq!(longer, 0, "none was away for less than a second");
}

#[tokio::test]
async fn it_is_away_from_the_first_of_two_outages_on() {
    let mut server = Server::start(&[]).await;
    let attached = Instant::now();
    let mut client = server.connect().await;
    let id = client.create().await;
    server.kill_nine().await;
    drop(client);
    let left = Instant::now();
    sleep(OUTAGE / 2).await;
    // Killed again, before or after it has written that the session is parked.
    server.restart().await;
    server.connect().await.create().await;
    server.kill_nine().await;
    sleep(OUTAGE / 2).await;
    server.restart().await;
    server.connect().await.reconnect(&id, json!({})).await;
    assert_away(last_away(&moments(&server, &id).await), attached, left);
}

#[tokio::test]
async fn a_server_that_was_stopped_in_order_knows_when() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let attached = Instant::now();
    sleep(OUTAGE / 2).await;
    server.terminate();
    server.ended().await;
    drop(client);
    let left = Instant::now();
    sleep(OUTAGE).await;
    server.restart().await;
    server.connect().await.reconnect(&id, json!({})).await;
    assert_away(last_away(&moments(&server, &id).await), attached, left);
}

#[tokio::test]
async fn the_timeline_tells_what_was_before_the_server_was_killed() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let before = moments(&server, &id).await;
    assert_eq!(kinds(&before), ["created", "attached"]);
    server.kill_nine().await;
    drop(client);
    server.restart().await;
    let after = moments(&server, &id).await;
    assert_eq!(after[..2], before);
    assert_eq!(kinds(&after[2..]), ["parked_by_restart"]);
    server.connect().await.reconnect(&id, json!({})).await;
    let back = moments(&server, &id).await;
    assert_eq!(kinds(&back[3..]), ["attached", "resumed"]);
}

#[tokio::test]
async fn samples_outlive_the_server_and_counts_go_on() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    drop(client);
    server.connect().await.reconnect(&id, json!({})).await;
    let counted = async |server: &Server| {
        let whole = server.get("/api/overview").await["whole_server"].clone();
        let last = whole["samples"].as_array().unwrap().last().cloned().unwrap_or_default();
        let count = |sample: &Value| sample["reconnects"]["reconnected"].as_u64().unwrap_or(0);
        (count(&last), count(&whole["present"]), whole["samples"].as_array().unwrap().len())
    };
    let mut before = counted(&server).await;
    while before.0 == 0 {
        sleep(Duration::from_millis(100)).await;
        before = counted(&server).await;
    }
    server.kill_nine().await;
    server.restart().await;
    let after = counted(&server).await;
    assert!(after.2 >= before.2, "{} samples of {}", after.2, before.2);
    assert_eq!(after.1, before.1, "counts go on");
}
