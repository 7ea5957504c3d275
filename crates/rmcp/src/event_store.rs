//! rmcp's event store on ours, for servers that keep rmcp's own session manager, or have no sessions.
//!
//! Each of rmcp's streams is an out log of its own, named by a digest of the stream's name. An event's id says
//! the log and the place in it; whoever knows it may read on, as rmcp asks for no more, so it can't be guessed.

use std::fmt::Write as _;

use async_trait::async_trait;
use futures_util::stream::{empty, unfold};
use rejoin::Sessions;
use rejoin::core::record::{Kind, Record};
use rejoin::core::state::Keep;
use rejoin::core::worker::Publication;
use rejoin::core::{LogId, Principal, Seq, SessionId};
use rejoin::mcp::parts::{Event, Kind as Said, Message, Notes, StreamName, to_its_end};
use rejoin::store::{Changes, CreateRefused, Failure, PageLimit, Unavailable};
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use sha2::{Digest as _, Sha256};
use sync_wrapper::SyncStream;

use crate::limits::RESULT_RETENTION;
use crate::words;

/// rmcp's event store on Rejoin's sessions: each of rmcp's streams is the out log of one.
#[derive(Clone, Debug)]
pub struct DurableEventStore {
    sessions: Sessions,
}

/// A place in a stream.
struct ReplayPlace {
    session: SessionId,
    log: LogId,
    seq: Seq,
}

impl DurableEventStore {
    /// An event store in these sessions.
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions }
    }

    /// The log of one of rmcp's streams, which is made if there is none.
    async fn log_of(&self, stream: &str) -> Result<Record, EventStoreError> {
        let id = session_of(stream)?;
        if let Some(record) = self.sessions.store().session(&id).await? {
            return Ok(record);
        }
        match self.sessions.create_named(id.clone(), &Principal::anonymous(), Kind::Mcp, "{}").await
        {
            Ok(record) => Ok(record),
            Err(Failure::Refused(CreateRefused::Exists)) => {
                let record = self.sessions.store().session(&id).await?;
                record.ok_or_else(|| "the stream has been forgotten".into())
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Stores the next event of a stream. Without a message it says where the stream begins, and nothing else.
    async fn store_text(
        &self,
        stream: &str,
        message: Option<&str>,
    ) -> Result<EventId, EventStoreError> {
        let record = self.log_of(stream).await?;
        let (stream, notes) = (StreamName::general(), Notes::default());
        let body = Event { message, stream, answers: None, request: None, notes }.to_body();
        let publication = Publication { events: vec![body], ..Publication::default() };
        let published = self.sessions.publish(record.id(), publication).await?;
        if message.is_some_and(is_answer) {
            self.keep_for_its_client(&record).await;
        }
        let (session, log) = (record.id().clone(), record.log);
        Ok(ReplayPlace { session, log, seq: published.last }.to_text())
    }

    /// A stream that has been answered is kept for as long as its client may come for that.
    async fn keep_for_its_client(&self, record: &Record) {
        let until = self.sessions.clock().now() + RESULT_RETENTION;
        let keep = Keep { generation: record.generation, until };
        let _ = self.sessions.keep(record.id(), keep).await; // it keeps a longer one then
    }
}

#[async_trait]
impl EventStore for DurableEventStore {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        let text = event.message.as_deref().map(words::text_of).transpose()?;
        let (own, stream) = (self.clone(), stream_id.to_owned());
        // To its end: an answer that is stored is kept for its client.
        to_its_end(&self.sessions, async move { own.store_text(&stream, text.as_deref()).await })
            .await?
    }

    /// What lies after an event, and what comes after that, until the stream's answer.
    async fn replay_events_after(
        &self,
        last_event_id: &str,
    ) -> Result<EventStream, EventStoreError> {
        let place =
            ReplayPlace::parse(last_event_id).ok_or("no event of this store has that id")?;
        let changes = self.sessions.store().changes(&place.session);
        let store = self.sessions.store();
        let page = store.read(&place.session, place.seq.previous(), one()).await?;
        let page = page.filter(|page| page.record.is_active() && page.record.log == place.log);
        let page = page.ok_or("the stream of that event is over, or no longer kept")?;
        let named = page.events.first().filter(|event| event.seq == place.seq);
        let named =
            named.ok_or("that event is no longer kept, and others may be missing after it")?;
        let said = Event::from_body(&named.body);
        if said.and_then(|event| event.message).is_some_and(is_answer) {
            return Ok(Box::pin(empty()));
        }
        let replay = Replay { sessions: self.sessions.clone(), place, changes, over: false };
        Ok(Box::pin(SyncStream::new(unfold(replay, Replay::next))))
    }
}

/// A stream that is read again.
struct Replay {
    sessions: Sessions,
    /// The last event that was read.
    place: ReplayPlace,
    changes: Changes,
    over: bool,
}

impl Replay {
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        while !self.over {
            match self.read().await {
                Ok(Some(event)) => return Some((event, self)),
                Ok(None) if !self.over => self.changes.changed().await,
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "a stream can't be read any more");
                    self.over = true;
                }
            }
        }
        None
    }

    /// The next event with a message, if it is there.
    async fn read(&mut self) -> Result<Option<ServerSseMessage>, Unavailable> {
        loop {
            let store = self.sessions.store();
            let page = store.read(&self.place.session, self.place.seq, one()).await?;
            let Some(page) = page.filter(|page| page.record.is_active()) else {
                self.over = true;
                return Ok(None);
            };
            let Some(event) = page.events.first() else { return Ok(None) };
            if event.seq != self.place.seq.next() {
                // Its client comes back and is told that events are missing.
                tracing::warn!(session = %self.place.session, "events of a replayed stream are gone");
                self.over = true;
                return Ok(None);
            }
            self.place.seq = event.seq;
            let said = Event::from_body(&event.body).and_then(|event| event.message);
            if let Some(text) = said {
                self.over = is_answer(text);
                let message = words::server_message(text);
                return Ok(
                    message.map(|message| ServerSseMessage::new(self.place.to_text(), message))
                );
            }
        }
    }
}

impl ReplayPlace {
    fn to_text(&self) -> String {
        format!("{}.{:016x}.{}", self.session, self.log.get(), self.seq)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let session = SessionId::parse(parts.next()?).ok()?;
        let log = LogId::new(u64::from_str_radix(parts.next()?, 16).ok()?);
        let seq = Seq::new(parts.next()?.parse().ok().filter(|seq| *seq > 0)?);
        Some(Self { session, log, seq })
    }
}

fn one() -> PageLimit {
    PageLimit { events: 1, ..PageLimit::default() }
}

fn is_answer(text: &str) -> bool {
    Message::parse(text).is_ok_and(|message| matches!(message.kind(), Said::Response { .. }))
}

/// The session whose out log one of rmcp's streams is.
fn session_of(stream: &str) -> Result<SessionId, EventStoreError> {
    let digest = Sha256::digest(stream);
    let mut name = String::from("stream_");
    for byte in digest.iter().take(16) {
        write!(name, "{byte:02x}")?;
    }
    Ok(SessionId::parse(&name)?)
}
