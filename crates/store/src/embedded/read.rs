//! Reading what is not in memory, on connections of its own: no reader waits for the writer, nor the
//! writer for a reader.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::{InSeq, Seq};
use rusqlite::blob::Blob;
use rusqlite::{Connection, MAIN_DB};

use super::error::Fault;
use super::journal;
use super::limits;
use super::piece::Piece;
use super::schema;
use super::slot::Session;
use crate::contract::{
    Body, MessagePage, Page, PageLimit, StoredEntry, StoredEvent, StoredMessage, StoredSnapshot,
};

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

/// Something that readers ask for, and those of its bodies that have to be fetched first.
#[derive(Debug)]
pub(super) struct Unfetched<T> {
    whole: T,
    /// In the order of their places among the bodies. Each keeps its journal row from being deleted.
    missing: Vec<(usize, Piece)>,
}

/// Something whose bodies may come from the file.
pub(super) trait Bodies {
    /// All of them, in order.
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body>;
}

impl<T: Bodies> Unfetched<T> {
    /// All of it, if nothing has to be fetched.
    pub(super) fn here(self) -> Result<T, Self> {
        if self.missing.is_empty() { Ok(self.whole) } else { Err(self) }
    }

    /// All of it, with what is missing from the file.
    pub(super) fn fetch(mut self, db: &Connection) -> Result<T, Fault> {
        let mut missing = self.missing.into_iter().peekable();
        let mut file = InFile { db, row: None };
        for (index, body) in self.whole.bodies().enumerate() {
            if let Some((_, piece)) = missing.next_if(|(missing, _)| *missing == index) {
                *body = file.read(&piece)?;
            }
        }
        Ok(self.whole)
    }
}

/// Takes bodies where they are in memory, and notes where they are not.
#[derive(Default)]
struct Collect {
    count: usize,
    missing: Vec<(usize, Piece)>,
}

impl Collect {
    fn body(&mut self, piece: &Piece) -> Body {
        self.count += 1;
        match piece.body() {
            Some(body) => Arc::clone(body),
            None => {
                self.missing.push((self.count - 1, piece.clone()));
                Body::default()
            }
        }
    }

    fn found<T>(self, whole: T) -> Unfetched<T> {
        Unfetched { whole, missing: self.missing }
    }
}

/// The committed events after `after` that fit.
pub(super) fn page(session: &Session, after: Seq, limit: PageLimit) -> Unfetched<Page> {
    let record = session.record();
    let room = limit.events.max(1).min(record.head.steps_from(after) as usize);
    let mut events = Vec::with_capacity(room.min(session.out().len()));
    let mut collect = Collect::default();
    let mut bytes = 0;
    let committed = session.out().after(after).take_while(|(seq, _)| *seq <= record.head);
    for (seq, held) in committed.take(room) {
        bytes += held.weight.bytes();
        if bytes > limit.bytes && !events.is_empty() {
            break;
        }
        events.push(StoredEvent { seq, at: held.at, body: collect.body(&held.body) });
    }
    collect.found(Page { events, record })
}

/// The results after `after` that are kept from before the oldest event, as many as fit.
pub(super) fn kept(session: &Session, after: Seq, limit: PageLimit) -> Unfetched<Vec<StoredEvent>> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    let mut collect = Collect::default();
    for (seq, held) in session.out().kept_after(after).take(limit.events.max(1)) {
        bytes += held.weight.bytes();
        if bytes > limit.bytes && !events.is_empty() {
            break;
        }
        events.push(StoredEvent { seq, at: held.at, body: collect.body(&held.body) });
    }
    collect.found(events)
}

impl Bodies for Vec<StoredEvent> {
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.iter_mut().map(|event| &mut event.body)
    }
}

impl Bodies for Page {
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.events.iter_mut().map(|event| &mut event.body)
    }
}

/// The committed entries after `after` that wait, at most `limit`.
pub(super) fn entries(
    session: &Session,
    after: InSeq,
    limit: usize,
) -> Unfetched<Vec<StoredEntry>> {
    let head = session.record().in_head;
    let committed = session.inbox().after(after).take_while(|(in_seq, _)| *in_seq <= head);
    let mut collect = Collect::default();
    let entries = committed.take(limit).map(|(in_seq, entry)| {
        let body = collect.body(&entry.body);
        StoredEntry { in_seq, kind: entry.kind, at: entry.at, body }
    });
    let entries = entries.collect();
    collect.found(entries)
}

impl Bodies for Vec<StoredEntry> {
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.iter_mut().map(|entry| &mut entry.body)
    }
}

/// The committed entries after `after` that are held, dealt with or not, as many as fit.
pub(super) fn messages(
    session: &Session,
    after: InSeq,
    limit: PageLimit,
) -> Unfetched<MessagePage> {
    let record = session.record();
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let mut collect = Collect::default();
    let held = session.inbox().all_after(after);
    for (in_seq, entry, covered) in held.take_while(|(in_seq, ..)| *in_seq <= record.in_head) {
        bytes += entry.size as usize;
        if !limit.has_room(messages.len(), bytes) {
            break;
        }
        let body = collect.body(&entry.body);
        let entry = StoredEntry { in_seq, kind: entry.kind, at: entry.at, body };
        messages.push(StoredMessage { entry, covered });
    }
    collect.found(MessagePage { messages, record })
}

impl Bodies for MessagePage {
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.messages.iter_mut().map(|message| &mut message.entry.body)
    }
}

/// The agent's state that is committed.
pub(super) fn snapshot(session: &Session) -> Unfetched<Option<StoredSnapshot>> {
    let mut collect = Collect::default();
    let snapshot = session.snapshot().map(|snapshot| {
        let body = collect.body(&snapshot.body);
        StoredSnapshot { mark: snapshot.mark, body }
    });
    collect.found(snapshot)
}

impl Bodies for Option<StoredSnapshot> {
    fn bodies(&mut self) -> impl Iterator<Item = &mut Body> {
        self.iter_mut().map(|snapshot| &mut snapshot.body)
    }
}

/// Reads bodies from the file; those that follow each other in one row without finding it again.
struct InFile<'a> {
    db: &'a Connection,
    row: Option<(u64, Blob<'a>)>,
}

impl InFile<'_> {
    fn read(&mut self, piece: &Piece) -> Result<Body, Fault> {
        let number = piece.row_number();
        let blob = match &mut self.row {
            Some((open, blob)) if *open == number => blob,
            row => {
                let blob = self.db.blob_open(MAIN_DB, "journal", "body", number as i64, true)?;
                &mut row.insert((number, blob)).1
            }
        };
        let mut record = vec![0; piece.place().len as usize];
        blob.read_at_exact(&mut record, piece.place().start as usize)?;
        let (_, body) =
            journal::read_record(&record).map_err(|what| Fault::Row { number, what })?;
        Ok(Arc::from(body))
    }
}
