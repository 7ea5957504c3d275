//! Frames of WebSocket clients: a frame is sent, and its client hangs up so many turns later.

use std::io;

use axum::Router;
use futures_util::{SinkExt as _, StreamExt as _};
use rejoin::core::SessionId;
use rejoin::core::codes::Reason;
use rejoin::core::worker::Publication;
use rejoin::service::Include;
use rejoin::store::Store as _;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::abandonment::world::{World, at_each_await, polled};
use crate::common::{body, event, until};

/// A connection of a router that has no socket, so that time is the test's.
struct Client(WebSocketStream<DuplexStream>);

/// What is on its way in each direction.
const WIRE: usize = 64 * 1024;

struct Wires(mpsc::Receiver<DuplexStream>);

impl axum::serve::Listener for Wires {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(wire) => (wire, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Client {
    async fn of(router: &Router) -> Self {
        let (ours, theirs) = tokio::io::duplex(WIRE);
        let (wires, listener) = mpsc::channel(1);
        let router = router.clone();
        tokio::spawn(async move { axum::serve(Wires(listener), router).await });
        wires.send(theirs).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async("ws://127.0.0.1/ws", ours).await.unwrap();
        let mut client = Self(socket);
        client.hears("system.connected").await;
        client
    }

    /// One that is attached to a session.
    async fn attached(world: &World, id: &SessionId, token: &str) -> Self {
        let mut client = Self::of(&world.router).await;
        client.asks(reconnect(id, token), "agent.session_created").await;
        client
    }

    /// Sends a frame and waits for its answer.
    async fn asks(&mut self, frame: Value, answer: &str) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
        self.hears(answer).await;
    }

    async fn hears(&mut self, event: &str) {
        loop {
            let message = self.0.next().await.expect("the connection ended").unwrap();
            let Message::Text(text) = message else { continue };
            let frame: Value = serde_json::from_str(&text).unwrap();
            assert_ne!(frame["event"], "agent.error", "{frame}");
            if frame["event"] == event {
                return;
            }
        }
    }

    /// Sends a frame and hangs up after so many polls; says whether it was answered.
    async fn hangs_up(mut self, frame: Value, answer: &str, polls: usize) -> bool {
        polled(self.asks(frame, answer), polls).await.is_some()
    }
}

fn reconnect(id: &SessionId, token: &str) -> Value {
    let content = json!({ "reconnect_token": token, "last_seq": 0 });
    json!({ "event": "user.reconnect", "session_id": id, "content": content })
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_created_is_parked_when_its_client_has_gone() {
    at_each_await(async |world, polls| {
        let client = Client::of(&world.router).await;
        let create = json!({ "event": "user.create_session" });
        let answered = client.hangs_up(create, "agent.session_created", polls).await;
        world.settles().await;
        world.hook_knows_all().await;
        let sessions = world.sessions().await;
        assert!(sessions.len() == 1 || (sessions.is_empty() && !answered));
        for record in sessions {
            is_left(&world, record.id()).await;
        }
        answered
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_reconnected_to_is_parked_when_its_client_has_gone() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        let client = Client::of(&world.router).await;
        let reconnect = reconnect(&id, issued.token.as_str());
        let answered = client.hangs_up(reconnect, "agent.session_created", polls).await;
        world.settles().await;
        is_left(&world, &id).await;
        let record = world.record(&id).await;
        let came_back = usize::try_from(record.generation.get()).unwrap();
        assert_eq!(world.audited(&id).await, vec![Reason::Reconnected; came_back]);
        assert!(came_back == 1 || !answered);
        answered
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_restored_is_parked_when_its_client_has_gone() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let state = Some(body(r#"{"stage":"half","current_step":1}"#));
        let checkpoint = Publication { state, ..Publication::default() };
        world.service.sessions().publish(&id, checkpoint).await.unwrap();
        let exported = world.service.export(&world.visitor(), &id, Include::default()).await;
        let signed_state = exported.unwrap().signed_state;
        let restore = json!({ "event": "user.reconnect_with_state", "signed_state": signed_state });
        let client = Client::of(&world.router).await;
        let answered = client.hangs_up(restore, "agent.state_restored", polls).await;
        world.settles().await;
        let restored = usize::from(!world.record(&id).await.is_active());
        assert_eq!(world.hook.times("closed", &id), restored);
        assert_eq!(world.sessions().await.len(), 1 + restored);
        world.hook_knows_all().await;
        for record in world.sessions().await {
            is_left(&world, record.id()).await;
        }
        assert!(restored == 1 || !answered);
        answered
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_message_that_is_entered_reaches_the_agent() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        let client = Client::attached(&world, &id, issued.token.as_str()).await;
        let message = json!({ "event": "user.message", "session_id": id, "content": "hello" });
        let answered = client.hangs_up(message, "system.accepted", polls).await;
        world.settles().await;
        let entered = world.record(&id).await.in_head.get();
        until(async || world.running.count() as u64 == entered).await;
        assert!(entered == 1 || !answered);
        world.is_left(&id).await;
        answered
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_cancel_is_entered_or_not() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        world.work(&id).await;
        let client = Client::attached(&world, &id, issued.token.as_str()).await;
        let cancel = json!({ "event": "user.cancel", "session_id": id });
        let answered = client.hangs_up(cancel, "system.accepted", polls).await;
        world.settles().await;
        let entered = world.record(&id).await.in_head.get();
        assert!(entered == 2 || (entered == 1 && !answered), "{entered}");
        until(async || world.running.given() as u64 == entered).await;
        world.is_left(&id).await;
        answered
    })
    .await;
}

/// An ack has no answer: the one to a state that is asked for behind it says that it was read.
#[tokio::test(start_paused = true)]
pub(crate) async fn an_ack_is_kept_or_not_and_a_state_changes_nothing() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        let state = Some(body(r#"{"stage":"half","current_step":1}"#));
        let publication =
            Publication { events: vec![event("one")], state, ..Publication::default() };
        world.service.sessions().publish(&id, publication).await.unwrap();
        let mut client = Client::attached(&world, &id, issued.token.as_str()).await;
        let ack = json!({ "event": "user.ack", "session_id": id, "metadata": { "last_seq": 1 } });
        client.0.feed(Message::text(ack.to_string())).await.unwrap();
        let state = json!({ "event": "user.request_state", "session_id": id });
        let answered = client.hangs_up(state, "agent.state_exported", polls).await;
        world.settles().await;
        is_left(&world, &id).await;
        let record = world.record(&id).await;
        assert!(record.acked == record.head || !answered, "what was read is not kept");
        assert_eq!((record.head.get(), record.generation.get()), (1, 1));
        answered
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_ended_is_ended_for_everybody() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        world.work(&id).await;
        let client = Client::attached(&world, &id, issued.token.as_str()).await;
        let end = json!({ "event": "user.end_session", "session_id": id });
        let answered = client.hangs_up(end, "agent.session_ended", polls).await;
        world.settles().await;
        let ended = !world.record(&id).await.is_active();
        assert_eq!(world.hook.times("closed", &id), usize::from(ended));
        if ended {
            until(async || world.running.count() == 0 && world.service.sessions().live() == 0)
                .await;
        }
        assert!(ended || !answered);
        answered
    })
    .await;
}

/// The session goes on, nobody is attached, the hook was told of each who went, and no driver waits for somebody.
async fn is_left(world: &World, id: &SessionId) {
    world.is_left(id).await;
    let sessions = world.service.sessions();
    until(async || sessions.live() == 0).await;
    let attached = world.hook.times("attached", id);
    if world.store.session(id).await.unwrap().unwrap().is_active() {
        until(async || world.hook.times("disconnected", id) == attached).await;
    }
}
