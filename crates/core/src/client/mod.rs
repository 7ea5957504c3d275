//! The client's side: what to send, what to ignore and when to wait, without any IO.
//!
//! A [`Client`] is told what happened ([`Input`]) and says what to do ([`Output`]). Whoever drives it
//! owns the socket, the clock, the randomness and the storage, and repeats:
//!
//! 1. [`Client::poll_output`] until it has nothing more, carrying out each output in its order;
//! 2. wait for the first of: the socket, the application, [`Client::next_deadline`];
//! 3. [`Client::handle`] what happened, with the present time (for a deadline, [`Input::Tick`]).
//!
//! There is one socket at a time. Each [`Output::Connect`] is answered by one [`Input::Opened`] or
//! [`Input::ConnectFailed`], each socket that was opened ends with one [`Input::Closed`], also when
//! [`Output::Close`] asked for it; only these two need randomness. [`Status::Stopped`] is the last
//! output there is. A client is never started again: make another one from what was saved.
//!
//! What the application may rely on: it gets the out log in order, each event once, with no hole
//! except where [`Output::DeliverGap`] tells of one before the next event; and each of its messages is
//! either [accepted](Output::Accepted), once, or [given up](Output::GivenUp) with the reason.
//!
//! ```
//! use rejoin_core::client::{Client, ClientCommand, ClientOptions, Input, Output, ServerEvent, Status};
//! use rejoin_core::{Epoch, Seq, SessionId, Timestamp};
//!
//! let now = Timestamp::from_millis(0);
//! let mut client = Client::new(ClientOptions::default(), None);
//! assert_eq!(client.poll_output(), Some(Output::Status(Status::Connecting)));
//! assert_eq!(client.poll_output(), Some(Output::Connect));
//!
//! client.handle(Input::Opened, now); // nothing was saved, so it asks for a session
//! assert_eq!(client.poll_output(), Some(Output::Send(ClientCommand::CreateSession)));
//!
//! let session_id = SessionId::from_random([1; 16]);
//! let created = ServerEvent::SessionCreated {
//!     session_id: session_id.clone(),
//!     resumed: false,
//!     epoch: Epoch::from_text("e1"),
//!     replay_from: Seq::new(1),
//!     gap: None,
//!     token: None,
//! };
//! client.handle(Input::Received(created), now);
//! while client.poll_output().is_some() {} // its status, and what to save
//!
//! // The connection breaks. It waits for up to a second, here for a quarter of it, and comes back.
//! client.handle(Input::Closed { code: None, retry_after: None, random: 1 << 30 }, now);
//! let due = client.next_deadline().unwrap();
//! assert_eq!(due, Timestamp::from_millis(250));
//! client.handle(Input::Tick, due);
//! client.handle(Input::Opened, due);
//! let sent = std::iter::from_fn(|| client.poll_output()).last();
//! let reconnect = ClientCommand::Reconnect {
//!     session_id,
//!     last_seq: Seq::ZERO,
//!     epoch: Some(Epoch::from_text("e1")),
//!     token: None,
//! };
//! assert_eq!(sent, Some(Output::Send(reconnect)));
//! ```
//!
//! | file | what it decides |
//! |---|---|
//! | `input`, `output` | the surface: what can happen, what can be wanted |
//! | `connection` | the life of a socket: opened, silent, closed, waited for; the end |
//! | `recover` | what to ask for on a new socket, and what to fall back to when it is refused |
//! | `attached` | what to do with what comes in |
//! | `wishes` | what to do for the application: messages, the state, the end |
//! | `delivery` | the position: duplicates, holes, gaps, acks |
//! | `outbox` | messages that the server has not answered for |
//! | `backoff` | how long to wait |
//! | `saved`, `options` | what is kept between runs; what can be set |

mod attached;
mod backoff;
mod connection;
mod delivery;
mod input;
mod options;
mod outbox;
mod output;
mod recover;
mod saved;
#[cfg(test)]
mod tests;
mod wishes;

use std::collections::VecDeque;
use std::time::Duration;

pub use crate::ids::MessageId;
pub use delivery::DeliveryCounts;
pub use input::{Event, ExportedState, Input, ServerEvent};
pub use options::ClientOptions;
pub use output::{ClientCommand, GivenUp, Joined, Output, Status, StopReason};
pub use saved::{Saved, Secret, Snapshot};

use backoff::Backoff;
use connection::Phase;
use delivery::LogReceipt;
use outbox::{Letter, Outbox};

use crate::ids::SessionId;
use crate::limits;
use crate::time::Timestamp;

