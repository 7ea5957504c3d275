//! Going on from a snapshot that a client kept. It never undoes work the server still has, and it can
//! be repeated: whatever snapshot of a line is brought, however often, its clients meet in one session.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lifecycle::Contents;
use super::{Create, End, NewSnapshot, SessionState, Snapshot, Takeover};
use crate::ids::SessionId;
use crate::limits;
use crate::position::{Epoch, InSeq, Seq};
use crate::record::{Ending, SnapshotMark, Status};
use crate::time::Timestamp;

/// A sealed state was opened and is to be gone on from.
#[derive(Clone, Debug)]
pub struct Restore<B> {
    /// The session the snapshot was taken of. It is the principal's own: the seal says so.
    pub from: SessionId,
    /// The session to make, if none of the line goes on already.
    pub create: Create,
    /// The epoch that the snapshot's position counts in.
    pub epoch: Epoch,
    /// The out position the snapshot stands for.
    pub seq: Seq,
    /// The entries it covers.
    pub in_seq: InSeq,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// The state itself.
    pub state: NewSnapshot<B>,
    /// The last event the client says it has.
    pub last_seq: Option<Seq>,
    /// What becomes of somebody who is attached where the line goes on.
    pub takeover: Takeover,
    /// How long the old session is remembered, so that its other snapshots find their way.
    pub remember_for: Duration,
    /// If it is given, `from` is gone on from only if it has come no further than this; else it is joined.
    pub only_at: Option<(Seq, InSeq)>,
    /// Now.
    pub now: Timestamp,
}

/// What became of a restore.
#[derive(Debug)]
pub enum Restored<B> {
    /// A new session goes on; the old one has ended and says where.
    Made(Box<SessionState<B>>),
    /// The line goes on in this session already.
    Joined(SessionId),
}

/// Why a snapshot can't be gone on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreRefused {
    /// Its session was ended by its user, or a newer one was restored from its line and is gone.
    #[error("the snapshot's session was ended, or a newer one took its place and has ended since")]
    Superseded,
    /// Somebody is attached where the line goes on, and the later one does not win.
    #[error("another connection is attached to session {session}")]
    AlreadyAttached {
        /// Where.
        session: SessionId,
    },
    /// The client claims to have seen more than can be true.
    #[error("last_seq {claimed} lies too far beyond the snapshot's {seq}")]
    Implausible {
        /// What it claims.
        claimed: Seq,
        /// Where the snapshot stands.
        seq: Seq,
    },
}

/// Where the line of a session leads.
enum LineEnd {
    /// To this session, which goes on.
    Active(SessionId),
    /// To this one, which has ended or was forgotten.
    Gone(SessionId),
    /// It was closed by its user.
    Closed,
}

/// Where a restore looks sessions up: the snapshot's own, and those that were restored from it since.
pub trait Sessions<B> {
    /// The session of that id, if it is known.
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<B>>;
}

impl<B> Sessions<B> for BTreeMap<SessionId, SessionState<B>> {
    fn find(&mut self, id: &SessionId) -> Option<&mut SessionState<B>> {
        self.get_mut(id)
    }
}

/// Applies a [`Restore`].
pub fn restore<B>(
    restore: Restore<B>,
    sessions: &mut impl Sessions<B>,
) -> Result<Restored<B>, RestoreRefused> {
    check_claim(&restore)?;
    let end = line_end(&restore.from, restore.now, sessions);
    check_takeover(&restore, &end, sessions)?;
    match end {
        LineEnd::Closed => Err(RestoreRefused::Superseded),
        LineEnd::Active(id) if id != restore.from => Ok(Restored::Joined(id)),
        LineEnd::Active(id) if has_moved(&restore, sessions) => Ok(Restored::Joined(id)),
        LineEnd::Gone(id) if id != restore.from => Err(RestoreRefused::Superseded),
        LineEnd::Active(_) | LineEnd::Gone(_) => {
            let mut restore = restore;
            let contents = sessions.find(&restore.from).map(|old| {
                restore.create.about.client = old.about.client.clone();
                take_over(old, &restore)
            });
            Ok(Restored::Made(Box::new(go_on(restore, contents))))
        }
    }
}

