//! Saying something in a session without being attached to it, and looking on.

use std::time::Duration;

use rejoin_core::limits::LogBounds;
use rejoin_core::log::EntryKind;
use rejoin_core::page::Page;
use rejoin_core::record::{Kind, Record};
use rejoin_core::resume::{self, Asked, Gap, Resume};
use rejoin_core::state::Entered;
use rejoin_core::worker::{Publication, Published};
use rejoin_core::{Epoch, InSeq, Seq, SessionId};
use rejoin_store::audit::{AuditPage, AuditQuery, AuditRecord};
use rejoin_store::{MessagePage, PageLimit, StoredEvent};
use tokio::time::{Instant, timeout_at};

use super::{Denial, Phase, Service, Visitor};
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

/// Where an observer stands in an out log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The last event it has; nothing if it has seen none, in whatever epoch that was.
    pub after: Option<Seq>,
    /// The epoch that counts in.
    pub epoch: Option<Epoch>,
}

impl Observed {
    fn of(page: Page, gap: Option<Gap>) -> Self {
        Self { events: page.events, gap: gap.map(without_state), record: page.record }
    }

    /// Where an observer stands once it has seen this.
    pub fn place(&self) -> Place {
        let after = self.events.last().map_or(self.record.head, |event| event.seq);
        Place { after: Some(after), epoch: Some(self.record.epoch.clone()) }
    }

    fn is_news(&self) -> bool {
        !self.events.is_empty() || self.gap.is_some()
    }
}

/// How full a session's buffer is.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Events held.
    pub events: u64,
    /// Bytes held.
    pub bytes: usize,
    /// How much of the nearer of its bounds is used. It may pass 100: a single event over the bound in
    /// bytes is kept.
    pub usage_percent: f64,
    /// The oldest event held, if any is.
    pub oldest: Option<Seq>,
    /// The newest, if any is.
    pub newest: Option<Seq>,
    /// Those of them that no client has acked.
    pub unacked: u64,
}

impl Health {
    /// Of a session that is as `record` says, and kept within `bounds`.
    pub fn of(record: &Record, bounds: &LogBounds) -> Self {
        let held = record.held();
        let by_events = held as f64 / bounds.events.max(1) as f64;
        let by_bytes = record.held_bytes as f64 / bounds.bytes.max(1) as f64;
        Self {
            events: held,
            bytes: record.held_bytes,
            usage_percent: by_events.max(by_bytes) * 100.0,
            oldest: (held > 0).then_some(record.oldest),
            newest: (held > 0).then_some(record.head),
            unacked: record.head.steps_from(record.acked.max(record.oldest.previous())),
        }
    }
}

/// How often the trail is read at most to fill one page with the caller's own records; a page that is
/// not full then says where to go on.
const AUDIT_READS: usize = 20;

impl Service {
    /// Enters a message for the agent.
    pub async fn send(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        entry: EntryBody,
    ) -> Result<Entered, Denial> {
        self.check_open()?;
        let record = self.active_for(visitor, id, "message").await?;
        agents_only(&record)?;
        self.check_room()?;
        let message_id = entry.message_id.as_ref().map(|id| id.as_str());
        let body = entry.to_body();
        let sent = self.sessions().send(record.id(), EntryKind::Message, message_id, body);
        Ok(self.sessions().store().unless_stalled(sent).await?)
    }

    /// Ends a session's agent as a crash would, for another to go on; says whether there was one.
    pub async fn restart_agent(&self, visitor: &Visitor, id: &SessionId) -> Result<bool, Denial> {
        let record = self.active_for(visitor, id, "restart").await?;
        agents_only(&record)?;
        Ok(self.sessions().restart_agent(record.id()).await)
    }

    /// Publishes into a session's out log, on behalf of its agent.
    pub async fn publish(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        publication: Publication,
    ) -> Result<Published, Denial> {
        let record = self.active_for(visitor, id, "publish").await?;
        agents_only(&record)?;
        if !visitor.caller.publish {
            return Err(Denial::Forbidden);
        }
        // What an agent says waits for room; a backend is told at once.
        self.check_room()?;
        let published = self.sessions().publish(record.id(), publication);
        Ok(self.sessions().store().unless_stalled(published).await?)
    }

    /// Refuses what is new while the store takes nothing: behind something else that waits for room it would wait as well.
    pub(crate) fn check_room(&self) -> Result<(), Denial> {
        match self.sessions().store().is_paused() {
            true => Err(Denial::paused()),
            false => Ok(()),
        }
    }

    /// How full a session's buffer is.
    pub async fn health(
        &self,
        visitor: &Visitor,
        id: &SessionId,
    ) -> Result<(Health, Record), Denial> {
        let record = self.active(visitor, id).await?;
        Ok((Health::of(&record, &self.inner.settings.bounds), record))
    }

