//! How a session begins, is kept and ends.

use std::sync::Arc;
use std::time::Duration;

use super::{SessionState, Snapshot, Stale, Tokens, Vitals};
use crate::ids::LogId;
use crate::limits;
use crate::log::{Inbox, OutLog, Seen, SeenKeys};
use crate::position::{Epoch, Generation, InSeq, Term};
use crate::record::{About, Ending, Status};
use crate::time::Timestamp;

/// A session is made.
#[derive(Clone, Debug)]
pub struct Create {
    /// What never changes about it.
    pub about: About,
    /// Its logs.
    pub log: LogId,
    /// Its first epoch.
    pub epoch: Epoch,
    /// How long it lives until somebody attaches.
    pub keep_for: Duration,
    /// How many sessions there may be. Checked in the same step that makes this one: a caller that counted before it
    /// asked would count the same sessions as every other caller at that moment.
    pub room: Room,
}

/// How many sessions may go on at the same time, a new one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub all: usize,
    /// Of one principal.
    pub of_principal: usize,
}

/// There may be no further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The server has as many as it may.
    #[error("the server has as many sessions as it may")]
    Server,
    /// The principal has as many as it may.
    #[error("the principal has as many sessions as it may")]
    Principal,
}

impl Room {
    /// No bound.
    pub const UNLIMITED: Self = Self { all: usize::MAX, of_principal: usize::MAX };

    /// Whether there is room for one more beside `all` sessions, of which `own` are its principal's.
    pub fn check(&self, all: usize, own: usize) -> Result<(), NoRoom> {
        if all >= self.all {
            return Err(NoRoom::Server);
        }
        if own >= self.of_principal { Err(NoRoom::Principal) } else { Ok(()) }
    }
}

/// A session is ended.
#[derive(Clone, Debug)]
pub struct End {
    /// How.
    pub ending: Ending,
    /// Set by clean-ups, which must not touch a session that a client has come back to: it is ended
    /// only if the generation is still this one and nobody is attached.
    pub only_parked: Option<Generation>,
    /// Set where a client ends it: it is ended only if that client's generation is still the present one.
    pub only_by: Option<Generation>,
    /// Set where time has run out: it is ended only if its deadline has really passed.
    pub only_due: bool,
    /// How long it is remembered, so that its credentials are answered properly.
    pub remember_for: Duration,
    /// Now.
    pub now: Timestamp,
}

/// Why a session was not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndRefused {
    /// The clean-up is of an older generation: a client has come back since.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// A client is attached.
    #[error("a client is attached to the session")]
    Attached,
    /// Its time has not come.
    #[error("the session lives until {0}")]
    NotDue(Timestamp),
    /// It is over already.
    #[error("the session has ended before")]
    Already,
}

/// A parked session is kept until another time than it would be.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The generation that was parked; a session a client has come back to is left alone.
    pub generation: Generation,
    /// When it expires.
    pub until: Timestamp,
}

/// A process starts on what another one left behind.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Now.
    pub now: Timestamp,
    /// How long a session is kept whose client was attached when the process died.
    pub keep_for: Duration,
    /// No session lives longer than this without a sign of life.
    pub longest: Duration,
}

impl<B> SessionState<B> {
    /// A new session.
    pub fn create(create: Create) -> Self {
        let now = create.about.created_at;
        Self {
            about: Arc::new(create.about),
            vitals: Vitals {
                status: Status::Active,
                log: create.log,
                epoch: create.epoch,
                first_epoch: true,
                ack_lost: false,
                named: false,
                generation: Generation::ZERO,
                term: Term::ZERO,
                lease: None,
                attached: None,
                last_activity: now,
                unseen_ms: 0,
                expires_at: now + create.keep_for,
                reconnect_count: 0,
            },
            tokens: Tokens::default(),
            out: OutLog::default(),
            inbox: Inbox::default(),
            seen: Seen::default(),
            seen_keys: SeenKeys::default(),
            snapshot: None,
        }
    }

