//! Completes a batch: from what requests have done to all that one commit writes.

use std::mem;
use std::sync::Arc;

use super::batch::{Aftermath, Batch};
use super::cleanup::{self, JournalRow};
use super::commit::Commit;
use super::desk::Papers;
use super::error::Fault;
use super::journal::Header;
use super::limits;
use super::rows;
use super::slot::{Touches, Trace};

impl Papers {
    /// Completes the batch with notes, rows and survivors, and begins the next one. From here on it
    /// is plain data: what later requests change does not show in it.
    pub(super) fn prepare(&mut self) -> Result<(Commit, Aftermath), Fault> {
        let number = self.batch.number();
        let delete_up_to = self.journal.drop_dead_rows(&self.tables, &mut self.batch);
        self.journal.evacuate(&self.shared.readers, &self.tables, &mut self.batch)?;
        self.write_rows_of_opening();
        self.write_traces();
        let header = Header {
            number,
            first: self.journal.first(number),
            next_key: self.tables.next_key,
            sessions: self.tables.rows,
            sessions_sum: self.tables.rows_sum,
        };
        self.batch.records.seal(&header);
        self.journal.push(JournalRow {
            row: Arc::clone(&self.batch.row),
            stored: cleanup::stored_bytes(self.batch.records.sealed().len()),
            has_ids: self.batch.has_ids,
            unnoted: mem::take(&mut self.batch.unnoted),
        });
        let mut batch = Batch::new(number + 1, &self.ledger);
        batch.records = mem::take(&mut self.spare);
        mem::swap(&mut self.batch, &mut batch);
        let Batch { row, records, rows, deleted, audit, forgotten_seals, mut aftermath, .. } =
            batch;
        aftermath.row = Some(row);
        let (requests, left_untidy) = (aftermath.requests(), false);
        self.under_way = true;
        self.tell_writer();
        let commit = Commit {
            number,
            requests,
            records,
            delete_up_to,
            deleted,
            rows,
            audit,
            forgotten_seals,
            left_untidy,
        };
        Ok((commit, aftermath))
    }

    /// Puts the rows and notes of sessions into the batch.
    fn write_traces(&mut self) {
        for slot in mem::take(&mut self.batch.traced) {
            let session = &mut *slot.lock();
            match session.plan.trace {
                Trace::Row => {
                    let (row, sum) = rows::encode(session, self.batch.number());
                    self.batch.rows.push(row);
                    self.tables.put_row(session, sum);
                    session.unnoted_from = None;
                    session.unsaved = false;
                    cleanup::say_what_is_trimmed(session, &mut self.batch);
                }
                Trace::Note => cleanup::note(session, &mut self.batch),
                Trace::Nothing => {}
            }
        }
    }

    /// Puts some rows into the batch that opening alone has changed.
    fn write_rows_of_opening(&mut self) {
        let mut busy = Vec::new();
        let some = self.unwritten.len().saturating_sub(limits::LAZY_ROWS);
        for slot in self.unwritten.drain(some..) {
            let session = &mut *slot.lock();
            if session.plan.is_changed() && session.touched < self.batch.number() {
                busy.push(Arc::clone(&slot));
            } else if session.row_sum.is_some() {
                self.batch.touch(&slot, session, Touches::Record);
                self.batch.leave(&slot, session, Trace::Row);
            }
        }
        self.unwritten.extend(busy);
    }
}
