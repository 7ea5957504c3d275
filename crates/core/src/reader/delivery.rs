//! What a reader is sent. It has a cursor into the out log and is sent what lies after it, as fast as its
//! transport takes it: a late joiner, a slow reader, a reconnect and a live stream are the same code. At most
//! one page is on its way, so a slow reader costs no memory.
//!
//! The store shows an event to readers a moment before the sender of the message that it answers is told that
//! the message was accepted. A client must hear of that first: a page that knows more entries than the client
//! was told of waits while one of its own messages is unanswered.

use super::{Reader, ReaderOutput, Tell};
use crate::page::{Page, StoredEvent};
use crate::position::{InSeq, Seq, SeqRange};
use crate::record::Record;
use crate::resume::{self, Gap};
use crate::time::Timestamp;

/// How far a reader has been sent.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The last event it was sent.
    cursor: Seq,
    /// The replay that is under way, if one is.
    replay: Option<ReplayUnderWay>,
    /// What was asked of the store and has not come yet.
    asked: Option<Question>,
    /// The session has changed since the store was last asked.
    pub(super) is_stale: bool,
    /// The transport is still busy with what it was told.
    is_busy: bool,
    /// Messages of the client that the store has not answered.
    pub(super) unanswered: usize,
    /// The client has been told of entries up to here.
    told_of: InSeq,
    /// A page that waits for an answer.
    held: Option<Box<Page>>,
}

/// What the store was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    EventsAfter(Seq),
    RecordAlone,
}

/// Events that were there before the client attached.
#[derive(Clone, Copy, Debug)]
struct ReplayUnderWay {
    /// The last of them.
    to: Seq,
    /// Those that were sent: from the first to the last, and how many. There are less if some in between
    /// were evicted while others were being sent.
    sent: Option<(SeqRange, u64)>,
}

impl ReplayUnderWay {
    fn note(&mut self, events: &[StoredEvent]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let (from, before) = self.sent.map_or((first.seq, 0), |(range, sent)| (range.from, sent));
        self.sent = Some((SeqRange { from, to: last.seq }, before + events.len() as u64));
    }
}

impl Delivery {
    /// For a reader of this session.
    pub(super) fn of(record: &Record) -> Self {
        Self {
            cursor: record.head,
            replay: None,
            asked: None,
            is_stale: false,
            is_busy: false,
            unanswered: 0,
            told_of: record.in_head,
            held: None,
        }
    }

    /// Goes on after `after`; everything up to `head` is a replay. A page read from another
    /// position is dropped.
    pub(super) fn start_replay(&mut self, after: Seq, head: Seq) {
        self.cursor = after;
        self.replay = Some(ReplayUnderWay { to: head, sent: None });
        self.held = None;
    }

    /// Goes on after `after`, and nothing is a replay.
    pub(super) fn start_live(&mut self, after: Seq) {
        self.cursor = after;
    }

    fn must_wait(&self, page: &Page) -> bool {
        self.unanswered > 0 && page.record.in_head > self.told_of
    }
}

impl Reader {
    /// Asks the store, if there may be something new and the transport can take it. A busy one is not sent
    /// events, but it must hear that it was superseded.
    pub(super) fn pump(&mut self) {
        let delivery = &mut self.delivery;
        if self.is_over || delivery.asked.is_some() {
            return;
        }
        let can_take = !delivery.is_busy && delivery.held.is_none();
        let behind = delivery.cursor < self.record.head;
        let after = delivery.cursor;
        let (question, output) = if can_take && (delivery.is_stale || behind) {
            (Question::EventsAfter(after), ReaderOutput::Read { after })
        } else if delivery.is_stale {
            (Question::RecordAlone, ReaderOutput::Look)
        } else {
            return;
        };
        delivery.is_stale = false;
        delivery.asked = Some(question);
        self.doubtful_ack.iter_mut().for_each(|ack| ack.looked = true);
        self.outputs.push_back(output);
    }

    pub(super) fn on_looked(&mut self, record: Option<&Record>, now: Timestamp) {
        if self.delivery.asked == Some(Question::RecordAlone) {
            self.delivery.asked = None;
            self.sees(record);
            self.export_if_due(now);
        }
    }

    pub(super) fn on_page(&mut self, after: Seq, page: Option<Box<Page>>, now: Timestamp) {
        if self.delivery.asked != Some(Question::EventsAfter(after)) {
            return;
        }
        self.delivery.asked = None;
        let record = page.as_ref().map(|page| &page.record);
        if !self.sees(record) {
            return;
        }
        // If it was set back meanwhile, this page is not for it.
        if let Some(page) = page.filter(|_| self.delivery.cursor == after) {
            self.deliver(page);
        }
        self.export_if_due(now);
    }

    fn deliver(&mut self, page: Box<Page>) {
        if self.delivery.must_wait(&page) {
            self.delivery.held = Some(page);
            return;
        }
        if let Some(gap) = resume::missing(&page.record, self.delivery.cursor) {
            self.delivery.cursor = page.record.oldest.previous();
            self.tell_gap(gap);
        }
        self.send(*page);
    }

    /// Sends a page, replayed events apart from live ones.
    fn send(&mut self, page: Page) {
        let delivery = &mut self.delivery;
        let Some(last) = page.events.last().map(|event| event.seq) else {
            return self.complete_replay();
        };
        delivery.cursor = last;
        delivery.is_busy = true;
        let boundary = delivery.replay.map_or(Seq::ZERO, |replay| replay.to);
        let mut replayed = page.events;
        let live = replayed.split_off(replayed.partition_point(|event| event.seq <= boundary));
        if !replayed.is_empty() {
            delivery.replay.iter_mut().for_each(|replay| replay.note(&replayed));
            self.tell(Tell::Events { events: replayed, replayed: true });
        }
        self.complete_replay();
        if !live.is_empty() {
            self.tell(Tell::Events { events: live, replayed: false });
        }
    }

    /// Says that the replay is over, once it is.
    pub(super) fn complete_replay(&mut self) {
        let delivery = &mut self.delivery;
        if let Some(ReplayUnderWay { to, sent }) = delivery.replay
            && delivery.cursor >= to
        {
            delivery.replay = None;
            let (range, replayed) = sent.unzip();
            let replayed = replayed.unwrap_or_default();
            self.tell(Tell::ReplayComplete { range, replayed });
        }
    }

    /// Tells the client what it will not be sent, and gives it the state instead.
    pub(super) fn tell_gap(&mut self, gap: Gap) {
        self.tell(Tell::Gap(gap));
        if self.record.snapshot.is_some() {
            self.tell(Tell::State);
        }
    }

    pub(super) fn on_writable(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.delivery.is_busy) {
            self.lives(now);
        }
    }

    /// A message was answered, and the client was told so: events that waited for that follow.
    pub(super) fn on_answered(&mut self, in_seq: Option<InSeq>, now: Timestamp) {
        let delivery = &mut self.delivery;
        delivery.unanswered = delivery.unanswered.saturating_sub(1);
        delivery.told_of = delivery.told_of.max(in_seq.unwrap_or_default());
        if let Some(page) = delivery.held.take() {
            self.deliver(page);
        }
        self.on_heard(now);
    }
}
