//! What a session counts against the bounds of its principal and of the server: all that a store keeps for
//! it, in memory and on disk, as far as callers decide how much that is.

use super::{Append, Create, Enter, SessionState};
use crate::limits;

/// Bytes that are kept for a session, or for several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Events of the out log, and messages that are dealt with. They give way when there is too much.
    pub events: u64,
    /// Everything else: the record, entries that wait, the agent's state, tokens, remembered ids. It stays
    /// until its session lets go of it.
    pub fixed: u64,
}

/// A principal or the server would hold more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBound {
    /// All principals together.
    #[error("the server holds as much as it may (max_buffered_bytes)")]
    Server,
    /// This one.
    #[error(
        "your sessions hold as much as they may (max_bytes_per_principal); end those you no longer need"
    )]
    Principal,
}

impl Holding {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.events + self.fixed
    }
}

impl<B> SessionState<B> {
    /// What it counts.
    pub fn holding(&self) -> Holding {
        self.holding_with(self.out.len(), self.out.bytes())
    }

    /// The same where its out log is elsewhere, with so many events of so many bytes.
    pub fn holding_with(&self, events: usize, bytes: usize) -> Holding {
        let events = bytes + events * limits::EVENT_OVERHEAD;
        let messages = self.inbox.kept_bytes() + self.inbox.kept() * limits::ENTRY_OVERHEAD;
        Holding { events: (events + messages) as u64, fixed: self.fixed_bytes() }
    }

    /// What it counts besides its events.
    pub fn fixed_bytes(&self) -> u64 {
        let record = record_bytes(self.about.id.as_str(), &self.about.client);
        let waiting = self.inbox.bytes() + self.inbox.waiting() * limits::ENTRY_OVERHEAD;
        let state = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.size as usize);
        let tokens = self.tokens.count() * limits::TOKEN_BYTES;
        (record + waiting + state + tokens + self.ids() * limits::REMEMBERED_ID_BYTES) as u64
    }
}

impl Create {
    /// What the session that it makes counts.
    pub fn fixed_bytes(&self) -> u64 {
        record_bytes(self.about.id.as_str(), &self.about.client) as u64
    }
}

impl<B> Enter<B> {
    /// By how much a session grows that takes it.
    pub fn fixed_bytes(&self) -> u64 {
        let id = self.digest.map_or(0, |_| limits::REMEMBERED_ID_BYTES);
        (self.size as usize + limits::ENTRY_OVERHEAD + id) as u64
    }
}

impl<B> Append<B> {
    /// By how much `session` grows that takes it, apart from its events.
    pub fn fixed_growth<C>(&self, session: &SessionState<C>) -> u64 {
        let had = session.snapshot.as_ref().map_or(0, |snapshot| snapshot.size);
        let state = self.snapshot.as_ref().map_or(0, |new| new.size.saturating_sub(had));
        let id = self.key.map_or(0, |_| limits::REMEMBERED_ID_BYTES);
        u64::from(state) + id as u64
    }
}

fn record_bytes(id: &str, client: &str) -> usize {
    limits::SESSION_BYTES + id.len() + client.len()
}
