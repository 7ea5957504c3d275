//! What a client does to its session: attach, detach, ack, send. All of it is guarded by the
//! generation, so that a connection that was replaced can do no harm.

use std::time::Duration;

use super::{OverBound, SessionState, TokenFault, TokenUse, UsedToken};
use crate::attempt::Attempt;
use crate::ids::Principal;
use crate::lifetime::{Lifetime, Verdict};
use crate::limits;
use crate::log::{Entry, EntryKind, MessageDigest, Remembered};
use crate::position::{Generation, InSeq, Seq};
use crate::record::{Ending, Record, Transport};
use crate::time::Timestamp;

/// A client attaches: the generation goes up, whoever was attached before is superseded.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Who attaches. It must be the session's owner.
    pub principal: Principal,
    /// How.
    pub transport: Transport,
    /// What becomes of somebody who is attached already.
    pub takeover: Takeover,
    /// The reconnect token it brought, if any; it was verified and is used up here.
    pub token: Option<TokenUse>,
    /// The attempt, for the audit trail: written in the same commit if this changes the session.
    pub attempt: Option<Box<Attempt>>,
    /// Now.
    pub now: Timestamp,
}

/// What becomes of a client that is attached when another one comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The later one wins.
    Replace,
    /// The later one is refused, unless it brings a valid token.
    Reject,
}

/// A client is attached.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The session, under its new generation.
    pub record: Record,
    /// Whether somebody else was attached.
    pub superseded: bool,
    /// What became of the token it brought.
    pub token: Option<UsedToken>,
    /// When its client was last known to be there before this.
    pub was_seen: Timestamp,
}

/// Why a client can't attach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefused {
    /// It belongs to somebody else. To the caller this looks like an unknown one.
    #[error("the session belongs to another principal")]
    Foreign,
    /// It is over.
    #[error("the session has ended")]
    Ended(Ending),
    /// Somebody is attached, and the later one does not win.
    #[error("another connection is attached to the session")]
    AlreadyAttached,
    /// The token is no good.
    #[error("the reconnect token was refused: {0}")]
    Token(#[from] TokenFault),
}

/// A client has gone; the session is parked.
#[derive(Clone, Copy, Debug)]
pub struct Detach {
    /// The generation that has gone.
    pub generation: Generation,
    /// What decides how long the session is kept for it. Decided where the session is changed: whether work is under
    /// way must not change in between.
    pub lifetime: Lifetime,
    /// Now.
    pub now: Timestamp,
}

/// A client has received everything up to a seq.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The generation that says so.
    pub generation: Generation,
    /// The seq.
    pub seq: Seq,
}

/// Why an ack has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckRefused {
    /// The connection was replaced.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// It acks what was never sent.
    #[error("{acked} was acked but the last event is {head}")]
    Ahead {
        /// The seq that was named.
        acked: Seq,
        /// The last event there is.
        head: Seq,
    },
}

/// The generation that was named is not the present one: the connection was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("generation {named} was replaced; the present one is {current}")]
pub struct Stale {
    /// What was named.
    pub named: Generation,
    /// What is.
    pub current: Generation,
}

/// A client sends something to the agent.
#[derive(Clone, Debug)]
pub struct Enter<B> {
    /// The generation that sends it; none for messages over HTTP, which attach nothing.
    pub generation: Option<Generation>,
    /// What it is.
    pub kind: EntryKind,
    /// Its id and content, if it has an id: the same id is entered once.
    pub digest: Option<MessageDigest>,
    /// What it counts against the bound in bytes.
    pub size: u32,
    /// Where its body is.
    pub body: B,
    /// How many bytes may wait for the agent.
    pub max_waiting_bytes: usize,
    /// How long the session lives on from here if no client is attached.
    pub keep_for: Duration,
    /// Now.
    pub now: Timestamp,
}

/// A message is in the in log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Its number.
    pub in_seq: InSeq,
    /// Whether it was there before.
    pub duplicate: bool,
}

/// Why a message is not entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnterRefused {
    /// The connection was replaced.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The session is over.
    #[error("the session has ended")]
    Ended(Ending),
    /// The id was used for something else.
    #[error("message {in_seq} has the same message_id and other content")]
    OtherContent {
        /// The number of the first one.
        in_seq: InSeq,
    },
    /// The principal or the server holds as much as it may.
    #[error(transparent)]
    OverBound(#[from] OverBound),
    /// The store takes nothing new for now: its disk is nearly full, or another program has it locked.
    #[error("the store takes no new messages for now; try again later")]
    Paused,
    /// Too much waits for the agent.
    #[error("{waiting} messages wait for the agent; try again when it has caught up")]
    Full {
        /// How many.
        waiting: usize,
    },
}

