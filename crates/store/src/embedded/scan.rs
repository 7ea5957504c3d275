//! Reads the two tables that matter when a store is opened, each in parts that several threads take
//! in turn. Every checksum is looked at here, and nothing is copied that is not needed later.

use std::path::Path;
use std::sync::Arc;

use rejoin_core::{Seq, SessionId, Timestamp};
use rusqlite::{Connection, Row as SqlRow};

use super::cleanup::stored_bytes;
use super::error::{in_one_line, is_corruption};
use super::journal::{self, Head, Header, Key, Record, RowFault};
use super::limits;
use super::parallel;
use super::piece::{Ledger, Mark, Place, Row};
use super::rows;
use super::schema;

/// Part of a table: the rows whose keys lie after one and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keys {
    after: i64,
    up_to: i64,
    /// No row beyond this can be there; where to stop looking behind damage.
    last_possible: i64,
}

impl Keys {
    /// All there can be, in about so many parts. Between `first` and `last` they are probably.
    fn in_parts(first: u64, last: u64, last_possible: u64, parts: u64) -> Vec<Self> {
        let step = (last.saturating_sub(first) / parts).max(1);
        let inner = (1..parts).map(|part| first + part * step).take_while(|bound| *bound < last);
        let bounds: Vec<i64> = inner.map(|bound| bound as i64).chain([i64::MAX]).collect();
        let last_possible = last_possible as i64;
        let mut after = -1;
        let part = |up_to| {
            let keys = Self { after, up_to, last_possible };
            after = up_to;
            keys
        };
        bounds.into_iter().map(part).collect()
    }
}

/// Which connections read.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScanWith<'a> {
    /// So many threads, each with a connection of its own to this file, which nobody may change meanwhile.
    OfFile { database: &'a Path, threads: usize },
    /// This one, in whose transaction all is of one moment.
    One(&'a Connection),
}

/// Where to look for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent<'a> {
    /// What the newest row says, if it can be read.
    pub(super) said: Option<&'a Header>,
    /// The newest row that there can be.
    pub(super) last_possible: u64,
}

/// Session rows as they stand in the table, in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct SessionRows {
    pub(super) rows: Vec<RawSession>,
    records: Vec<u8>,
    /// Rows whose record is not what was written, by their ids.
    pub(super) bad: Vec<Option<SessionId>>,
    /// The checksums of all of them, combined by exclusive or.
    pub(super) sum: u32,
    pub(super) unreadable: Option<String>,
}

/// A row whose record is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSession {
    pub(super) key: Key,
    /// The checksum of the record.
    pub(super) sum: u32,
    start: u32,
    len: u32,
}

impl SessionRows {
    /// What the record of a row says, without the checksum.
    pub(super) fn content(&self, row: &RawSession) -> &[u8] {
        &self.records[row.start as usize..][..row.len as usize]
    }

    fn add(&mut self, key: Key, row: &SqlRow<'_>) -> rusqlite::Result<()> {
        let record = row.get_ref(1)?.as_blob().unwrap_or_default();
        let start = self.records.len() as u32;
        match rows::check(key, record) {
            Ok((content, sum)) => {
                self.records.extend_from_slice(content);
                self.rows.push(RawSession { key, sum, start, len: content.len() as u32 });
            }
            Err(rows::BadRecord) => self.bad.push(readable_id(row)),
        }
        self.sum ^= rows::claimed_sum(record);
        Ok(())
    }
}

fn readable_id(row: &SqlRow<'_>) -> Option<SessionId> {
    SessionId::parse(row.get_ref(2).ok()?.as_str().ok()?).ok()
}

/// Rows of the journal, in their order.
#[derive(Debug, Default)]
pub(super) struct JournalRows {
    pub(super) rows: Vec<RowFound>,
    /// Rows that are not whole.
    pub(super) faulty: Vec<u64>,
    pub(super) unreadable: Option<String>,
}

/// What a row of the journal that is whole says.
#[derive(Debug)]
pub(super) struct RowFound {
    pub(super) row: Arc<Row>,
    pub(super) header: Header,
    /// Bytes of the file that it takes.
    pub(super) stored: u64,
    /// Whether message ids are in it.
    pub(super) has_ids: bool,
    /// Its records, with events that lie side by side taken together.
    pub(super) said: Vec<Said>,
}

/// Something that a row says about a session.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) key: Key,
    pub(super) what: What,
}

/// See [`Said`].
#[derive(Debug)]
pub(super) enum What {
    /// Events.
    Events(Events),
    /// Any other record; there are few of them.
    Other(Box<(Head, Place)>),
}

/// Events of one session whose records lie side by side in a journal row, and that came at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    pub(super) first: Seq,
    pub(super) at: Timestamp,
    /// Where in the row the first record begins.
    pub(super) start: u32,
    /// Which of the row's [`Row::marks`] is the first.
    pub(super) mark: u32,
    pub(super) count: u32,
}

impl RowFound {
    /// Reads a row, if it is whole.
    fn read(number: u64, body: &[u8], ledger: &Arc<Ledger>) -> Result<Self, RowFault> {
        let (header, mut records) = journal::begin_row(number, body)?;
        let mut reading = Reading::default();
        reading.marks.reserve(records.left().min(body.len() / 16));
        while let Some(Record { place, head, .. }) = records.next_checked()? {
            reading.add(head, place);
        }
        let Reading { mut said, marks, has_ids } = reading;
        said.shrink_to_fit();
        let row = Row::with_marks(number, ledger, marks);
        Ok(Self { row, header, stored: stored_bytes(body.len()), has_ids, said })
    }
}

