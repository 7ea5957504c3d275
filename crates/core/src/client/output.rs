//! What a client wants done: by its socket, its application, its storage.

use std::sync::Arc;
use std::time::Duration;

use super::input::{Event, ExportedState};
use super::saved::{Saved, Secret};
use crate::codes::ErrorCode;
use crate::ids::{MessageId, SessionId};
use crate::position::{Epoch, InSeq, Seq};
use crate::resume::Gap;

/// Something to do. Outputs are carried out in the order they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a socket, and say [`Opened`](super::Input::Opened) or
    /// [`ConnectFailed`](super::Input::ConnectFailed).
    Connect,
    /// Write a frame to the socket.
    Send(ClientCommand),
    /// Drop the socket without waiting for the server, and say [`Closed`](super::Input::Closed).
    Close,
    /// Hand an event to the application. Events come in order, each once.
    Deliver(Event),
    /// Tell the application that events it has not seen are gone, before it gets the next one.
    DeliverGap(Gap),
    /// Hand the agent's state to the application.
    DeliverState {
        /// The state. Events up to its seq are reflected in it, also those delivered after it.
        state: ExportedState,
        /// Whether it stands in for the events of the gap just told.
        fills_gap: bool,
    },
    /// Tell the application that the in log has its message.
    Accepted {
        /// Which.
        message_id: MessageId,
        /// Its number there.
        in_seq: InSeq,
    },
    /// Tell the application that a message will not be sent (again).
    GivenUp {
        /// Which.
        message_id: MessageId,
        /// Why.
        reason: GivenUp,
    },
    /// Tell the application that something other than a message was refused, such as its wish for
    /// the state.
    Refused {
        /// Why.
        code: ErrorCode,
    },
    /// Tell the application how things stand.
    Status(Status),
    /// Keep this in place of what was kept before.
    Save(Saved),
}

/// A frame for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCommand {
    /// `user.create_session`.
    CreateSession,
    /// `user.reconnect`.
    Reconnect {
        /// The session to come back to.
        session_id: SessionId,
        /// The last event delivered; zero if none.
        last_seq: Seq,
        /// What it counts in, if it is known.
        epoch: Option<Epoch>,
        /// The reconnect token.
        token: Option<Secret>,
    },
    /// `user.reconnect_with_state`, the form with a snapshot.
    RestoreState {
        /// The snapshot.
        signed_state: Secret,
        /// The last event delivered; zero if none.
        last_seq: Seq,
        /// What it counts in, if it is known.
        epoch: Option<Epoch>,
    },
    /// `user.message`.
    Message {
        /// The session.
        session_id: SessionId,
        /// The message's id.
        message_id: MessageId,
        /// What it says.
        content: Arc<[u8]>,
    },
    /// `user.cancel`.
    Cancel {
        /// The session.
        session_id: SessionId,
        /// Its id.
        message_id: MessageId,
    },
    /// `user.ack`.
    Ack {
        /// The session.
        session_id: SessionId,
        /// The last event delivered.
        last_seq: Seq,
        /// Events delivered since the ack before.
        received_count: u64,
        /// Whether something after `last_seq` did not arrive and must be sent again.
        gap_detected: bool,
    },
    /// `user.request_state`, everything included: it becomes the saved snapshot.
    RequestState {
        /// The session.
        session_id: SessionId,
    },
    /// `user.end_session`.
    EndSession {
        /// The session.
        session_id: SessionId,
    },
}

/// How things stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// A socket is being opened.
    Connecting,
    /// Attached: messages go out, events come in.
    Connected {
        /// To this session.
        session_id: SessionId,
        /// In this way.
        how: Joined,
    },
    /// Everything that was missed has been delivered.
    CaughtUp,
    /// The server is about to go down; it will be back.
    Draining,
    /// The attachment is gone.
    ConnectionLost,
    /// The next attempt is made after a while.
    Reconnecting {
        /// Attempts since the last attachment, this one included.
        attempt: u32,
        /// The while.
        delay: Duration,
    },
    /// The session is gone; the server is asked to go on from the saved snapshot.
    Restoring,
    /// The session is gone for good, with the events not yet seen. A new one is created, or
    /// [`Status::Stopped`] follows.
    Expired {
        /// As the server put it.
        code: ErrorCode,
    },
    /// The end: this client does nothing any more.
    Stopped {
        /// Why.
        reason: StopReason,
    },
}

/// How a client came to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The session is new: its events begin anew.
    Created,
    /// The session is the one from before.
    Resumed,
    /// The session is a new one that goes on from the snapshot.
    Restored,
}

/// Why a client does nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The session was ended, by this client or by somebody else.
    Ended,
    /// Another connection has the session now. Coming back would only take it away again.
    Superseded,
    /// The server closed the socket with another code of the range that means stop.
    Closed {
        /// The code.
        code: u16,
    },
    /// The server refuses this client, for good or too often in a row.
    Refused {
        /// Why, the last time.
        code: ErrorCode,
    },
    /// The session is gone for good, and no other was wanted.
    Lost {
        /// As the server put it.
        code: ErrorCode,
    },
}

/// Why a message is not sent (again).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// The server will not have it.
    Refused(ErrorCode),
    /// It was never sent, and there is no session to send it to.
    NotSent,
    /// It was sent to a session that is gone, and not answered: the agent may have acted on it. It is
    /// not sent to another session unasked, for then it might act twice.
    OutcomeUnknown,
    /// Too many messages wait already.
    OutboxFull,
}
