//! Reading what is not in memory, on connections of its own: no reader waits for the writer, nor the
//! writer for a reader.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::log::EntryKind;
use rejoin_core::record::{Record, SnapshotMark};
use rejoin_core::{InSeq, Seq, Timestamp};
use rusqlite::{Connection, MAIN_DB};

use super::error::Fault;
use super::journal;
use super::limits;
use super::piece::Piece;
use super::schema;
use super::slot::Session;
use crate::contract::{Body, Page, PageLimit, StoredEntry, StoredEvent, StoredSnapshot};

/// Connections for reading, opened as needed.
#[derive(Debug)]
pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// For this database.
    pub(super) fn new(database: &Path) -> Self {
        Self { database: database.to_path_buf(), idle: Mutex::default() }
    }

    /// Reads something. Blocks.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let idle = self.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::connect_reader(&self.database)?,
        };
        let outcome = read(&connection);
        let mut idle = self.lock();
        if idle.len() < limits::READERS {
            idle.push(connection);
        }
        outcome
    }

    /// Lets go of the connections.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body on its way to a reader. While it is on its way it keeps its journal row from being deleted.
#[derive(Debug)]
pub(super) enum Found {
    Here(Body),
    InFile(Piece),
}

impl Found {
    fn of(piece: &Piece) -> Self {
        match piece.body() {
            Some(body) => Self::Here(Arc::clone(body)),
            None => Self::InFile(piece.clone()),
        }
    }

    /// The body, if it is in memory.
    pub(super) fn here(&self) -> Option<Body> {
        match self {
            Self::Here(body) => Some(Arc::clone(body)),
            Self::InFile(_) => None,
        }
    }
}

/// Something that readers ask for, some of whose bodies may still have to be fetched.
pub(super) trait Fetch: Send + 'static {
    /// What it becomes.
    type Whole: Send + 'static;

    /// The bodies it needs.
    fn bodies(&self) -> impl Iterator<Item = &Found>;

    /// Puts the bodies in, in the same order.
    fn complete(self, bodies: Vec<Body>) -> Self::Whole;
}

/// A page of events; see [`Page`].
#[derive(Debug)]
pub(super) struct PageFound {
    record: Record,
    events: Vec<(Seq, Timestamp, Found)>,
}

impl PageFound {
    /// The committed events after `after` that fit.
    pub(super) fn of(session: &Session, after: Seq, limit: PageLimit) -> Self {
        let record = session.record();
        let mut events = Vec::new();
        let mut bytes = 0;
        let committed = session.out().after(after).take_while(|(seq, _)| *seq <= record.head);
        for (seq, held) in committed.take(limit.events.max(1)) {
            bytes += held.size as usize;
            if bytes > limit.bytes && !events.is_empty() {
                break;
            }
            events.push((seq, held.at, Found::of(&held.body)));
        }
        Self { record, events }
    }
}

impl Fetch for PageFound {
    type Whole = Page;

    fn bodies(&self) -> impl Iterator<Item = &Found> {
        self.events.iter().map(|(_, _, body)| body)
    }

    fn complete(self, bodies: Vec<Body>) -> Page {
        let events = self.events.into_iter().zip(bodies);
        let events = events.map(|((seq, at, _), body)| StoredEvent { seq, at, body });
        Page { events: events.collect(), record: self.record }
    }
}

/// Waiting entries; see [`StoredEntry`].
#[derive(Debug)]
pub(super) struct EntriesFound(Vec<(InSeq, EntryKind, Timestamp, Found)>);

impl EntriesFound {
    /// The committed entries after `after` that wait, at most `limit`.
    pub(super) fn of(session: &Session, after: InSeq, limit: usize) -> Self {
        let head = session.record().in_head;
        let committed = session.inbox().after(after).take_while(|(in_seq, _)| *in_seq <= head);
        let found = committed
            .take(limit)
            .map(|(in_seq, entry)| (in_seq, entry.kind, entry.at, Found::of(&entry.body)));
        Self(found.collect())
    }
}

impl Fetch for EntriesFound {
    type Whole = Vec<StoredEntry>;

    fn bodies(&self) -> impl Iterator<Item = &Found> {
        self.0.iter().map(|(_, _, _, body)| body)
    }

    fn complete(self, bodies: Vec<Body>) -> Vec<StoredEntry> {
        let entries = self.0.into_iter().zip(bodies);
        let entries =
            entries.map(|((in_seq, kind, at, _), body)| StoredEntry { in_seq, kind, at, body });
        entries.collect()
    }
}

/// The agent's state; see [`StoredSnapshot`].
#[derive(Debug)]
pub(super) struct SnapshotFound(Option<(SnapshotMark, Found)>);

impl SnapshotFound {
    /// The committed one.
    pub(super) fn of(session: &Session) -> Self {
        Self(session.snapshot().map(|snapshot| (snapshot.mark, Found::of(&snapshot.body))))
    }
}

impl Fetch for SnapshotFound {
    type Whole = Option<StoredSnapshot>;

    fn bodies(&self) -> impl Iterator<Item = &Found> {
        self.0.iter().map(|(_, body)| body)
    }

    fn complete(self, bodies: Vec<Body>) -> Option<StoredSnapshot> {
        let (mark, _) = self.0?;
        bodies.into_iter().next().map(|body| StoredSnapshot { mark, body })
    }
}

/// The bodies, from memory where they are there, else from the file.
pub(super) fn fetch<'a>(
    db: &Connection,
    bodies: impl Iterator<Item = &'a Found>,
) -> Result<Vec<Body>, Fault> {
    let mut row: Option<(u64, rusqlite::blob::Blob<'_>)> = None;
    let mut fetched = Vec::new();
    for body in bodies {
        let piece = match body {
            Found::Here(body) => {
                fetched.push(Arc::clone(body));
                continue;
            }
            Found::InFile(piece) => piece,
        };
        let number = piece.row_number();
        let blob = match &mut row {
            Some((open, blob)) if *open == number => blob,
            row => {
                let blob = db.blob_open(MAIN_DB, "journal", "body", number as i64, true)?;
                &mut row.insert((number, blob)).1
            }
        };
        let mut record = vec![0; piece.place().len as usize];
        blob.read_at_exact(&mut record, piece.place().start as usize)?;
        let (_, body) =
            journal::read_record(&record).map_err(|what| Fault::Row { number, what })?;
        fetched.push(Arc::from(body));
    }
    Ok(fetched)
}
