//! What clients send, and handing it to the agent: each message once and in order.

use super::{Message, Output, Session, Ticket};
use crate::ids::AttachmentId;
use crate::page::StoredEntry;
use crate::position::InSeq;
use crate::record::Ending;
use crate::state::{Enter, EnterRefused, Entered, Stale};
use crate::time::Timestamp;

impl Session {
    pub(super) fn on_message(&mut self, message: Message, now: Timestamp) {
        let Message { ticket, from, kind, digest, body } = message;
        if self.ended {
            let result = Err(EnterRefused::Ended(Ending::Closed));
            return self.emit(Output::Entered { ticket, from, result });
        }
        let generation = match from {
            Some(attachment) => {
                self.on_heard(attachment, now);
                let known = self.attachments.get(&attachment).and_then(|client| client.generation);
                let Some(generation) = known else {
                    // Its connection was replaced: what it sends has no effect any more.
                    let current = self.record.generation;
                    let stale = Stale { named: current.previous(), current };
                    let result = Err(EnterRefused::Stale(stale));
                    return self.emit(Output::Entered { ticket, from, result });
                };
                Some(generation)
            }
            None => None,
        };
        let enter = Enter {
            generation,
            kind,
            digest,
            size: u32::try_from(body.len()).unwrap_or(u32::MAX),
            body,
            max_waiting_bytes: self.settings.max_waiting_bytes,
            keep_for: self.settings.lifetime.session_ttl,
            now,
        };
        self.emit(Output::Enter { ticket, from, enter: Box::new(enter) });
    }

    pub(super) fn on_enter_answered(
        &mut self,
        ticket: Ticket,
        from: Option<AttachmentId>,
        answer: Result<Entered, EnterRefused>,
        now: Timestamp,
    ) {
        if let Ok(entered) = &answer {
            self.record.in_head = self.record.in_head.max(entered.in_seq);
            (self.record.last_activity, self.record.last_seen) = (now, now);
        }
        self.emit(Output::Entered { ticket, from, result: answer });
        self.ask_for_entries();
    }

    /// The store has given a message its number, though it is not durable yet. The agent may begin with
    /// it if it has been handed all before it: whatever it says becomes durable with the message or after it.
    pub(super) fn on_entering(&mut self, entry: StoredEntry) {
        if self.agent.hand_next(entry.in_seq) {
            self.record.in_head = self.record.in_head.max(entry.in_seq);
            self.emit(Output::Hand(vec![entry]));
        }
    }

    /// Asks for the entries that the agent has not been handed, if it can take some.
    pub(super) fn ask_for_entries(&mut self) {
        if let Some(after) = self.agent.wants_entries(self.record.in_head) {
            self.emit(Output::ReadEntries { after });
        }
    }

    pub(super) fn on_entries(&mut self, after: InSeq, entries: Vec<StoredEntry>) {
        if !self.agent.expects_entries(after) {
            return; // another agent has begun since
        }
        let Some(last) = entries.last().map(|entry| entry.in_seq) else { return };
        self.agent.hand(last);
        self.emit(Output::Hand(entries));
        self.ask_for_entries();
    }
}
