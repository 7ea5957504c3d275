//! How a connection is opened and a session begins.

use futures_util::StreamExt;
use rejoin_client::{Incoming, Joined, Session, StartError, Status, StopReason};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::fake_server::{
    FakeServer, SESSION, event, last_item, next_event, next_seqs, read_on, soon,
};

#[tokio::test]
async fn a_first_connection_asks_for_a_session_and_gets_its_events() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).client_id("tests").app_version("7");
    let mut session = builder.start().await.unwrap();
    let mut peer = server.greet().await;
    let asked = peer.expect("user.create_session").await;
    assert_eq!(asked["content"], json!({ "client_id": "tests", "app_version": "7" }));
    peer.created().await;
    peer.event(1).await;
    peer.event(2).await;

    let Some(Incoming::Status(status)) = soon("a status", session.next()).await else { panic!() };
    assert_eq!(status, Status::Connecting);
    let Some(Incoming::Status(status)) = soon("a status", session.next()).await else { panic!() };
    let Status::Connected { session_id, how } = status else { panic!("{status:?}") };
    assert_eq!((session_id.as_str(), how), (SESSION, Joined::Created));
    assert!(matches!(session.status(), Status::Connected { .. }));

    let first = next_event(&mut session).await;
    assert_eq!((first.seq.get(), first.name(), first.replayed), (1, "agent.thinking", false));
    assert_eq!(first.content::<serde_json::Value>().unwrap()["number"], 1);
    assert_eq!(next_event(&mut session).await.seq.get(), 2);
    read_on(session);
    peer.expect_ack(2).await;
}

#[tokio::test]
async fn a_connection_that_can_not_be_had_is_tried_again() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    drop(server.accept_tcp().await); // no word, and the end
    let mut peer = server.create().await;
    peer.event(1).await;
    assert_eq!(next_event(&mut session).await.seq.get(), 1);
}

#[tokio::test]
async fn it_is_a_stream_like_any_other() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    let events = session.filter_map(|item| async {
        if let Incoming::Event(event) = item { Some(event.seq.get()) } else { None }
    });
    let first = soon("an event", std::pin::pin!(events).next()).await;
    assert_eq!(first, Some(1));
}

#[tokio::test]
async fn credentials_go_into_the_header() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).bearer("hunter2").header("X-Region", "north");
    assert!(!format!("{builder:?}").contains("hunter2"));
    let _session = builder.start().await.unwrap();
    let peer = server.accept().await;
    assert_eq!(peer.headers["authorization"], "Bearer hunter2");
    assert_eq!(peer.headers["x-region"], "north");
}

#[tokio::test]
async fn authentication_by_frame_comes_first_and_is_waited_for() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).authenticate_by_frame("hunter2");
    let mut session = builder.start().await.unwrap();
    let mut peer = server.greet().await;
    let first = peer.receive().await.unwrap();
    assert_eq!(first, json!({ "event": "user.authenticate", "content": { "token": "hunter2" } }));
    peer.send_raw(Message::Ping("still there?".into())).await;
    while peer.pongs == 0 {
        assert!(
            matches!(peer.socket.next().await, Some(Ok(Message::Pong(_)))),
            "nothing is sent before the answer"
        );
        peer.pongs += 1;
    }
    peer.send(json!({ "event": "system.authenticated" })).await;
    peer.expect("user.create_session").await;
    peer.created().await;
    peer.event(1).await;
    assert_eq!(next_event(&mut session).await.seq.get(), 1);
}

#[tokio::test]
async fn a_token_that_is_not_taken_ends_the_client() {
    let server = FakeServer::start().await;
    let builder = Session::builder(server.url()).authenticate_by_frame("wrong");
    let mut session = builder.start().await.unwrap();
    let mut peer = server.greet().await;
    peer.expect("user.authenticate").await;
    peer.close(4102, "").await;
    let last = last_item(&mut session).await;
    let reason = StopReason::Closed { code: 4102 };
    assert!(matches!(last, Some(Incoming::Status(Status::Stopped { reason: r })) if r == reason));
}

#[tokio::test]
async fn a_handshake_that_is_not_authorised_ends_the_client() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut stream = server.accept_tcp().await;
    let mut request = [0; 1024];
    assert!(stream.read(&mut request).await.unwrap() > 0);
    stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let last = last_item(&mut session).await;
    assert!(matches!(last, Some(Incoming::Status(Status::Stopped { .. }))), "{last:?}");
}

#[tokio::test]
async fn garbage_is_ignored() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    let deep = "[".repeat(50_000);
    let wrong = [
        "",
        "no JSON",
        "{}",
        "[1,2]",
        r#"{"event":7}"#,
        r#"{"event":"agent.x","seq":-1}"#,
        r#"{"event":"agent.x","seq":18446744073709551615}"#,
        r#"{"event":"system.heartbeat","metadata":"?"}"#,
        r#"{"event":"system.accepted","content":{"message_id":""}}"#,
        r#"{"event":"system.notice","metadata":{"code":"gap","from":1,"to":18446744073709551615}}"#,
        r#"{"event":"system.notice","metadata":{"code":"replay"},"content":{"events":[{}]}}"#,
        r#"{"event":"system.tomorrow","content":{}}"#,
        r#"{"event":"agent.session_created","metadata":{}}"#,
        r#"{"event":"agent.state_restored"}"#,
        r#"{"event":"agent.state_exported","metadata":{"signed_state":1}}"#,
        deep.as_str(),
    ];
    for text in wrong {
        peer.send_raw(Message::text(text)).await;
    }
    peer.send_raw(Message::binary(event(2).to_string().into_bytes())).await;
    peer.event(2).await;
    assert_eq!(next_seqs(&mut session, 2).await, [1, 2]);
    read_on(session);
    peer.expect_ack(2).await;
}

#[tokio::test]
async fn an_address_that_is_none_is_told_at_once() {
    let start = |url: &'static str| Session::builder(url).start();
    assert!(matches!(start("http://localhost/ws").await, Err(StartError::Url)));
    assert!(matches!(start("localhost").await, Err(StartError::Url)));
    assert!(matches!(start("ws://a b").await, Err(StartError::Url)));
    #[cfg(not(feature = "tls"))]
    assert!(matches!(start("wss://localhost/ws").await, Err(StartError::NoTls)));
    let header = Session::builder("ws://localhost/ws").bearer("hunter2\n").start().await;
    let error = header.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}
