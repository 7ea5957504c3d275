//! A WebSocket client that speaks frames, as bare as can be: it does what a test tells it and nothing by
//! itself, besides checking what it gets and answering pings while it reads.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{PATIENCE, envelope, text};

/// One connection.
pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// `system.connected`.
    pub(crate) greeting: Value,
    /// Where heartbeats are not what a test is about, [`Client::next`] leaves them out.
    sees_heartbeats: bool,
    /// Every frame either side has sent, if somebody wants to know.
    transcript: Option<Vec<Said>>,
}

/// A frame of a transcript.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    ByClient(Value),
    ByServer(Value),
}

/// How a connection was closed.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) code: u16,
    /// The reason, read as JSON; null if it is none.
    pub(crate) reason: Value,
}

impl Client {
    pub(crate) fn new(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self { socket, greeting: Value::Null, sees_heartbeats: false, transcript: None }
    }

    pub(crate) fn seeing_heartbeats(mut self) -> Self {
        self.sees_heartbeats = true;
        self
    }

    /// From here on everything is written down.
    pub(crate) fn write_down(&mut self) {
        self.transcript = Some(vec![Said::ByServer(self.greeting.clone())]);
    }

    pub(crate) fn transcript(&mut self) -> Vec<Said> {
        self.transcript.take().unwrap_or_default()
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.raw(Message::text(frame.to_string())).await;
        if let Some(transcript) = &mut self.transcript {
            transcript.push(Said::ByClient(frame));
        }
    }

    pub(crate) async fn raw(&mut self, message: Message) {
        self.try_raw(message).await.expect("the connection takes a frame");
    }

    /// Sends to a server that may have closed already.
    pub(crate) async fn try_raw(
        &mut self,
        message: Message,
    ) -> Result<(), tokio_tungstenite::tungstenite::Error> {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the socket takes nothing")
    }

