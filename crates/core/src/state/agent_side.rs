//! What the process that runs a session's agent does to it: take the lease, append. All of it is
//! guarded by the term, so that a process that was thought dead can't write after its successor.

use std::time::Duration;

use super::{OverBound, SessionState, Snapshot};
use crate::ids::ProcessId;
use crate::log::{Held, MessageDigest, RememberedKey, Weight};
use crate::position::{InSeq, Seq, Term};
use crate::record::{Ending, Lease, SnapshotMark, Status};
use crate::time::Timestamp;

/// A process wants to run the session's agent.
#[derive(Clone, Debug)]
pub struct TakeLease {
    /// The process.
    pub holder: ProcessId,
    /// How long nobody else may take it.
    pub lasts: Duration,
    /// Now.
    pub now: Timestamp,
}

/// Another process runs the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseHeld {
    /// And has the right to for a while.
    #[error("{} runs this session until {}", .0.holder, .0.until)]
    ByOther(Lease),
    /// There is nothing to run.
    #[error("the session has ended")]
    Ended(Ending),
}

/// The agent speaks, and may set its state and say which entries it has dealt with. All of it is
/// stored together or not at all.
#[derive(Clone, Debug)]
pub struct Append<B> {
    /// The term the process has.
    pub term: Term,
    /// The seq that the first event gets. The log must be exactly there.
    pub first: Seq,
    /// The events; may be none if there is a state or a cover.
    pub events: Vec<NewEvent<B>>,
    /// The agent's state after these events.
    pub snapshot: Option<NewSnapshot<B>>,
    /// Entries up to here are dealt with. It only grows; less than before changes nothing.
    pub covers: Option<InSeq>,
    /// Entries that are dealt with one by one, whatever waits before them.
    pub answered: Vec<InSeq>,
    /// Whether the agent itself said so, and it was not only handed the next one.
    pub named: bool,
    /// What it is known by, if it may be sent again: it is appended once.
    pub key: Option<MessageDigest>,
    /// Now.
    pub now: Timestamp,
}

/// An event that is to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent<B> {
    /// What it counts against the bounds.
    pub weight: Weight,
    /// Where its body is.
    pub body: B,
}

/// A state that is to be kept.
#[derive(Clone, Debug)]
pub struct NewSnapshot<B> {
    /// Its size in bytes.
    pub size: u32,
    /// Where its body is.
    pub body: B,
}

/// Events are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The last event there is now.
    pub head: Seq,
    /// Entries that are covered now.
    pub covered: InSeq,
    /// Where the state stands that came with it, if one did.
    pub snapshot: Option<SnapshotMark>,
    /// The first time, if it was appended before under the same key: then nothing has changed.
    pub before: Option<RememberedKey>,
    /// Whether an agent of the session has ever named an entry.
    pub named: bool,
}

/// Why nothing was appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefused {
    /// Another process has taken the lease.
    #[error("term {named} was fenced; the present one is {current}")]
    Fenced {
        /// What was named.
        named: Term,
        /// What is.
        current: Term,
    },
    /// The log is elsewhere than the writer believes.
    #[error("the next event is {expected}, not {named}")]
    NotAtHead {
        /// What was named.
        named: Seq,
        /// What would be right.
        expected: Seq,
    },
    /// Something else was appended under the same key.
    #[error("that idempotency key was used for something else, events {first} to {last}")]
    OtherContent {
        /// Its first event.
        first: Seq,
        /// Its last.
        last: Seq,
    },
    /// A state came with it, and the principal or the server holds as much as it may.
    #[error(transparent)]
    OverBound(#[from] OverBound),
    /// The store takes nothing new for now: its disk is nearly full, or another program has it locked.
    #[error("the store takes no new events for now; try again later")]
    Paused,
    /// The session is over.
    #[error("the session has ended")]
    Ended(Ending),
}

impl<B> SessionState<B> {
    /// Applies a [`TakeLease`]. Whoever has it gets the same term again.
    pub fn take_lease(&mut self, take: &TakeLease) -> Result<Term, LeaseHeld> {
        if let Status::Ended { ending, .. } = &self.vitals.status {
            return Err(LeaseHeld::Ended(ending.clone()));
        }
        let same = match &self.vitals.lease {
            Some(lease) if lease.holder == take.holder => true,
            Some(lease) if lease.until > take.now => return Err(LeaseHeld::ByOther(lease.clone())),
            Some(_) | None => false,
        };
        if !same {
            self.vitals.term = self.vitals.term.next();
        }
        let until = take.now + take.lasts;
        self.vitals.lease = Some(Lease { holder: take.holder.clone(), until });
        Ok(self.vitals.term)
    }

    /// Gives the lease back, so that another process need not wait. The term stays: the next holder
    /// gets another one.
    pub fn give_up_lease(&mut self, term: Term) {
        if term == self.vitals.term {
            self.vitals.lease = None;
        }
    }

    /// Whether [`SessionState::append`] would take it, wherever its bodies are; if it was appended
    /// before, that is the answer.
    pub fn check_append<C>(&self, append: &Append<C>) -> Result<Option<Appended>, AppendRefused> {
        if append.term != self.vitals.term {
            let (named, current) = (append.term, self.vitals.term);
            return Err(AppendRefused::Fenced { named, current });
        }
        if let Status::Ended { ending, .. } = &self.vitals.status {
            return Err(AppendRefused::Ended(ending.clone()));
        }
        let expected = self.out.head().next();
        if append.first != expected {
            return Err(AppendRefused::NotAtHead { named: append.first, expected });
        }
        let before = append.key.as_ref().and_then(|key| self.seen_keys.find(key)).copied();
        match before {
            Some(RememberedKey { digest, first, last, .. }) if Some(digest) != append.key => {
                Err(AppendRefused::OtherContent { first, last })
            }
            Some(before) => {
                let (head, covered) = (self.out.head(), self.inbox.covered());
                let (snapshot, named) = (None, self.vitals.named);
                Ok(Some(Appended { head, covered, snapshot, named, before: Some(before) }))
            }
            None => Ok(None),
        }
    }

    /// Remembers that everything from `first` on was appended under a key.
    pub fn remember_key(
        &mut self,
        digest: MessageDigest,
        first: Seq,
        now: Timestamp,
    ) -> RememberedKey {
        let remembered = RememberedKey { digest, first, last: self.out.head(), at: now };
        self.seen_keys.remember(remembered, now);
        remembered
    }

    /// Applies an [`Append`].
    pub fn append(&mut self, append: Append<B>) -> Result<Appended, AppendRefused> {
        if let Some(before) = self.check_append(&append)? {
            return Ok(before);
        }
        let names_some = append.covers.is_some() || !append.answered.is_empty();
        for NewEvent { weight, body } in append.events {
            self.out.push(Held { at: append.now, weight, body });
        }
        if let Some(in_seq) = append.covers {
            self.inbox.cover(in_seq);
        }
        for in_seq in append.answered {
            self.inbox.answer(in_seq);
        }
        self.keep_messages_of_agents();
        if let Some(digest) = append.key {
            self.remember_key(digest, append.first, append.now);
        }
        let (head, covered) = (self.out.head(), self.inbox.covered());
        self.vitals.named |= append.named && names_some;
        let mark = SnapshotMark { seq: head, in_seq: covered, at: append.now };
        let snapshot = append.snapshot.map(|NewSnapshot { size, body }| {
            self.snapshot = Some(Snapshot { mark, size, body });
            mark
        });
        let named = self.vitals.named;
        Ok(Appended { head, covered, snapshot, named, before: None })
    }
}
