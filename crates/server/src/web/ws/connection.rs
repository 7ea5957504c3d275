//! One connection: who it is, what it is attached to, and what comes next. It reads, writes and waits
//! in one task, so that nothing about it needs a lock, and ends when either side closes.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::StreamExt as _;
use futures_util::stream::{SplitSink, SplitStream};
use rejoin_core::codes::{CloseCode, ErrorCode};
use rejoin_core::record::{Record, Transport};
use rejoin_core::{InSeq, LogId, Seq, SessionId, Timestamp};
use rejoin_store::Unavailable;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::alone::Idle;
use super::outbox::Outbox;
use super::words::{self, Trouble};
use super::{frames, frames::Unreadable};
use crate::access::Caller;
use crate::attachment::{Attachment, Told};
use crate::lane::Lane;
use crate::metrics::Counted;
use crate::random;
use crate::service::{Phase, Service, Visitor};
use crate::web::intake::TOO_MUCH;
use crate::web::{Front, Intake};

/// How long a client that brings no credential has to say who it is.
const TO_AUTHENTICATE: Duration = Duration::from_secs(10);

/// How long a close may take to reach the client.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// So many bad messages …
const BAD_MESSAGES: usize = 100;

/// … within this time end the connection.
const BAD_WITHIN: Duration = Duration::from_secs(10);

/// Requests of one client that may wait for the store; beyond that its next ones are not read.
const WAITING_REPLIES: usize = 64;

/// Clients that are sent away come back after this long, and as much again at random.
const COME_BACK: Duration = Duration::from_millis(500);

/// One WebSocket connection.
pub(super) struct Connection {
    pub(super) front: Arc<Front>,
    id: String,
    address: Option<IpAddr>,
    /// Who it is; nobody until it has said so.
    pub(super) visitor: Option<Visitor>,
    pub(super) attached: Option<Attached>,
    pub(super) out: Outbox,
    /// Answers that wait for the store, in the order of their requests.
    pub(super) replies: Lane<MessageReply>,
    /// When the last bad messages came.
    bad: VecDeque<Timestamp>,
    /// Events were written and the session is to be told when the socket has taken them.
    pub(super) events_out: bool,
    pub(super) idle: Idle,
    pub(super) phase: watch::Receiver<Phase>,
    revocations: watch::Receiver<u64>,
    /// How much is read from it until it has said who it is.
    pub(super) intake: Intake,
    /// Whether it was told, without a session, that the server is going down.
    pub(super) told_draining: bool,
    _counted: Counted,
    /// When it is dropped whether or not its close has arrived.
    pub(super) closing: Option<Timestamp>,
}

/// The answer to a message: the frame, and the number under which the message was entered, if it was.
pub(super) struct MessageReply {
    pub(super) frame: String,
    pub(super) in_seq: Option<InSeq>,
    /// Whether the session can't be served: the store does not work.
    pub(super) is_unserved: bool,
}

/// What a connection is attached to.
pub(super) struct Attached {
    pub(super) attachment: Attachment,
    /// The session as it was confirmed.
    pub(super) record: Record,
    /// Whether replayed events go many to a frame.
    pub(super) batch: bool,
    /// Whether the replay is of a log that was gone when the session was restored.
    pub(super) log_gone: bool,
    /// The last event that was written to it, or that it had before.
    pub(super) sent: Seq,
    /// A state on its way, and the event that it must not come before.
    pub(super) held_state: Option<(Seq, String)>,
    /// The last state that was sent by itself, as a hash.
    pub(super) last_state: Option<u64>,
}

impl Attached {
    pub(super) fn id(&self) -> &SessionId {
        self.record.id()
    }

    /// Whether its client means this session, by its id or by the name that the client chose.
    pub(super) fn is(&self, said: &SessionId) -> bool {
        self.id() == said || self.id().client_name() == said.as_str()
    }

    pub(super) fn log(&self) -> LogId {
        self.record.log
    }
}

/// What becomes of a connection after something happened.
pub(super) enum AfterStep {
    GoOn,
    /// Close it with a word.
    Close(CloseCode),
    /// A frame was too large.
    TooLarge,
    /// Drop it without one: the client has gone, or is to see what a network does.
    Drop,
}

