//! What a client is sent. Each one has a cursor into the out log and is sent whatever lies after it,
//! as fast as its transport takes it: a late joiner, a slow reader, a reconnect and a live stream are
//! the same code. At most one page is on its way to a client, so a slow one costs no memory.

use super::{Interest, Output, Session, Tell};
use crate::ids::AttachmentId;
use crate::page::{Page, StoredEvent};
use crate::position::{Seq, SeqRange};
use crate::resume::{self, Gap};
use crate::state::Ack;
use crate::time::Timestamp;

/// How far a client has been sent.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The last event it was sent.
    cursor: Seq,
    /// The replay that is under way, if one is.
    replay: Option<Replay>,
    /// The seq after which a page was asked for and has not come yet.
    reading: Option<Seq>,
    /// Whether its transport is still busy with what it was told.
    busy: bool,
}

/// Events that were there before the client attached.
#[derive(Clone, Copy, Debug)]
struct Replay {
    /// The last of them.
    to: Seq,
    /// Those that were sent: from the first to the last, and how many. There are less if some in between
    /// went while others were being sent.
    sent: Option<(SeqRange, u64)>,
}

impl Replay {
    fn note(&mut self, events: &[StoredEvent]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let (from, before) = self.sent.map_or((first.seq, 0), |(range, sent)| (range.from, sent));
        self.sent = Some((SeqRange { from, to: last.seq }, before + events.len() as u64));
    }
}

impl Reader {
    /// Goes on after `after`; everything up to `head` is a replay.
    pub(super) fn start(&mut self, after: Seq, head: Seq) {
        self.cursor = after;
        self.replay = Some(Replay { to: head, sent: None });
    }
}

impl Session {
    /// Asks for the next page, if the client can take one and there is one.
    pub(super) fn pump(&mut self, attachment: AttachmentId) {
        let head = self.record.head;
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        let reader = &mut client.reader;
        let reads = client.generation.is_some() && client.interest == Interest::Events;
        let can_take = reads && !reader.busy && reader.reading.is_none();
        if can_take && reader.cursor < head {
            let after = reader.cursor;
            reader.reading = Some(after);
            self.emit(Output::Read { attachment, after });
        }
    }

    /// There is something new: whoever stands at the head is woken.
    pub(super) fn pump_all(&mut self) {
        for attachment in self.attachments.keys().copied().collect::<Vec<_>>() {
            self.pump(attachment);
        }
    }

    pub(super) fn on_page(
        &mut self,
        attachment: AttachmentId,
        after: Seq,
        page: Option<Box<Page>>,
    ) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        if client.reader.reading != Some(after) {
            return;
        }
        client.reader.reading = None;
        if client.reader.cursor != after {
            return self.pump(attachment); // it was set back meanwhile: this page is not for it
        }
        let Some(page) = page else { return };
        self.note(&page.record);
        if let Some(gap) = resume::missing(&page.record, after) {
            self.skip_to(attachment, page.record.oldest.previous());
            self.tell_gap(attachment, gap);
        }
        self.send(attachment, *page);
    }

    /// Sends a page, replayed events apart from live ones.
    fn send(&mut self, attachment: AttachmentId, page: Page) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        let Some(last) = page.events.last().map(|event| event.seq) else {
            self.complete_replay(attachment);
            if page.record.head < self.record.head {
                self.pump(attachment); // something came while the page was on its way
            }
            return;
        };
        client.reader.cursor = last;
        client.reader.busy = true;
        let boundary = client.reader.replay.map_or(Seq::ZERO, |replay| replay.to);
        let mut replayed = page.events;
        let live = replayed.split_off(replayed.partition_point(|event| event.seq <= boundary));
        if !replayed.is_empty() {
            client.reader.replay.iter_mut().for_each(|replay| replay.note(&replayed));
            self.tell(attachment, Tell::Events { events: replayed, replayed: true });
        }
        self.complete_replay(attachment);
        if !live.is_empty() {
            self.tell(attachment, Tell::Events { events: live, replayed: false });
        }
    }

    /// Says that the replay is over, once it is.
    pub(super) fn complete_replay(&mut self, attachment: AttachmentId) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        let reader = &mut client.reader;
        if let Some(Replay { to, sent }) = reader.replay
            && reader.cursor >= to
        {
            reader.replay = None;
            let (range, replayed) = sent.unzip();
            let replayed = replayed.unwrap_or_default();
            self.tell(attachment, Tell::ReplayComplete { range, replayed });
        }
    }

    /// A session that was made just now has nothing to replay, and nobody is told so.
    pub(super) fn skip_replay(&mut self, attachment: AttachmentId) {
        if let Some(client) = self.attachments.get_mut(&attachment) {
            client.reader.replay = None;
        }
    }

    /// Tells a client what it will not be sent, and gives it the state instead.
    pub(super) fn tell_gap(&mut self, attachment: AttachmentId, gap: Gap) {
        self.tell(attachment, Tell::Gap(gap));
        if self.record.snapshot.is_some() {
            self.tell(attachment, Tell::State);
        }
    }

    /// Moves a client past events that are gone.
    fn skip_to(&mut self, attachment: AttachmentId, seq: Seq) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        client.reader.cursor = seq;
    }

    pub(super) fn on_writable(&mut self, attachment: AttachmentId, now: Timestamp) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        if client.reader.busy {
            client.reader.busy = false;
            client.pulse.beats(now);
        }
        self.pump(attachment);
    }

    pub(super) fn on_ack(
        &mut self,
        attachment: AttachmentId,
        seq: Seq,
        resend: bool,
        now: Timestamp,
    ) {
        self.on_heard(attachment, now);
        let head = self.record.head;
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        let Some(generation) = client.generation else { return };
        if seq > head {
            return self.tell(attachment, Tell::AckAhead { head });
        }
        if resend {
            client.reader.start(seq, head);
        }
        if seq > self.record.acked {
            self.record.acked = seq;
            self.emit(Output::Ack(Ack { generation, seq }));
        }
        if resend {
            self.complete_replay(attachment);
            self.pump(attachment);
        }
    }
}
