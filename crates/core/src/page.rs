//! What is read out of a session's logs, with the bytes.

use std::sync::Arc;

use crate::log::EntryKind;
use crate::position::{InSeq, Seq};
use crate::record::{Record, SnapshotMark};
use crate::time::Timestamp;

/// The bytes of an event, an entry or a snapshot. Neither the core nor a store looks inside.
pub type Body = Arc<[u8]>;

/// Events read from an out log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The events, without holes.
    pub events: Vec<StoredEvent>,
    /// The session as of the moment they were read.
    pub record: Record,
}

/// An event as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number.
    pub seq: Seq,
    /// When it was appended.
    pub at: Timestamp,
    /// Its bytes, as they were given.
    pub body: Body,
}

/// An entry of the in log as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its number.
    pub in_seq: InSeq,
    /// What it is.
    pub kind: EntryKind,
    /// When it was entered.
    pub at: Timestamp,
    /// Its bytes, as they were given.
    pub body: Body,
}

/// Entries read from an in log, dealt with or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePage {
    /// The entries, in order.
    pub messages: Vec<StoredMessage>,
    /// The session as of the moment they were read.
    pub record: Record,
}

/// An entry for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The entry.
    pub entry: StoredEntry,
    /// Whether the agent has dealt with it.
    pub covered: bool,
}

/// A snapshot as the store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Where it stands.
    pub mark: SnapshotMark,
    /// Its bytes, as they were given.
    pub body: Body,
}
