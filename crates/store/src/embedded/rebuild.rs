//! One session, put together again from its row and the journal's records, in the order of the rows.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use rejoin_core::log::{Entry, Inbox, OutLog, Remembered, RememberedKey, Seen, SeenKeys};
use rejoin_core::record::{Kind, Status};
use rejoin_core::state::{SessionState, Snapshot};
use rejoin_core::{InSeq, Seq};

use super::journal::{Head, Key};
use super::packed::{PackedLog, Run};
use super::piece::{Piece, Place, Row};
use super::rows::Stored;
use super::slot::Slot;

/// A session in the making.
#[derive(Debug)]
pub(super) struct Rebuild<'a, 'j> {
    stored: Stored,
    /// See [`super::slot::Session::unnoted_from`].
    unnoted_from: Option<NonZeroU64>,
    events: &'a mut Vec<Run<'j>>,
    /// Events before this one are gone, results too.
    first: Seq,
    entries: Vec<(InSeq, Entry<Piece>)>,
    /// Those that were dealt with before an older one.
    answered: BTreeSet<InSeq>,
    seen: Vec<Remembered>,
    /// Entries whose ids were forgotten when an older session of the line ended.
    forgotten: BTreeSet<InSeq>,
    seen_keys: Vec<RememberedKey>,
    snapshot: Option<Snapshot<Piece>>,
}

impl<'a, 'j> Rebuild<'a, 'j> {
    /// Begins with what the row says. `events` is a vector that serves all sessions in turn.
    pub(super) fn new(stored: Stored, events: &'a mut Vec<Run<'j>>) -> Self {
        events.clear();
        Self {
            stored,
            unnoted_from: None,
            events,
            first: Seq::ZERO,
            entries: Vec::new(),
            answered: BTreeSet::new(),
            seen: Vec::new(),
            forgotten: BTreeSet::new(),
            seen_keys: Vec::new(),
            snapshot: None,
        }
    }

    /// Whether it goes on: an ended session has no contents …
    fn is_active(&self) -> bool {
        self.stored.vitals.status == Status::Active
    }

    /// … save the message ids of one whose user did not end it.
    fn has_ids(&self) -> bool {
        match &self.stored.vitals.status {
            Status::Active => true,
            Status::Ended { ending, .. } => ending.is_restorable(),
        }
    }

    /// Adds events that a journal row speaks of.
    pub(super) fn add_events(&mut self, run: Run<'j>) {
        self.is_news(run.row.number());
        if self.is_active() {
            self.events.push(run);
        }
    }

    /// Whether journal row `number`, which says something about it, is newer than its own row.
    fn is_news(&mut self, number: u64) -> bool {
        let news = number > self.stored.as_of;
        if news {
            self.unnoted_from = self.unnoted_from.or(NonZeroU64::new(number));
        }
        news
    }

    /// Adds what another record of a journal row says.
    pub(super) fn add(&mut self, row: &Arc<Row>, head: Head, place: Place) {
        let number = row.number();
        let news = self.is_news(number);
        let piece = || Piece::cold(row, place);
        let (active, has_ids) = (self.is_active(), self.has_ids());
        let Stored { numbers, vitals, .. } = &mut self.stored;
        match head {
            Head::Event { key: _, seq, at, weight } => {
                debug_assert!(false, "{seq} at {at} of {weight:?} belongs to a run");
            }
            Head::Entry { in_seq, at, kind, size, digest, deadline, .. } => {
                numbers.in_head = numbers.in_head.max(in_seq);
                if let Some(deadline) = deadline.filter(|_| news) {
                    (vitals.last_activity, vitals.expires_at) = (at, deadline);
                    vitals.unseen_ms = 0;
                }
                if has_ids {
                    self.seen.extend(digest.map(|digest| Remembered { digest, in_seq, at }));
                }
                if active {
                    self.entries.push((in_seq, Entry { kind, at, size, body: piece() }));
                }
            }
            Head::Seen { message, .. } => {
                if has_ids {
                    self.seen.push(message);
                }
            }
            Head::SeenKey { publication, .. } => {
                if active {
                    self.seen_keys.push(publication);
                }
            }
            Head::Snapshot { mark, size, .. } => {
                if active {
                    self.snapshot = Some(Snapshot { mark, size, body: piece() });
                }
            }
            Head::Cover { in_seq, .. } => numbers.covered = numbers.covered.max(in_seq),
            Head::Answered { in_seq, .. } => {
                self.answered.insert(in_seq);
            }
            Head::Forgotten { in_seq, .. } => {
                self.forgotten.insert(in_seq);
            }
            Head::Trimmed { first, oldest, .. } => {
                numbers.oldest = numbers.oldest.max(oldest);
                numbers.head = numbers.head.max(oldest.previous());
                self.first = self.first.max(first);
            }
            Head::Note { numbers: noted, last_activity, expires_at, .. } => {
                numbers.grow_to(&noted);
                if news {
                    if last_activity > vitals.last_activity {
                        vitals.unseen_ms = 0;
                    }
                    (vitals.last_activity, vitals.expires_at) = (last_activity, expires_at);
                    self.unnoted_from = NonZeroU64::new(number); // it says all that was said before
                }
            }
        }
    }

