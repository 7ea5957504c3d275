//! What a client is told, as data; transports turn it into bytes.

use crate::codes::CloseCode;
use crate::page::StoredEvent;
use crate::position::{Seq, SeqRange};
use crate::record::Record;
use crate::resume::Gap;
use crate::state::UsedToken;

/// What a client is told, in the order in which it is told.
#[derive(Clone, Debug)]
pub enum Tell {
    /// It is attached.
    Confirmed(Box<Confirmed>),
    /// Events it has not seen are gone.
    Gap(Gap),
    /// The agent's state, sealed, which stands for events that are gone.
    State,
    /// The agent's state, sealed, because it has changed: not before the event that it was stored
    /// with, or the client would have the state of something that it has not seen.
    Checkpoint,
    /// Events.
    Events {
        /// The events, in order.
        events: Vec<StoredEvent>,
        /// Whether they were there before it attached.
        replayed: bool,
    },
    /// Everything that was there before it attached has been sent.
    ReplayComplete {
        /// From which to which; nothing if there was nothing to send.
        range: Option<SeqRange>,
        /// How many. Less than there are numbers, if some in between went while others were being sent.
        replayed: u64,
    },
    /// Are you there?
    Heartbeat {
        /// The last event.
        head: Seq,
        /// Whether to give it a new reconnect token along.
        renew_token: bool,
    },
    /// It acked what was never sent.
    AckAhead {
        /// The last event there is.
        head: Seq,
    },
    /// Another connection has taken the session over.
    Superseded,
    /// The server is going down and will be back.
    Draining,
    /// The session has ended.
    Ended,
}

/// A client is attached: the first thing it is told.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// Whether it came back to a session that was there before.
    pub resumed: bool,
    /// The session, under its new generation.
    pub record: Record,
    /// The first event it will be sent; the one after the head if there is none yet.
    pub replay_from: Seq,
    /// What it will not be sent.
    pub gap: Option<Gap>,
    /// What became of the token it brought.
    pub token: Option<UsedToken>,
}

/// Why a client is attached no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// It is closed with this code.
    Closed(CloseCode),
    /// Its connection is cut without a word: an administrator wants to see what a network does.
    Cut,
}
