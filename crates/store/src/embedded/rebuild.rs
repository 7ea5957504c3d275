//! One session, put together again from its row and the journal's records, in the order of the rows.

use std::num::NonZeroU64;

use rejoin_core::log::{Entry, Held, Inbox, OutLog, Remembered, Seen};
use rejoin_core::record::{Ending, Status};
use rejoin_core::state::{SessionState, Snapshot};
use rejoin_core::{InSeq, Seq};

use super::journal::Head;
use super::piece::Piece;
use super::rows::Stored;

/// A session in the making.
#[derive(Debug)]
pub(super) struct Rebuild {
    stored: Stored,
    /// The checksum of its row.
    pub(super) row_sum: u32,
    /// See [`super::slot::Session::unnoted_from`].
    pub(super) unnoted_from: Option<NonZeroU64>,
    /// The newest events that follow each other without a hole.
    out: OutLog<Piece>,
    /// Events that came before these, or were written again after them; rare.
    apart: Vec<(Seq, Held<Piece>)>,
    entries: Vec<(InSeq, Entry<Piece>)>,
    seen: Vec<Remembered>,
    snapshot: Option<Snapshot<Piece>>,
}

impl Rebuild {
    /// Begins with what the row says.
    pub(super) fn new(stored: Stored, row_sum: u32) -> Self {
        Self {
            stored,
            row_sum,
            unnoted_from: None,
            out: OutLog::default(),
            apart: Vec::new(),
            entries: Vec::new(),
            seen: Vec::new(),
            snapshot: None,
        }
    }

    /// Whether it goes on: an ended session has no contents …
    fn is_active(&self) -> bool {
        self.stored.vitals.status == Status::Active
    }

    /// … save the message ids of one whose time ran out.
    fn has_ids(&self) -> bool {
        match &self.stored.vitals.status {
            Status::Active => true,
            Status::Ended { ending, .. } => *ending == Ending::Expired,
        }
    }

    /// Adds what a record of journal row `number` says.
    pub(super) fn add(&mut self, number: u64, head: Head, piece: impl FnOnce() -> Piece) {
        let news = number > self.stored.as_of;
        if news {
            self.unnoted_from = self.unnoted_from.or(NonZeroU64::new(number));
        }
        let (active, has_ids) = (self.is_active(), self.has_ids());
        let Stored { numbers, vitals, .. } = &mut self.stored;
        match head {
            Head::Event { seq, at, size, .. } => {
                if active {
                    self.add_event(seq, Held { at, size, body: piece() });
                }
            }
            Head::Entry { in_seq, at, kind, size, digest, deadline, .. } => {
                numbers.in_head = numbers.in_head.max(in_seq);
                if let Some(deadline) = deadline.filter(|_| news) {
                    (vitals.last_activity, vitals.expires_at) = (at, deadline);
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
            Head::Snapshot { mark, size, .. } => {
                if active {
                    self.snapshot = Some(Snapshot { mark, size, body: piece() });
                }
            }
            Head::Cover { in_seq, .. } => numbers.covered = numbers.covered.max(in_seq),
            Head::Note { numbers: noted, last_activity, expires_at, .. } => {
                numbers.grow_to(&noted);
                if news {
                    (vitals.last_activity, vitals.expires_at) = (last_activity, expires_at);
                    self.unnoted_from = NonZeroU64::new(number); // it says all that was said before
                }
            }
        }
    }

    fn add_event(&mut self, seq: Seq, event: Held<Piece>) {
        if self.out.is_empty() {
            self.out = OutLog::starting_after(seq.previous(), Seq::ZERO);
        }
        if seq == self.out.head().next() {
            self.out.push(event);
        } else if let Some(held) = self.out.get_mut(seq) {
            *held = event; // written again: the older row will go
        } else if seq < self.out.oldest() {
            self.apart.push((seq, event));
        } else {
            let before = self.out.after(Seq::ZERO).map(|(seq, event)| (seq, event.clone()));
            self.apart.extend(before);
            self.out = OutLog::starting_after(seq.previous(), Seq::ZERO);
            self.out.push(event);
        }
    }

    /// The session as it was.
    pub(super) fn finish(mut self) -> SessionState<Piece> {
        let numbers = self.stored.numbers;
        let active = self.is_active();
        let out = if active {
            self.finish_out()
        } else {
            OutLog::starting_after(numbers.head, numbers.acked)
        };
        let inbox =
            if active { self.finish_inbox() } else { Inbox::starting_after(numbers.in_head) };
        let seen = self.finish_seen();
        let Self { stored, snapshot, .. } = self;
        SessionState {
            about: stored.about.into(),
            vitals: stored.vitals,
            tokens: stored.tokens,
            out,
            inbox,
            seen,
            snapshot,
        }
    }

    /// The events that follow each other without a hole up to the head. What is missing before them
    /// was trimmed; if it was lost, the rows that are missing have told.
    fn finish_out(&mut self) -> OutLog<Piece> {
        let mut out = std::mem::take(&mut self.out);
        if !self.apart.is_empty() {
            out = join(out, std::mem::take(&mut self.apart));
        }
        let numbers = &self.stored.numbers;
        out.jump_to(numbers.head);
        out.trim_before(numbers.oldest);
        out.ack(numbers.acked.min(out.head()));
        out
    }

    fn finish_inbox(&mut self) -> Inbox<Piece> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.reverse();
        entries.sort_by_key(|(in_seq, _)| *in_seq); // stable: of two, the one written later is first
        entries.dedup_by_key(|(in_seq, _)| *in_seq);
        let numbers = &self.stored.numbers;
        // As in the out log, only what follows each other up to the head can be kept.
        let mut first = numbers.in_head.next();
        for (in_seq, _) in entries.iter().rev() {
            if in_seq.next() != first || *in_seq <= numbers.covered {
                break;
            }
            first = *in_seq;
        }
        let mut inbox = Inbox::starting_after(first.previous());
        for (_, entry) in entries.into_iter().skip_while(|(in_seq, _)| *in_seq < first) {
            inbox.push(entry);
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
        seen
    }
}

/// The events of `out` with those before them that `apart` has.
fn join(out: OutLog<Piece>, mut apart: Vec<(Seq, Held<Piece>)>) -> OutLog<Piece> {
    apart.reverse();
    apart.sort_by_key(|(seq, _)| *seq); // stable: of two, the one written later is first
    apart.dedup_by_key(|(seq, _)| *seq);
    let mut first = out.oldest();
    for (seq, _) in apart.iter().rev().filter(|(seq, _)| *seq < out.oldest()) {
        if seq.next() != first {
            break;
        }
        first = *seq;
    }
    let mut joined = OutLog::starting_after(first.previous(), Seq::ZERO);
    for (_, event) in apart.into_iter().filter(|(seq, _)| (first..out.oldest()).contains(seq)) {
        joined.push(event);
    }
    for (_, event) in out.after(Seq::ZERO) {
        joined.push(event.clone());
    }
    joined
}