impl<B> SessionState<B> {
    /// Applies an [`Attach`]. `Err(Token(Reused))` has revoked tokens: it must be stored.
    pub fn attach(&mut self, attach: &Attach) -> Result<Attached, AttachRefused> {
        if attach.principal != self.about.principal {
            return Err(AttachRefused::Foreign);
        }
        if let Some(token) = &attach.token
            && !self.tokens.knows(&token.hash)
        {
            return Err(TokenFault::Unknown.into());
        }
        if let Some(ending) = self.ending_as_of(attach.now) {
            return Err(AttachRefused::Ended(ending));
        }
        let superseded = self.vitals.attached.is_some();
        if superseded && attach.takeover == Takeover::Reject && attach.token.is_none() {
            return Err(AttachRefused::AlreadyAttached);
        }
        let token = match &attach.token {
            Some(token) => Some(self.tokens.use_up(token, attach.now)?),
            None => None,
        };
        let counts = token.as_ref().is_none_or(|used| used.first_use);
        let comes_back = self.vitals.generation > Generation::ZERO;
        self.vitals.reconnect_count += u64::from(counts && comes_back);
        let generation = self.vitals.generation.next();
        self.vitals.generation = generation;
        self.vitals.attached = Some(attach.transport);
        let was_seen = self.last_seen();
        self.see(attach.now);
        Ok(Attached { record: self.record(), superseded, token, was_seen })
    }

    /// Applies a [`Detach`]; says what becomes of the session, or nothing if it was parked already.
    pub fn detach(&mut self, detach: &Detach) -> Result<Option<Verdict>, Stale> {
        let Detach { generation, lifetime, now } = *detach;
        self.check_generation(generation)?;
        if self.vitals.attached.take().is_none() {
            return Ok(None);
        }
        self.see(now);
        let verdict = lifetime.on_detach(&self.record(), now);
        self.vitals.expires_at = match verdict {
            Verdict::End => now + limits::END_FOLLOWS,
            Verdict::KeepUntil(until) => until,
        };
        Ok(Some(verdict))
    }

    /// Applies an [`Ack`].
    pub fn ack(&mut self, ack: &Ack) -> Result<(), AckRefused> {
        self.check_generation(ack.generation)?;
        if ack.seq > self.out.head() {
            return Err(AckRefused::Ahead { acked: ack.seq, head: self.out.head() });
        }
        self.out.ack(ack.seq);
        self.vitals.ack_lost = false;
        Ok(())
    }

    /// Whether [`SessionState::enter`] would take it, and under which number it is known already.
    pub fn check_enter<C>(&self, enter: &Enter<C>) -> Result<Option<Entered>, EnterRefused> {
        if let Some(generation) = enter.generation {
            self.check_generation(generation)?;
        }
        if let Some(ending) = self.ending_as_of(enter.now) {
            return Err(EnterRefused::Ended(ending));
        }
        if let Some(first) = enter.digest.as_ref().and_then(|digest| self.seen.find(digest)) {
            if enter.digest != Some(first.digest) {
                return Err(EnterRefused::OtherContent { in_seq: first.in_seq });
            }
            return Ok(Some(Entered { in_seq: first.in_seq, duplicate: true }));
        }
        let waiting = self.inbox.waiting();
        let bytes = self.inbox.bytes() + enter.size as usize;
        let full = waiting > 0 && bytes > enter.max_waiting_bytes;
        if full || waiting >= limits::WAITING_ENTRIES {
            return Err(EnterRefused::Full { waiting });
        }
        Ok(None)
    }

    /// Applies an [`Enter`].
    pub fn enter(&mut self, enter: Enter<B>) -> Result<Entered, EnterRefused> {
        if let Some(duplicate) = self.check_enter(&enter)? {
            return Ok(duplicate);
        }
        let Enter { kind, size, body, now, .. } = enter;
        let in_seq = self.inbox.push(Entry { kind, at: now, size, body });
        if let Some(digest) = enter.digest {
            self.seen.remember(Remembered { digest, in_seq, at: now }, now);
        }
        self.see(now);
        self.vitals.expires_at = self.vitals.expires_at.max(now + enter.keep_for);
        Ok(Entered { in_seq, duplicate: false })
    }
}
