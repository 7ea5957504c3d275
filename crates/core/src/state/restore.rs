//! Going on from a snapshot that a client kept. It never undoes work the server still has, and it can
//! be repeated: whatever snapshot of a line is brought, however often, its clients meet in one session.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lifecycle::Contents;
use super::own::{OwnSessions, Sessions};
use super::{Create, End, NewSnapshot, NoRoom, OverBound, SessionState, Snapshot, Takeover};
use crate::attempt::Attempt;
use crate::ids::SessionId;
use crate::limits;
use crate::log::OutLog;
use crate::position::{Epoch, InSeq, Seq};
use crate::record::{About, Ending, SnapshotMark, Status};
use crate::time::Timestamp;

/// A sealed state was opened and is to be gone on from.
#[derive(Clone, Debug)]
pub struct Restore<B> {
    /// The id of the session that the snapshot was taken of. Another session may have it by now.
    pub from: SessionId,
    /// What tells that session from others of the same id.
    pub origin: Origin,
    /// The session to make, if none of the line goes on already. Every session of the line has its
    /// principal and its kind.
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
    /// The attempt, for the audit trail: written in the same commit if a session is made.
    pub attempt: Option<Box<Attempt>>,
    /// Now.
    pub now: Timestamp,
}

/// What tells the session that a snapshot was taken of from every other one of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The seal does not say: it was made by an earlier version. Principal and kind must do.
    Unsaid,
    /// The seal says it.
    Sealed {
        /// When that session was created.
        created_at: Timestamp,
        /// Whether it was a session of this store.
        in_this_store: bool,
        /// The id of its trace, where another session has its id.
        stand_in: SessionId,
    },
}

impl Origin {
    /// The id of the session's trace, where another session has its id.
    pub fn stand_in(&self) -> Option<&SessionId> {
        match self {
            Self::Unsaid => None,
            Self::Sealed { stand_in, .. } => Some(stand_in),
        }
    }
}

/// What a restore did.
#[derive(Debug)]
pub enum Restored<B> {
    /// A new session goes on; the old one has ended and says where.
    Made(Box<MadeSession<B>>),
    /// The line goes on in this session already. Nothing has changed.
    Joined(SessionId),
}

/// A session that was made from a snapshot.
#[derive(Debug)]
pub struct MadeSession<B> {
    /// The session.
    pub session: SessionState<B>,
    /// The id under which the store remembers the session that the snapshot was taken of.
    pub from: SessionId,
    /// What to remember there, if the store had no such session: brought again, the same snapshot then
    /// finds the session that was made from it.
    pub trace: Option<SessionState<B>>,
    /// Whether the session that the snapshot was taken of went on until now.
    pub replaces_active: bool,
}

