//! One stream of a session: a cursor into the out log, and what it is to be sent next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::page::StoredEvent;
use rejoin_core::record::{Record, Transport};
use rejoin_core::{InSeq, LogId, Seq, SessionId};
use rejoin_store::{Changes, PageLimit, Unavailable};
use tokio::sync::watch;
use tokio::time::timeout;

use super::event_id::{EventId, Mark, Owed, SessionTag};
use super::failure::{result_evicted, session_left, session_over};
use crate::access::Caller;
use crate::mcp::given::told_to_client;
use crate::mcp::logged::{Event, StreamName, is_answered};
use crate::mcp::own_words::{RpcError, error_response, notification};
use crate::mcp::{Hub, Present, Reading};
use crate::service::{MOST_NAMES, Phase};
use crate::sessions::Sessions;
use crate::web::Front;

/// What all streams of a server have in common.
#[derive(Clone, Debug)]
pub struct Streams {
    sessions: Sessions,
    /// After how much silence something is said.
    keep_alive: Duration,
    /// Whether it must be known which answers a client has fetched.
    notes_fetched: bool,
    phase: watch::Receiver<Phase>,
    /// Whoever has streams of their own says when they close.
    closes: Option<Arc<watch::Sender<Phase>>>,
}

impl Streams {
    /// Streams of these sessions, for whoever brings a transport of their own.
    pub fn of(sessions: Sessions, keep_alive: Duration) -> Self {
        let (closes, phase) = watch::channel(Phase::Open);
        let closes = Some(Arc::new(closes));
        Self { sessions, keep_alive, notes_fetched: false, phase, closes }
    }

    /// The sessions that they are of.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Ends them all.
    pub fn close(&self) {
        if let Some(closes) = &self.closes {
            closes.send_replace(Phase::Closing);
        }
    }

    fn before(front: &Front) -> Self {
        Self {
            sessions: front.service.sessions().clone(),
            keep_alive: front.settings.sse_keep_alive,
            notes_fetched: front.settings.mcp.session_tools,
            phase: front.service.phase(),
            closes: None,
        }
    }
}

/// A stream that is being read.
#[derive(Debug)]
pub struct Feed {
    streams: Streams,
    session: SessionId,
    tag: SessionTag,
    log: LogId,
    stream: StreamName,
    /// The last event of the log that was looked at.
    cursor: Seq,
    /// What it still owes an answer. A stream of requests ends when that is nothing.
    owed: Owed,
    ends: bool,
    /// Whether something that it should carry may be gone from the log.
    suspects_loss: bool,
    /// Whether what it owes was asked in a session that its client has left for this one. The ids of its events go
    /// on to name that one: the entries that they list are of it.
    moved: bool,
    /// How many sessions its client has left since it began.
    followed: usize,
    /// Answers that were sent and that nobody is known to have taken.
    sent: Vec<Seq>,
    /// What was the oldest event without a hole when the client was last told that something is gone.
    told: Seq,
    /// The head when it began. What lies after that is sent once more to a client that comes back without
    /// knowing where it stood.
    since: Option<Seq>,
    changes: Changes,
    cuts: watch::Receiver<u64>,
    /// Whose stream it is, and what its credential is judged by. Nothing for who brings a transport of their own.
    reader: Option<(Arc<Front>, Caller)>,
    reading: Reading,
    present: Present,
}

/// Where a stream begins.
#[derive(Debug)]
pub struct Beginning {
    /// Which stream.
    pub stream: StreamName,
    /// The last event of the log that need not be looked at.
    pub cursor: Seq,
    /// What it owes an answer.
    pub owed: Owed,
    /// Whether it ends with its last answer.
    pub ends: bool,
    /// Whether something that it should carry may be gone from the log.
    pub suspects_loss: bool,
    /// That its client is there.
    pub present: Present,
    /// What wakes it; made before what it waits for can happen.
    pub changes: Changes,
}

/// What a stream is to be sent next.
#[derive(Debug)]
pub enum Next {
    /// Messages, each with the id that says where it stands.
    Messages(Vec<(String, String)>),
    /// Nothing, for so long that it should be said.
    Quiet,
    /// Somebody else has come for it.
    Replaced,
    /// Nothing more.
    End,
}