fn check_claim<B>(restore: &Restore<B>) -> Result<(), RestoreRefused> {
    let claimed = restore.last_seq.unwrap_or(Seq::ZERO);
    if claimed.steps_from(restore.seq) > limits::BELIEVED_PAST_SNAPSHOT {
        return Err(RestoreRefused::Implausible { claimed, seq: restore.seq });
    }
    Ok(())
}

fn check_takeover<B>(
    restore: &Restore<B>,
    end: &LineEnd,
    sessions: &mut impl Sessions<B>,
) -> Result<(), RestoreRefused> {
    let LineEnd::Active(id) = end else { return Ok(()) };
    let attached = sessions.find(id).is_some_and(|session| session.vitals.attached.is_some());
    match restore.takeover {
        Takeover::Reject if attached => {
            Err(RestoreRefused::AlreadyAttached { session: id.clone() })
        }
        Takeover::Reject | Takeover::Replace => Ok(()),
    }
}

fn has_moved<B>(restore: &Restore<B>, sessions: &mut impl Sessions<B>) -> bool {
    let at = |session: &mut SessionState<B>| (session.out.head(), session.inbox.head());
    restore.only_at.is_some_and(|only| sessions.find(&restore.from).map(at) != Some(only))
}

fn line_end<B>(from: &SessionId, now: Timestamp, sessions: &mut impl Sessions<B>) -> LineEnd {
    let mut id = from.clone();
    loop {
        let Some(session) = sessions.find(&id) else { return LineEnd::Gone(id) };
        match session.ending_as_of(now) {
            None => return LineEnd::Active(id),
            Some(Ending::Restored { to }) => id = to,
            Some(Ending::Expired | Ending::CleanedUp) => return LineEnd::Gone(id),
            Some(Ending::Closed) => return LineEnd::Closed,
        }
    }
}

/// Ends the old session in favour of the new one and takes what is left in it: everything if it still
/// lived, else only how far its numbering had come.
fn take_over<B>(old: &mut SessionState<B>, restore: &Restore<B>) -> Contents<B> {
    let contents = old.take_contents();
    let forget_at = match &old.vitals.status {
        Status::Active => restore.now + restore.remember_for,
        Status::Ended { forget_at, .. } => (*forget_at).max(restore.now + restore.remember_for),
    };
    let ending = Ending::Restored { to: restore.create.about.id.clone() };
    old.close(ending, restore.now, forget_at);
    contents
}

/// Makes the session that goes on: with what the old one has, or else with what the snapshot says.
fn go_on<B>(restore: Restore<B>, contents: Option<Contents<B>>) -> SessionState<B> {
    let mut new = SessionState::create(restore.create);
    if let Some(contents) = contents {
        new.put_contents(contents);
    }
    let Restore { seq, in_seq, taken_at: at, .. } = restore;
    let mark = SnapshotMark { seq, in_seq, at };
    let covers = |mark: &SnapshotMark| (mark.in_seq, mark.seq);
    let held = new.snapshot.as_ref().map(|held| covers(&held.mark));
    if held.is_none_or(|held| held < covers(&mark)) {
        new.inbox.cover_up_to(mark.in_seq);
        new.keep_messages_of_agents();
        let NewSnapshot { size, body } = restore.state;
        new.snapshot = Some(Snapshot { mark, size, body });
    }
    new.out.jump_to(mark.seq.max(restore.last_seq.unwrap_or(Seq::ZERO)));
    new
}

/// The trace that a restore leaves of a session the store had forgotten, so that the same snapshot,
/// brought again, finds the session that was made from it.
pub fn trace_of_forgotten<B>(restore: &Restore<B>) -> SessionState<B> {
    let mut about = restore.create.about.clone();
    about.id = restore.from.clone();
    let (create, epoch) = (restore.create.clone(), restore.epoch.clone());
    let mut trace = SessionState::create(Create { about, epoch, ..create });
    let ending = Ending::Restored { to: restore.create.about.id.clone() };
    let end = End {
        ending,
        only_parked: None,
        only_by: None,
        only_due: false,
        remember_for: restore.remember_for,
        now: restore.now,
    };
    let ended = trace.end(&end);
    debug_assert!(ended.is_ok(), "a new session can be ended");
    trace
}
