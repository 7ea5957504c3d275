//! What a gateway must know of a session to go on with it after anything died: how the client introduced
//! itself, and what it set up. It is the session's state in the store, written in one commit with the event
//! that changes it. Which requests are answered is known by the in log itself.

use std::collections::BTreeMap;

use rejoin_core::page::Body;
use rejoin_core::{InSeq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::logged::StreamName;
use crate::mcp::message::read;

/// Questions that are known after anything died: the book is written whenever one is asked.
const MOST_QUESTIONS: usize = 100;

/// A session's book.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Book {
    /// How client and server got to know each other.
    pub handshake: Option<Handshake>,
    /// What the server behind calls the session, where it does: it may outlive us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Box<str>>,
    /// Whether the client has said that it is ready.
    pub initialized: bool,
    /// The parameters of the last `logging/setLevel`.
    pub level: Option<Box<RawValue>>,
    /// The parameters of each `resources/subscribe` that holds, by URI.
    pub subscriptions: BTreeMap<String, Box<RawValue>>,
    /// Digests of the pages of each list that the client has been given, by method.
    pub lists: BTreeMap<String, String>,
    /// Whether the client has been given a reconnect token with a result.
    pub token_given: bool,
    /// When a token of the session had last been used, as of then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_used: Option<Timestamp>,
    /// Questions of the server that the client has not answered, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// Whether the server was started again, and no tool result has said so since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// How often an entry was handed over again.
    pub reruns: BTreeMap<u64, u8>,
}

/// A question of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The id by which the client knows it.
    pub id: String,
    /// The stream on which the client was asked.
    pub stream: StreamName,
}

/// How client and server got to know each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handshake {
    /// What the client said of itself.
    pub params: Box<RawValue>,
    /// What the server said of itself.
    pub result: Box<RawValue>,
}

impl Handshake {
    /// The revision that was agreed upon.
    pub fn revision(&self) -> String {
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
    pub fn from_body(body: Option<&Body>) -> Self {
        body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
    }

    fn to_body(&self) -> Body {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// The server asks something. Of a client that answers nothing the oldest questions are forgotten.
    pub(super) fn ask(&mut self, question: Question) {
        if self.questions.len() >= MOST_QUESTIONS {
            self.questions.remove(0);
        }
        self.questions.push(question);
    }

    /// The revision that was agreed upon, if one was.
    pub fn revision(&self) -> Option<String> {
        self.handshake.as_ref().map(Handshake::revision)
    }
}

/// A book that is kept: what changed is written when it must be.
#[derive(Debug, Default)]
pub struct Keeping {
    book: Book,
    /// Whether the book has changed since it was last written.
    dirty: bool,
    /// Entries that were dealt with since.
    answered: Vec<InSeq>,
}

/// What goes with the next publication.
#[derive(Debug, Default)]
pub struct Written {
    /// The book, if it has changed.
    pub state: Option<Body>,
    /// Entries that are dealt with.
    pub answered: Vec<InSeq>,
}

impl Keeping {
    /// Goes on from what is stored.
    pub fn from(book: Book) -> Self {
        Self { book, ..Self::default() }
    }

    /// What is in it.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Changes what is in it.
    pub fn change(&mut self) -> &mut Book {
        self.dirty = true;
        &mut self.book
    }

    /// An entry is dealt with.
    pub fn settle(&mut self, in_seq: InSeq) {
        self.dirty |= self.book.reruns.remove(&in_seq.get()).is_some();
        self.answered.push(in_seq);
    }

    /// What must be stored now.
    pub fn write(&mut self) -> Written {
        let state = std::mem::take(&mut self.dirty).then(|| self.book.to_body());
        Written { state, answered: std::mem::take(&mut self.answered) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_need_no_book_in_whatever_order_they_are_dealt_with() {
        let mut keeping = Keeping::from(Book::default());
        let entries = [InSeq::new(2), InSeq::new(1)];
        entries.into_iter().for_each(|in_seq| keeping.settle(in_seq));
        let written = keeping.write();
        assert_eq!((written.state, written.answered), (None, entries.to_vec()));
        assert_eq!(keeping.write().answered, []);
    }

    #[test]
    fn what_was_handed_over_again_is_forgotten_when_it_is_dealt_with() {
        let mut keeping = Keeping::from(Book::default());
        keeping.change().reruns.insert(1, 1);
        let again = Book::from_body(keeping.write().state.as_ref());
        assert_eq!(again.reruns.get(&1), Some(&1));
        keeping.settle(InSeq::new(1));
        let last = Book::from_body(keeping.write().state.as_ref());
        assert!(last.reruns.is_empty());
    }
}
