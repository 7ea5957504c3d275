//! One stream of a session: a cursor into the out log, and what it is to be sent next.

use std::time::Duration;

use std::sync::Arc;

use rejoin_core::record::{Ending, Record, Status};
use rejoin_core::{LogId, Seq, SessionId, Timestamp};
use rejoin_store::PageLimit;
use tokio::sync::watch as changes;
use tokio::time::timeout;

use super::OVER;
use super::event_id::{EventId, Owed, SessionTag};
use crate::mcp::logged::{Event, StreamName};
use crate::mcp::message::{RpcError, code, error_response};
use crate::mcp::{Book, Present, Reading};
use crate::service::Phase;
use crate::watch::Watch;
use crate::web::Front;

/// A stream that is being read.
pub(super) struct Feed {
    front: Arc<Front>,
    session: SessionId,
    tag: SessionTag,
    log: LogId,
    stream: StreamName,
    /// The last event of the log that was looked at.
    cursor: Seq,
    /// What it still owes an answer. A stream of requests ends when that is nothing.
    owed: Owed,
    ends: bool,
    /// Whether an answer it owes may be gone from the log.
    suspects_loss: bool,
    watch: Watch,
    cuts: changes::Receiver<u64>,
    phase: changes::Receiver<Phase>,
    /// When the caller's credential ends.
    until: Option<Timestamp>,
    reading: Reading,
    present: Present,
}

/// Where a stream begins.
pub(super) struct Beginning {
    pub(super) stream: StreamName,
    pub(super) cursor: Seq,
    pub(super) owed: Owed,
    /// Whether it ends with its last answer.
    pub(super) ends: bool,
    /// Whether it goes on with one that broke.
    pub(super) resumed: bool,
    pub(super) present: Present,
    pub(super) watch: Watch,
}

/// What a stream is to be sent next.
#[derive(Debug)]
pub(super) enum Next {
    /// Messages, each with the id that says where it stands.
    Messages(Vec<(String, String)>),
    /// Nothing, for so long that it should be said.
    Quiet,
    /// Somebody else has come for it.
    Replaced,
    /// Nothing more.
    End,
}

impl Feed {
    pub(super) fn begin(front: &Arc<Front>, record: &Record, beginning: Beginning) -> Self {
        let Beginning { stream, cursor, owed, ends, resumed, present, watch } = beginning;
        let hub = front.service.sessions().hubs().of(record.id());
        Self {
            front: Arc::clone(front),
            session: record.id().clone(),
            tag: SessionTag::of(record.id()),
            log: record.log,
            reading: hub.read(&stream),
            cuts: hub.cuts(),
            phase: front.service.phase(),
            until: None,
            stream,
            cursor,
            owed,
            ends,
            suspects_loss: resumed,
            watch,
            present,
        }
    }

    /// It ends with the caller's credential.
    pub(super) fn until(mut self, until: Option<Timestamp>) -> Self {
        self.until = until;
        self
    }

    /// The id of the place where the stream stands.
    pub(super) fn place(&self) -> String {
        self.id_at(self.cursor)
    }