impl Connection {
    pub(super) fn new(
        front: Arc<Front>,
        caller: Option<Caller>,
        address: Option<IpAddr>,
        intake: Intake,
    ) -> Result<Box<Self>, Unavailable> {
        let now = front.service.now();
        let id = format!("conn_{:024x}", u128::from_le_bytes(random::bytes()?) >> 32);
        let visitor = caller.map(|caller| Visitor::over(Transport::WebSocket, caller, address));
        let next_beat = now + front.service.sessions().settings().session.heartbeat_interval;
        let (phase, revocations) = (front.service.phase(), front.credentials.revocations());
        let mut counted = Counted::by(&front.service.sessions().counted().connections);
        counted.set(true);
        Ok(Box::new(Self {
            front,
            id,
            address,
            visitor,
            attached: None,
            out: Outbox::default(),
            replies: Lane::new(),
            bad: VecDeque::new(),
            events_out: false,
            idle: Idle { opened: now, heard: now, next_beat, unanswered: false },
            phase,
            revocations,
            intake,
            told_draining: false,
            _counted: counted,
            closing: None,
        }))
    }

    /// Serves the connection until it ends. In a box, because a task has room for an argument twice.
    pub(super) async fn run(
        mut self: Box<Self>,
        mut sink: SplitSink<WebSocket, Message>,
        mut stream: SplitStream<WebSocket>,
    ) {
        self.greet();
        if self.service().is_draining() {
            self.tell_draining();
            self.close(CloseCode::Draining);
        }
        loop {
            match self.step(&mut sink, &mut stream).await {
                AfterStep::GoOn => {}
                AfterStep::Close(code) => self.close(code),
                AfterStep::TooLarge => self.close_with(1009, "the frame is too large".to_owned()),
                AfterStep::Drop => return,
            }
        }
    }

    /// Waits for one thing to happen and deals with it. Writing goes first: what was said before is
    /// what the client waits for.
    async fn step(
        &mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        stream: &mut SplitStream<WebSocket>,
    ) -> AfterStep {
        let wake = self.front.service.sessions().clock().instant(self.deadline());
        let takes_requests = self.out.has_room() && self.replies.len() < WAITING_REPLIES;
        let (closing, writing) = (self.closing.is_some(), !self.out.is_empty());
        tokio::select! {
            biased;
            written = self.out.write(sink), if writing => match written {
                Ok(()) => self.written(),
                Err(_) => AfterStep::Drop,
            },
            told = next_told(&mut self.attached) => self.on_told(told).await,
            reply = self.replies.next() => match self.send_reply(reply) {
                true => AfterStep::GoOn,
                false => AfterStep::Close(CloseCode::Busy),
            },
            () = next_change(&mut self.phase) => self.on_phase(),
            () = next_change(&mut self.revocations) => self.on_revocation(),
            () = sleep_until(wake) => self.on_deadline(),
            frame = stream.next(), if takes_requests || closing => match frame {
                // In a box: an idle connection has no room for what requests need.
                Some(Ok(message)) => {
                    let control = control_bytes(&message);
                    let next = Box::pin(self.on_message(message)).await;
                    match control {
                        Some(bytes) => self.intake.drop_control(bytes),
                        None => drop(self.intake.hand_on()),
                    }
                    next
                }
                Some(Err(error)) if is_too_large(&error) && !closing => AfterStep::TooLarge,
                Some(Err(error)) if is_too_much(&error) && !closing => AfterStep::Close(CloseCode::Busy),
                Some(Err(_)) | None => AfterStep::Drop,
            },
        }
    }

    /// Answers a message. Events that the agent says because of it may follow. Says whether the session is served.
    pub(super) fn send_reply(&mut self, reply: MessageReply) -> bool {
        self.out.text(reply.frame);
        if let Some(attached) = &mut self.attached {
            attached.attachment.answered(reply.in_seq);
        }
        !reply.is_unserved
    }

