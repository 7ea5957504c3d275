//! Coming back to a session. Who it is and what it brought is checked before anything is looked up,
//! every attempt counts against a budget and leaves one audit record with its true reason.

use std::net::IpAddr;
use std::time::Duration;

use rejoin_core::codes::Reason;
use rejoin_core::position::SeqRange;
use rejoin_core::record::{Kind, Record, Transport};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::session::{Confirmed, Tell};
use rejoin_core::state::{NewToken, Renew, Renewed, TokenUse, UsedToken};
use rejoin_core::token::{self, Claims, Grant, TokenRefusal};
use rejoin_core::{Generation, InSeq, Principal, SessionId, Timestamp};
use rejoin_store::Unavailable;
use rejoin_store::audit::AuditRecord;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use super::rate::Rate;
use super::speak::agents_only;
use super::{Denial, Service, TokenProblem, Visitor, transport_word};
use crate::attachment::{Attachment, Told};
use crate::random;
use crate::sessions::Client;
use crate::timeline::Return;

/// The budgets of attempts.
#[derive(Debug)]
pub(super) struct Attempts {
    session_failures: Rate<SessionId>,
    session_successes: Rate<SessionId>,
    principal_failures: Rate<Principal>,
    address_failures: Rate<IpAddr>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            session_failures: Rate::per_minute(10),
            session_successes: Rate::per_minute(60),
            principal_failures: Rate::per_minute(30),
            address_failures: Rate::per_minute(30),
        }
    }
}

impl Attempts {
    /// Counts a failure; says how long to wait once a budget of failures is spent.
    fn failed(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let by_session = named.map_or(Ok(()), |id| self.session_failures.take(id.clone(), now));
        let by_principal = self.principal_failures.take(visitor.caller.principal.clone(), now);
        let by_address =
            visitor.address.map_or(Ok(()), |address| self.address_failures.take(address, now));
        by_session.and(by_principal).and(by_address)
    }
}

/// The longest between making a token's successor and storing it; a store slower than that costs the
/// client a token, not its session.
const MADE_BEFORE_USE: Duration = Duration::from_secs(30);

/// What a client brings to come back.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Where it wants to go on.
    pub asked: Asked,
    /// The reconnect token it brought.
    pub token: Option<String>,
}

/// A client is attached again: everything that its transport tells it first.
#[derive(Debug)]
pub struct Joined {
    /// The attachment, of which the confirmation has been taken out.
    pub attachment: Attachment,
    /// The confirmation.
    pub confirmed: Box<Confirmed>,
    /// The next reconnect token.
    pub token: Issued,
}

/// A reconnect token for a client.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The token.
    pub token: token::Token,
    /// When it ceases to be good.
    pub expires_at: Timestamp,
}

/// A session was renewed by a token, without attaching.
#[derive(Debug)]
pub struct Renewal {
    /// The session.
    pub record: Record,
    /// The next token.
    pub token: Issued,
    /// When the token that was brought was used first. If that was before, its reply was lost.
    pub first_used: Timestamp,
}

/// A token that was presented and is good, as far as its text says.
pub(super) struct Presented {
    text: String,
    claims: Claims,
    /// The tool call that brings it, if one does.
    call: Option<CallName>,
}

/// Names a tool call: the session in which it is made, and its entry there.
pub(crate) type CallName = (SessionId, InSeq);

impl Service {
    /// Attaches the caller to a session that was made for it just now.
    pub async fn join_new(
        &self,
        visitor: &Visitor,
        made: &Record,
        transport: Transport,
    ) -> Result<Joined, Denial> {
        let (id, over) = (made.id(), visitor.over);
        let span = debug_span!(target: "rejoin", "attach", session = %id, transport = over);
        self.attach(visitor, made, transport, None, None).instrument(span).await
    }

    /// Attaches the caller to a session of its own that was there before.
    pub async fn join(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        transport: Transport,
        admission: Admission,
    ) -> Result<Joined, Denial> {
        let id = &self.meant(visitor, id).await?;
        let attempt = self.try_join(visitor, id, transport, admission);
        let attempt = self.attempt(visitor, Some(id), "reconnect", attempt);
        attempt.instrument(resume_span(id, visitor)).await
    }

    async fn try_join(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        transport: Transport,
        admission: Admission,
    ) -> Result<Joined, Denial> {
        self.check_open()?; // before the token is looked at: it is good for the next attempt
        let now = self.now();
        let Admission { asked, token } = admission;
        let presented = match token.map(|text| self.judge(text, id, now)) {
            None => None,
            Some(Ok(presented)) => Some(presented),
            // Merely late: as if it had brought none, unless it needs one.
            Some(Err(TokenRefusal::Expired { otherwise_good: true })) => {
                return self.join_late(visitor, id, transport, asked).await;
            }
            Some(Err(refusal)) => return Err(refusal.into()),
        };
        let record = self.own(visitor, id).await?;
        agents_only(&record)?;
        self.budget_success(id, now)?;
        self.attach(visitor, &record, transport, Some(asked), presented).await
    }

