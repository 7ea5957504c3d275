//! The whole of one session as a store holds it, and the only places where it changes.
//!
//! Each change is a value that says who makes it and what it expects, and a method that applies it or
//! says why not. They are pure, so that every store shares them: the memory store applies them under
//! a lock, the embedded store applies them and writes down what they did, and the simulation runs
//! them by the hundred thousand.
//!
//! | side | guarded by | changes |
//! |---|---|---|
//! | the client's | generation | [`Attach`], [`Detach`], [`Ack`], [`Enter`] |
//! | the agent's | term | [`TakeLease`], [`Append`] |
//! | credentials | token hashes | [`Renew`], [`SessionState::put_token`] |
//! | lifecycle | generation, where a clean-up does it | [`End`], [`Keep`], [`Restore`] |
//!
//! A change never trims: what it evicts must not be gone before the change itself is durable. The
//! store calls [`SessionState::settle`] after it has committed.

mod agent_side;
mod client_side;
mod holding;
mod lifecycle;
mod own;
mod restore;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

pub use agent_side::{
    Append, AppendRefused, Appended, LeaseHeld, NewEvent, NewSnapshot, TakeLease,
};
pub use client_side::{
    Ack, AckRefused, Attach, AttachRefused, Attached, Detach, Enter, EnterRefused, Entered, Stale,
    Takeover,
};
pub use holding::{Holding, OverBound};
pub use lifecycle::{Create, End, EndRefused, Keep, NoRoom, Recovery, Room};
pub use own::Sessions;
pub use restore::{MadeSession, Origin, Restore, RestoreRefused, Restored, restore};
pub use tokens::{
    NewToken, Renew, RenewRefused, Renewed, SessionOver, TokenFault, TokenUse, TokenUsed, Tokens,
    UsedToken,
};

use crate::ids::LogId;
use crate::limits::LogBounds;
use crate::log::{Inbox, OutLog, Seen, SeenKeys, Trimmed};
use crate::position::{Epoch, Generation, Seq, Term};
use crate::record::{About, Kind, Lease, Record, SnapshotMark, Status, Transport};
use crate::time::Timestamp;

/// Everything about one session. `B` says where a body (an event's, an entry's, a snapshot's) is.
#[derive(Clone, Debug)]
pub struct SessionState<B> {
    /// What never changes.
    pub about: Arc<About>,
    /// What changes, besides the logs.
    pub vitals: Vitals,
    /// The credentials that were given out.
    pub tokens: Tokens,
    /// The out log.
    pub out: OutLog<B>,
    /// The in log: what the agent's state does not cover, and what is kept of the rest.
    pub inbox: Inbox<B>,
    /// The message ids that were entered before.
    pub seen: Seen,
    /// The idempotency keys that were published under before.
    pub seen_keys: SeenKeys,
    /// The agent's own state.
    pub snapshot: Option<Snapshot<B>>,
}

/// The small, changing facts of a session.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Vitals {
    /// Whether it goes on.
    pub status: Status,
    /// Its logs. A restore hands them on to the next session of the line; loss begins others.
    pub log: LogId,
    /// The incarnation of the out log.
    pub epoch: Epoch,
    /// Whether that is the session's first one.
    pub first_epoch: bool,
    /// Whether the last ack is of an incarnation that was lost: where its client stands nobody knows.
    pub ack_lost: bool,
    /// Whether an agent of the session has ever named an entry.
    pub named: bool,
    /// The client's side.
    pub generation: Generation,
    /// The agent's side.
    pub term: Term,
    /// Who runs the agent, if anybody.
    pub lease: Option<Lease>,
    /// How a client is attached, if one is.
    pub attached: Option<Transport>,
    /// See [`Record::last_activity`].
    pub last_activity: Timestamp,
    /// How long before its last activity its client was last seen, in milliseconds: see
    /// [`Record::last_seen`]. Not the moment itself, which would take twice the memory of every session.
    /// Stores write it beside the rest: it was not there from the beginning.
    #[serde(skip)]
    pub unseen_ms: u32,
    /// When it expires, unless a client is attached.
    pub expires_at: Timestamp,
    /// How often a client came back.
    pub reconnect_count: u64,
}

/// The agent's own state, as of a position in both logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot<B> {
    /// Where it stands.
    pub mark: SnapshotMark,
    /// Its size in bytes.
    pub size: u32,
    /// Where its body is.
    pub body: B,
}

/// What a session may be made to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Events that the client has acked, or that the agent's state stands for.
    Settled,
    /// Any: its client will be told of a gap.
    Anything,
}