    fn greet(&mut self) {
        let settings = &self.front.settings;
        let session = &self.service().sessions().settings().session;
        let backoff: Vec<f64> =
            settings.reconnect_backoff.iter().map(Duration::as_secs_f64).collect();
        let content = json!({
            "connection_id": self.id,
            "server_version": env!("CARGO_PKG_VERSION"),
            "protocol": 1,
            "heartbeat_interval_seconds": whole_or_not(session.heartbeat_interval.as_secs_f64()),
            "reconnect_backoff": backoff.into_iter().map(whole_or_not).collect::<Vec<_>>(),
            "max_reconnect_attempts": settings.max_reconnect_attempts,
            "max_frame_bytes": settings.max_frame_bytes,
        });
        let frame = words::control("system.connected", None, self.now(), content, json!({}));
        self.out.text(frame);
    }

    /// The socket has taken everything.
    fn written(&mut self) -> AfterStep {
        if std::mem::take(&mut self.events_out)
            && let Some(attached) = &mut self.attached
        {
            attached.attachment.taken();
        }
        AfterStep::GoOn
    }

    async fn on_message(&mut self, message: Message) -> AfterStep {
        if self.closing.is_some() {
            return if matches!(message, Message::Close(_)) {
                AfterStep::Drop
            } else {
                AfterStep::GoOn
            };
        }
        self.idle.heard = self.now();
        self.idle.unanswered = false;
        match message {
            Message::Text(text) if text.len() > self.front.settings.max_frame_bytes => {
                AfterStep::TooLarge
            }
            Message::Binary(data) if data.len() > self.front.settings.max_frame_bytes => {
                AfterStep::TooLarge
            }
            Message::Text(text) => match frames::read(&text) {
                Ok(request) => self.on_request(request).await,
                Err(unreadable) => {
                    self.heard();
                    self.on_unreadable(&unreadable)
                }
            },
            Message::Binary(_) => {
                self.heard();
                if self.visitor.is_none() {
                    return self.ask_who();
                }
                let sentence = "Frames are text: one JSON object each";
                self.complain(Trouble::new(ErrorCode::InvalidMessage, sentence))
            }
            Message::Ping(_) | Message::Pong(_) => {
                if let Some(attached) = &mut self.attached {
                    attached.attachment.pong();
                }
                AfterStep::GoOn
            }
            Message::Close(_) => AfterStep::Drop,
        }
    }

    /// A frame came that says nothing to the session, but that its client lives.
    pub(super) fn heard(&mut self) {
        if let Some(attached) = &mut self.attached {
            attached.attachment.heard();
        }
    }

    fn on_unreadable(&mut self, unreadable: &Unreadable) -> AfterStep {
        if self.visitor.is_none() {
            return self.ask_who(); // strangers learn nothing about what can be read
        }
        let event = if unreadable.recovering { RECOVERY_FAILED } else { ERROR };
        let trouble = Trouble::new(unreadable.code, &unreadable.sentence);
        let message_id = unreadable.message_id.as_ref();
        self.out.text(trouble.frame(event, None, message_id, self.now()));
        self.count_bad()
    }

    /// Answers anything that comes before the client has said who it is.
    pub(super) fn ask_who(&mut self) -> AfterStep {
        let sentence = "Say who you are first, with user.authenticate";
        self.complain(Trouble::new(ErrorCode::Unauthorized, sentence))
    }

    /// Answers a message that makes no sense.
    pub(super) fn complain(&mut self, trouble: Trouble) -> AfterStep {
        self.out.text(trouble.frame(ERROR, None, None, self.now()));
        self.count_bad()
    }

    fn count_bad(&mut self) -> AfterStep {
        let now = self.now();
        self.bad.push_back(now);
        while self.bad.front().is_some_and(|first| now.since(*first) > BAD_WITHIN) {
            self.bad.pop_front();
        }
        let abuse = self.bad.len() >= BAD_MESSAGES;
        if abuse { AfterStep::Close(CloseCode::ProtocolAbuse) } else { AfterStep::GoOn }
    }

