//! The table `audit`: plain columns, so that people can ask it anything.

use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::{Principal, SessionId, Timestamp};
use rusqlite::{Connection, Row};

use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::shares::Shares;

/// The trail, and whose records it holds.
#[derive(Debug)]
pub(super) struct Trail {
    max: usize,
    /// Read from the table when the first record is added.
    shares: Option<Shares>,
}

impl Trail {
    /// Of at most so many records.
    pub(super) fn new(max: u64) -> Self {
        Self { max: usize::try_from(max).unwrap_or(usize::MAX), shares: None }
    }

    /// Adds records, and lets go of what is beyond the bound.
    pub(super) fn put(&mut self, db: &Connection, records: &[AuditRecord]) -> rusqlite::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut shares = match self.shares.take() {
            Some(shares) => shares,
            None => read_shares(db)?,
        };
        insert(db, records, &mut shares)?;
        let mut prune = db.prepare_cached("DELETE FROM audit WHERE id = ?1")?;
        while shares.len() > self.max
            && let Some(place) = shares.give_way()
        {
            prune.execute([place as i64])?;
        }
        self.shares = Some(shares);
        Ok(())
    }
}

fn read_shares(db: &Connection) -> rusqlite::Result<Shares> {
    let mut shares = Shares::default();
    let mut read = db.prepare("SELECT id, principal, address FROM audit ORDER BY id")?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let (place, address): (i64, Option<String>) = (row.get(0)?, row.get(2)?);
        let principal = Principal::new(&row.get::<_, String>(1)?);
        shares.add(&principal, address.as_deref(), place as u64);
    }
    Ok(shares)
}

fn insert(db: &Connection, records: &[AuditRecord], shares: &mut Shares) -> rusqlite::Result<()> {
    let mut put = db.prepare_cached(
        "INSERT INTO audit (at, session_id, principal, address, transport, action, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for AuditRecord { attempt, reason } in records {
        put.execute((
            attempt.at.as_millis() as i64,
            attempt.session_id.as_ref().map(SessionId::as_str),
            attempt.principal.as_str(),
            attempt.address.as_deref(),
            &*attempt.transport,
            &*attempt.action,
            reason.as_str(),
        ))?;
        let place = db.last_insert_rowid() as u64;
        shares.add(&attempt.principal, attempt.address.as_deref(), place);
    }
    Ok(())
}

/// Reads a page, newest first.
pub(super) fn read(db: &Connection, query: &AuditQuery) -> rusqlite::Result<AuditPage> {
    let before = query.before.map_or(i64::MAX, |place| i64::try_from(place).unwrap_or(i64::MAX));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX - 1) + 1; // one more: is there any?
    let of_session = query.session_id.as_ref().map(SessionId::as_str);
    let sql = match of_session {
        None => "SELECT * FROM audit WHERE id < ?1 AND ?2 IS NULL ORDER BY id DESC LIMIT ?3",
        Some(_) => {
            "SELECT * FROM audit WHERE id < ?1 AND session_id = ?2 ORDER BY id DESC LIMIT ?3"
        }
    };
    let mut read = db.prepare_cached(sql)?;
    AuditPage::fill(query, read.query_map((before, of_session, limit), record_of)?)
}

fn record_of(row: &Row<'_>) -> rusqlite::Result<(u64, AuditRecord)> {
    let session_id: Option<String> = row.get("session_id")?;
    let principal: String = row.get("principal")?;
    let address: Option<String> = row.get("address")?;
    let transport: String = row.get("transport")?;
    let action: String = row.get("action")?;
    let reason: String = row.get("reason")?;
    let known = Reason::ALL.iter().find(|known| known.as_str() == reason);
    let attempt = Attempt {
        at: Timestamp::from_millis(row.get::<_, i64>("at")? as u64),
        session_id: session_id.and_then(|id| SessionId::parse(&id).ok()),
        principal: Principal::new(&principal),
        address: address.map(Into::into),
        transport: transport.into(),
        action: action.into(),
    };
    let reason = known.copied().unwrap_or(Reason::InternalError);
    Ok((row.get::<_, i64>("id")? as u64, AuditRecord { attempt, reason }))
}
