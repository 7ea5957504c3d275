//! The rows of the table `sessions`: a few columns for people who open the file, and the record,
//! which is the truth.
//!
//! The record is `crc:4` and a [`Stored`] in postcard's encoding. The checksum covers the key as
//! well, so that a record under another key is noticed.

use std::sync::Arc;

use rejoin_core::record::{About, Ending, Status};
use rejoin_core::state::{SessionState, Tokens, Vitals};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::commit::SessionRow;
use super::journal::{Key, Numbers};
use super::slot::Session;

/// A session as its row has it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The commit that wrote the row: records of later ones know better.
    pub(super) as_of: u64,
    pub(super) about: About,
    pub(super) vitals: Vitals,
    pub(super) tokens: Tokens,
    pub(super) numbers: Numbers,
}

#[derive(Serialize)]
struct StoredRef<'a> {
    as_of: u64,
    about: &'a About,
    vitals: &'a Vitals,
    tokens: &'a Tokens,
    numbers: Numbers,
}

/// The record of a row does not say what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

/// The row of a session, and the checksum of its record.
pub(super) fn encode(session: &Session, as_of: u64) -> (SessionRow, u32) {
    let SessionState { about, vitals, tokens, .. } = &session.state;
    let stored = StoredRef { as_of, about, vitals, tokens, numbers: session.numbers() };
    let mut record = postcard::to_extend(&stored, vec![0; 4]).expect("memory takes everything");
    let sum = checksum(session.key, &record[4..]);
    record[..4].copy_from_slice(&sum.to_le_bytes());
    let row = SessionRow {
        key: session.key,
        about: Arc::clone(about),
        status: status_word(&vitals.status),
        expires_at: vitals.expires_at,
        record,
    };
    (row, sum)
}

/// What a row's record says, still encoded, and its checksum.
pub(super) fn check(key: Key, record: &[u8]) -> Result<(&[u8], u32), BadRecord> {
    let (sum, content) = record.split_first_chunk::<4>().ok_or(BadRecord)?;
    let sum = u32::from_le_bytes(*sum);
    if sum == checksum(key, content) { Ok((content, sum)) } else { Err(BadRecord) }
}

/// The session in a record that is whole.
pub(super) fn decode(content: &[u8]) -> Result<Stored, BadRecord> {
    postcard::from_bytes(content).map_err(|_| BadRecord)
}

/// The checksum that a record has, right or wrong.
pub(super) fn claimed_sum(record: &[u8]) -> u32 {
    record.first_chunk::<4>().map_or(0, |sum| u32::from_le_bytes(*sum))
}

fn checksum(key: Key, content: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&key.0.to_le_bytes());
    crc.update(content);
    crc.finalize()
}

/// Writes a session's row, new or not.
pub(super) fn put(db: &Connection, row: &SessionRow) -> rusqlite::Result<()> {
    let mut put = db.prepare_cached(
        "INSERT INTO sessions (key, id, principal, status, created_at, expires_at, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (key) DO UPDATE SET
             status = excluded.status, expires_at = excluded.expires_at, record = excluded.record",
    )?;
    put.execute((
        row.key.0 as i64,
        row.about.id.as_str(),
        row.about.principal.as_str(),
        row.status,
        row.about.created_at.as_millis() as i64,
        row.expires_at.as_millis() as i64,
        &row.record,
    ))?;
    Ok(())
}

/// Deletes a session's row.
pub(super) fn delete(db: &Connection, key: Key) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([key.0 as i64])?;
    Ok(())
}

fn status_word(status: &Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Ended { ending: Ending::Closed, .. } => "closed",
        Status::Ended { ending: Ending::Expired, .. } => "expired",
        Status::Ended { ending: Ending::Restored { .. }, .. } => "restored",
        Status::Ended { ending: Ending::CleanedUp, .. } => "cleaned_up",
    }
}
