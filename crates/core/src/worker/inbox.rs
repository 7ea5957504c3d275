//! Handing entries of the in log to the agent: each once and in order.

use super::{Worker, WorkerOutput};
use crate::page::StoredEntry;
use crate::position::InSeq;

impl Worker {
    /// The store has given a message its number, though it is not durable yet. The agent may begin with
    /// it if it has been handed all before it: whatever it says becomes durable with the message or after it.
    pub(super) fn on_entering(&mut self, entry: StoredEntry) {
        if self.agent.hand_next(entry.in_seq) {
            self.record.in_head = self.record.in_head.max(entry.in_seq);
            self.emit(WorkerOutput::Hand(vec![entry]));
        }
    }

    pub(super) fn on_entered(&mut self, in_seq: InSeq) {
        self.record.in_head = self.record.in_head.max(in_seq);
        self.ask_for_entries();
    }

    /// Asks for the entries that the agent has not been handed, if it can take some.
    pub(super) fn ask_for_entries(&mut self) {
        if let Some(after) = self.agent.wants_entries(self.record.in_head) {
            self.emit(WorkerOutput::ReadEntries { after });
        }
    }

    pub(super) fn on_entries(&mut self, after: InSeq, entries: Vec<StoredEntry>) {
        if !self.agent.expects_entries(after) {
            return; // another agent has begun since
        }
        let Some(last) = entries.last().map(|entry| entry.in_seq) else { return };
        self.agent.hand(last);
        self.emit(WorkerOutput::Hand(entries));
        self.ask_for_entries();
    }
}
