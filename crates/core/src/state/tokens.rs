//! The reconnect tokens of a session, as far as the store knows them: hashes, expiries and times of
//! use. A token works once; a lost reply may be asked for again; anything else is theft.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SessionState;
use crate::attempt::Attempt;
use crate::ids::Principal;
use crate::limits;
use crate::position::Generation;
use crate::record::{Ending, Record, Status};
use crate::time::Timestamp;
use crate::token::TokenHash;

/// The first use of a token, as far as its answer must be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsed {
    /// When.
    pub at: Timestamp,
    /// The generation that its successor was made for.
    pub generation: Generation,
    /// The token that followed it.
    pub successor: NewToken,
}

/// A token that was given out, or is about to be. The token itself is kept nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    /// Its SHA-256.
    pub hash: TokenHash,
    /// When it ceases to be good.
    pub expires_at: Timestamp,
}

/// A token is presented: its signature, expiry and claims were found good.
#[derive(Clone, Copy, Debug)]
pub struct TokenUse {
    /// Its SHA-256.
    pub hash: TokenHash,
    /// The token that follows it, if this is the first use, made for the generation that is current
    /// before the use.
    pub successor: NewToken,
    /// That generation: part of what the successor was made from.
    pub generation: Generation,
    /// Whether the successor stands for a tool call and is no token: such a call is made again if the server died
    /// before it had noted what followed from it.
    pub by_call: bool,
}

/// A token was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedToken {
    /// Whether it was used for the first time; if not, the reply must have been lost.
    pub first_use: bool,
    /// When it was used first: the successor is made as of that moment.
    pub used_at: Timestamp,
    /// The generation the successor was made for.
    pub generation: Generation,
    /// What the store knows of the successor, by which it is known again when it is made again.
    pub successor: NewToken,
}

/// Why a token that is well made is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It is not one that this session has.
    #[error("the session has no such token")]
    Unknown,
    /// It was used before. All tokens of the session are revoked by now: this fault is a change.
    #[error("the token was used before; all tokens of the session are revoked")]
    Reused,
}

/// The tokens of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Those that can still be used, oldest first.
    live: Vec<NewToken>,
    /// Those that were used and would be good still: kept to know a thief by.
    used: VecDeque<(NewToken, TokenUsed)>,
}

/// The session is renewed by a token over HTTP: nothing is attached, nobody superseded.
#[derive(Clone, Debug)]
pub struct Renew {
    /// Who renews.
    pub principal: Principal,
    /// The token it brought.
    pub token: TokenUse,
    /// The attempt, for the audit trail: written in the same commit if this changes the session.
    pub attempt: Option<Box<Attempt>>,
    /// How long the session is kept from now if nobody attaches.
    pub keep_for: Duration,
    /// Now.
    pub now: Timestamp,
}

/// A session was renewed.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// The session.
    pub record: Record,
    /// What became of the token.
    pub token: UsedToken,
}

/// Why a session is not renewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewRefused {
    /// It belongs to somebody else. To the caller this looks like an unknown one.
    #[error("the session belongs to another principal")]
    Foreign,
    /// It is over.
    #[error("the session has ended")]
    Ended(Ending),
    /// The token is no good.
    #[error("the reconnect token was refused: {0}")]
    Token(#[from] TokenFault),
}

/// There is nothing to give a token for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has ended")]
pub struct SessionOver(pub Ending);

impl Tokens {
    /// Whether the session has, or had, this token.
    pub fn knows(&self, hash: &TokenHash) -> bool {
        self.is_live(hash) || self.first_use_of(hash).is_some()
    }

    /// Remembers a token that is given out. Past the bound the oldest live one goes.
    pub fn put(&mut self, token: NewToken, now: Timestamp) {
        self.live.retain(|known| known.expires_at > now);
        self.used.retain(|(known, _)| known.expires_at > now);
        while self.live.len() >= limits::LIVE_TOKENS {
            self.live.remove(0);
        }
        self.live.reserve_exact(1); // most sessions have one, and there are many
        self.live.push(token);
    }

