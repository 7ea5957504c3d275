//! What can happen to a client: its socket, its server, its application, the time.

use std::sync::Arc;
use std::time::Duration;

use super::saved::Secret;
use crate::codes::ErrorCode;
use crate::ids::{EventId, MessageId, SessionId};
use crate::position::{Epoch, InSeq, Seq};
use crate::resume::Gap;

/// Something happened. What does not fit the moment (an event after the socket closed, a second
/// `Opened`) is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The socket that [`Connect`](super::Output::Connect) asked for is open. Who authenticates by
    /// frame writes `user.authenticate` before passing this on.
    Opened,
    /// No socket could be had. The driver bounds how long it tries.
    ConnectFailed {
        /// Fresh randomness, for the jitter of the next attempt.
        random: u32,
    },
    /// The socket is gone, whoever closed it; also the answer to [`Close`](super::Output::Close).
    Closed {
        /// The code in the server's close frame, if there was one.
        code: Option<u16>,
        /// `retry_after_ms` in the reason of the close frame, if it was there.
        retry_after: Option<Duration>,
        /// Fresh randomness, for the jitter of the next attempt.
        random: u32,
    },
    /// The server said something.
    Received(ServerEvent),
    /// The server was heard of, but what it said means nothing to a client: a ping, an event of a later
    /// version. Also said by a driver that does not read for a while, because its application is slow:
    /// a server is not silent while nobody listens.
    Heard,
    /// Nothing but time has passed: [`next_deadline`](super::Client::next_deadline) is due.
    Tick,
    /// The application has a message for the agent. It is kept until it is answered for; a message
    /// with an id that is kept already is the same message, and ignored.
    Send {
        /// Its id. It makes sending again harmless, so it must differ from message to message.
        message_id: MessageId,
        /// What it says, as it will stand in `content`.
        content: Arc<[u8]>,
    },
    /// The application wants the agent to stop what it is doing. Kept like a message, in order with
    /// them, so that it stops those sent before it and not those sent after.
    Cancel {
        /// Its id, so that sending it again can't stop what came later.
        message_id: MessageId,
    },
    /// The application wants the agent's state.
    RequestState,
    /// The application wants the session ended: its logs and snapshot are deleted, and messages that
    /// were not accepted yet are given up at once.
    End,
    /// The machine woke up or is online again: a wait is cut short, a silent socket not trusted.
    Wake,
}

/// A frame of the server, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// `system.connected`: the server's wishes about waiting.
    Connected {
        /// Upper bounds of the waits before the first, second, … attempt; the last one stays.
        backoff: Vec<Duration>,
        /// After this many refusals in a row the client stops.
        max_attempts: u32,
        /// How often heartbeats come; zero if never.
        heartbeat_interval: Duration,
    },
    /// `agent.session_created`: attached, to a new session or again to an old one.
    SessionCreated {
        /// The session.
        session_id: SessionId,
        /// Whether it was there before.
        resumed: bool,
        /// Its present epoch.
        epoch: Epoch,
        /// The first seq that will be sent.
        replay_from: Seq,
        /// What the client has not seen and will not see, all of it taken for lost; a
        /// [`ServerEvent::Gap`] says more.
        gap: Option<Gap>,
        /// The next reconnect token.
        token: Option<Secret>,
    },
    /// `agent.state_restored`: attached to a session that goes on from the client's snapshot.
    StateRestored {
        /// The session that goes on.
        new_session_id: SessionId,
        /// Its epoch. Its numbering goes on where the old session's stood.
        epoch: Epoch,
        /// What the client has not seen and will not see, all of it taken for lost; a
        /// [`ServerEvent::Gap`] says more.
        gap: Option<Gap>,
        /// The next reconnect token.
        token: Option<Secret>,
    },
    /// An event of the out log.
    Event(Event),
    /// `system.notice`, code `gap`.
    Gap(Gap),
    /// `system.notice`, code `replay_complete`.
    ReplayComplete,
    /// `agent.state_exported`.
    StateExported(ExportedState),
    /// `system.heartbeat`.
    Heartbeat {
        /// The last event the server has.
        head: Seq,
        /// The next reconnect token, when the last one is half used up.
        token: Option<Secret>,
    },
    /// `system.accepted`: the in log has the message.
    Accepted {
        /// Which.
        message_id: MessageId,
        /// Its number there.
        in_seq: InSeq,
        /// Whether it was there before.
        duplicate: bool,
    },
    /// `agent.error` or `error.recovery_failed`.
    Refused {
        /// What is wrong.
        code: ErrorCode,
        /// When it may be tried again.
        retry_after: Option<Duration>,
        /// The message it is about, if it is about one and the server says so.
        message_id: Option<MessageId>,
    },
    /// `system.notice`, code `superseded`: another connection has the session now.
    Superseded,
    /// `system.notice`, code `draining`: the server is about to go down.
    Draining,
    /// `agent.session_ended`.
    SessionEnded,
}

/// An event of the out log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// Its name for ever.
    pub event_id: Option<EventId>,
    /// Whether it was sent because the client came back, and not because it is new.
    pub replayed: bool,
    /// The whole frame, as it came.
    pub body: Arc<[u8]>,
}

/// The agent's state, as of a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedState {
    /// The sealed copy, to restore from.
    pub signed_state: Secret,
    /// The out position it stands for: events up to here are reflected in it.
    pub seq: Seq,
    /// The clear copy (`session_state`), for the application.
    pub state: Arc<[u8]>,
}
