//! Reads a database when it is opened, and finds out whether all is there that ever was.
//!
//! The journal is read once, in the order of its rows, without copying bodies. Everything in it and
//! in the table of sessions has a checksum; the newest row says which rows and how many sessions
//! there are, and the witness which row is the newest. What does not fit is [`Damage`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rejoin_core::SessionId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row as SqlRow};

use super::cleanup::{JournalRow, stored_bytes};
use super::error::{Damage, in_one_line, is_corruption};
use super::journal::{self, Head, Header, Key, Record};
use super::piece::{Ledger, Piece, Row};
use super::rebuild::Rebuild;
use super::rows;
use super::schema;
use super::witness::{StoreId, Testimony};

/// What a database holds.
#[derive(Debug)]
pub(super) struct Content {
    /// Which store it is, if that can be read.
    pub(super) store: Option<StoreId>,
    pub(super) sessions: HashMap<Key, Rebuild>,
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
    witness: Option<Testimony>,
    ledger: &Arc<Ledger>,
) -> rusqlite::Result<Content> {
    let store = or_damaged(schema::store_id(db))?;
    let mut damage = Vec::new();
    let said = newest_header(db)?;
    let sessions = read_sessions(db, said.as_ref(), &mut damage)?;
    let last_possible = said.map_or(0, |said| said.number).max(witness.map_or(0, |w| w.number));
    let mut reading = Reading { sessions, rows: VecDeque::new(), newest: None, faulty: Vec::new() };
    let sql = "SELECT id, body FROM journal WHERE id > ?1 ORDER BY id";
    if let Some(what) = scan(db, sql, last_possible, |number, row| {
        reading.add_row(number, row.get_ref(1)?, ledger);
        Ok(())
    })? {
        damage.push(Damage::Unreadable { table: "journal", what });
    }
    damage.extend(reading.missing_rows());
    damage.extend(compare_with_witness(store, witness, reading.newest.map_or(0, |n| n.number)));
    let Reading { sessions, rows, newest, .. } = reading;
    if newest.is_none() {
        damage.push(Damage::NoJournal);
    }
    Ok(Content { store, sessions, rows, newest: newest.unwrap_or_default(), damage })
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
fn newest_header(db: &Connection) -> rusqlite::Result<Option<Header>> {
    let sql = "SELECT id, body FROM journal ORDER BY id DESC LIMIT 1";
    let header = or_damaged(db.query_row(sql, [], |row| {
        let number = row.get::<_, i64>(0)? as u64;
        let body = row.get_ref(1)?.as_blob().unwrap_or_default();
        Ok(journal::read_row(number, body).ok().map(|(header, _)| header))
    }))?;
    Ok(header.flatten())
}

/// Reads the table of sessions and compares it with what the newest row says of it.
fn read_sessions(
    db: &Connection,
    said: Option<&Header>,
    damage: &mut Vec<Damage>,
) -> rusqlite::Result<HashMap<Key, Rebuild>> {
    let mut sessions = HashMap::new();
    let (mut sum, mut bad) = (0, 0);
    let sql = "SELECT key, record, id FROM sessions WHERE key > ?1 ORDER BY key";
    let last_possible = said.map_or(0, |said| said.next_key);
    let unreadable = scan(db, sql, last_possible, |key, row| {
        let key = Key(key);
        let record = row.get_ref(1)?.as_blob().unwrap_or_default();
        match rows::decode(key, record) {
            Ok((stored, row_sum)) => {
                sum ^= row_sum;
                sessions.insert(key, Rebuild::new(stored, row_sum));
            }
            Err(rows::BadRecord) => {
                sum ^= rows::claimed_sum(record);
                bad += 1;
                damage.push(Damage::Session { id: readable_id(row) });
            }
        }
        Ok(())
    })?;
    if let Some(what) = unreadable {
        damage.push(Damage::Unreadable { table: "sessions", what });
    }
    if let Some(said) = said {
        let (found, expected) = (sessions.len() as u64, said.sessions);
        if found + bad != expected || sum != said.sessions_sum {
            damage.push(Damage::Sessions { found, expected });
        }
    }
    Ok(sessions)
}

fn readable_id(row: &SqlRow<'_>) -> Option<SessionId> {
    SessionId::parse(row.get_ref(2).ok()?.as_str().ok()?).ok()
}

/// The journal, as far as it has been read.
#[derive(Debug)]
struct Reading {
    sessions: HashMap<Key, Rebuild>,
    rows: VecDeque<JournalRow>,
    newest: Option<Header>,
    faulty: Vec<u64>,
}

impl Reading {
    fn add_row(&mut self, number: u64, body: ValueRef<'_>, ledger: &Arc<Ledger>) {
        let body = body.as_blob().unwrap_or_default();
        let ascending = self.newest.is_none_or(|newest| newest.number < number);
        let Ok((header, mut records)) = journal::read_row(number, body) else {
            return self.faulty.push(number);
        };
        if !ascending {
            return self.faulty.push(number);
        }
        let row = Row::new(number, ledger);
        let mut has_ids = false;
        while let Ok(Some(Record { place, head, .. })) = records.next() {
            has_ids |= matches!(head, Head::Seen { .. } | Head::Entry { digest: Some(_), .. });
            if let Some(session) = self.sessions.get_mut(&head.key()) {
                session.add(number, head, || Piece::cold(&row, place));
            }
        }
        let stored = stored_bytes(body.len());
        self.rows.push_back(JournalRow { row, stored, has_ids, unnoted: Vec::new() });
        self.newest = Some(header);
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
}

/// Reads a table in the order of its keys, and goes on behind places that can't be read, as far as
/// keys are possible. Says what was wrong, if something was.
fn scan(
    db: &Connection,
    sql: &str,
    last_possible: u64,
    mut each: impl FnMut(u64, &SqlRow<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Option<String>> {
    let mut after = -1;
    let mut wrong = None;
    loop {
        let mut step = || -> rusqlite::Result<()> {
            let mut select = db.prepare_cached(sql)?;
            let mut rows = select.query([after])?;
            while let Some(row) = rows.next()? {
                after = row.get(0)?;
                each(after as u64, row)?;
            }
            Ok(())
        };
        match step() {
            Ok(()) => return Ok(wrong),
            Err(error) if is_corruption(&error) => wrong = Some(in_one_line(&error)),
            Err(error) => return Err(error),
        }
        after += 1;
        if after as u64 >= last_possible {
            return Ok(wrong);
        }
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