    /// The commit that wrote the session's row.
    pub(super) fn as_of(&self) -> u64 {
        self.stored.as_of
    }

    /// The session as it was, and how many bytes of the journal its out log needs; of those the
    /// caller must tell the ledger.
    pub(super) fn finish(mut self, key: Key, row_sum: u32) -> (Arc<Slot>, u64) {
        let numbers = self.stored.numbers;
        let packed = PackedLog::of(self.events, self.first, numbers.oldest, numbers.head);
        let (packed, bytes) = packed.map_or((None, 0), |(packed, bytes)| (Some(packed), bytes));
        let head = packed.as_ref().map_or(numbers.head, PackedLog::head);
        let inbox = if self.is_active() {
            self.finish_inbox()
        } else {
            Inbox::starting_after(numbers.in_head)
        };
        let (seen, seen_keys) = (self.finish_seen(), self.finish_seen_keys());
        let Self { stored, snapshot, unnoted_from, .. } = self;
        let state = SessionState {
            about: stored.about.into(),
            vitals: stored.vitals,
            tokens: stored.tokens,
            out: OutLog::starting_after(head, numbers.acked.min(head)),
            inbox,
            seen,
            seen_keys,
            snapshot,
        };
        let slot = Slot::with_packed(key, state, packed);
        let mut session = slot.lock_packed();
        session.row_sum.replace(row_sum);
        session.unnoted_from = unnoted_from;
        drop(session);
        (slot, bytes)
    }

    fn finish_inbox(&mut self) -> Inbox<Piece> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.reverse();
        entries.sort_by_key(|(in_seq, _)| *in_seq); // stable: of two, the one written later is first
        entries.dedup_by_key(|(in_seq, _)| *in_seq);
        let numbers = &self.stored.numbers;
        let waits = |(n, _): &(InSeq, _)| *n > numbers.covered && !self.answered.contains(n);
        let (waiting, kept): (Vec<_>, Vec<_>) = entries.into_iter().partition(waits);
        let mut inbox = Inbox::of_waiting(numbers.in_head, waiting);
        if self.stored.about.kind == Kind::Agent {
            kept.into_iter().for_each(|(in_seq, entry)| inbox.keep(in_seq, entry));
        }
        inbox
    }

    fn finish_seen(&mut self) -> Seen {
        let mut seen = Seen::default();
        self.seen.sort_by_key(|message| message.in_seq);
        self.seen.dedup_by_key(|message| message.in_seq);
        for message in &self.seen {
            seen.remember(*message, message.at);
        }
        seen.forget(&self.forgotten);
        seen
    }

    /// Those that were written again are found twice, which changes nothing.
    fn finish_seen_keys(&mut self) -> SeenKeys {
        let mut seen = SeenKeys::default();
        self.seen_keys.sort_by_key(|publication| (publication.at, publication.last));
        for publication in &self.seen_keys {
            seen.remember(*publication, publication.at);
        }
        seen
    }
}
