//! A server without a will of its own: each test says what it sends and what it expects.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use rejoin_client::{Event, Incoming, Session, Status};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderMap;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// Longer than anything here takes; a test that waits for it has failed.
const FAR_TOO_LONG: Duration = Duration::from_secs(20);

/// The id of the session that most tests have.
pub(crate) const SESSION: &str = "sess_first";

/// Waits for something that is sure to come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(FAR_TOO_LONG, future).await;
    waited.unwrap_or_else(|_| panic!("never came: {what}"))
}

pub(crate) struct FakeServer {
    listener: TcpListener,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/ws", self.listener.local_addr().unwrap())
    }

    pub(crate) async fn accept_tcp(&self) -> TcpStream {
        soon("a connection", self.listener.accept()).await.unwrap().0
    }

    /// The next connection, not greeted yet.
    #[expect(clippy::result_large_err, reason = "the library's own callback type")]
    pub(crate) async fn accept(&self) -> Peer {
        let stream = self.accept_tcp().await;
        let mut headers = HeaderMap::new();
        let read_headers = |request: &Request, response: Response| {
            headers = request.headers().clone();
            Ok::<_, ErrorResponse>(response)
        };
        let accepted = tokio_tungstenite::accept_hdr_async(stream, read_headers);
        let socket = soon("a handshake", accepted).await.unwrap();
        Peer { socket, headers, pongs: 0 }
    }

    /// The next connection, greeted with short waits.
    pub(crate) async fn greet(&self) -> Peer {
        let mut peer = self.accept().await;
        peer.connected(0.0).await;
        peer
    }

    /// The next connection, on which a session is asked for and created.
    pub(crate) async fn create(&self) -> Peer {
        let mut peer = self.greet().await;
        peer.expect("user.create_session").await;
        peer.created().await;
        peer
    }

    /// The next connection, on which the client comes back after this event and is confirmed.
    pub(crate) async fn resume(&self, last_seq: u64) -> Peer {
        let mut peer = self.greet().await;
        let asked = peer.expect("user.reconnect").await;
        assert_eq!(asked["content"]["last_seq"], last_seq);
        peer.resumed(last_seq + 1, Value::Null).await;
        peer
    }
}

/// The server's end of one connection.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) headers: HeaderMap,
    /// Pongs seen while something else was waited for.
    pub(crate) pongs: usize,
}

impl Peer {
    pub(crate) async fn connected(&mut self, heartbeat_interval_seconds: f64) {
        let content = json!({
            "connection_id": "c1", "server_version": "0", "protocol": 1,
            "heartbeat_interval_seconds": heartbeat_interval_seconds,
            "reconnect_backoff": [0.01], "max_reconnect_attempts": 5, "max_frame_bytes": 1_048_576,
        });
        self.send(json!({ "event": "system.connected", "content": content })).await;
    }

    pub(crate) async fn created(&mut self) {
        self.created_as(SESSION, "e1").await;
    }

    pub(crate) async fn created_as(&mut self, session_id: &str, epoch: &str) {
        self.send(json!({
            "event": "agent.session_created", "session_id": session_id,
            "content": { "session_id": session_id, "epoch": epoch },
            "metadata": { "resumed": false, "generation": 1, "epoch": epoch, "last_seq": 0,
                "replay_from": 1, "gap": null, "reconnect_token": "token-1" },
        }))
        .await;
    }

    pub(crate) async fn resumed(&mut self, replay_from: u64, gap: Value) {
        self.send(json!({
            "event": "agent.session_created", "session_id": SESSION,
            "content": "Session reconnected successfully",
            "metadata": { "resumed": true, "generation": 2, "epoch": "e1", "last_seq": 9,
                "replay_from": replay_from, "gap": gap, "reconnect_token": "token-2" },
        }))
        .await;
    }

    pub(crate) async fn event(&mut self, seq: u64) {
        self.send(event(seq)).await;
    }

