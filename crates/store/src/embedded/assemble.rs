//! Puts the sessions that were read where the writer and the readers find them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::apply::Tables;
use super::cleanup::JournalRow;
use super::index::{Entries, Index};
use super::journal::Header;
use super::open::OpenReport;
use super::parallel;
use super::piece::Ledger;
use super::slot::Slot;
use super::take_over::Taken;

/// What came with the sessions.
pub(super) struct Assembly<'a> {
    pub(super) newest: Header,
    pub(super) rows: &'a mut VecDeque<JournalRow>,
    pub(super) ledger: &'a Ledger,
    pub(super) index: &'a Index,
}

impl Assembly<'_> {
    /// Gives the writer's tables and the sessions whose rows should say that they were parked.
    pub(super) fn put_in_place(
        self,
        sessions: Vec<Taken>,
        entries: Entries,
        report: &mut OpenReport,
    ) -> (Tables, Vec<Arc<Slot>>) {
        let Self { newest, rows, ledger, index } = self;
        let ((), placed) = parallel::both(
            || index.fill(entries),
            || {
                let mut unwritten = Vec::new();
                for taken in &sessions {
                    report.sessions += 1;
                    report.events += taken.events;
                    if let Some(parked) = taken.parked() {
                        report.parked.push(parked);
                        unwritten.push(Arc::clone(&taken.slots[0]));
                    }
                    ledger.change_ids(0, taken.ids);
                    let unnoted = taken.unnoted_from.map(|number| number.get() - newest.first);
                    if let Some(row) = unnoted.and_then(|index| rows.get_mut(index as usize)) {
                        row.unnoted.push(taken.key);
                    }
                }
                (tables(newest, sessions), unwritten)
            },
        );
        let (mut tables, unwritten) = placed;
        tables.active = index.active();
        (tables, unwritten)
    }
}

fn tables(newest: Header, sessions: Vec<Taken>) -> Tables {
    let Header { next_key, sessions: rows, sessions_sum: rows_sum, .. } = newest;
    let mut tables = Tables { next_key, rows, rows_sum, ..Tables::default() };
    tables.by_id.reserve(sessions.len());
    tables.by_key.reserve(sessions.len());
    for Taken { key, id, slots: [slot, same], .. } in sessions {
        tables.by_key.insert(key, same);
        tables.by_id.insert(id, slot);
    }
    tables
}
