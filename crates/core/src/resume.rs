//! The one decision of a reconnect, as a pure function of the session's record, the position that is
//! asked for and the time. Every way of reconnecting goes through it.

use serde::{Deserialize, Serialize};

use crate::ids::EventId;
use crate::position::{Epoch, Seq, SeqRange};
use crate::record::{Ending, Record, Status};
use crate::time::Timestamp;

/// The position a client asks to go on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The last seq it has.
    pub last_seq: Option<Seq>,
    /// The last event it has, by its id; used where `last_seq` is not given.
    pub last_event_id: Option<EventId>,
    /// The epoch its seq counts in.
    pub epoch: Option<Epoch>,
}

/// What becomes of a client that comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It has everything: live events follow.
    UpToDate,
    /// It is sent everything after this seq.
    Replay {
        /// The last one it has.
        after: Seq,
    },
    /// Something it has not seen is gone: it is told so, gets the state, and then what is held.
    SnapshotAndReplay {
        /// What it is told.
        gap: Gap,
        /// Events after this one are held and are sent.
        after: Seq,
    },
    /// It can't come back.
    Refuse(Refusal),
}

/// Events that a client has not seen and will not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// These were evicted.
    Evicted {
        /// Which.
        missing: SeqRange,
        /// Those of them that the state, which follows, does not reach.
        lost: Option<SeqRange>,
    },
    /// The position is of another epoch or lies beyond the head, so nobody can say which.
    PositionUnknown,
}

/// Why a session can't be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was ended.
    Closed,
    /// Its time ran out.
    Expired,
}

/// Decides how a client goes on. `record` must be of a session the caller may use; nobody else gets
/// this far.
pub fn decide(record: &Record, asked: &Asked, now: Timestamp) -> Resume {
    if let Some(refusal) = refusal(record, now) {
        return Resume::Refuse(refusal);
    }
    match after(record, asked) {
        Some(after) if after >= record.head => Resume::UpToDate,
        Some(after) => match missing(record, after) {
            Some(gap) => Resume::SnapshotAndReplay { gap, after: record.oldest.previous() },
            None => Resume::Replay { after },
        },
        None => {
            Resume::SnapshotAndReplay { gap: Gap::PositionUnknown, after: record.oldest.previous() }
        }
    }
}

/// The gap in front of a reader that stands at `after`, if what comes next is not held any more.
pub fn missing(record: &Record, after: Seq) -> Option<Gap> {
    let missing = SeqRange::new(after.next(), record.oldest.previous())?;
    let reached = record.snapshot.map_or(Seq::ZERO, |snapshot| snapshot.seq);
    let lost = SeqRange::new(reached.next().max(missing.from), missing.to);
    Some(Gap::Evicted { missing, lost })
}

/// The seq to go on after; nothing if the position means nothing in this log.
fn after(record: &Record, asked: &Asked) -> Option<Seq> {
    let same_epoch = match &asked.epoch {
        Some(epoch) => *epoch == record.epoch,
        None => record.first_epoch,
    };
    if let Some(seq) = asked.last_seq {
        return (same_epoch && seq <= record.head).then_some(seq);
    }
    if asked.epoch.is_some() && !same_epoch {
        return None;
    }
    match asked.last_event_id {
        Some(event) if event.log == record.log && event.seq <= record.head => Some(event.seq),
        Some(_) | None if record.ack_lost => None,
        Some(_) | None => Some(record.acked),
    }
}

fn refusal(record: &Record, now: Timestamp) -> Option<Refusal> {
    match &record.status {
        Status::Active if record.attached.is_none() && record.expires_at <= now => {
            Some(Refusal::Expired)
        }
        Status::Active => None,
        Status::Ended { ending: Ending::Expired, .. } => Some(Refusal::Expired),
        Status::Ended {
            ending: Ending::Closed | Ending::Restored { .. } | Ending::CleanedUp,
            ..
        } => Some(Refusal::Closed),
    }
}
