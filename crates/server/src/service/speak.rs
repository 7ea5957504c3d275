//! Saying something in a session without being attached to it, and looking on.

use rejoin_core::log::EntryKind;
use rejoin_core::record::{Kind, Record};
use rejoin_core::resume::{self, Asked, Gap, Resume};
use rejoin_core::session::{Publication, Published};
use rejoin_core::state::Entered;
use rejoin_core::{Epoch, Seq, SessionId};
use rejoin_store::audit::{AuditPage, AuditQuery};
use rejoin_store::{PageLimit, StoredEvent};

use super::{Denial, Service, Visitor};
use crate::entry::EntryBody;

/// What an observer sees: events after its position, and what it will never see.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// What is gone.
    pub gap: Option<Gap>,
    /// The session as of then.
    pub record: Record,
}

/// How full a session's buffer is.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Events held.
    pub events: u64,
    /// Bytes held.
    pub bytes: usize,
    /// The oldest event held, if any is.
    pub oldest: Option<Seq>,
    /// The newest, if any is.
    pub newest: Option<Seq>,
    /// Events that no client has acked.
    pub unacked: u64,
}

impl Health {
    /// Of a session that is as `record` says.
    pub fn of(record: &Record) -> Self {
        let held = record.held();
        Self {
            events: held,
            bytes: record.held_bytes,
            oldest: (held > 0).then_some(record.oldest),
            newest: (held > 0).then_some(record.head),
            unacked: record.head.steps_from(record.acked),
        }
    }
}

impl Service {
    /// Enters a message for the agent.
    pub async fn send(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        entry: EntryBody,
    ) -> Result<Entered, Denial> {
        let record = self.active(visitor, id).await?;
        agents_only(&record)?;
        let message_id = entry.message_id.as_ref().map(|id| id.as_str());
        let body = entry.to_body();
        Ok(self.sessions().send(id, EntryKind::Message, message_id, body).await?)
    }

    /// Publishes into a session's out log, on behalf of its agent.
    pub async fn publish(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        publication: Publication,
    ) -> Result<Published, Denial> {
        let record = self.active(visitor, id).await?;
        agents_only(&record)?;
        if !visitor.caller.publish {
            return Err(Denial::Forbidden);
        }
        Ok(self.sessions().publish(id, publication).await?)
    }

    /// What a session holds after a position.
    pub async fn observe(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        after: Seq,
        epoch: Option<Epoch>,
    ) -> Result<Observed, Denial> {
        let record = self.active(visitor, id).await?;
        let asked = Asked { last_seq: Some(after), epoch, last_event_id: None };
        let (after, gap) = match resume::decide(&record, &asked, self.now()) {
            Resume::UpToDate => return Ok(Observed { events: vec![], gap: None, record }),
            Resume::Replay { after } => (after, None),
            Resume::SnapshotAndReplay { gap, after } => (after, Some(gap)),
            Resume::Refuse(_) => return Err(Denial::NotFound),
        };
        let page = self.sessions().store().read(id, after, PageLimit::default()).await?;
        let page = page.ok_or(Denial::NotFound)?;
        // What went between the decision and the reading is a gap like any other.
        let gap = gap.or_else(|| resume::missing(&page.record, after));
        Ok(Observed { events: page.events, gap, record: page.record })
    }

    /// The audit trail, newest first: everybody's for an administrator, else of the caller's own
    /// session.
    pub async fn audit_trail(
        &self,
        visitor: &Visitor,
        query: &AuditQuery,
    ) -> Result<AuditPage, Denial> {
        let mut page = self.sessions().store().audit_trail(query).await?;
        if !visitor.caller.admin {
            page.records.retain(|record| record.principal == visitor.caller.principal);
        }
        Ok(page)
    }
}

/// Messages and events are for agents; an MCP session has its own way in.
fn agents_only(record: &Record) -> Result<(), Denial> {
    match record.about.kind {
        Kind::Agent => Ok(()),
        Kind::Mcp => Err(Denial::NotFound),
    }
}
