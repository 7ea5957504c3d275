//! Connections break; the session goes on.

use std::time::{Duration, Instant};

use rejoin_client::{Gap, Incoming, Seq, SeqRange, Session, Status, StopReason};
use serde_json::{Value, json};

use crate::fake_server::{
    FakeServer, SESSION, event, last_item, next_event, next_item, next_seqs, soon, until_status,
};

#[tokio::test]
async fn after_a_reset_events_go_on_without_duplicate_or_hole() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    for seq in 1..=3 {
        peer.event(seq).await;
    }
    assert_eq!(next_seqs(&mut session, 3).await, [1, 2, 3]);
    peer.reset();

    let mut peer = server.greet().await;
    let asked = peer.expect("user.reconnect").await;
    assert_eq!(asked["session_id"], SESSION);
    assert_eq!(
        asked["content"],
        json!({ "last_seq": 3, "epoch": "e1", "reconnect_token": "token-1", "batch": true })
    );
    peer.resumed(2, Value::Null).await;
    for seq in [2, 3, 4, 6, 5] {
        peer.event(seq).await; // 6 comes too early: it is dropped and asked for again
    }
    let reads = tokio::spawn(async move { next_seqs(&mut session, 3).await });
    let asked = peer.expect("user.ack").await;
    assert_eq!(asked["metadata"]["gap_detected"], true);
    peer.event(6).await;
    assert_eq!(soon("the rest", reads).await.unwrap(), [4, 5, 6]);
}

#[tokio::test]
async fn each_step_is_told() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let peer = server.create().await;
    until_status(&mut session, |status| matches!(status, Status::Connected { .. })).await;
    peer.reset();
    let mut peer = server.resume(0).await;
    peer.notice(json!({ "code": "replay_complete", "replayed": 0 })).await;

    let mut told = Vec::new();
    while told.last() != Some(&Status::CaughtUp) {
        match soon("a status", session.next()).await {
            Some(Incoming::Status(status)) => told.push(status),
            other => panic!("{other:?}"),
        }
    }
    let [Status::ConnectionLost, Status::Reconnecting { attempt: 1, .. }, Status::Connecting, ..] =
        told[..]
    else {
        panic!("{told:?}")
    };
    assert!(matches!(told[3..], [Status::Connected { .. }, Status::CaughtUp]), "{told:?}");
}

#[tokio::test]
async fn a_batch_of_replayed_events_is_taken_apart() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    server.create().await.reset();
    let mut peer = server.resume(0).await;
    peer.send(json!({
        "event": "system.notice", "metadata": { "code": "replay" },
        "content": { "events": [event(1), event(2), event(3)] },
    }))
    .await;
    for seq in 1..=3 {
        let event = next_event(&mut session).await;
        assert_eq!((event.seq.get(), event.replayed), (seq, true));
    }
}

#[tokio::test]
async fn a_superseded_client_stops() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    server.create().await.close(4100, "").await;
    let reason = StopReason::Superseded;
    let last = last_item(&mut session).await;
    assert!(matches!(last, Some(Incoming::Status(Status::Stopped { reason: r })) if r == reason));
}

#[tokio::test]
async fn a_draining_server_is_not_bothered_earlier_than_it_asks() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    peer.notice(json!({ "code": "draining" })).await;
    until_status(&mut session, |status| *status == Status::Draining).await;
    let closed_at = Instant::now();
    peer.close(4000, r#"{"retry_after_ms":400}"#).await;
    server.resume(0).await;
    assert!(closed_at.elapsed() >= Duration::from_millis(400), "{:?}", closed_at.elapsed());
}

#[tokio::test]
async fn a_busy_server_is_not_bothered_earlier_than_it_asks() {
    let server = FakeServer::start().await;
    let _session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.greet().await;
    peer.expect("user.create_session").await;
    let refused_at = Instant::now();
    let metadata = json!({ "error_code": "SERVER_BUSY", "retry_after_ms": 300 });
    peer.refused("agent.error", metadata).await;
    server.create().await;
    assert!(refused_at.elapsed() >= Duration::from_millis(300), "{:?}", refused_at.elapsed());
}

#[tokio::test]
async fn a_gap_is_told_before_the_next_event() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
    peer.reset();
    let mut peer = server.greet().await;
    peer.expect("user.reconnect").await;
    peer.resumed(6, json!({ "from": 2, "to": 5 })).await;
    peer.notice(json!({ "code": "gap", "from": 2, "to": 5, "reason": "evicted", "lost": { "from": 5, "to": 5 } }))
        .await;
    let metadata = json!({ "signed_state": "sealed", "seq": 4, "session_state": { "step": 4 } });
    peer.send(json!({ "event": "agent.state_exported", "metadata": metadata })).await;
    peer.event(6).await;

    let range = |from, to| SeqRange { from: Seq::new(from), to: Seq::new(to) };
    let expected = Gap::Evicted { missing: range(2, 5), lost: Some(range(5, 5)) };
    let item = next_item(&mut session).await;
    assert!(matches!(item, Incoming::Gap(gap) if gap == expected), "{item:?}");
    let Incoming::State(state) = next_item(&mut session).await else { panic!() };
    assert!(state.fills_gap);
    assert_eq!(state.read::<Value>().unwrap()["step"], 4);
    assert_eq!(next_seqs(&mut session, 1).await, [6]);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.accept().await;
    peer.connected(0.1).await;
    peer.expect("user.create_session").await;
    peer.created().await;
    peer.heartbeat(0).await;
    let lost = |status: &Status| *status == Status::ConnectionLost;
    let reads = tokio::spawn(async move { until_status(&mut session, lost).await });
    peer.expect("user.ack").await;
    soon("the loss", reads).await.unwrap();
    peer.expect_closed().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_comes_back() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
    session.handle().cut();
    peer.expect_closed().await;
    let mut peer = server.resume(1).await;
    peer.event(2).await;
    assert_eq!(next_seqs(&mut session, 1).await, [2]);
}

#[tokio::test]
async fn being_woken_cuts_a_wait_short() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.accept().await;
    let long = json!({ "reconnect_backoff": [1e6], "heartbeat_interval_seconds": 0 });
    peer.send(json!({ "event": "system.connected", "content": long })).await;
    peer.expect("user.create_session").await;
    peer.created().await;
    let mut status = session.handle().watch_status();
    let attached = status.wait_for(|status| matches!(status, Status::Connected { .. }));
    soon("the attachment", attached).await.unwrap();
    peer.reset();
    let waits = status.wait_for(|status| matches!(status, Status::Reconnecting { .. }));
    soon("a wait", waits).await.unwrap();
    session.handle().wake();
    server.resume(0).await;
}

#[tokio::test]
async fn attempts_that_come_to_nothing_are_followed_by_others() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    drop(server.accept_tcp().await); // it goes away in the middle of the handshake
    drop(server.accept_tcp().await);
    let peer = server.create().await;
    until_status(&mut session, |status| matches!(status, Status::Connected { .. })).await;
    peer.reset();
    drop(server.accept_tcp().await);
    let mut peer = server.resume(0).await;
    peer.event(1).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
}