    /// What it still owes an answer.
    pub(super) fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    /// What to send next. Nothing is lost if it is dropped while it waits.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            match self.look().await {
                Some(next) => return next,
                None => match self.wait().await {
                    Some(next) => return next,
                    None => continue,
                },
            }
        }
    }

    /// What is there already; nothing if the end has to be waited for.
    pub(super) async fn look(&mut self) -> Option<Next> {
        loop {
            if self.ends && self.owed.is_empty() {
                return Some(Next::End);
            }
            let store = self.front.service.sessions().store();
            let page = match store.read(&self.session, self.cursor, PageLimit::default()).await {
                Ok(Some(page)) => match &page.record.status {
                    Status::Active => page,
                    Status::Ended { ending: Ending::Restored { to }, .. } => {
                        let to = to.clone();
                        match self.follow(to).await {
                            true => continue,
                            false => return Some(self.session_over()),
                        }
                    }
                    Status::Ended { .. } => return Some(self.session_over()),
                },
                Ok(None) => return Some(self.session_over()),
                Err(_) => return Some(Next::End),
            };
            self.suspects_loss |= self.cursor.next() < page.record.oldest;
            let mut messages = Vec::new();
            for event in &page.events {
                self.cursor = event.seq;
                let owed = self.owed.len();
                if let Some(text) = self.take(&event.body) {
                    messages.push((self.id_at(event.seq), text));
                }
                if self.front.settings.mcp.session_tools && self.owed.len() < owed {
                    let hubs = self.front.service.sessions().hubs();
                    hubs.fetched(&self.session, event.seq, page.record.oldest);
                }
            }
            if self.stream == StreamName::general() {
                let hub = self.front.service.sessions().hubs().of(&self.session);
                hub.general_read(self.cursor);
            }
            let at_head = self.cursor >= page.record.head || page.events.is_empty();
            if at_head && std::mem::take(&mut self.suspects_loss) {
                messages.extend(self.what_is_lost(&page.record).await);
            }
            if !messages.is_empty() {
                return Some(Next::Messages(messages));
            }
            if at_head && !(self.ends && self.owed.is_empty()) {
                return None;
            }
        }
    }

    /// The client has gone over to another session: what this stream owes is answered there.
    async fn follow(&mut self, to: SessionId) -> bool {
        let sessions = self.front.service.sessions();
        let Ok(Some(record)) = sessions.store().session(&to).await else { return false };
        let hub = sessions.hubs().of(&to);
        self.watch = sessions.watch(&to);
        (self.reading, self.cuts) = (hub.read(&self.stream), hub.cuts());
        self.present = hub.enter(sessions, &record, OVER, false).await;
        (self.tag, self.log) = (SessionTag::of(&to), record.log);
        (self.session, self.cursor) = (to, record.oldest.previous());
        true
    }

    /// The message of an event, if it is for this stream.
    fn take(&mut self, body: &[u8]) -> Option<String> {
        let event = Event::from_body(body).filter(|event| event.stream == self.stream)?;
        if let Some(in_seq) = event.answers {
            self.owed.remove(&in_seq);
        }
        event.message.map(str::to_owned)
    }

    /// Answers that are owed, were given, and are gone from the log.
    async fn what_is_lost(&mut self, record: &Record) -> Vec<(String, String)> {
        let snapshot = self.front.service.sessions().store().snapshot(&self.session).await;
        let snapshot = snapshot.ok().flatten();
        let book = Book::from_body(snapshot.as_ref().map(|snapshot| &snapshot.body));
        let settled = self.owed.extract_if(.., |n, _| *n <= record.covered || book.is_answered(*n));
        let lost: Vec<_> = settled.collect();
        let error = RpcError::new(
            code::RESULT_EVICTED,
            "the result of this request was there and is no longer kept (result_retention, buffer_bytes)",
        );
        let error = error.because("result_evicted");
        lost.into_iter()
            .map(|(_, id)| (self.id_at(self.cursor), error_response(Some(&id), &error)))
            .collect()
    }

    /// The session has ended: whatever is owed is answered so.
    fn session_over(&mut self) -> Next {
        let owed = std::mem::take(&mut self.owed);
        self.ends = true;
        if owed.is_empty() {
            return Next::End;
        }
        let error = RpcError::new(code::NO_SESSION, "the session has ended");
        let error = error.because("session_already_disconnected");
        let place = self.id_at(self.cursor);
        let answers = owed.values().map(|id| (place.clone(), error_response(Some(id), &error)));
        Next::Messages(answers.collect())
    }

    /// Waits until there may be something, or the stream has to say something without.
    async fn wait(&mut self) -> Option<Next> {
        let patience = self.patience();
        let closing = |phase: &Phase| *phase == Phase::Closing;
        let stirred = async {
            tokio::select! {
                () = self.watch.stirred() => None,
                () = self.reading.replaced() => Some(Next::Replaced),
                _ = self.cuts.changed() => Some(Next::End),
                _ = self.phase.wait_for(closing) => Some(Next::End),
            }
        };
        match timeout(patience, stirred).await {
            Ok(happened) => happened,
            Err(_) if self.is_past() => Some(Next::End),
            Err(_) => Some(Next::Quiet),
        }
    }

    fn patience(&self) -> Duration {
        let now = self.front.service.now();
        let keep_alive = self.front.settings.sse_keep_alive;
        self.until.map_or(keep_alive, |until| keep_alive.min(until.since(now)))
    }

    fn is_past(&self) -> bool {
        self.until.is_some_and(|until| until <= self.front.service.now())
    }

    fn id_at(&self, seq: Seq) -> String {
        let (session, log, stream) = (self.tag, self.log, self.stream.clone());
        EventId { session, log, stream, seq, owed: self.owed.clone() }.to_string()
    }
}
