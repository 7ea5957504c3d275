//! What is kept survives the program, and is never ahead of the application.

use std::io;

use rejoin_client::{FileKeep, Incoming, Keep, MemoryKeep, Saved, Session, SessionId};
use serde_json::json;

use crate::fake_server::{FakeServer, SESSION, next_item, next_seqs, soon};

#[tokio::test]
async fn a_session_in_a_file_goes_on_in_the_next_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.json");
    let server = FakeServer::start().await;
    let start = || Session::builder(server.url()).keep(FileKeep::new(&path)).start();

    let mut session = start().await.unwrap();
    let mut peer = server.create().await;
    for seq in 1..=3 {
        peer.event(seq).await;
    }
    assert_eq!(next_seqs(&mut session, 2).await, [1, 2]);
    soon("the end", session.close()).await; // the third was read for it, but not taken
    peer.expect_closed().await;

    let mut session = start().await.unwrap();
    let mut peer = server.greet().await;
    let asked = peer.expect("user.reconnect").await;
    assert_eq!(asked["session_id"], SESSION);
    assert_eq!(
        asked["content"],
        json!({ "last_seq": 2, "epoch": "e1", "reconnect_token": "token-1", "batch": true })
    );
    peer.resumed(3, json!(null)).await;
    peer.event(3).await;
    assert_eq!(next_seqs(&mut session, 1).await, [3]);
}

#[tokio::test]
async fn an_event_that_was_being_handled_when_the_program_died_comes_again() {
    let (server, keep) = (FakeServer::start().await, MemoryKeep::new());
    let builder = Session::builder(server.url()).keep(keep.clone());
    let mut session = builder.start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    peer.event(2).await;
    assert_eq!(next_seqs(&mut session, 2).await, [1, 2]);
    drop(session);
    peer.expect_closed().await;
    assert_eq!(keep.saved().unwrap().position.unwrap().seq.get(), 1);
}

#[tokio::test]
async fn an_event_is_kept_and_acked_only_when_the_next_is_asked_for() {
    let (server, keep) = (FakeServer::start().await, MemoryKeep::new());
    let builder = Session::builder(server.url()).keep(keep.clone());
    let mut session = builder.start().await.unwrap();
    let mut peer = server.create().await;
    peer.event(1).await;
    peer.event(2).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
    // The heartbeat makes an ack due. It stands for event 2, which nobody has seen.
    peer.heartbeat(2).await;
    let receipt = session.handle().post("are you done?").await.unwrap();
    let message = peer.receive().await.unwrap();
    assert_eq!(message["event"], "user.message", "no ack before it");
    peer.accepted(&message, 1).await;
    soon("the answer", receipt).await.unwrap();
    assert_eq!(keep.saved().unwrap().position.unwrap().seq.get(), 0);

    assert_eq!(next_seqs(&mut session, 1).await, [2]);
    let waits_for_more = tokio::spawn(async move { session.next().await });
    peer.expect_ack(2).await;
    assert_eq!(keep.saved().unwrap().position.unwrap().seq.get(), 2, "kept before it was acked");
    drop(peer);
    soon("more", waits_for_more).await.unwrap();
}

struct BrokenKeep;

impl Keep for BrokenKeep {
    fn load(&mut self) -> io::Result<Option<Saved>> {
        Ok(None)
    }

    fn save(&mut self, _: &Saved) -> io::Result<()> {
        Err(io::Error::other("no space left"))
    }
}

#[tokio::test]
async fn what_can_not_be_kept_is_told_and_not_acked() {
    let server = FakeServer::start().await;
    let mut session = Session::builder(server.url()).keep(BrokenKeep).start().await.unwrap();
    let mut peer = server.create().await;
    let Incoming::KeepFailed(error) = next_item(&mut session).await else { panic!() };
    assert_eq!(error.to_string(), "no space left");
    peer.event(1).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
    let reads = tokio::spawn(async move { next_seqs(&mut session, 1).await });
    peer.heartbeat(1).await; // asks for an ack; a pong is all there is
    let receipt_of_nothing = async {
        while peer.pongs == 0 {
            peer.send_raw(tokio_tungstenite::tungstenite::Message::Ping("".into())).await;
            let frame = tokio::time::timeout(std::time::Duration::from_millis(50), peer.receive());
            if let Ok(frame) = frame.await {
                panic!("{frame:?} was sent");
            }
        }
    };
    soon("a pong", receipt_of_nothing).await;
    peer.event(2).await;
    assert_eq!(soon("the event", reads).await.unwrap(), [2]);
}

#[tokio::test]
async fn a_session_is_joined_by_its_id_alone() {
    let server = FakeServer::start().await;
    let saved = Saved { session_id: Some(SessionId::parse(SESSION).unwrap()), ..Saved::default() };
    let mut session = Session::builder(server.url()).resume(saved).start().await.unwrap();
    let mut peer = server.greet().await;
    let asked = peer.expect("user.reconnect").await;
    assert_eq!(asked["content"], json!({ "last_seq": 0, "batch": true }));
    peer.resumed(1, json!(null)).await;
    peer.event(1).await;
    assert_eq!(next_seqs(&mut session, 1).await, [1]);
}
