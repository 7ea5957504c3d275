//! Messages reach the in log once, or their sender hears why not.

use rejoin_client::{
    ErrorCode, GivenUp, Incoming, MessageId, SendError, Session, Status, StopReason,
};
use serde_json::json;

use crate::fake_server::{FakeServer, last_item, next_event, soon};

#[tokio::test]
async fn an_unaccepted_message_is_sent_again_under_the_same_id_and_resolves_once() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let handle = session.handle();
    let sent = tokio::spawn(async move { handle.send(json!({ "text": "hello" })).await });
    let mut peer = server.create().await;
    let first = peer.expect("user.message").await;
    assert_eq!(first["content"], json!({ "text": "hello" }));
    peer.reset();

    let mut peer = server.resume(0).await;
    let second = peer.expect("user.message").await;
    assert_eq!(
        (&second["message_id"], &second["content"]),
        (&first["message_id"], &first["content"])
    );
    peer.accepted(&second, 7).await;
    peer.accepted(&second, 7).await;
    let accepted = soon("the answer", sent).await.unwrap().unwrap();
    assert_eq!(accepted.in_seq.get(), 7);
    assert_eq!(json!(accepted.message_id), first["message_id"]);

    // Nothing is left to send: the next frame is the next message.
    let handle = session.handle();
    let sent = tokio::spawn(async move { handle.send("more").await });
    let third = peer.expect("user.message").await;
    assert_eq!(third["content"], "more");
    peer.accepted(&third, 8).await;
    soon("the answer", sent).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_id_of_the_applications_own_goes_along() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let id = MessageId::parse("order-66").unwrap();
    let send = |content: &'static str| {
        let (handle, id) = (session.handle(), id.clone());
        tokio::spawn(async move { handle.send_with_id(id, content).await })
    };
    let (first, second) = (send("x"), send("x"));
    let mut peer = server.create().await;
    let message = peer.expect("user.message").await;
    assert_eq!(message["message_id"], "order-66");
    peer.accepted(&message, 1).await;
    // Both may wait for the one message, or the second is sent again after the first was answered.
    let answers = async { (first.await.unwrap().unwrap(), second.await.unwrap().unwrap()) };
    let again = async {
        let message = peer.expect("user.message").await;
        peer.accepted(&message, 1).await;
        std::future::pending::<()>().await;
    };
    let answers = tokio::select! {
        answers = soon("both answers", answers) => answers,
        () = again => unreachable!(),
    };
    assert_eq!(answers.0, answers.1);
}

#[tokio::test]
async fn a_refused_message_is_given_up_with_the_reason() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let receipt = session.handle().post("x").await.unwrap();
    let mut peer = server.create().await;
    let message = peer.expect("user.message").await;
    assert_eq!(message["message_id"], receipt.message_id().as_str());
    let metadata =
        json!({ "error_code": "MESSAGE_TOO_LARGE", "message_id": message["message_id"] });
    peer.refused("agent.error", metadata).await;
    let answer = soon("the answer", receipt).await;
    let reason = GivenUp::Refused(ErrorCode::MessageTooLarge);
    assert!(matches!(answer, Err(SendError::GivenUp(r)) if r == reason));
}

#[tokio::test]
async fn a_cancellation_is_accepted_like_a_message() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let handle = session.handle();
    let cancelled = tokio::spawn(async move { handle.cancel().await });
    let mut peer = server.create().await;
    let cancel = peer.expect("user.cancel").await;
    peer.accepted(&cancel, 3).await;
    assert_eq!(soon("the answer", cancelled).await.unwrap().unwrap().in_seq.get(), 3);
}

#[tokio::test]
async fn a_task_may_send_while_it_reads() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    for seq in 1..=20 {
        peer.event(seq).await;
    }
    assert_eq!(next_event(&mut session).await.seq.get(), 1);
    let handle = session.handle();
    let answer = tokio::spawn(async move {
        let message = peer.expect("user.message").await;
        for seq in 21..=40 {
            peer.event(seq).await;
        }
        peer.accepted(&message, 1).await;
        peer
    });
    soon("the answer", handle.send("x")).await.unwrap();
    assert_eq!(next_event(&mut session).await.seq.get(), 2);
    answer.await.unwrap();
}

#[tokio::test]
async fn an_ended_session_ends_the_stream() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).start().await.unwrap();
    let mut peer = server.create().await;
    session.handle().end();
    peer.expect("user.end_session").await;
    peer.send(json!({ "event": "agent.session_ended" })).await;
    let last = last_item(&mut session).await;
    let reason = StopReason::Ended;
    assert!(matches!(last, Some(Incoming::Status(Status::Stopped { reason: r })) if r == reason));
    assert!(matches!(session.handle().send("x").await, Err(SendError::Closed)));
}

#[tokio::test]
async fn a_session_that_is_closed_answers_those_who_wait() {
    let server = FakeServer::start().await;
    let session = Session::builder(server.url()).start().await.unwrap();
    let receipt = session.handle().post("x").await.unwrap();
    let mut peer = server.create().await;
    peer.expect("user.message").await;
    soon("the end", session.close()).await;
    assert!(matches!(soon("the answer", receipt).await, Err(SendError::Closed)));
    peer.expect_closed().await;
}