/// What a stream waits for.
enum Stirred {
    News,
    Replaced,
    Cut,
    Closing,
}

impl Feed {
    /// Begins one of a server's own streams.
    pub(crate) fn begin(front: &Arc<Front>, record: &Record, beginning: Beginning) -> Self {
        Self::over(Streams::before(front), record, beginning)
    }

    /// Begins a stream.
    pub fn over(streams: Streams, record: &Record, beginning: Beginning) -> Self {
        let Beginning { stream, cursor, owed, ends, suspects_loss, present, changes } = beginning;
        let hub = streams.sessions.hubs().of(record.id());
        Self {
            streams,
            session: record.id().clone(),
            tag: SessionTag::of(record.id()),
            log: record.log,
            reading: hub.read(&stream),
            cuts: hub.cuts(),
            reader: None,
            since: stream.is_whole().then_some(record.head),
            stream,
            cursor,
            owed,
            ends,
            suspects_loss,
            moved: false,
            followed: 0,
            sent: Vec::new(),
            told: Seq::ZERO,
            changes,
            present,
        }
    }

    /// It ends with the caller's credential.
    pub(crate) fn read_by(mut self, front: &Arc<Front>, caller: &Caller) -> Self {
        self.reader = Some((Arc::clone(front), caller.clone()));
        self
    }

    /// What it owes was asked in a session that its client has left for this one: it is answered here by now, or
    /// never.
    pub(crate) fn moved_from(mut self, session: SessionTag) -> Self {
        (self.tag, self.moved, self.suspects_loss) = (session, true, true);
        self
    }

    /// The id of the place where a stream begins that nobody has read before: no other event has it.
    pub(crate) fn first_place(&self) -> String {
        self.id_at(self.cursor)
    }

    /// An id of the place where the stream stands, for an event that stands in no log. No other event of the
    /// session has it: the stream may have stood here before.
    pub fn place(&self) -> String {
        format!("{}.{}", self.id_at(self.cursor), Mark::new())
    }

    /// Whether every request of it is answered.
    pub fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    /// What to send next. Nothing is lost if it is dropped while it waits.
    pub async fn next(&mut self) -> Next {
        self.note_taken().await;
        loop {
            if self.is_past() || *self.streams.phase.borrow() == Phase::Closing {
                return Next::End; // also of a stream that never has to wait
            }
            if let Some(next) = self.look().await {
                return next;
            }
            if let Some(next) = self.wait().await {
                return next;
            }
        }
    }

    /// Whoever asks for more has taken what was there before.
    pub(super) async fn note_taken(&mut self) {
        for seq in self.sent.drain(..) {
            self.streams.sessions.hubs().fetched.note(&self.session, seq);
        }
        if let Some(since) = self.since.take_if(|since| *since <= self.cursor) {
            self.hub().has_all_up_to(since);
        }
    }

    /// What is there already; nothing if it has to be waited for.
    pub async fn look(&mut self) -> Option<Next> {
        loop {
            if self.is_finished() {
                return Some(Next::End);
            }
            let store = self.streams.sessions.store();
            let page = match store.read(&self.session, self.cursor, PageLimit::default()).await {
                Ok(Some(page)) if page.record.is_active() => page,
                Ok(Some(page)) => match self.follow(&page.record).await {
                    true => continue,
                    false => return Some(self.session_over()),
                },
                Ok(None) => return Some(self.session_over()),
                Err(_) => return Some(Next::End),
            };
            let Ok(kept) = self.kept(page.record.oldest).await else { return Some(Next::End) };
            let mut messages = Vec::from_iter(self.notice_gap(page.record.oldest));
            if !kept.is_empty() {
                messages.extend(self.take(&kept));
                match messages.is_empty() {
                    true => continue,
                    false => return Some(Next::Messages(messages)),
                }
            }
            messages.extend(self.take(&page.events));
            let at_head = self.cursor >= page.record.head || page.events.is_empty();
            if at_head && self.suspects_loss {
                messages.extend(self.what_is_lost(&page.record).await);
            }
            if !messages.is_empty() {
                return Some(Next::Messages(messages));
            }
            if at_head && !self.suspects_loss && !self.is_finished() {
                return None;
            }
        }
    }