    /// When something is due that nobody else watches over.
    fn deadline(&self) -> Timestamp {
        if let Some(closing) = self.closing {
            return closing;
        }
        let credentials = &self.front.credentials;
        let credential = match &self.visitor {
            None => Some(self.idle.opened + TO_AUTHENTICATE),
            Some(visitor) => credentials.look_again(&visitor.caller).map(|wait| self.now() + wait),
        };
        let idle = self.attached.is_none().then(|| self.idle.next_beat.min(self.silent_at()));
        let far_off = self.now() + Duration::from_secs(3600);
        credential.into_iter().chain(idle).min().unwrap_or(far_off).min(far_off)
    }

    fn on_deadline(&mut self) -> AfterStep {
        let now = self.now();
        if self.closing.is_some_and(|at| at <= now) {
            return AfterStep::Drop;
        }
        let late = match &self.visitor {
            None => self.idle.opened + TO_AUTHENTICATE <= now,
            Some(_) => !self.may_stay(),
        };
        if late {
            return AfterStep::Close(CloseCode::NotAuthorised);
        }
        match self.attached {
            Some(_) => AfterStep::GoOn,
            None => self.beat_alone(now),
        }
    }

    /// Whether the credential that it came with is still good.
    fn may_stay(&self) -> bool {
        let Some(visitor) = &self.visitor else { return true };
        self.front.patience(&visitor.caller, Duration::MAX).is_some()
    }

    /// Some credentials were revoked, perhaps its own.
    fn on_revocation(&self) -> AfterStep {
        let stays = self.closing.is_some() || self.may_stay();
        if stays { AfterStep::GoOn } else { AfterStep::Close(CloseCode::NotAuthorised) }
    }

    fn close(&mut self, code: CloseCode) {
        let jitter = random::bytes().map_or(0, u16::from_le_bytes);
        let wait = COME_BACK + COME_BACK * u32::from(jitter) / u32::from(u16::MAX);
        self.close_with(code.code(), words::close_reason(code, wait));
    }

    fn close_with(&mut self, code: u16, reason: String) {
        // What it is attached to is parked at once, not when the close has arrived.
        self.attached = None;
        if code == CloseCode::HeartbeatLost.code() {
            self.out.clear(); // nobody is there to take it
        }
        self.out.push(Message::Close(Some(CloseFrame { code, reason: reason.into() })));
        self.closing = Some(self.now() + LAST_WORDS);
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn service(&self) -> &Service {
        &self.front.service
    }

    pub(super) fn now(&self) -> Timestamp {
        self.front.service.now()
    }
}

/// The reply to what could not be done.
pub(super) const ERROR: &str = "agent.error";

/// The same, where a client was coming back with what it knows.
pub(super) const RECOVERY_FAILED: &str = "error.recovery_failed";

/// What the session says next; never if there is none.
async fn next_told(attached: &mut Option<Attached>) -> Option<Told> {
    match attached {
        Some(attached) => attached.attachment.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the server goes a step further on its way down, or credentials are revoked.
async fn next_change<T>(changing: &mut watch::Receiver<T>) {
    if changing.changed().await.is_err() {
        std::future::pending::<()>().await; // it never will
    }
}

/// Whether the peer sent more than is read at all. The error's own type is another crate's, whose
/// version axum chooses; its words are what there is to go by.
fn is_too_large(error: &axum::Error) -> bool {
    error.to_string().contains("too long")
}

/// Whether the peer sent more at once than it may, on this connection and others.
fn is_too_much(error: &axum::Error) -> bool {
    error.to_string().contains(TOO_MUCH)
}

/// Bytes before the payload of a short frame of a client: two, and the mask.
const FRAME_HEAD: usize = 6;

/// The bytes of a frame that is no message, nor the end of one.
fn control_bytes(message: &Message) -> Option<usize> {
    match message {
        Message::Ping(data) | Message::Pong(data) => Some(data.len() + FRAME_HEAD),
        Message::Text(_) | Message::Binary(_) | Message::Close(_) => None,
    }
}

/// Seconds as people write them: 30, not 30.0.
fn whole_or_not(seconds: f64) -> serde_json::Value {
    if seconds.fract() == 0.0 { json!(seconds as u64) } else { json!(seconds) }
}