    /// Counts what a client that came back was away and missed.
    fn count_return(&self, before: &Record, confirmed: &Confirmed) {
        let parked = before.attached.is_none() && before.generation > Generation::ZERO;
        let away = parked.then(|| self.now().since(before.last_activity));
        let replayed = confirmed.record.head.next().steps_from(confirmed.replay_from);
        let lost = match confirmed.gap {
            Some(Gap::Evicted { lost, .. }) => lost.map_or(0, SeqRange::count),
            Some(Gap::PositionUnknown) | None => 0,
        };
        self.sessions().counted().returned_to_driver(away, replayed, lost);
        let gap = confirmed.gap;
        self.sessions().came_back(&confirmed.record, Return { away, replayed, gap, lost });
    }

    /// With a token that has expired and is good otherwise.
    async fn join_late(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        transport: Transport,
        asked: Asked,
    ) -> Result<Joined, Denial> {
        let record = self.own(visitor, id).await?;
        agents_only(&record)?;
        self.budget_success(id, self.now())?;
        let joined = self.attach(visitor, &record, transport, Some(asked), None).await;
        joined.map_err(|denial| {
            let needs_one = denial == Denial::AlreadyAttached;
            if needs_one { Denial::Token(TokenProblem::Expired) } else { denial }
        })
    }

    /// Renews a session by a token, without attaching.
    pub async fn renew(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        token: String,
    ) -> Result<Renewal, Denial> {
        let id = &self.meant(visitor, id).await?;
        let attempt = self.try_renew(visitor, id, token, None, |_| true);
        let attempt = async { self.next_token(attempt.await?) };
        let attempt = self.attempt(visitor, Some(id), "reconnect", attempt);
        attempt.instrument(resume_span(id, visitor)).await
    }

    /// The same for a session of MCP, by whatever the client takes for its id. The call that brings the token may be
    /// made again after a crash: then it has used the token itself.
    pub(crate) async fn renew_mcp(
        &self,
        visitor: &Visitor,
        name: &str,
        token: String,
        call: CallName,
    ) -> Result<Renewed, Denial> {
        let id = &self.meant(visitor, &id_or_impossible(name)?).await?;
        let is_mcp = |record: &Record| record.about.kind == Kind::Mcp;
        let attempt = self.try_renew(visitor, id, token, Some(call), is_mcp);
        let attempt = async { Ok(attempt.await?.0) };
        let attempt = self.attempt(visitor, Some(id), "reconnect", attempt);
        attempt.instrument(resume_span(id, visitor)).await
    }

    async fn try_renew(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        token: String,
        call: Option<CallName>,
        fits: impl FnOnce(&Record) -> bool,
    ) -> Result<(Renewed, Presented), Denial> {
        self.check_open()?;
        let now = self.now();
        let presented = Presented { call, ..self.judge(token, id, now)? };
        let record = self.own(visitor, id).await?;
        if !fits(&record) {
            return Err(Denial::NotFound);
        }
        self.budget_success(id, now)?;
        let renewed = self.use_up(visitor, &record, &presented).await?;
        Ok((renewed, presented))
    }

    fn next_token(&self, (renewed, presented): (Renewed, Presented)) -> Result<Renewal, Denial> {
        let token = self.successor(&presented, &renewed.token)?;
        Ok(Renewal { record: renewed.record, token, first_used: renewed.token.used_at })
    }

    /// Uses a token up in a session that was `record` a moment ago, without attaching.
    pub(super) async fn use_up(
        &self,
        visitor: &Visitor,
        record: &Record,
        presented: &Presented,
    ) -> Result<Renewed, Denial> {
        let now = self.now();
        let renew = Renew {
            principal: visitor.caller.principal.clone(),
            token: self.token_use(presented, record.generation, now),
            keep_for: self.sessions().settings().session.lifetime.session_ttl,
            now,
        };
        let renewed = self.sessions().store().renew(record.id(), renew).await?;
        if record.about.kind == Kind::Mcp {
            self.sessions().hubs().token_used(record.id());
        }
        Ok(renewed)
    }

    /// A new token for a session that the caller may use.
    pub async fn issue_token(&self, visitor: &Visitor, id: &SessionId) -> Result<Issued, Denial> {
        let record = self.active(visitor, id).await?;
        self.issue(&record).await
    }

