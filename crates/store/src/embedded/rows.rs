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
    /// Rows that an older Rejoin wrote end before it.
    unseen_ms: u32,
}

/// The record of a row does not say what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

/// The row of a session, and the checksum of its record.
pub(super) fn encode(session: &Session, as_of: u64) -> (SessionRow, u32) {
    let SessionState { about, vitals, tokens, .. } = &session.state;
    let (numbers, unseen_ms) = (session.numbers(), vitals.unseen_ms);
    let stored = StoredRef { as_of, about, vitals, tokens, numbers, unseen_ms };
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
    let (mut stored, rest) = postcard::take_from_bytes::<Stored>(content).map_err(|_| BadRecord)?;
    if !rest.is_empty() {
        stored.vitals.unseen_ms = postcard::from_bytes(rest).map_err(|_| BadRecord)?;
    }
    Ok(stored)
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

#[cfg(test)]
mod tests {
    use rejoin_core::ids::LogId;
    use rejoin_core::record::Kind;
    use rejoin_core::state::{Create, Room};
    use rejoin_core::{Epoch, Principal, SessionId, Timestamp};

    use super::*;

    #[test]
    fn a_row_of_an_older_version_ends_before_what_was_added() {
        let about = About {
            id: SessionId::parse("old").unwrap(),
            principal: Principal::anonymous(),
            kind: Kind::Agent,
            client: "{}".into(),
            created_at: Timestamp::from_millis(1),
        };
        let (log, epoch, keep_for) = (LogId::new(1), Epoch::from_text("e"), Default::default());
        let create = Create { about, log, epoch, keep_for, room: Room::UNLIMITED };
        let SessionState::<()> { about, vitals, tokens, .. } = SessionState::create(create);
        let about = About::clone(&about);
        let numbers = Numbers::default();
        let mut stored = Stored { as_of: 7, about, vitals, tokens, numbers };
        let old = postcard::to_allocvec(&stored).unwrap();
        assert_eq!(decode(&old).unwrap(), stored);
        let new = postcard::to_extend(&21_000u32, old).unwrap();
        stored.vitals.unseen_ms = 21_000;
        assert_eq!(decode(&new).unwrap(), stored);
        assert_eq!(decode(&new[..new.len() - 1]), Err(BadRecord), "it is cut off");
    }
}