/// What was read of a row so far.
#[derive(Debug, Default)]
struct Reading {
    said: Vec<Said>,
    marks: Vec<Mark>,
    has_ids: bool,
}

impl Reading {
    fn add(&mut self, head: Head, place: Place) {
        let key = head.key();
        let Head::Event { seq, at, weight, .. } = head else {
            self.has_ids |= matches!(
                head,
                Head::Seen { .. } | Head::SeenKey { .. } | Head::Entry { digest: Some(_), .. }
            );
            let what = What::Other(Box::new((head, place)));
            return self.said.push(Said { key, what });
        };
        let mark = self.marks.len() as u32;
        self.marks.push(Mark { len: place.len, weight });
        if let Some(Said { key: last_key, what: What::Events(events) }) = self.said.last_mut()
            && *last_key == key
            && events.at == at
            && events.first.plus(u64::from(events.count)) == seq
        {
            events.count += 1; // no other record lies between: it would be the last
        } else {
            let events = Events { first: seq, at, start: place.start, mark, count: 1 };
            self.said.push(Said { key, what: What::Events(events) });
        }
    }
}

/// What both tables hold.
#[derive(Debug)]
pub(super) struct ScannedTables {
    pub(super) sessions: Vec<SessionRows>,
    pub(super) journal: Vec<JournalRows>,
}

enum Part {
    Sessions(Keys),
    Journal(Keys),
}

impl Part {
    fn read(self, db: &Connection, ledger: &Arc<Ledger>) -> rusqlite::Result<PartRead> {
        match self {
            Self::Sessions(keys) => read_sessions(db, keys).map(PartRead::Sessions),
            Self::Journal(keys) => read_journal(db, keys, ledger).map(PartRead::Journal),
        }
    }
}

enum PartRead {
    Sessions(SessionRows),
    Journal(JournalRows),
}

/// Reads both tables. Fails only if the file can't be got at; what is wrong inside is part of the
/// answer.
pub(super) fn read(
    readers: ScanWith<'_>,
    extent: Extent<'_>,
    ledger: &Arc<Ledger>,
) -> rusqlite::Result<ScannedTables> {
    let said = extent.said.copied().unwrap_or_default();
    let parts = match readers {
        ScanWith::OfFile { threads: 2.., .. } => limits::OPEN_PARTS,
        ScanWith::OfFile { .. } | ScanWith::One(_) => 1,
    };
    let journal = Keys::in_parts(said.first, said.number, extent.last_possible, parts);
    let sessions = Keys::in_parts(0, said.next_key, said.next_key, parts);
    let parts =
        sessions.into_iter().map(Part::Sessions).chain(journal.into_iter().map(Part::Journal));
    let outcomes = match readers {
        ScanWith::One(db) => parts.map(|part| part.read(db, ledger)).collect(),
        ScanWith::OfFile { database, threads } => {
            let read = |db: &mut Option<Connection>, part: Part| {
                let db = match db {
                    Some(db) => db,
                    None => db.insert(schema::connect_reader(database)?),
                };
                part.read(db, ledger)
            };
            parallel::map(threads, parts.collect(), || None, read)
        }
    };
    let mut tables = ScannedTables { sessions: Vec::new(), journal: Vec::new() };
    for outcome in outcomes {
        match outcome? {
            PartRead::Sessions(rows) => tables.sessions.push(rows),
            PartRead::Journal(rows) => tables.journal.push(rows),
        }
    }
    Ok(tables)
}

fn read_sessions(db: &Connection, keys: Keys) -> rusqlite::Result<SessionRows> {
    let sql = "SELECT key, record, id FROM sessions WHERE key > ?1 AND key <= ?2 ORDER BY key";
    let mut found = SessionRows::default();
    found.unreadable = each_row(db, sql, keys, |key, row| found.add(Key(key), row))?;
    Ok(found)
}

fn read_journal(
    db: &Connection,
    keys: Keys,
    ledger: &Arc<Ledger>,
) -> rusqlite::Result<JournalRows> {
    let sql = "SELECT id, body FROM journal WHERE id > ?1 AND id <= ?2 ORDER BY id";
    let mut found = JournalRows::default();
    found.unreadable = each_row(db, sql, keys, |number, row| {
        let body = row.get_ref(1)?.as_blob().unwrap_or_default();
        match RowFound::read(number, body, ledger) {
            Ok(row) => found.rows.push(row),
            Err(_) => found.faulty.push(number),
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads rows in the order of their keys, and goes on behind places that can't be read, as far as
/// keys are possible. Says what was wrong, if something was.
fn each_row(
    db: &Connection,
    sql: &str,
    keys: Keys,
    mut each: impl FnMut(u64, &SqlRow<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Option<String>> {
    let Keys { mut after, up_to, last_possible } = keys;
    let mut wrong = None;
    loop {
        let mut step = || -> rusqlite::Result<()> {
            let mut select = db.prepare_cached(sql)?;
            let mut rows = select.query([after, up_to])?;
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
        if after >= last_possible.min(up_to) {
            return Ok(wrong);
        }
    }
}
