//! Clients come, are superseded and go.

use super::{Output, Session, Tell};
use crate::codes::CloseCode;
use crate::ids::AttachmentId;
use crate::lifetime::Verdict;
use crate::limits;
use crate::position::{Generation, Seq};
use crate::record::{Ending, Record, SnapshotMark};
use crate::resume::{self, Asked, Gap, Resume};
use crate::state::{Attach, AttachRefused, Attached, Detach, UsedToken};
use crate::time::Timestamp;

/// A client wants to attach.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The name it has in this process from now on.
    pub attachment: AttachmentId,
    /// Who it is and what it brought.
    pub attach: Attach,
    /// Where it wants to go on; nothing for a session that was made for it just now.
    pub asked: Option<Asked>,
    /// What it is told once it is attached.
    pub interest: Interest,
}

/// What an attachment is told once it is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interest {
    /// Everything after its position; it must show signs of life.
    #[default]
    Events,
    /// Only that it is over: it stands for somebody whose streams read the log themselves, and whose
    /// transport looks after them.
    Presence,
}

/// A client is attached: the first thing it is told.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// Whether it came back to a session that was there before.
    pub resumed: bool,
    /// The session, under its new generation.
    pub record: Record,
    /// The first event it will be sent; the one after the head if there is none yet.
    pub replay_from: Seq,
    /// What it will not be sent.
    pub gap: Option<Gap>,
    /// What became of the token it brought.
    pub token: Option<UsedToken>,
}

/// Why a client is attached no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// It is closed with this code.
    Closed(CloseCode),
    /// It was refused; its connection stays open.
    Refused,
}

/// A client that is attached, or about to be.
#[derive(Debug)]
pub(super) struct Attachment {
    /// The generation it has; none while the store has not answered.
    pub(super) generation: Option<Generation>,
    /// Where it asked to go on.
    asked: Option<Asked>,
    /// What it is told.
    pub(super) interest: Interest,
    /// How far it has been sent.
    pub(super) reader: super::deliver::Reader,
    /// When it was last heard of and must be again.
    pub(super) pulse: super::deadlines::Pulse,
}

impl Session {
    pub(super) fn on_attach(&mut self, request: AttachRequest, now: Timestamp) {
        let AttachRequest { attachment, attach, asked, interest } = request;
        let pulse = super::deadlines::Pulse::starting(now, &self.settings);
        let reader = super::deliver::Reader::default();
        let waiting = Attachment { generation: None, asked, interest, reader, pulse };
        self.attachments.insert(attachment, Box::new(waiting));
        self.emit(Output::Attach { attachment, attach: Box::new(attach) });
    }

    pub(super) fn on_attach_answered(
        &mut self,
        attachment: AttachmentId,
        answer: Result<Attached, AttachRefused>,
        now: Timestamp,
    ) {
        let attached = match answer {
            // It was attached, and before that was known here the session ended, or was replaced: then
            // it has been told.
            Ok(_) if self.ended => {
                if self.attachments.contains_key(&attachment) {
                    self.refuse(attachment, AttachRefused::Ended(Ending::Closed));
                }
                return;
            }
            Ok(attached) => attached,
            Err(refused) => return self.refuse(attachment, refused),
        };
        if attached.record.generation < self.record.generation {
            // Another one attached after it and was heard of first: this one is history already.
            self.attachments.remove(&attachment);
            return self.supersede(attachment);
        }
        self.note(&attached.record);
        self.supersede_where(|generation| generation < attached.record.generation);
        match self.attachments.get_mut(&attachment) {
            Some(waiting) => waiting.generation = Some(attached.record.generation),
            // It left before the store answered; its generation leaves with it.
            None => return self.park(attached.record.generation, now),
        }
        self.confirm(attachment, attached, now);
    }

    fn refuse(&mut self, attachment: AttachmentId, refused: AttachRefused) {
        self.attachments.remove(&attachment);
        self.tell(attachment, Tell::Refused(refused));
        self.leave(attachment, LeaveReason::Refused);
    }

