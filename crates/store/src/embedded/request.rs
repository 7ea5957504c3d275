//! What callers ask for, and how they are answered.

use std::fmt;

use rejoin_core::record::Record;
use rejoin_core::state::{
    Append, AppendRefused, Appended, Create, Enter, EnterRefused, Entered, Restore, RestoreRefused,
    SessionState,
};
use rejoin_core::{InSeq, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::piece::Piece;
use super::slot::{Touches, Trace};
use crate::audit::AuditRecord;
use crate::contract::{Body, CreateRefused, Failure, Restoration, Unavailable};

/// Where the answer to a request goes.
pub(super) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// One thing to be done.
pub(super) enum Request {
    Append(SessionId, Append<Body>, Reply<Appended, Failure<AppendRefused>>),
    Enter(SessionId, Entering, Reply<Entered, Failure<EnterRefused>>),
    Change(SessionId, Change),
    Create(Box<Create>, Reply<Record, Failure<CreateRefused>>),
    Forget(SessionId, Timestamp, Reply<(), Unavailable>),
    Restore(Box<Restore<Body>>, Reply<Restoration, Failure<RestoreRefused>>),
    Audit(Box<AuditRecord>, Reply<(), Unavailable>),
    /// Events have gone without a commit: the writer looks whether rows of the journal may go too.
    TidyUp(Reply<(), Unavailable>),
    Close(Reply<(), Unavailable>),
}

/// A message, and who wants to know its number before it is durable.
pub(super) struct Entering {
    pub(super) enter: Enter<Body>,
    pub(super) early: Option<oneshot::Sender<InSeq>>,
}

/// A change of one session that writes nothing to its logs.
pub(super) struct Change {
    /// A session that must be active, or this one counts as unknown.
    pub(super) beside: Option<SessionId>,
    /// What it does to what readers see.
    pub(super) touches: Touches,
    /// As of when the out log is trimmed afterwards.
    pub(super) settle_at: Option<Timestamp>,
    /// Applies it, if the session is known, and says what to write down and what to answer.
    pub(super) apply: ApplyChange,
}

type ApplyChange = Box<dyn FnOnce(Option<&mut SessionState<Piece>>) -> Applied + Send + 'static>;

/// What a change leaves behind besides what it did to the session.
pub(super) struct Applied {
    pub(super) trace: Trace,
    /// For the audit trail, in the same commit.
    pub(super) audit: Option<AuditRecord>,
    pub(super) answer: Answer,
}

/// An answer that is given once the commit has returned. A refusal waits as well: it may be due to
/// something that is not durable yet.
pub(super) enum Answer {
    Append(Reply<Appended, Failure<AppendRefused>>, Result<Appended, Failure<AppendRefused>>),
    Enter(Reply<Entered, Failure<EnterRefused>>, Result<Entered, Failure<EnterRefused>>),
    Other(Box<dyn FnOnce(Result<(), Unavailable>) + Send + 'static>),
}

impl Request {
    /// How many bytes of bodies it carries.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(_, append, _) => {
                let events: usize = append.events.iter().map(|event| event.body.len()).sum();
                events + append.snapshot.as_ref().map_or(0, |snapshot| snapshot.body.len())
            }
            Self::Enter(_, entering, _) => entering.enter.body.len(),
            Self::Restore(restore, _) => restore.state.body.len(),
            Self::Change(..)
            | Self::Create(..)
            | Self::Forget(..)
            | Self::Audit(..)
            | Self::TidyUp(_)
            | Self::Close(_) => 0,
        }
    }
}

impl Request {
    /// The one session that it is about, if there is one.
    pub(super) fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Append(id, ..)
            | Self::Enter(id, ..)
            | Self::Change(id, ..)
            | Self::Forget(id, ..) => Some(id),
            Self::Create(..)
            | Self::Restore(..)
            | Self::Audit(..)
            | Self::TidyUp(_)
            | Self::Close(_) => None,
        }
    }

    /// Whether it must wait until no commit is under way: it looks at several sessions.
    pub(super) fn needs_quiet(&self) -> bool {
        match self {
            Self::Restore(..) | Self::Close(_) => true,
            Self::Append(..)
            | Self::Enter(..)
            | Self::Change(..)
            | Self::Create(..)
            | Self::Forget(..)
            | Self::TidyUp(_)
            | Self::Audit(..) => false,
        }
    }
}

impl Answer {
    /// An answer of any kind.
    pub(super) fn new<T, E>(reply: Reply<T, E>, outcome: Result<T, E>) -> Self
    where
        T: Send + 'static,
        E: From<Unavailable> + Send + 'static,
    {
        Self::Other(Box::new(move |committed| send(reply, outcome, committed)))
    }

    /// Gives it, or says why it can't be given.
    pub(super) fn give(self, committed: Result<(), Unavailable>) {
        match self {
            Self::Append(reply, outcome) => send(reply, outcome, committed),
            Self::Enter(reply, outcome) => send(reply, outcome, committed),
            Self::Other(give) => give(committed),
        }
    }
}

fn send<T, E: From<Unavailable>>(
    reply: Reply<T, E>,
    outcome: Result<T, E>,
    committed: Result<(), Unavailable>,
) {
    // A caller that has gone is of no concern: what it asked for is done all the same.
    let _ = reply.send(committed.map_err(E::from).and(outcome));
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append(..) => "Append",
            Self::Enter(..) => "Enter",
            Self::Change(..) => "Change",
            Self::Create(..) => "Create",
            Self::Forget(..) => "Forget",
            Self::Restore(..) => "Restore",
            Self::Audit(..) => "Audit",
            Self::TidyUp(_) => "TidyUp",
            Self::Close(_) => "Close",
        })
    }
}