/// Why a snapshot can't be gone on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreRefused {
    /// A session of its line is another principal's, or of another kind.
    #[error("session {session} is not the caller's own")]
    Foreign {
        /// Which.
        session: SessionId,
    },
    /// Its session was ended by its user, or a newer one was restored from its line and is gone.
    #[error("the snapshot's session was ended, or a newer one took its place and has ended since")]
    Superseded,
    /// Somebody is attached where the line goes on, and the later one does not win.
    #[error("another connection is attached to session {session}")]
    AlreadyAttached {
        /// Where.
        session: SessionId,
    },
    /// A session would have to be made, and the principal or the server holds as much as it may.
    #[error(transparent)]
    OverBound(#[from] OverBound),
    /// A session would have to be made, and there may be no further one.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The store takes nothing new for now: its disk is nearly full, or another program has it locked.
    #[error("the store takes no new sessions for now; try again later")]
    Paused,
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

impl<B> Restore<B> {
    /// Whether the snapshot was taken of this session, which has the id that the seal names. A session of
    /// another store is known here by its trace alone.
    pub fn is_of(&self, about: &About, status: &Status, epoch: &Epoch) -> bool {
        let own = &self.create.about;
        if (&about.principal, about.kind) != (&own.principal, own.kind) {
            return false;
        }
        match self.origin {
            Origin::Unsaid => true,
            Origin::Sealed { created_at, in_this_store: true, .. } => {
                about.created_at == created_at
            }
            Origin::Sealed { created_at, in_this_store: false, .. } => {
                let ended = matches!(status, Status::Ended { ending: Ending::Restored { .. }, .. });
                ended && about.created_at == created_at && *epoch == self.epoch
            }
        }
    }
}

/// Applies a [`Restore`].
pub fn restore<B>(
    restore: Restore<B>,
    sessions: &mut impl Sessions<B>,
) -> Result<Restored<B>, RestoreRefused> {
    check_claim(&restore)?;
    let mut own = OwnSessions::of(&restore.create.about, sessions);
    let from = line_start(&restore, &mut own)?;
    let end = line_end(&from, restore.now, &mut own)?;
    check_takeover(&restore, &end, &mut own)?;
    match end {
        LineEnd::Closed => Err(RestoreRefused::Superseded),
        LineEnd::Active(id) if id != from => Ok(Restored::Joined(id)),
        LineEnd::Active(id) if has_moved(&restore, own.find(&id)?) => Ok(Restored::Joined(id)),
        LineEnd::Gone(id) if id != from => Err(RestoreRefused::Superseded),
        LineEnd::Active(_) | LineEnd::Gone(_) => {
            if own.find(&from)?.is_none_or(|old| !old.is_active()) {
                own.check_room(&restore.create)?; // one that lives makes room for the one that goes on
            }
            let made = make(restore, &from, own.find(&from)?);
            Ok(Restored::Made(Box::new(made)))
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

/// The id under which this store has the session that the snapshot was taken of, or will have its trace.
fn line_start<B, S: Sessions<B>>(
    restore: &Restore<B>,
    own: &mut OwnSessions<'_, S>,
) -> Result<SessionId, RestoreRefused> {
    let named = || restore.from.clone();
    let Origin::Sealed { stand_in, in_this_store, .. } = &restore.origin else {
        return own.find(&restore.from).map(|_| named());
    };
    if own.find(stand_in)?.is_some() {
        return Ok(stand_in.clone());
    }
    let is_of = |session: &SessionState<B>| {
        restore.is_of(&session.about, &session.vitals.status, &session.vitals.epoch)
    };
    match own.find(&restore.from) {
        Ok(None) => Ok(named()),
        Ok(Some(session)) if is_of(session) => Ok(named()),
        Err(foreign) if *in_this_store => Err(foreign),
        Ok(Some(_)) | Err(_) => Ok(stand_in.clone()),
    }
}

fn line_end<B, S: Sessions<B>>(
    from: &SessionId,
    now: Timestamp,
    own: &mut OwnSessions<'_, S>,
) -> Result<LineEnd, RestoreRefused> {
    let mut passed = BTreeSet::new();
    let mut id = from.clone();
    while passed.insert(id.clone()) {
        let Some(session) = own.find(&id)? else { return Ok(LineEnd::Gone(id)) };
        match session.ending_as_of(now) {
            None => return Ok(LineEnd::Active(id)),
            Some(Ending::Restored { to }) => id = to,
            Some(Ending::Expired | Ending::CleanedUp) => return Ok(LineEnd::Gone(id)),
            Some(Ending::Closed) => return Ok(LineEnd::Closed),
        }
    }
    Ok(LineEnd::Closed) // it leads in a circle, where no session goes on
}

fn check_takeover<B, S: Sessions<B>>(
    restore: &Restore<B>,
    end: &LineEnd,
    own: &mut OwnSessions<'_, S>,
) -> Result<(), RestoreRefused> {
    let LineEnd::Active(id) = end else { return Ok(()) };
    let attached = own.find(id)?.is_some_and(|session| session.vitals.attached.is_some());
    match restore.takeover {
        Takeover::Reject if attached => {
            Err(RestoreRefused::AlreadyAttached { session: id.clone() })
        }
        Takeover::Reject | Takeover::Replace => Ok(()),
    }
}

fn has_moved<B>(restore: &Restore<B>, session: Option<&mut SessionState<B>>) -> bool {
    let at = |session: &mut SessionState<B>| (session.out.head(), session.inbox.head());
    let only = restore.only_at;
    only.is_some() && session.map(at) != only
}

fn make<B>(
    mut restore: Restore<B>,
    from: &SessionId,
    old: Option<&mut SessionState<B>>,
) -> MadeSession<B> {
    let trace = old.is_none().then(|| trace_of(&restore, from));
    let mut replaces_active = false;
    let left = old.map(|old| {
        replaces_active = old.is_active();
        restore.create.about.client = old.about.client.clone();
        take_over(old, &restore)
    });
    MadeSession { session: go_on(restore, left), from: from.clone(), trace, replaces_active }
}

/// What is left in a session that is gone on from.
enum Left<B> {
    /// All it had: it went on until now.
    Everything(Contents<B>),
    /// How far its numbering had come. Nothing is held that a jump of the numbering could drop.
    Numbers(Contents<B>),
}

/// Ends the old session in favour of the new one and takes what is left in it: everything if it still
/// lived, else only how far its numbering had come.
fn take_over<B>(old: &mut SessionState<B>, restore: &Restore<B>) -> Left<B> {
    let was_active = old.is_active();
    if was_active && is_of_lost_future(old, restore) {
        // A position of the future that was lost means nothing in this log, also when its client comes
        // later: the old session says so from now on.
        old.vitals.epoch = restore.create.epoch.clone();
        old.vitals.first_epoch = false;
    }
    let forget_at = match &old.vitals.status {
        Status::Active => restore.now + restore.remember_for,
        Status::Ended { forget_at, .. } => (*forget_at).max(restore.now + restore.remember_for),
    };
    let contents = old.take_contents();
    let ending = Ending::Restored { to: restore.create.about.id.clone() };
    old.close(ending, restore.now, forget_at);
    // One that was restored, and in which nothing has happened since, is gone on from as it was left.
    match was_active && restore.only_at.is_none() {
        true => Left::Everything(contents),
        false => Left::Numbers(contents),
    }
}

/// Whether a snapshot is of a future that this store has lost, as happens when a backup is put back: it
/// stands beyond the head of a log, or at an event that was appended after the snapshot was taken.
fn is_of_lost_future<B>(old: &SessionState<B>, restore: &Restore<B>) -> bool {
    let beyond = restore.seq > old.out.head() || restore.in_seq > old.inbox.head();
    let event_is_newer =
        |out: &OutLog<B>| out.get(restore.seq).is_some_and(|event| event.at > restore.taken_at);
    restore.only_at.is_none() && (beyond || event_is_newer(&old.out))
}

/// Makes the session that goes on: with what the old one has, or else with what the snapshot says.
fn go_on<B>(restore: Restore<B>, left: Option<Left<B>>) -> SessionState<B> {
    let Restore { seq, in_seq, taken_at: at, .. } = restore;
    let mut new = SessionState::create(restore.create);
    let mut mark = SnapshotMark { seq, in_seq, at };
    let has_everything = matches!(left, Some(Left::Everything(_)));
    if let Some(Left::Everything(contents) | Left::Numbers(contents)) = left {
        new.put_contents(contents);
    }
    if has_everything {
        mark = mark_within(&new, mark);
    }
    let covers = |mark: &SnapshotMark| (mark.in_seq, mark.seq);
    let held = new.snapshot.as_ref().map(|held| covers(&held.mark));
    if held.is_none_or(|held| held < covers(&mark)) {
        new.inbox.cover_up_to(mark.in_seq);
        new.keep_messages_of_agents();
        let NewSnapshot { size, body } = restore.state;
        new.snapshot = Some(Snapshot { mark, size, body });
    }
    if !has_everything {
        new.out.jump_to(mark.seq.max(restore.last_seq.unwrap_or(Seq::ZERO)));
    }
    new
}

/// Where a snapshot stands in logs that are there: not beyond the head of the out log, and before every
/// waiting entry that is newer than the snapshot. In one history neither can be otherwise; a snapshot of a
/// future that was lost must not take along what has come since.
fn mark_within<B>(session: &SessionState<B>, mark: SnapshotMark) -> SnapshotMark {
    let mut waiting = session.inbox.after(InSeq::ZERO);
    let newer = waiting.find(|(_, entry)| entry.at > mark.at).map(|(number, _)| number.previous());
    let in_seq = newer.map_or(mark.in_seq, |last| last.min(mark.in_seq));
    SnapshotMark { seq: mark.seq.min(session.out.head()), in_seq, ..mark }
}

/// What is remembered of a session that the store does not have.
fn trace_of<B>(restore: &Restore<B>, id: &SessionId) -> SessionState<B> {
    let mut about = restore.create.about.clone();
    about.id = id.clone();
    if let Origin::Sealed { created_at, .. } = restore.origin {
        about.created_at = created_at;
    }
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
