//! What is said in the out log of an upstream session, from a place on.

use std::collections::VecDeque;
use std::sync::Arc;

use rejoin_core::page::{Page, StoredEvent};
use rejoin_core::record::Record;
use rejoin_core::{InSeq, Seq, SessionId, Timestamp};
use rejoin_store::{Changes, PageLimit, Unavailable};
use tokio::sync::watch;

use super::execution::Execution;
use crate::mcp::Present;
use crate::mcp::given::told_to_client;
use crate::mcp::logged::{Event, StreamName, is_answered};
use crate::mcp::message::Message;
use crate::service::{MOST_NAMES, Phase};
use crate::web::Front;
use crate::web::mcp::OVER;

/// A cursor into the log.
pub(super) struct UpstreamReader {
    front: Arc<Front>,
    session: SessionId,
    cursor: Seq,
    events: VecDeque<StoredEvent>,
    /// Whether something between the place and the oldest event that is held is gone.
    misses: bool,
    /// How many sessions its client has left since it began.
    followed: usize,
    changes: Changes,
    cuts: watch::Receiver<u64>,
    phase: watch::Receiver<Phase>,
    /// The session is attached as long as somebody reads.
    _present: Option<Present>,
}

/// One event.
pub(super) struct Said {
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    pub(super) stream: StreamName,
    /// The entry that it answers.
    pub(super) answers: Option<InSeq>,
    /// Nothing if a request ended without an answer.
    pub(super) message: Option<Message>,
}

impl Said {
    /// Whether it answers a call. Of two sessions that became one the entries have the same numbers.
    pub(super) fn ends(&self, call: &Execution) -> bool {
        self.answers == Some(call.in_seq) && self.stream == call.stream
    }
}

/// What a reader comes upon.
pub(super) enum ReaderHeard {
    Said(Said),
    /// The session has ended, or is unknown.
    Over,
    /// The server goes down, the store does not work, or somebody cut the connections.
    Interrupted,
}

impl UpstreamReader {
    /// Reads what lies after `from`, with whoever it is there for.
    pub(super) async fn attached(front: &Arc<Front>, record: &Record, from: Seq) -> Self {
        let sessions = front.service.sessions();
        let hub = sessions.hubs().of(record.id());
        let present = hub.enter(sessions, record, OVER, false).await;
        Self { _present: Some(present), ..Self::only(front, record.id(), from) }
    }

    /// The same for somebody who just looks.
    pub(super) fn only(front: &Arc<Front>, session: &SessionId, from: Seq) -> Self {
        let sessions = front.service.sessions();
        Self {
            front: Arc::clone(front),
            session: session.clone(),
            cursor: from,
            events: VecDeque::new(),
            misses: false,
            followed: 0,
            changes: sessions.store().changes(session),
            cuts: sessions.hubs().of(session).cuts(),
            phase: front.service.phase(),
            _present: None,
        }
    }

    /// What comes next. Nothing is lost if it is dropped while it waits.
    pub(super) async fn next(&mut self) -> ReaderHeard {
        loop {
            match self.look().await {
                Ok(Some(said)) => return ReaderHeard::Said(said),
                Ok(None) => {}
                Err(stopped) => return stopped,
            }
            let closing = |phase: &Phase| *phase == Phase::Closing;
            tokio::select! {
                () = self.changes.changed() => {}
                _ = self.cuts.changed() => return ReaderHeard::Interrupted,
                _ = self.phase.wait_for(closing) => return ReaderHeard::Interrupted,
            }
        }
    }

    /// What is there already; nothing at the head of the log.
    pub(super) async fn look(&mut self) -> Result<Option<Said>, ReaderHeard> {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.cursor = event.seq;
                if let Some(said) = self.said(&event) {
                    return Ok(Some(said));
                }
            }
            let page = self.read().await.map_err(|_| ReaderHeard::Interrupted)?;
            let Some(page) = page.filter(|page| page.record.is_active()) else {
                return Err(ReaderHeard::Over);
            };
            if self.cursor.next() < page.record.oldest {
                self.misses = true;
                let kept = self.kept().await.map_err(|_| ReaderHeard::Interrupted)?;
                if !kept.is_empty() {
                    self.events.extend(kept);
                    continue;
                }
            }
            if page.events.is_empty() {
                return Ok(None);
            }
            self.events.extend(page.events);
        }
    }

    /// If the client has gone over to another session, what it still waits for is said there: goes on with
    /// all of that one's log. Says whether it has.
    pub(super) async fn follow(&mut self) -> bool {
        let sessions = self.front.service.sessions();
        let followed = self.followed + 1;
        if followed > MOST_NAMES {
            return false;
        }
        let Ok(Some(left)) = sessions.store().session(&self.session).await else { return false };
        let Ok(Some(record)) = sessions.session_after(&left).await else { return false };
        let (front, from) = (Arc::clone(&self.front), record.oldest.previous());
        *self = Self { followed, ..Self::attached(&front, &record, from).await };
        true
    }

    fn said(&self, event: &StoredEvent) -> Option<Said> {
        let stored = Event::from_body(&event.body)?;
        let message = told_to_client(self.front.service.sessions(), &stored);
        let message = message.as_deref().map(Message::parse).transpose().ok()?;
        let Event { stream, answers, .. } = stored;
        Some(Said { seq: event.seq, at: event.at, stream, answers, message })
    }

    async fn read(&self) -> Result<Option<Page>, Unavailable> {
        let store = self.front.service.sessions().store();
        store.read(&self.session, self.cursor, PageLimit::default()).await
    }

    /// Results that are kept although what came after them is gone.
    async fn kept(&self) -> Result<Vec<StoredEvent>, Unavailable> {
        let store = self.front.service.sessions().store();
        store.read_kept(&self.session, self.cursor, PageLimit::default()).await
    }

    /// The client has an answer: it waits for nobody any more.
    pub(super) fn note_fetched(&self, seq: Seq) {
        if self.front.settings.mcp.session_tools {
            self.front.service.sessions().hubs().fetched.note(&self.session, seq);
        }
    }

    /// Whether the answer to an entry, which was not found on the way to the head, is gone.
    pub(super) async fn has_lost(&self, in_seq: InSeq) -> bool {
        if !self.misses {
            return false;
        }
        self.was_answered(in_seq).await && self.is_at_head().await
    }

    /// Whether an entry is dealt with.
    pub(super) async fn was_answered(&self, in_seq: InSeq) -> bool {
        let store = self.front.service.sessions().store();
        is_answered(store, &self.session, in_seq).await.unwrap_or(false)
    }

    /// Whether everything has been read.
    async fn is_at_head(&self) -> bool {
        let record = self.front.service.sessions().store().session(&self.session).await;
        record.ok().flatten().is_some_and(|record| record.head <= self.cursor)
    }
}