    /// A stream of requests ends with its last answer.
    fn is_finished(&self) -> bool {
        self.ends && self.owed.is_empty()
    }

    /// Results that are kept although what came after them is gone.
    async fn kept(&self, oldest: Seq) -> Result<Vec<StoredEvent>, Unavailable> {
        if self.cursor.next() >= oldest {
            return Ok(Vec::new());
        }
        let store = self.streams.sessions.store();
        store.read_kept(&self.session, self.cursor, PageLimit::default()).await
    }

    /// Some of what comes next may be gone. A client of one stream is told that at once; of any other it
    /// matters only whether answers are.
    fn notice_gap(&mut self, oldest: Seq) -> Option<(String, String)> {
        if self.cursor.next() < oldest && self.told < oldest {
            (self.suspects_loss, self.told) = (true, oldest);
        }
        let tell = self.stream.is_whole() && std::mem::take(&mut self.suspects_loss);
        tell.then(|| (self.place(), gap_notice()))
    }

    /// The messages that are for this stream.
    fn take(&mut self, events: &[StoredEvent]) -> Vec<(String, String)> {
        let mut messages = Vec::new();
        for event in events {
            self.cursor = event.seq;
            let taken = Event::from_body(&event.body).filter(|event| self.carries(event));
            if let Some(taken) = taken {
                self.note_answer(&taken, event.seq);
                let message = told_to_client(&self.streams.sessions, &taken);
                messages.extend(message.map(|text| (self.id_at(event.seq), text)));
            }
        }
        if self.stream == StreamName::general() {
            self.hub().general_read(self.cursor);
        }
        messages
    }

    /// Whether an event is for this stream. Where it stood in the log of a session that its client has left says
    /// nothing about this one's: what it has of that is what it does not owe.
    fn carries(&self, event: &Event<'_>) -> bool {
        let had = |in_seq| self.moved && self.ends && !self.owed.contains_key(&in_seq);
        self.stream.carries(&event.stream) && !event.answers.is_some_and(had)
    }

    /// An answer is owed no more. That it was fetched is known when more is asked for.
    fn note_answer(&mut self, event: &Event<'_>, seq: Seq) {
        let Some(in_seq) = event.answers else { return };
        self.owed.remove(&in_seq);
        let asked_for_later = event.request.is_some() || !event.notes.repeats.is_empty();
        if self.streams.notes_fetched && asked_for_later {
            self.sent.push(seq);
        }
    }

    /// If the client has gone over to another session, what this stream owes is answered there: in its
    /// newest event, for a stream that carries whatever there is.
    async fn follow(&mut self, left: &Record) -> bool {
        self.followed += 1;
        if self.followed > MOST_NAMES {
            return false;
        }
        let sessions = &self.streams.sessions;
        let Ok(Some(record)) = sessions.session_after(left).await else { return false };
        let to = record.id().clone();
        let hub = sessions.hubs().of(&to);
        self.changes = sessions.store().changes(&to);
        (self.reading, self.cuts) = (hub.read(&self.stream), hub.cuts());
        let (transport, cursor) = match self.stream.is_whole() {
            true => (Transport::Sse, record.head.previous()),
            false => (Transport::StreamableHttp, record.oldest.previous()),
        };
        self.present = hub.enter(sessions, &record, transport, false).await;
        self.since = self.stream.is_whole().then_some(cursor);
        if !self.ends {
            (self.tag, self.log) = (SessionTag::of(&to), record.log);
        }
        (self.session, self.cursor) = (to, cursor);
        self.sent.clear(); // it was of the other log
        (self.moved, self.suspects_loss) = (true, !self.stream.is_whole());
        true
    }