    /// Bytes that need not be whole frames.
    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        use tokio::io::AsyncWriteExt as _;
        let MaybeTlsStream::Plain(stream) = self.socket.get_mut() else {
            panic!("the tests speak without TLS");
        };
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => self.read(&text),
            other => panic!("a frame was expected, not {other:?}"),
        }
    }

    fn read(&mut self, text: &str) -> Value {
        let frame: Value = serde_json::from_str(text).expect("frames are JSON");
        envelope::check(&frame);
        if let Some(transcript) = &mut self.transcript {
            transcript.push(Said::ByServer(frame.clone()));
        }
        frame
    }

    /// The next message that is no ping or pong, and no heartbeat unless these are wanted.
    async fn message(&mut self) -> Message {
        let message = async {
            loop {
                let next = self.socket.next().await.expect("the connection ended without a word");
                match next.unwrap() {
                    Message::Ping(_) | Message::Pong(_) => {}
                    Message::Text(text) if !self.sees_heartbeats && is_heartbeat(&text) => {}
                    other => return other,
                }
            }
        };
        timeout(PATIENCE, message).await.expect("nothing comes")
    }

    /// Waits for a ping, leaving everything else out.
    pub(crate) async fn pinged(&mut self) {
        let pinged = async {
            while !matches!(self.socket.next().await.unwrap().unwrap(), Message::Ping(_)) {}
        };
        timeout(PATIENCE, pinged).await.expect("no ping comes");
    }

    /// Waits for a pong, leaving everything else out.
    pub(crate) async fn ponged(&mut self) -> Vec<u8> {
        let ponged = async {
            loop {
                if let Message::Pong(data) = self.socket.next().await.unwrap().unwrap() {
                    return data.to_vec();
                }
            }
        };
        timeout(PATIENCE, ponged).await.expect("no pong comes")
    }

    /// The next frame that is `event`, whatever comes before.
    pub(crate) async fn until(&mut self, event: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["event"] == event {
                return frame;
            }
        }
    }

    /// Reads until the event with this seq has come, whatever is missing before it.
    pub(crate) async fn until_seq(&mut self, seq: u64) -> Value {
        loop {
            let frame = self.next().await;
            if frame["seq"] == seq {
                return frame;
            }
        }
    }

    /// Everything up to the notice `replay_complete`, which is the last.
    pub(crate) async fn replay(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            frames.push(self.next().await);
            if frames.last().unwrap()["metadata"]["code"] == "replay_complete" {
                return frames;
            }
        }
    }

    /// The next frame, which is a notice with this code.
    pub(crate) async fn notice(&mut self, code: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["event"], "system.notice", "{frame}");
        assert_eq!(frame["metadata"]["code"], code, "{frame}");
        frame
    }

    /// The next frame, which is an error with this code.
    pub(crate) async fn error(&mut self, code: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["event"], "agent.error", "{frame}");
        assert_eq!(frame["metadata"]["error_code"], code, "{frame}");
        frame
    }

    /// The next frame, which says that coming back failed.
    pub(crate) async fn recovery_failed(&mut self, code: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["event"], "error.recovery_failed", "{frame}");
        assert_eq!(frame["metadata"]["error_code"], code, "{frame}");
        frame
    }

    /// How it is closed, after whatever frames come before.
    pub(crate) async fn closed(&mut self) -> Closed {
        loop {
            match self.message().await {
                Message::Text(text) => drop(self.read(&text)),
                Message::Close(Some(frame)) => {
                    self.gone().await; // which answers the close
                    let reason = serde_json::from_str(&frame.reason).unwrap_or(Value::Null);
                    return Closed { code: frame.code.into(), reason };
                }
                other => panic!("a close was expected, not {other:?}"),
            }
        }
    }

    /// Waits until the connection has ended, and says whether it was with a close frame.
    pub(crate) async fn gone(&mut self) -> bool {
        let gone = async {
            let mut closed = false;
            while let Some(Ok(message)) = self.socket.next().await {
                closed |= matches!(message, Message::Close(_));
            }
            closed
        };
        timeout(PATIENCE, gone).await.expect("the connection stays")
    }

    /// Makes a session and returns its id.
    pub(crate) async fn create(&mut self) -> String {
        text(&self.created().await["session_id"])
    }

    /// Makes a session and returns the confirmation.
    pub(crate) async fn created(&mut self) -> Value {
        let content = json!({ "client_id": "e2e", "app_version": "1.0.0" });
        self.send(json!({ "event": "user.create_session", "content": content })).await;
        let frame = self.next().await;
        assert_eq!(frame["event"], "agent.session_created", "{frame}");
        frame
    }

    /// Sends `user.reconnect`.
    pub(crate) async fn ask_back(&mut self, session: &str, content: Value) {
        let frame = json!({ "event": "user.reconnect", "session_id": session, "content": content });
        self.send(frame).await;
    }

    /// Comes back to a session and returns the confirmation.
    pub(crate) async fn reconnect(&mut self, session: &str, content: Value) -> Value {
        self.ask_back(session, content).await;
        let frame = self.next().await;
        assert_eq!(frame["event"], "agent.session_created", "{frame}");
        assert_eq!(frame["content"], "Session reconnected successfully");
        assert_eq!(frame["metadata"]["resumed"], true);
        frame
    }

    /// Sends `user.reconnect_with_state` with a sealed state.
    pub(crate) async fn ask_restore(&mut self, signed_state: &Value, content: Value) {
        let event = "user.reconnect_with_state";
        self.send(json!({ "event": event, "signed_state": signed_state, "content": content }))
            .await;
    }

    /// Goes on from a sealed state and returns the confirmation.
    pub(crate) async fn restore(&mut self, signed_state: &Value, content: Value) -> Value {
        self.ask_restore(signed_state, content).await;
        let frame = self.next().await;
        assert_eq!(frame["event"], "agent.state_restored", "{frame}");
        frame
    }

    /// Sends a message to the agent, and returns the answer to it.
    pub(crate) async fn tell(&mut self, session: &str, content: Value) -> Value {
        self.send(json!({ "event": "user.message", "session_id": session, "content": content }))
            .await;
        self.until("system.accepted").await
    }

    /// Has the agent think `count` thoughts and waits for them.
    pub(crate) async fn thoughts(&mut self, session: &str, count: u64) -> Vec<Value> {
        self.send(json!({
            "event": "user.message", "session_id": session, "content": { "count": count },
        }))
        .await;
        let mut thoughts = Vec::new();
        while thoughts.len() < count as usize {
            thoughts.push(self.until("agent.thinking").await);
        }
        thoughts
    }

    /// Has the agent store a state with its `count`th event and returns an export of it, sealed.
    pub(crate) async fn checkpoint(&mut self, id: &str, count: u64, step: u64) -> Value {
        let state = json!({ "stage": "solving", "current_step": step, "notes": ["kept"] });
        self.tell(id, json!({ "count": count, "state": state })).await;
        for _ in 0..count {
            self.until("agent.thinking").await;
        }
        self.settled().await; // an export that comes by itself is out of the way
        let exported = self.export(id, json!({})).await;
        assert_eq!(exported["metadata"]["session_state"]["current_step"], step);
        exported["metadata"]["signed_state"].clone()
    }

    /// Asks for the state and returns the export.
    pub(crate) async fn export(&mut self, session: &str, content: Value) -> Value {
        self.send(json!({
            "event": "user.request_state", "session_id": session, "content": content,
        }))
        .await;
        self.until("agent.state_exported").await
    }

    pub(crate) async fn ack(&mut self, session: &str, last_seq: u64) {
        let metadata = json!({ "last_seq": last_seq });
        self.send(json!({ "event": "user.ack", "session_id": session, "metadata": metadata }))
            .await;
    }

    /// Waits until everything sent before was dealt with: requests are answered in their order.
    pub(crate) async fn settled(&mut self) {
        self.send(json!({ "event": "user.request_state", "session_id": "sess_none" })).await;
        loop {
            let frame = self.until("agent.error").await;
            if frame["metadata"]["error_code"] == "SESSION_NOT_FOUND" {
                return;
            }
        }
    }

    pub(crate) async fn end(&mut self, session: &str) {
        self.send(json!({ "event": "user.end_session", "session_id": session })).await;
        self.until("agent.session_ended").await;
    }
}

fn is_heartbeat(text: &str) -> bool {
    text.contains(r#""event":"system.heartbeat""#)
}

/// The seqs of frames that have one.
pub(crate) fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect()
}
