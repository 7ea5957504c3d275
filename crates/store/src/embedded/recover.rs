//! Finds out when a database is opened what it holds, and whether all is there that ever was.
//!
//! Everything in the journal and in the table of sessions has a checksum; the newest row says which
//! rows and how many sessions there are, and the witness which row is the newest. What does not fit
//! is [`Damage`].

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rusqlite::Connection;

use super::cleanup::JournalRow;
use super::error::{Damage, is_corruption};
use super::index::Entries;
use super::journal::{self, Header};
use super::limits;
use super::load::{self, LoadedSessions};
use super::piece::Ledger;
use super::scan::{self, Extent, JournalRows, RowFound, ScanWith, SessionRows};
use super::schema;
use super::take_over::{TakeOver, Taken};
use super::witness::{StoreId, Testimony};

/// What a database holds.
#[derive(Debug)]
pub(super) struct Content {
    /// Which store it is, if that can be read.
    pub(super) store: Option<StoreId>,
    /// In the order of their keys.
    pub(super) sessions: Vec<Taken>,
    /// The same for the index.
    pub(super) entries: Entries,
    /// The journal's rows that are whole.
    pub(super) rows: VecDeque<JournalRow>,
    /// What the newest of them says.
    pub(super) newest: Header,
    /// What is wrong; nothing, if all is well.
    pub(super) damage: Vec<Damage>,
}

/// Reads everything. Fails only if the file can't be got at; what is wrong inside is part of the
/// answer.
pub(super) fn read(
    db: &Connection,
    readers: ScanWith<'_>,
    witness: Option<Testimony>,
    take_over: TakeOver<'_>,
    ledger: &Arc<Ledger>,
) -> rusqlite::Result<Content> {
    let store = or_damaged(schema::store_id(db))?;
    let said = newest_header(db)?;
    let last_possible = said.map_or(0, |said| said.number).max(witness.map_or(0, |w| w.number));
    let extent = Extent { said: said.as_ref(), last_possible };
    let scan::ScannedTables { sessions: session_rows, journal } =
        scan::read(readers, extent, ledger)?;
    let threads = match readers {
        ScanWith::OfFile { threads, .. } => threads,
        ScanWith::One(_) => 1,
    };

    let mut damage = Vec::new();
    let journal = JournalFound::join(journal, &mut damage);
    let LoadedSessions { sessions, entries, undecodable } =
        load::load(&session_rows, &journal.rows, take_over, ledger, threads);
    let found = sessions.len() as u64;
    compare_with_header(&session_rows, found, undecodable, said.as_ref(), &mut damage);
    damage.extend(journal.missing_rows());
    damage.extend(compare_with_witness(store, witness, journal.newest.map_or(0, |n| n.number)));
    if journal.newest.is_none() {
        damage.push(Damage::NoJournal);
    }
    let newest = journal.newest.unwrap_or_default();
    Ok(Content { store, sessions, entries, rows: journal.remembered(), newest, damage })
}

/// Reads a database that nobody changes. A small one is read before another thread has begun.
pub(super) fn readers_of(database: &Path) -> ScanWith<'_> {
    let bytes = fs::metadata(database).map_or(0, |file| file.len());
    let threads = match bytes < limits::OPEN_ALONE_BYTES {
        true => 1,
        false => thread::available_parallelism().map_or(1, usize::from).min(limits::OPEN_THREADS),
    };
    ScanWith::OfFile { database, threads }
}

fn compare_with_witness(
    store: Option<StoreId>,
    witness: Option<Testimony>,
    newest: u64,
) -> Option<Damage> {
    match witness {
        None => Some(Damage::NoWitness { what: "is missing or unreadable" }),
        Some(witness) if Some(witness.store) != store => {
            Some(Damage::NoWitness { what: "belongs to another database" })
        }
        Some(witness) if witness.number > newest => {
            Some(Damage::CommitsLost { from: newest + 1, to: witness.number })
        }
        Some(_) => None,
    }
}

/// What the newest row says, if it can be read.
pub(super) fn newest_header(db: &Connection) -> rusqlite::Result<Option<Header>> {
    let sql = "SELECT id, body FROM journal ORDER BY id DESC LIMIT 1";
    let header = or_damaged(db.query_row(sql, [], |row| {
        let number = row.get::<_, i64>(0)? as u64;
        let body = row.get_ref(1)?.as_blob().unwrap_or_default();
        Ok(journal::read_row(number, body).ok().map(|(header, _)| header))
    }))?;
    Ok(header.flatten())
}

/// Compares the table of sessions with what the newest row says of it.
fn compare_with_header(
    parts: &[SessionRows],
    found: u64,
    undecodable: u64,
    said: Option<&Header>,
    damage: &mut Vec<Damage>,
) {
    let bad = parts.iter().flat_map(|part| &part.bad).cloned();
    let bad = bad.chain((0..undecodable).map(|_| None));
    let before = damage.len();
    damage.extend(bad.map(|id| Damage::Session { id }));
    let bad = (damage.len() - before) as u64;
    if let Some(what) = parts.iter().find_map(|part| part.unreadable.clone()) {
        damage.push(Damage::Unreadable { table: "sessions", what });
    }
    if let Some(said) = said {
        let sum = parts.iter().fold(0, |sum, part| sum ^ part.sum);
        let expected = said.sessions;
        if found + bad != expected || sum != said.sessions_sum {
            damage.push(Damage::Sessions { found, expected });
        }
    }
}

/// The journal as it was found.
#[derive(Debug)]
struct JournalFound {
    rows: Vec<RowFound>,
    newest: Option<Header>,
    faulty: Vec<u64>,
}

impl JournalFound {
    /// Puts the parts together.
    fn join(parts: Vec<JournalRows>, damage: &mut Vec<Damage>) -> Self {
        let mut journal = Self { rows: Vec::new(), newest: None, faulty: Vec::new() };
        if let Some(what) = parts.iter().find_map(|part| part.unreadable.clone()) {
            damage.push(Damage::Unreadable { table: "journal", what });
        }
        for part in parts {
            journal.faulty.extend(part.faulty);
            for row in part.rows {
                if journal.newest.is_some_and(|newest| newest.number >= row.header.number) {
                    journal.faulty.push(row.header.number);
                    continue;
                }
                journal.newest = Some(row.header);
                journal.rows.push(row);
            }
        }
        journal
    }

    /// Rows that the newest one says are there and are not, or are but are not whole.
    fn missing_rows(&self) -> Option<Damage> {
        let newest = self.newest?;
        let mut expected = newest.first;
        let (mut count, mut first) = (0, None);
        for row in &self.rows {
            let number = row.row.number();
            let missing = number.saturating_sub(expected);
            count += missing;
            first = first.or((missing > 0).then_some(expected));
            if number < newest.first {
                count += 1; // was deleted: the page it is on is an older version
                first = first.or(Some(number));
            }
            expected = expected.max(number + 1);
        }
        count += self.faulty.iter().filter(|number| **number > newest.number).count() as u64;
        let first = first.or(self.faulty.first().copied())?;
        Some(Damage::Journal { count: count.max(1), first })
    }

    /// What is remembered of the rows.
    fn remembered(self) -> VecDeque<JournalRow> {
        let rows = self.rows.into_iter().map(|found| {
            let RowFound { row, stored, has_ids, .. } = found;
            JournalRow { row, stored, has_ids, unnoted: Vec::new() }
        });
        rows.collect()
    }
}

/// Nothing, if what should be there is damaged or not there; fails if the file can't be got at.
fn or_damaged<T>(read: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_corruption(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