    pub(crate) async fn heartbeat(&mut self, head: u64) {
        self.send(json!({ "event": "system.heartbeat", "metadata": { "seq": head } })).await;
    }

    pub(crate) async fn accepted(&mut self, message: &Value, in_seq: u64) {
        let content =
            json!({ "message_id": message["message_id"], "in_seq": in_seq, "duplicate": false });
        self.send(json!({ "event": "system.accepted", "content": content })).await;
    }

    pub(crate) async fn refused(&mut self, name: &str, metadata: Value) {
        self.send(json!({ "event": name, "content": "No.", "metadata": metadata })).await;
    }

    pub(crate) async fn notice(&mut self, metadata: Value) {
        let notice = json!({ "event": "system.notice", "content": "…", "metadata": metadata });
        self.send(notice).await;
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    pub(crate) async fn send_raw(&mut self, message: Message) {
        soon("room in the socket", self.socket.send(message)).await.unwrap();
    }

    /// The next frame of the client; nothing once it has closed.
    pub(crate) async fn receive(&mut self) -> Option<Value> {
        loop {
            match soon("a frame", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Pong(_))) => self.pongs += 1,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next frame of this name; acks may come before it, nothing else may.
    pub(crate) async fn expect(&mut self, name: &str) -> Value {
        loop {
            let frame = self.receive().await.unwrap_or_else(|| panic!("closed before {name}"));
            if frame["event"] == name {
                return frame;
            }
            assert_eq!(frame["event"], "user.ack", "while {name} was expected");
        }
    }

    /// Waits for an ack of this event.
    pub(crate) async fn expect_ack(&mut self, seq: u64) {
        while self.expect("user.ack").await["metadata"]["last_seq"] != seq {}
    }

    /// Waits until the client has closed.
    pub(crate) async fn expect_closed(mut self) {
        while self.receive().await.is_some() {}
    }

    pub(crate) async fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        self.socket.close(Some(frame)).await.unwrap();
        self.expect_closed().await;
    }

    /// Breaks the connection as a crashed machine's successor would: by a reset.
    pub(crate) fn reset(self) {
        self.socket.get_ref().set_zero_linger().unwrap();
    }
}

pub(crate) fn event(seq: u64) -> Value {
    json!({
        "event": "agent.thinking", "session_id": SESSION, "seq": seq,
        "event_id": format!("evt_0000000000000001-{seq}"), "content": { "number": seq },
    })
}

/// The next item other than a status.
pub(crate) async fn next_item(session: &mut Session) -> Incoming {
    loop {
        match soon("an item", session.next()).await.expect("the stream has ended") {
            Incoming::Status(_) => {}
            item => return item,
        }
    }
}

/// The next item other than a status, which must be an event.
pub(crate) async fn next_event(session: &mut Session) -> Event {
    match next_item(session).await {
        Incoming::Event(event) => event,
        other => panic!("{other:?} in place of an event"),
    }
}

/// Takes this many events, which must come without anything between them but statuses.
pub(crate) async fn next_seqs(session: &mut Session, count: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    for _ in 0..count {
        seqs.push(next_event(session).await.seq.get());
    }
    seqs
}

/// Reads on until this is how things stand. Nothing but statuses may come before.
pub(crate) async fn until_status(session: &mut Session, is_it: impl Fn(&Status) -> bool) -> Status {
    loop {
        match soon("a status", session.next()).await.expect("the stream has ended") {
            Incoming::Status(status) if is_it(&status) => return status,
            Incoming::Status(_) => {}
            other => panic!("{other:?} in place of a status"),
        }
    }
}

/// Reads on in the background, so that everything so far counts as handled.
pub(crate) fn read_on(mut session: Session) -> JoinHandle<()> {
    tokio::spawn(async move { while session.next().await.is_some() {} })
}

/// Reads on until the stream ends: the last item.
pub(crate) async fn last_item(session: &mut Session) -> Option<Incoming> {
    let mut last = None;
    while let Some(item) = soon("the end", session.next()).await {
        last = Some(item);
    }
    last
}