/// The client's side of one session, and of those that follow it if it is lost. The
/// [module's page](self) says in which order to call what.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    phase: Phase,
    /// The session to come back to; none before the first, and after one was lost.
    session_id: Option<SessionId>,
    token: Option<Secret>,
    /// When the token was first shown to a server, which has not answered since.
    token_shown_at: Option<Timestamp>,
    /// Whether the server was asked for the session on a socket and has not answered.
    asked: bool,
    /// Until when a socket that was given up may still bring an earlier ask to the server, which then
    /// takes it for another client.
    late_ask_until: Option<Timestamp>,
    snapshot: Option<Snapshot>,
    delivery: LogReceipt,
    outbox: Outbox,
    backoff: Backoff,
    heartbeat_interval: Duration,
    /// When the server was last heard of on this socket.
    heard_at: Timestamp,
    /// The application wants the state and does not have it yet.
    wants_state: bool,
    /// The application wants the session ended and it is not yet.
    wants_end: bool,
    /// The end of a replay is still to be told.
    catching_up: bool,
    /// What was last given out to be saved.
    saved: Saved,
    outputs: VecDeque<Output>,
}

impl Client {
    /// A client that goes on from what was saved, or begins. It wants a socket at once.
    pub fn new(options: ClientOptions, saved: Option<Saved>) -> Self {
        let saved = saved.unwrap_or_default();
        let mut client = Self {
            options,
            phase: Phase::Connecting,
            session_id: saved.session_id.clone(),
            token: saved.token.clone(),
            token_shown_at: None,
            asked: saved.session_id.is_some(), // perhaps, by the run before
            late_ask_until: None,
            snapshot: saved.snapshot.clone(),
            delivery: LogReceipt::new(saved.position.clone()),
            outbox: Outbox::new(options),
            backoff: Backoff::default(),
            heartbeat_interval: limits::HEARTBEAT_INTERVAL,
            heard_at: Timestamp::default(),
            wants_state: false,
            wants_end: false,
            catching_up: false,
            saved,
            outputs: VecDeque::new(),
        };
        client.connect();
        client
    }

    /// Something happened. Whatever is due by `now` is done as well.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Opened => self.on_opened(now),
            Input::ConnectFailed { random } => self.on_connect_failed(random, now),
            Input::Closed { code, retry_after, random } => {
                self.on_closed(code, retry_after, random, now);
            }
            Input::Received(event) => self.on_received(event, now),
            Input::Heard => self.on_heard(now),
            Input::Tick => {}
            Input::Send { message_id, content } => self.post(message_id, Letter::Message(content)),
            Input::Cancel { message_id } => self.post(message_id, Letter::Cancel),
            Input::RequestState => self.request_state(),
            Input::End => self.end(),
            Input::Wake => self.on_wake(now),
        }
        self.do_what_is_due(now);
    }

    /// The next thing to do, if there is any.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due if nothing else happens before: the next attempt, an ack, a message
    /// that was held back, or the end of patience with a silent server.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Waiting { until, .. } => Some(until),
            Phase::Asking(_) => self.silence_ends(),
            Phase::Attached => {
                let deadlines =
                    [self.silence_ends(), self.delivery.ack_due(), self.outbox.held_until()];
                deadlines.into_iter().flatten().min()
            }
            Phase::Connecting | Phase::Closing { .. } | Phase::Stopped => None,
        }
    }

    /// What became of the events so far.
    pub fn counts(&self) -> DeliveryCounts {
        self.delivery.counts()
    }

    fn do_what_is_due(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Waiting { until, .. } if until <= now => self.connect(),
            Phase::Asking(_) | Phase::Attached if self.is_silent(now) => self.abandon(None, false),
            Phase::Attached => {
                if self.delivery.is_ack_due(now) {
                    self.acknowledge(false);
                }
                self.send_letters(now);
            }
            Phase::Waiting { .. }
            | Phase::Connecting
            | Phase::Asking(_)
            | Phase::Closing { .. }
            | Phase::Stopped => {}
        }
    }

    fn status(&mut self, status: Status) {
        self.outputs.push_back(Output::Status(status));
    }

    fn command(&mut self, command: ClientCommand) {
        self.outputs.push_back(Output::Send(command));
    }

    /// Gives out what is worth keeping, if it has changed.
    fn save(&mut self) {
        let saved = Saved {
            session_id: self.session_id.clone(),
            position: self.delivery.position(),
            token: self.token.clone(),
            snapshot: self.snapshot.clone(),
        };
        if saved != self.saved {
            self.saved = saved.clone();
            self.outputs.push_back(Output::Save(saved));
        }
    }
}