    /// A new token for the client that is attached to a session.
    pub async fn issue(&self, record: &Record) -> Result<Issued, Denial> {
        let (keys, now) = (self.keys(), self.now());
        let grant = Grant {
            session_id: record.id().clone(),
            principal: record.about.principal.clone(),
            generation: record.generation,
            lifetime: self.sessions().settings().session.token_ttl,
        };
        let issued = token::issue(&keys, &grant, random::bytes()?, now);
        let new = NewToken { hash: issued.hash, expires_at: issued.expires_at };
        self.sessions().store().put_token(record.id(), new, now).await?;
        Ok(Issued { token: issued.token, expires_at: issued.expires_at })
    }

    /// Attaches, and takes the confirmation out of what the client is told.
    async fn attach_to(
        &self,
        visitor: &Visitor,
        id: &SessionId,
        transport: Transport,
        asked: Option<Asked>,
        token: Option<TokenUse>,
    ) -> Result<(Attachment, Box<Confirmed>), Denial> {
        let principal = visitor.caller.principal.clone();
        let client = Client { principal, transport, asked, token };
        let Ok(mut attachment) = self.sessions().attach(id, client).await else {
            return Err(self.why_not_served(id).await);
        };
        loop {
            match attachment.next().await {
                Some(Told::Tell(Tell::Confirmed(confirmed))) => return Ok((attachment, confirmed)),
                Some(Told::Tell(Tell::Refused(refused))) => return Err(refused.into()),
                Some(Told::Tell(Tell::Superseded)) => return Err(Denial::Superseded),
                // A heartbeat may come before a slow store has answered.
                Some(Told::Tell(_)) => {}
                Some(Told::Leave(_)) | None => return Err(self.why_not_served(id).await),
            }
        }
    }

    /// Why nobody answers for a session: it may have ended just now, which is no failure of the store.
    async fn why_not_served(&self, id: &SessionId) -> Denial {
        match self.sessions().store().session(id).await {
            Ok(Some(record)) => {
                super::ending(&record, self.now()).map_or(Denial::Unavailable, Denial::Ended)
            }
            Ok(None) => Denial::NotFound,
            Err(_) => Denial::Unavailable,
        }
    }

    /// Attaches to a session that was `record` a moment ago.
    pub(super) async fn attach(
        &self,
        visitor: &Visitor,
        record: &Record,
        transport: Transport,
        asked: Option<Asked>,
        presented: Option<Presented>,
    ) -> Result<Joined, Denial> {
        let (id, now) = (record.id(), self.now());
        // What the attach will make, if no other comes in between.
        let generation = record.generation.next();
        let token = presented.as_ref().map(|token| self.token_use(token, generation, now));
        let (attachment, confirmed) = self.attach_to(visitor, id, transport, asked, token).await?;
        if confirmed.resumed {
            self.count_return(record, &confirmed);
        }
        let token = match (&presented, &confirmed.token) {
            (Some(presented), Some(used)) => self.successor(presented, used)?,
            (_, _) => self.issue(&confirmed.record).await?,
        };
        Ok(Joined { attachment, confirmed, token })
    }

    pub(super) fn judge(
        &self,
        text: String,
        id: &SessionId,
        now: Timestamp,
    ) -> Result<Presented, TokenRefusal> {
        let claims = token::verify(&self.keys(), &text, id, now)?;
        Ok(Presented { text, claims, call: None })
    }

    /// A session of the caller's own. An administrator sees everybody's, but comes back to its own.
    pub(crate) async fn own(&self, visitor: &Visitor, id: &SessionId) -> Result<Record, Denial> {
        let id = self.meant(visitor, id).await?;
        let record = self.sessions().store().session(&id).await?.ok_or(Denial::NotFound)?;
        let own = record.about.principal == visitor.caller.principal;
        if own { Ok(record) } else { Err(Denial::NotFound) }
    }

    pub(super) fn budget_success(&self, id: &SessionId, now: Timestamp) -> Result<(), Denial> {
        let budget = self.inner.attempts.session_successes.take(id.clone(), now);
        budget.map_err(|retry_after| Denial::RateLimited { retry_after })
    }

    /// The use of a token whose successor is for this generation.
    pub(super) fn token_use(
        &self,
        presented: &Presented,
        generation: Generation,
        now: Timestamp,
    ) -> TokenUse {
        let Presented { text, claims, call } = presented;
        let hash = token::TokenHash::of(text);
        if let Some((session, in_seq)) = call {
            // Nobody is given a successor; what stands for it says which call has used the token.
            let named = token::TokenHash::of(&format!("{text}\n{session}\n{in_seq}"));
            let successor = NewToken { hash: named, expires_at: claims.expires_at };
            return TokenUse { hash, successor, generation, by_call: true };
        }
        let lifetime = self.sessions().settings().session.token_ttl;
        let next = token::successor(&self.keys(), text, claims, generation, now, lifetime);
        let successor = NewToken { hash: next.hash, expires_at: next.expires_at };
        TokenUse { hash, successor, generation, by_call: false }
    }