    /// Applies an [`End`]: both logs and the snapshot go. The numbering, the tokens' hashes and, unless
    /// its user ended it, the message ids stay until the session is forgotten.
    pub fn end(&mut self, end: &End) -> Result<(), EndRefused> {
        if !self.is_active() {
            return Err(EndRefused::Already);
        }
        if let Some(generation) = end.only_parked {
            self.check_generation(generation)?;
            if self.vitals.attached.is_some() {
                return Err(EndRefused::Attached);
            }
        }
        if let Some(generation) = end.only_by {
            self.check_generation(generation)?;
        }
        if end.only_due && self.vitals.attached.is_some() {
            return Err(EndRefused::Attached);
        }
        if end.only_due && self.vitals.expires_at > end.now {
            return Err(EndRefused::NotDue(self.vitals.expires_at));
        }
        let forget_at = end.now + end.remember_for;
        self.close(end.ending.clone(), end.now, forget_at);
        let contents = self.take_contents();
        if end.ending.is_restorable() {
            // A client may yet go on from a snapshot and send again what it got no answer for: what
            // was dealt with is known then, what went with the in log can be entered anew.
            self.seen = contents.seen;
            self.seen.forget(&contents.inbox.after(InSeq::ZERO).map(|(n, _)| n).collect());
        }
        Ok(())
    }

    /// It is over; what is in it is left to the caller.
    pub(super) fn close(&mut self, ending: Ending, at: Timestamp, forget_at: Timestamp) {
        self.vitals.status = Status::Ended { ending, at, forget_at };
        self.vitals.attached = None;
        self.vitals.lease = None;
        self.vitals.expires_at = self.vitals.expires_at.min(at);
    }

    /// Applies a [`Keep`].
    pub fn keep(&mut self, keep: &Keep) -> Result<(), Stale> {
        self.check_generation(keep.generation)?;
        self.vitals.expires_at = keep.until;
        Ok(())
    }

    /// What a process that died left behind: nobody is attached, nobody has the lease, and nothing
    /// expires before its client had time to come back. `last_alive` is when that process was last known to
    /// be alive, if it is known: a client that was attached has been away since.
    pub fn recover(&mut self, recovery: &Recovery, last_alive: Option<Timestamp>) {
        let Recovery { now, keep_for, longest } = *recovery;
        self.vitals.lease = None;
        if self.vitals.attached.take().is_some() {
            let last_seen = self.last_seen().max(last_alive.unwrap_or(now));
            self.vitals.last_activity = now;
            self.vitals.unseen_ms = now.since(last_seen).as_millis().try_into().unwrap_or(u32::MAX);
            self.vitals.expires_at = now + keep_for;
        }
        let soonest = now + limits::GRACE_AFTER_START;
        // A deadline further off than any could be was made by a clock that ran ahead, and so was a
        // sign of life that is still to come: work would keep the session for a ttl from there.
        self.vitals.last_activity = self.vitals.last_activity.min(now);
        let latest = soonest.max(now + longest);
        self.vitals.expires_at = self.vitals.expires_at.clamp(soonest, latest);
    }

    /// Takes both logs, the snapshot and the message ids out, for a session that goes on in this
    /// one's place.
    pub(super) fn take_contents(&mut self) -> Contents<B> {
        let (head, acked, in_head) = (self.out.head(), self.out.acked(), self.inbox.head());
        Contents {
            log: self.vitals.log,
            ack_lost: self.vitals.ack_lost,
            named: self.vitals.named,
            out: std::mem::replace(&mut self.out, OutLog::starting_after(head, acked)),
            inbox: std::mem::replace(&mut self.inbox, Inbox::starting_after(in_head)),
            seen: std::mem::take(&mut self.seen),
            seen_keys: std::mem::take(&mut self.seen_keys),
            snapshot: self.snapshot.take(),
        }
    }

    /// Goes on with what another session had.
    pub(super) fn put_contents(&mut self, contents: Contents<B>) {
        self.vitals.log = contents.log;
        self.vitals.ack_lost = contents.ack_lost;
        self.vitals.named = contents.named;
        self.out = contents.out;
        self.inbox = contents.inbox;
        self.seen = contents.seen;
        self.seen_keys = contents.seen_keys;
        self.snapshot = contents.snapshot;
    }
}

/// What is in a session, apart from the session.
pub(super) struct Contents<B> {
    log: LogId,
    ack_lost: bool,
    named: bool,
    out: OutLog<B>,
    inbox: Inbox<B>,
    seen: Seen,
    seen_keys: SeenKeys,
    snapshot: Option<Snapshot<B>>,
}