    /// Answers that are owed, were given, and are gone from the log, which has been read to its head in
    /// `record`.
    async fn what_is_lost(&mut self, record: &Record) -> Vec<(String, String)> {
        let Ok(settled) = self.settled().await else { return Vec::new() };
        let now = self.streams.sessions.store().session(&self.session).await;
        if now.ok().flatten().is_none_or(|now| now.head > record.head) {
            return Vec::new(); // an answer may have come that is not read yet
        }
        self.suspects_loss = false;
        let error = if self.moved { session_left() } else { result_evicted() };
        self.answer_all(settled, &error)
    }

    /// Answers requests that are owed. The id of each answer lists those that come after it: the connection
    /// may break between them.
    fn answer_all(&mut self, requests: BTreeSet<InSeq>, error: &RpcError) -> Vec<(String, String)> {
        let mut answers = Vec::new();
        for in_seq in requests {
            if let Some(id) = self.owed.remove(&in_seq) {
                answers.push((self.id_at(self.cursor), error_response(Some(&id), error)));
            }
        }
        answers
    }

    /// Requests that are dealt with, of those whose answer is owed.
    async fn settled(&self) -> Result<BTreeSet<InSeq>, Unavailable> {
        if self.moved {
            return Ok(self.owed.keys().copied().collect());
        }
        let store = self.streams.sessions.store();
        let mut settled = BTreeSet::new();
        for in_seq in self.owed.keys() {
            if is_answered(store, &self.session, *in_seq).await? {
                settled.insert(*in_seq);
            }
        }
        Ok(settled)
    }

    /// The session has ended: whatever is owed is answered so.
    fn session_over(&mut self) -> Next {
        self.ends = true;
        if self.owed.is_empty() {
            return Next::End;
        }
        let owed = self.owed.keys().copied().collect();
        Next::Messages(self.answer_all(owed, &session_over()))
    }

    /// Waits until there may be something, or the stream has to say something without.
    async fn wait(&mut self) -> Option<Next> {
        let patience = self.patience();
        let closing = |phase: &Phase| *phase == Phase::Closing;
        let stirred = async {
            tokio::select! {
                () = self.changes.changed() => Stirred::News,
                () = self.reading.replaced() => Stirred::Replaced,
                _ = self.cuts.changed() => Stirred::Cut,
                _ = self.streams.phase.wait_for(closing) => Stirred::Closing,
            }
        };
        match timeout(patience, stirred).await {
            Ok(Stirred::News) => None,
            Ok(Stirred::Replaced) => Some(Next::Replaced),
            Ok(Stirred::Cut) => self.cut().await,
            Ok(Stirred::Closing) => Some(Next::End),
            Err(_) if self.is_past() => Some(Next::End),
            Err(_) => Some(Next::Quiet),
        }
    }

    /// The connections are cut; unless that is because the session has ended, that is all.
    async fn cut(&mut self) -> Option<Next> {
        let store = self.streams.sessions.store();
        match store.session(&self.session).await {
            Ok(Some(record)) if !record.is_active() => None,
            Ok(_) | Err(_) => Some(Next::End),
        }
    }

    fn hub(&self) -> &Hub {
        self.reading.hub()
    }

    fn patience(&self) -> Duration {
        let keep_alive = self.streams.keep_alive;
        let Some((front, caller)) = &self.reader else { return keep_alive };
        front.patience(caller, keep_alive).unwrap_or_default()
    }

    fn is_past(&self) -> bool {
        self.reader
            .as_ref()
            .is_some_and(|(front, caller)| front.patience(caller, Duration::MAX).is_none())
    }

    fn id_at(&self, seq: Seq) -> String {
        let (session, log, stream) = (self.tag, self.log, self.stream.clone());
        EventId { session, log, stream, seq, owed: self.owed.clone() }.to_string()
    }
}

/// What a client is told that will never see some of its messages. Which requests they answered is not
/// known any more, so none of them can be answered in their place.
fn gap_notice() -> String {
    let params = serde_json::json!({
        "level": "warning",
        "logger": "rejoin",
        "data": "Messages for this session are no longer kept (buffer_size, buffer_bytes, \
                 buffer_retention); answers may be among them.",
    });
    notification("notifications/message", &params)
}