    /// Tells a client that it is attached, and where it goes on.
    fn confirm(&mut self, attachment: AttachmentId, attached: Attached, now: Timestamp) {
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        let record = attached.record;
        let asked = client.asked.take();
        let resumed = asked.is_some();
        let (after, gap) = match resume::decide(&record, &asked.unwrap_or_default(), now) {
            Resume::UpToDate => (record.head, None),
            Resume::Replay { after } => (after, None),
            Resume::SnapshotAndReplay { gap, after } => (after, Some(gap)),
            // The store has just attached it, so it is neither closed nor expired.
            Resume::Refuse(_) => (record.head, None),
        };
        client.reader.start(after, record.head);
        let (replay_from, interest) = (after.next(), client.interest);
        let token = attached.token;
        let confirmed = Confirmed { resumed, record, replay_from, gap, token };
        self.tell(attachment, Tell::Confirmed(Box::new(confirmed)));
        if interest == Interest::Presence {
            return;
        }
        if let Some(gap) = gap {
            self.tell_gap(attachment, gap);
        }
        if resumed {
            self.complete_replay(attachment);
        } else {
            self.skip_replay(attachment);
        }
        self.pump(attachment);
    }

    pub(super) fn on_left(&mut self, attachment: AttachmentId, now: Timestamp) {
        let Some(client) = self.attachments.remove(&attachment) else { return };
        if let Some(generation) = client.generation {
            self.park(generation, now);
        }
    }

    /// Whether somebody is attached. One that the store has not answered yet may still be refused.
    pub(super) fn has_client(&self) -> bool {
        self.attachments.values().any(|client| client.generation.is_some())
    }

    /// The last client of a generation has gone.
    pub(super) fn park(&mut self, generation: Generation, now: Timestamp) {
        let shared = self.attachments.values().any(|other| other.generation == Some(generation));
        if shared || generation != self.record.generation {
            return;
        }
        let then = self.settings.lifetime.on_detach(&self.record, now);
        let keep_for = match then {
            Verdict::End => limits::END_FOLLOWS,
            Verdict::KeepUntil(until) => until.since(now),
        };
        self.record.attached = None;
        (self.record.last_activity, self.record.last_seen) = (now, now);
        self.record.expires_at = now + keep_for;
        self.emit(Output::Detach { detach: Detach { generation, keep_for, now }, then });
    }

    /// Closes every client that is attached under such a generation.
    pub(super) fn supersede_where(&mut self, is_history: impl Fn(Generation) -> bool) {
        let goes = |client: &Attachment| client.generation.is_some_and(&is_history);
        let ids = self.attachments.iter().filter(|(_, c)| goes(c)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.attachments.remove(&id);
            self.supersede(id);
        }
    }

    fn supersede(&mut self, attachment: AttachmentId) {
        self.tell(attachment, Tell::Superseded);
        self.leave(attachment, LeaveReason::Closed(CloseCode::Superseded));
    }

    pub(super) fn leave(&mut self, attachment: AttachmentId, reason: LeaveReason) {
        self.emit(Output::Leave { attachment, reason });
    }

    /// Takes over what the store has just shown, without forgetting what it has confirmed since.
    pub(super) fn note(&mut self, seen: &Record) {
        let record = &mut self.record;
        let (head, acked) = (record.head.max(seen.head), record.acked.max(seen.acked));
        let (in_head, covered) =
            (record.in_head.max(seen.in_head), record.covered.max(seen.covered));
        let oldest = record.oldest.max(seen.oldest);
        let newest = |mark: &SnapshotMark| (mark.in_seq, mark.seq);
        let snapshot = record.snapshot.into_iter().chain(seen.snapshot).max_by_key(newest);
        if seen.generation > record.generation {
            *record = seen.clone();
        }
        (record.head, record.acked, record.oldest) = (head, acked, oldest);
        (record.in_head, record.covered) = (in_head, covered);
        record.snapshot = snapshot;
    }
}
