//! What a gateway must know of a session to go on with it after anything died: how the client introduced
//! itself, what it set up, and which requests are answered out of their order. It is the session's state in
//! the store, written in one commit with the event that changes it.

use std::collections::{BTreeMap, BTreeSet};

use rejoin_core::InSeq;
use rejoin_core::page::Body;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::message::read;

/// A session's book.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Book {
    /// How client and server got to know each other.
    pub(crate) handshake: Option<Handshake>,
    /// What the server behind calls the session, where it does: it may outlive us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) theirs: Option<Box<str>>,
    /// Whether the client has said that it is ready.
    pub(crate) initialized: bool,
    /// The parameters of the last `logging/setLevel`.
    pub(crate) level: Option<Box<RawValue>>,
    /// The parameters of each `resources/subscribe` that holds, by URI.
    pub(crate) subscriptions: BTreeMap<String, Box<RawValue>>,
    /// A digest of each list that the client has been given, by method.
    pub(crate) lists: BTreeMap<String, String>,
    /// Whether the client has been given a reconnect token with a result.
    pub(crate) token_given: bool,
    /// Entries that are dealt with although one before them is not.
    answered: BTreeSet<u64>,
    /// How often an entry was handed over again.
    pub(crate) reruns: BTreeMap<u64, u8>,
}

/// How client and server got to know each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Handshake {
    /// What the client said of itself.
    pub(crate) params: Box<RawValue>,
    /// What the server said of itself.
    pub(crate) result: Box<RawValue>,
}

impl Handshake {
    /// The revision that was agreed upon.
    pub(crate) fn revision(&self) -> String {
        #[derive(Default, Deserialize)]
        struct Answer {
            #[serde(rename = "protocolVersion")]
            revision: String,
        }
        read::<Answer>(Some(&*self.result)).revision
    }
}

impl Book {
    /// What was stored; an empty one if nothing was.
    pub(crate) fn from_body(body: Option<&Body>) -> Self {
        body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
    }

    fn to_body(&self) -> Body {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Whether an entry is dealt with although one before it may not be.
    pub(crate) fn is_answered(&self, in_seq: InSeq) -> bool {
        self.answered.contains(&in_seq.get())
    }

    /// The revision that was agreed upon, if one was.
    pub(crate) fn revision(&self) -> Option<String> {
        self.handshake.as_ref().map(Handshake::revision)
    }
}

/// A book that is kept: what changed is written when it must be.
#[derive(Debug)]
pub(super) struct Keeping {
    book: Book,
    covered: InSeq,
    /// What changed since the book was last written.
    dirty: bool,
}

/// What goes with the next publication.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) state: Option<Body>,
    pub(super) in_seq: Option<InSeq>,
}

impl Keeping {
    /// Goes on from what is stored; everything up to `covered` is dealt with.
    pub(super) fn from(book: Book, covered: InSeq) -> Self {
        let mut keeping = Self { book, covered, dirty: false };
        keeping.book.answered = keeping.book.answered.split_off(&covered.next().get());
        keeping
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Changes what is in it.
    pub(super) fn change(&mut self) -> &mut Book {
        self.dirty = true;
        &mut self.book
    }

    /// An entry is dealt with.
    pub(super) fn settle(&mut self, in_seq: InSeq) {
        self.book.reruns.remove(&in_seq.get());
        if in_seq <= self.covered {
            return;
        }
        self.book.answered.insert(in_seq.get());
        while self.book.answered.remove(&self.covered.next().get()) {
            self.covered = self.covered.next();
        }
        // What lies behind a hole is known only by the book.
        self.dirty |= !self.book.answered.is_empty();
    }

    /// What must be stored now.
    pub(super) fn write(&mut self) -> Written {
        let state = std::mem::take(&mut self.dirty).then(|| self.book.to_body());
        Written { state, in_seq: Some(self.covered).filter(|covered| *covered > InSeq::ZERO) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_order_need_no_book() {
        let mut keeping = Keeping::from(Book::default(), InSeq::ZERO);
        keeping.settle(InSeq::new(1));
        let written = keeping.write();
        assert_eq!((written.state, written.in_seq), (None, Some(InSeq::new(1))));
    }

    #[test]
    fn an_entry_answered_before_an_older_one_is_remembered_until_that_is_answered_too() {
        let mut keeping = Keeping::from(Book::default(), InSeq::ZERO);
        keeping.settle(InSeq::new(2));
        let written = keeping.write();
        assert_eq!(written.in_seq, None);
        let mut again = Keeping::from(Book::from_body(written.state.as_ref()), InSeq::ZERO);
        assert!(again.book().is_answered(InSeq::new(2)));
        assert!(!again.book().is_answered(InSeq::new(1)));
        again.settle(InSeq::new(1));
        assert_eq!(again.write().in_seq, Some(InSeq::new(2)));
    }
}