    /// Uses a token up. `Err(Reused)` has revoked all tokens: it must be stored like a success.
    pub fn use_up(&mut self, token: &TokenUse, now: Timestamp) -> Result<UsedToken, TokenFault> {
        if self.is_live(&token.hash) {
            return Ok(self.first_use(token, now));
        }
        match self.first_use_of(&token.hash) {
            None => Err(TokenFault::Unknown),
            Some(first) if self.reply_was_lost(&first, now) || is_same_call(&first, token) => {
                Ok(UsedToken {
                    first_use: false,
                    used_at: first.at,
                    generation: first.generation,
                    successor: first.successor,
                })
            }
            Some(_) => {
                self.live.clear();
                Err(TokenFault::Reused)
            }
        }
    }

    /// How many are known.
    pub fn count(&self) -> usize {
        self.live.len() + self.used.len()
    }

    /// Those that can still be used.
    pub fn live(&self) -> &[NewToken] {
        &self.live
    }

    /// Those that were used and would be good still, in the order of their use, with when that was.
    pub fn used(&self) -> impl DoubleEndedIterator<Item = (&NewToken, Timestamp)> {
        self.used.iter().map(|(token, used)| (token, used.at))
    }

    fn first_use(&mut self, token: &TokenUse, now: Timestamp) -> UsedToken {
        let TokenUse { generation, successor, .. } = *token;
        if let Some(index) = self.live.iter().position(|known| known.hash == token.hash) {
            let used = TokenUsed { at: now, generation, successor };
            self.used.push_back((self.live.remove(index), used));
        }
        while self.used.len() > limits::USED_TOKENS {
            self.used.pop_front();
        }
        self.put(successor, now);
        UsedToken { first_use: true, used_at: now, generation, successor }
    }

    /// Whether a second use may be a client that never saw the answer to the first: soon after it,
    /// and nobody has used what that answer brought.
    fn reply_was_lost(&self, first: &TokenUsed, now: Timestamp) -> bool {
        let unused = self.is_live(&first.successor.hash);
        now.since(first.at) <= limits::TOKEN_GRACE && unused
    }

    fn is_live(&self, hash: &TokenHash) -> bool {
        self.live.iter().any(|known| known.hash == *hash)
    }

    fn first_use_of(&self, hash: &TokenHash) -> Option<TokenUsed> {
        self.used.iter().find(|(known, _)| known.hash == *hash).map(|(_, used)| *used)
    }
}

/// Whether a tool call that used a token is made again.
fn is_same_call(first: &TokenUsed, again: &TokenUse) -> bool {
    again.by_call && first.successor.hash == again.successor.hash
}

impl<B> SessionState<B> {
    /// Remembers a token that is about to be given out.
    pub fn put_token(&mut self, token: NewToken, now: Timestamp) -> Result<(), SessionOver> {
        if let Some(ending) = self.ending_as_of(now) {
            return Err(SessionOver(ending));
        }
        self.tokens.put(token, now);
        Ok(())
    }

    /// Applies a [`Renew`].
    pub fn renew(&mut self, renew: &Renew) -> Result<Renewed, RenewRefused> {
        if renew.principal != self.about.principal {
            return Err(RenewRefused::Foreign);
        }
        if !self.tokens.knows(&renew.token.hash) {
            return Err(TokenFault::Unknown.into());
        }
        if let Some(ending) = self.ending_as_of(renew.now) {
            return Err(RenewRefused::Ended(ending));
        }
        let token = self.tokens.use_up(&renew.token, renew.now)?;
        self.vitals.reconnect_count += u64::from(token.first_use);
        self.see(renew.now);
        let until = renew.now + renew.keep_for;
        self.vitals.expires_at = self.vitals.expires_at.max(until);
        Ok(Renewed { record: self.record(), token })
    }

    /// How the session ended, also if its time has run out and nobody has noticed yet.
    pub(super) fn ending_as_of(&self, now: Timestamp) -> Option<Ending> {
        match &self.vitals.status {
            Status::Ended { ending, .. } => Some(ending.clone()),
            Status::Active => {
                let due = self.vitals.attached.is_none() && self.vitals.expires_at <= now;
                due.then_some(Ending::Expired)
            }
        }
    }
}
