//! Messages of the application that the server has not answered for. They are sent again after every
//! attachment, in order, under the same ids; the server enters each once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::options::ClientOptions;
use crate::ids::MessageId;
use crate::time::Timestamp;

/// What the application wants to tell the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    Message(Arc<[u8]>),
    Cancel,
}

impl Letter {
    fn bytes(&self) -> usize {
        match self {
            Self::Message(content) => content.len(),
            Self::Cancel => 0,
        }
    }
}

/// What the server may know of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Nothing: it was not sent, or turned away unentered.
    No,
    /// It is on its way on this connection; an answer will come.
    OnItsWay,
    /// It was on its way when an earlier connection broke, or the server failed over it: perhaps it was
    /// entered.
    Unanswered,
}

#[derive(Debug)]
struct Waiting {
    message_id: MessageId,
    letter: Letter,
    sent: Sent,
    /// Whether an earlier attempt may have entered it. The server's answer to a later one settles that only
    /// if it is an acceptance.
    doubtful: bool,
}

/// Too much waits already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The letters that the server has not answered for, in the order of sending.
#[derive(Debug)]
pub(super) struct Outbox {
    letters: VecDeque<Waiting>,
    bytes: usize,
    options: ClientOptions,
    /// The server had no room: nothing goes out before this.
    held_until: Option<Timestamp>,
    /// How often it had none, since the last letter that it took.
    holds: u32,
}

impl Outbox {
    pub(super) fn new(options: ClientOptions) -> Self {
        Self { letters: VecDeque::new(), bytes: 0, options, held_until: None, holds: 0 }
    }

    /// Keeps a letter for sending. One that is kept already is the same letter.
    pub(super) fn push(&mut self, message_id: MessageId, letter: Letter) -> Result<(), Full> {
        if self.letters.iter().any(|waiting| waiting.message_id == message_id) {
            return Ok(());
        }
        let bytes = self.bytes + letter.bytes();
        let too_large = !self.letters.is_empty() && bytes > self.options.max_unaccepted_bytes;
        if too_large || self.letters.len() >= self.options.max_unaccepted {
            return Err(Full);
        }
        self.bytes = bytes;
        self.letters.push_back(Waiting { message_id, letter, sent: Sent::No, doubtful: false });
        Ok(())
    }

    /// The next letter to write to the socket now.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<(MessageId, Letter)> {
        if self.held_until.is_some_and(|until| now < until) {
            return None;
        }
        self.held_until = None;
        let on_their_way = self.letters.iter().filter(|w| w.sent == Sent::OnItsWay).count();
        if on_their_way >= self.options.messages_in_flight.max(1) {
            return None;
        }
        let next = self.letters.iter_mut().find(|waiting| waiting.sent != Sent::OnItsWay)?;
        next.sent = Sent::OnItsWay;
        Some((next.message_id.clone(), next.letter.clone()))
    }

    /// When something is to be sent that could not be before.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.held_until.filter(|_| !self.letters.is_empty())
    }

    /// The connection broke: answers to what was on its way will not come.
    pub(super) fn disconnected(&mut self) {
        for waiting in &mut self.letters {
            if waiting.sent == Sent::OnItsWay {
                (waiting.sent, waiting.doubtful) = (Sent::Unanswered, true);
            }
        }
    }

    /// The server took it. False if it is not (or no longer) kept.
    pub(super) fn accepted(&mut self, message_id: &MessageId) -> bool {
        self.holds = 0;
        self.remove(message_id)
    }

    /// Takes it out. False if it is not (or no longer) kept.
    pub(super) fn remove(&mut self, message_id: &MessageId) -> bool {
        let Some(at) = self.letters.iter().position(|w| w.message_id == *message_id) else {
            return false;
        };
        if let Some(removed) = self.letters.remove(at) {
            self.bytes -= removed.letter.bytes();
        }
        true
    }

    /// The server can't take it now: nothing is sent until then. If it may have entered it all the same, the
    /// letter counts as unanswered: sent again under its id it is entered once, and what became of it nobody
    /// can say before it is answered for.
    pub(super) fn hold(&mut self, message_id: &MessageId, until: Timestamp, may_be_entered: bool) {
        self.holds = self.holds.saturating_add(1);
        self.held_until = self.held_until.max(Some(until));
        if let Some(held) = self.letters.iter_mut().find(|w| w.message_id == *message_id) {
            held.doubtful |= may_be_entered;
            held.sent = if held.doubtful { Sent::Unanswered } else { Sent::No };
        }
    }

    /// How often in a row the server had no room.
    pub(super) fn holds(&self) -> u32 {
        self.holds
    }

    /// The letter the server's next answer is about: it answers in order.
    pub(super) fn oldest_on_its_way(&self) -> Option<MessageId> {
        let oldest = self.letters.iter().find(|waiting| waiting.sent == Sent::OnItsWay)?;
        Some(oldest.message_id.clone())
    }

    /// Of those on their way the one that most likely went over the limit of a frame.
    pub(super) fn largest_on_its_way(&self) -> Option<MessageId> {
        let on_their_way = self.letters.iter().filter(|waiting| waiting.sent == Sent::OnItsWay);
        on_their_way.max_by_key(|w| w.letter.bytes()).map(|w| w.message_id.clone())
    }

    /// The session is gone: takes out, and names, the letters that may have reached it.
    pub(super) fn take_unanswered(&mut self) -> Vec<MessageId> {
        self.disconnected();
        let reached = |w: &&Waiting| w.sent == Sent::Unanswered;
        let ids: Vec<_> =
            self.letters.iter().filter(reached).map(|w| w.message_id.clone()).collect();
        for id in &ids {
            self.remove(id);
        }
        ids
    }

    /// Nothing is sent any more: takes out, and names, the rest.
    pub(super) fn take_all(&mut self) -> Vec<MessageId> {
        self.bytes = 0;
        self.letters.drain(..).map(|waiting| waiting.message_id).collect()
    }
}
