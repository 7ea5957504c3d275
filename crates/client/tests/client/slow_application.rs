//! An application that does not read makes the server wait; it does not fill the memory, and the server
//! is told that somebody is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rejoin_client::{Session, Status};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::fake_server::{FakeServer, next_seqs, soon};

const EVENTS: u64 = 1_000;

#[tokio::test]
async fn the_server_waits_for_it_and_loses_nothing() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).window(16, 256 * 1024);
    let mut session = builder.start().await.unwrap();
    let mut peer = server.accept().await;
    peer.connected(0.05).await; // twice that, and a server that is not heard counts as gone
    peer.expect("user.create_session").await;
    peer.created().await;

    // 64 MB are more than two sockets' buffers can hold.
    let (mut sink, mut stream) = peer.socket.split();
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    let writer = tokio::spawn(async move {
        let content = "x".repeat(64 * 1024);
        for seq in 1..=EVENTS {
            let event = json!({ "event": "agent.thinking", "seq": seq, "content": content });
            sink.send(Message::text(event.to_string())).await.unwrap();
            count.store(seq, Ordering::Relaxed);
        }
        sink
    });
    // Pongs show that heartbeats would be answered; ten of them take much longer than a silence.
    let mut pongs = 0;
    while pongs < 10 {
        match soon("a pong", stream.next()).await.unwrap().unwrap() {
            Message::Pong(_) => pongs += 1,
            other => panic!("{other:?} of an application that handled nothing"),
        }
    }
    assert!(written.load(Ordering::Relaxed) < EVENTS, "nobody waited");
    assert!(matches!(session.status(), Status::Connected { .. }));

    // It reads at last: everything is there, on the same connection.
    let reader = tokio::spawn(async move { while stream.next().await.is_some() {} });
    let seqs = next_seqs(&mut session, usize::try_from(EVENTS).unwrap()).await;
    assert!(seqs.into_iter().eq(1..=EVENTS));
    let _sink = soon("the writer", writer).await.unwrap();
    session.close().await;
    soon("the reader", reader).await.unwrap();
}

#[tokio::test]
async fn patience_ends_and_the_session_comes_back_when_the_application_does() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).window(8, 1024).patience(Duration::ZERO);
    let mut session = builder.start().await.unwrap();
    let mut peer = server.accept().await;
    peer.connected(0.05).await;
    peer.expect("user.create_session").await;
    peer.created().await;
    for seq in 1..=15 {
        peer.event(seq).await;
    }
    // Nothing more is heard of it, so the server parks it.
    let silence = tokio::time::timeout(Duration::from_millis(300), peer.socket.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    peer.reset();
    assert_eq!(next_seqs(&mut session, 3).await, [1, 2, 3]);
    let back = tokio::spawn(async move { next_seqs(&mut session, 17).await });
    let mut peer = server.greet().await;
    let asked = peer.expect("user.reconnect").await;
    let last_seq = asked["content"]["last_seq"].as_u64().unwrap();
    assert!(last_seq >= 3);
    peer.resumed(last_seq + 1, json!(null)).await;
    for seq in last_seq + 1..=20 {
        peer.event(seq).await;
    }
    assert!(soon("the rest", back).await.unwrap().into_iter().eq(4..=20));
}