    /// What a session holds after a place.
    pub async fn observe(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        place: &Place,
    ) -> Result<Observed, Denial> {
        let record = self.active(visitor, id).await?;
        // Who has seen nothing stands before the first event, whichever epoch that is of.
        let epoch = match place.after {
            Some(_) => place.epoch.clone(),
            None => place.epoch.clone().or_else(|| Some(record.epoch.clone())),
        };
        let last_seq = place.after.unwrap_or_default();
        let asked = Asked { last_seq: Some(last_seq), epoch, last_event_id: None };
        // Decided by the page that is sent: whatever went before it was read is in its gap.
        let mut page = self.page_of(record.id(), last_seq.min(record.head)).await?;
        page.events.retain(|event| event.seq > last_seq);
        match resume::decide(&page.record, &asked, self.now()) {
            Resume::UpToDate => Ok(Observed { events: vec![], gap: None, record: page.record }),
            Resume::Replay { .. } => Ok(Observed::of(page, None)),
            Resume::SnapshotAndReplay { gap: gap @ Gap::Evicted { .. }, .. } => {
                Ok(Observed::of(page, Some(gap)))
            }
            Resume::SnapshotAndReplay { gap: Gap::PositionUnknown, .. } => {
                let all = self.page_of(record.id(), Seq::ZERO).await?;
                Ok(Observed::of(all, Some(Gap::PositionUnknown)))
            }
            Resume::Refuse(_) => Err(Denial::NotFound),
        }
    }

    async fn page_of(&self, id: &SessionId, after: Seq) -> Result<Page, Denial> {
        let page = self.sessions().store().read(id, after, PageLimit::default()).await?;
        page.ok_or(Denial::NotFound)
    }

    /// The same; if there is nothing, waits for something as long as `patience` lasts and the server does not
    /// close.
    pub async fn await_events(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        place: &Place,
        patience: Duration,
    ) -> Result<Observed, Denial> {
        let deadline = Instant::now() + patience;
        let id = &self.meant(visitor, id).await?;
        let mut changes = self.sessions().store().changes(id); // before looking: nothing falls in between
        let mut phase = self.phase();
        loop {
            let observed = self.observe(visitor, id, place).await?;
            let more = async {
                tokio::select! {
                    _ = changes.changed() => true,
                    _ = phase.wait_for(|phase| *phase == Phase::Closing) => false,
                }
            };
            if observed.is_news() || timeout_at(deadline, more).await != Ok(true) {
                return Ok(observed);
            }
        }
    }

    /// What was sent to a session's agent after a place, as far as it is held; if there is nothing, waits for
    /// something as long as `patience` lasts and the server does not close.
    pub async fn await_messages(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        after: InSeq,
        patience: Duration,
    ) -> Result<MessagePage, Denial> {
        let deadline = Instant::now() + patience;
        let id = &self.meant(visitor, id).await?;
        let changes = self.sessions().store().changes(id); // before looking: nothing falls in between
        let mut changes = changes.and_messages();
        let mut phase = self.phase();
        loop {
            agents_only(&self.active(visitor, id).await?)?;
            let page = self.sessions().store().messages(id, after, PageLimit::default()).await?;
            let page = page.ok_or(Denial::NotFound)?;
            let more = async {
                tokio::select! {
                    _ = changes.changed() => true,
                    _ = phase.wait_for(|phase| *phase == Phase::Closing) => false,
                }
            };
            if !page.messages.is_empty() || timeout_at(deadline, more).await != Ok(true) {
                return Ok(page);
            }
        }
    }

    /// The audit trail, newest first: everybody's for an administrator, else what the caller itself
    /// attempted.
    pub async fn audit_trail(
        &self,
        visitor: &Visitor,
        query: &AuditQuery,
    ) -> Result<AuditPage, Denial> {
        let store = self.sessions().store();
        let mut query = query.clone();
        if let Some(said) = &query.session_id {
            query.session_id = Some(self.meant(visitor, said).await?);
        }
        let mut page = AuditPage::default();
        for _ in 0..AUDIT_READS {
            let mut read = store.audit_trail(&query).await?;
            if !visitor.caller.admin {
                read.records.retain(|record| record.attempt.principal == visitor.caller.principal);
            }
            (page.next, query.before) = (read.next, read.next);
            query.limit = query.limit.saturating_sub(read.records.len());
            let bytes = read.records.iter().map(AuditRecord::shown_bytes).sum();
            query.max_bytes = query.max_bytes.saturating_sub(bytes);
            page.records.append(&mut read.records);
            if page.next.is_none() || query.limit == 0 || query.max_bytes == 0 {
                break;
            }
        }
        Ok(page)
    }
}

/// A gap as an observer is told of it: no state follows that would stand for what is missing.
fn without_state(gap: Gap) -> Gap {
    match gap {
        Gap::Evicted { missing, .. } => Gap::Evicted { missing, lost: Some(missing) },
        Gap::PositionUnknown => Gap::PositionUnknown,
    }
}

/// Messages, events and states are for agents and their clients; an MCP session has its own way in, and its
/// state is the gateway's.
pub(super) fn agents_only(record: &Record) -> Result<(), Denial> {
    match record.about.kind {
        Kind::Agent => Ok(()),
        Kind::Mcp => Err(Denial::NotFound),
    }
}