impl<B> SessionState<B> {
    /// The session as a reader sees it.
    pub fn record(&self) -> Record {
        let vitals = self.vitals.clone();
        Record {
            about: Arc::clone(&self.about),
            status: vitals.status,
            log: vitals.log,
            epoch: vitals.epoch,
            first_epoch: vitals.first_epoch,
            ack_lost: vitals.ack_lost,
            named: vitals.named,
            generation: vitals.generation,
            term: vitals.term,
            lease: vitals.lease,
            attached: vitals.attached,
            last_activity: vitals.last_activity,
            last_seen: self.last_seen(),
            expires_at: vitals.expires_at,
            reconnect_count: vitals.reconnect_count,
            head: self.out.head(),
            oldest: self.out.oldest(),
            acked: self.out.acked(),
            held_bytes: self.out.bytes(),
            in_head: self.inbox.head(),
            covered: self.inbox.covered(),
            snapshot: self.snapshot.as_ref().map(|snapshot| snapshot.mark),
        }
    }

    /// Its client has shown itself.
    pub(super) fn see(&mut self, now: Timestamp) {
        (self.vitals.last_activity, self.vitals.unseen_ms) = (now, 0);
    }

    pub(super) fn last_seen(&self) -> Timestamp {
        self.vitals.last_activity - Duration::from_millis(u64::from(self.vitals.unseen_ms))
    }

    /// The same as the record's, without making one.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.vitals.status.due_at(self.vitals.attached, self.vitals.expires_at)
    }

    /// How many ids are remembered, of messages and publications.
    pub fn ids(&self) -> usize {
        self.seen.len() + self.seen_keys.len()
    }

    /// Lets go of what is over the bounds. Nothing may go that is not durable yet: to be called once a
    /// change is durable, or before where it is certain that only older events go.
    pub fn settle(&mut self, bounds: &LogBounds, now: Timestamp) -> Trimmed {
        let (settled, bounds) = (self.grows_old(), self.bounds(bounds));
        self.inbox.trim(&bounds, now);
        self.out.trim(&bounds, settled, now)
    }

    /// Whether a message that is dealt with has outlived its retention, or is over the bounds.
    pub fn has_outlived_messages(&self, bounds: &LogBounds, now: Timestamp) -> bool {
        self.inbox.has_outlived(&self.bounds(bounds), now)
    }

    /// Messages that are dealt with are kept for whoever reads the conversation; in an MCP session nobody
    /// does.
    fn keep_messages_of_agents(&mut self) {
        match self.about.kind {
            Kind::Agent => {}
            Kind::Mcp => self.inbox.forget_kept(),
        }
    }

    /// Everything up to here is acked, or stands in the state. The state of an MCP session stands for no
    /// event.
    pub fn settled(&self) -> Seq {
        let state = self.snapshot.as_ref().filter(|_| self.about.kind == Kind::Agent);
        self.out.acked().max(state.map_or(Seq::ZERO, |snapshot| snapshot.mark.seq))
    }

    /// Everything up to here goes when it has outlived its retention: what is settled; in an MCP session,
    /// where nobody acks, everything.
    pub fn grows_old(&self) -> Seq {
        match self.about.kind {
            Kind::Agent => self.settled(),
            Kind::Mcp => Seq::new(u64::MAX),
        }
    }

    /// The bounds of its out log, where those of all are `bounds`.
    pub fn bounds(&self, bounds: &LogBounds) -> LogBounds {
        match self.about.kind {
            Kind::Agent => *bounds,
            Kind::Mcp => LogBounds { retention: bounds.result_retention, ..*bounds },
        }
    }

    /// Gives up so many bytes of its oldest events, or as many as there are, because all sessions
    /// together hold too much. Never while a change of it is not durable yet.
    pub fn shed(&mut self, what: Shed, bytes: usize) -> Trimmed {
        let settled = self.settled();
        let last = match what {
            Shed::Settled => settled,
            Shed::Anything => self.out.head(),
        };
        self.out.shed(bytes, last, settled)
    }

    /// Begins another incarnation of the out log, because some of what was in it is lost. What can
    /// be proved to be whole stays and is numbered on from.
    ///
    /// The log gets another name too: the id of an event that was lost must not come to mean the
    /// event that got its seq afterwards.
    pub fn begin_epoch(&mut self, epoch: Epoch, log: LogId) {
        self.vitals.log = log;
        self.vitals.epoch = epoch;
        self.vitals.first_epoch = false;
        self.vitals.ack_lost = true;
    }

    /// Whether it goes on.
    pub fn is_active(&self) -> bool {
        matches!(self.vitals.status, Status::Active)
    }

    fn check_generation(&self, generation: Generation) -> Result<(), Stale> {
        if generation == self.vitals.generation {
            return Ok(());
        }
        Err(Stale { named: generation, current: self.vitals.generation })
    }
}