    /// The token that follows one that was used, made again from what the store knows of it. It was
    /// made shortly before the use was stored, so maybe in the second before.
    fn successor(&self, presented: &Presented, used: &UsedToken) -> Result<Issued, Denial> {
        let Presented { text, claims, .. } = presented;
        let (keys, expected) = (self.keys(), &used.successor.hash);
        let again = (0..=MADE_BEFORE_USE.as_secs()).find_map(|seconds| {
            let made_at = Timestamp::from_millis(used.used_at.as_secs() * 1000)
                - Duration::from_secs(seconds);
            let lifetime = used.successor.expires_at.since(made_at);
            let generation = used.generation;
            token::successor_again(&keys, text, claims, generation, made_at, lifetime, expected)
        });
        // If there is none, the key that made it was retired within the ten seconds.
        let issued = again.ok_or(Denial::Token(TokenProblem::Unknown))?;
        Ok(Issued { token: issued.token, expires_at: issued.expires_at })
    }

    /// Makes an attempt: a failure counts, and every attempt is written down. `named` is the session, as
    /// far as one is known.
    pub(super) async fn attempt<T>(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        action: &'static str,
        attempt: impl Future<Output = Result<T, Denial>>,
    ) -> Result<T, Denial> {
        let outcome = attempt.await;
        let now = self.now();
        // That a token was stolen is not hidden by whoever has spent the budget before.
        let stolen = matches!(&outcome, Err(Denial::Token(TokenProblem::Reused)));
        let outcome = outcome.map_err(|denial| match denial {
            // Nobody's attempt at anything: these cost no budget.
            Denial::Unavailable | Denial::Busy { .. } | Denial::RateLimited { .. } => denial,
            Denial::NotFound
            | Denial::Ended(_)
            | Denial::AlreadyAttached
            | Denial::Token(_)
            | Denial::State(_)
            | Denial::Superseded
            | Denial::Invalid(_)
            | Denial::TooLarge(_)
            | Denial::IdInvalid(_)
            | Denial::Forbidden => match self.inner.attempts.failed(visitor, named, now) {
                Ok(()) => denial,
                Err(retry_after) => Denial::RateLimited { retry_after },
            },
        });
        let reason = match stolen {
            true => Reason::TokenReused,
            false => outcome.as_ref().err().map_or(Reason::Reconnected, Denial::reason),
        };
        self.write_down(visitor, named, action, reason).await;
        outcome
    }

    /// Writes an attempt to renew a session down that came to nothing before its token was looked at.
    pub(crate) async fn write_down_renewal(&self, visitor: &Visitor, name: &str, reason: Reason) {
        let mut id = id_or_impossible(name).ok();
        if let Some(said) = &id {
            id = self.meant(visitor, said).await.ok();
        }
        self.write_down(visitor, id.as_ref(), "reconnect", reason).await;
    }

    async fn write_down(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        action: &'static str,
        reason: Reason,
    ) {
        self.sessions().counted().attempted(visitor.over, reason);
        Span::current().record("reason", reason.as_str());
        let record = AuditRecord {
            at: self.now(),
            session_id: named.cloned(),
            principal: visitor.caller.principal.clone(),
            address: visitor.address.map(|address| address.to_string().into()),
            transport: visitor.over.into(),
            action: action.into(),
            reason,
        };
        if let Err(Unavailable(why)) = self.sessions().store().audit(record).await {
            let session = named.map(tracing::field::display);
            tracing::error!(session, %reason, why = &*why, "an attempt could not be audited");
        }
    }
}

/// Stands for an id that can be none, so that an attempt on it is counted and written down like any
/// other. No session has it: ours begin otherwise, and what clients choose is longer.
const IMPOSSIBLE: &str = "impossible";

/// The id that somebody names, or one that no session has.
pub(crate) fn id_or_impossible(name: &str) -> Result<SessionId, Denial> {
    let id = SessionId::parse(name).or_else(|_| SessionId::parse(IMPOSSIBLE));
    id.map_err(|_| Denial::NotFound)
}

/// The span of an attempt, which is given its reason when it ends.
pub(super) fn resume_span(id: &SessionId, visitor: &Visitor) -> Span {
    let transport = visitor.over;
    debug_span!(target: "rejoin", "resume", session = %id, transport, reason = Empty)
}

impl Visitor {
    /// A caller that comes over a connection that can be attached.
    pub fn over(transport: Transport, caller: crate::Caller, address: Option<IpAddr>) -> Self {
        Self { caller, address, over: transport_word(transport) }
    }
}
