//! MCP clients, whose sessions are attached by their streams, and how they come back to one.

use rejoin_core::limits::ENDED_SESSIONS;
use rejoin_core::record::{Ending, Kind, Record, Transport};
use rejoin_core::{Seq, SessionId};
use tracing::Instrument as _;

use super::reconnect::resume_span;
use super::{Denial, Service, Visitor, ending};
use crate::mcp::Present;
use crate::timeline::Return;

/// How many names in a row are followed to a session: as many as there can be, since no principal has more sessions
/// that have ended and are remembered. The store lets no name lead back to itself; this bound holds even if it did.
pub(crate) const MOST_NAMES: usize = ENDED_SESSIONS;

impl Service {
    /// The caller's own MCP session of this id, or of an id whose client went over to it. It goes on.
    pub(crate) async fn mcp_session(
        &self,
        visitor: &Visitor,
        id: &SessionId,
    ) -> Result<Record, Denial> {
        Ok(self.mcp_session_and_left(visitor, id).await?.0)
    }

    /// The same, and the sessions that the client has left on its way there.
    pub(crate) async fn mcp_session_and_left(
        &self,
        visitor: &Visitor,
        id: &SessionId,
    ) -> Result<(Record, Vec<SessionId>), Denial> {
        let mut record = self.own(visitor, id).await?;
        if record.about.kind != Kind::Mcp {
            return Err(Denial::NotFound);
        }
        let mut left = Vec::new();
        while left.len() <= MOST_NAMES {
            match ending(&record, self.now()) {
                None => return Ok((record, left)),
                Some(Ending::Restored { .. }) => {
                    let next = self.sessions().session_after(&record).await?;
                    left.push(record.id().clone());
                    record = next.ok_or(Denial::NotFound)?;
                }
                Some(ending) => return Err(Denial::Ended(ending)),
            }
        }
        Err(Denial::NotFound)
    }

    /// Makes an attempt to come back to a stream: a failure counts, and it is written down.
    pub(crate) async fn come_back<T>(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        attempt: impl Future<Output = Result<T, Denial>> + Send + 'static,
    ) -> Result<T, Denial>
    where
        T: Send + 'static,
    {
        let id = &self.meant(visitor, id).await?;
        let attempt = self.attempt(visitor, Some(id), "reconnect", |_| Box::pin(attempt));
        attempt.instrument(resume_span(id, visitor)).await
    }

    /// The client of a session is there again with a stream; `anew` if the session is attached again in any
    /// case. Each time it had been away counts against the rate of successes; several streams that a
    /// network broke at once come back together.
    pub(crate) async fn be_there_again(
        &self,
        record: &Record,
        transport: Transport,
        anew: bool,
    ) -> Result<Present, Denial> {
        let sessions = self.sessions();
        let hub = sessions.hubs().of(record.id());
        if !hub.is_attached() {
            self.budget_success(record.id(), self.now())?;
        }
        Ok(hub.enter(sessions, record, transport, anew).await)
    }

    /// Counts what a client that came back to a stream was away, and what it is sent and will never be.
    pub(crate) fn count_stream_return(&self, before: &Record, replayed: u64, lost: u64) {
        let away = before.away_since().map(|gone| self.now().since(gone));
        self.sessions().counted().returned(away, replayed, lost);
        self.sessions().came_back(before, Return { away, replayed, gap: None, lost });
    }
}

/// Events of a session that lie after a position and are held, and those that are held no more.
pub(crate) fn after(record: &Record, position: Seq) -> (u64, u64) {
    let first = position.next().max(record.oldest);
    (record.head.next().steps_from(first), record.oldest.steps_from(position.next()))
}
