//! Coming back to a session. Who it is and what it brought is checked before anything is looked up;
//! budgets and the audit trail are in `attempts.rs`.

use std::net::IpAddr;
use std::time::Duration;

use rejoin_core::attempt::Attempt;
use rejoin_core::position::SeqRange;
use rejoin_core::reader::{Confirmed, Tell};
use rejoin_core::record::{Kind, Record, Transport};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::state::{NewToken, Renew, Renewed, TokenUse, UsedToken};
use rejoin_core::token::{self, Claims, Grant, TokenRefusal};
use rejoin_core::{Generation, InSeq, SessionId, Timestamp};
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use super::attempts::Trying;
use super::speak::agents_only;
use super::{Denial, Service, TokenProblem, Visitor, transport_word};
use crate::attachment::{Attachment, Told};
use crate::random;
use crate::sessions::Client;
use crate::tasks::Owned;
use crate::timeline::Return;

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
        let (service, visitor, made) = (self.clone(), visitor.clone(), made.clone());
        let joined = self.finish(|owned| async move {
            let mut trying = Trying::unnoted(owned);
            service.attach(&mut trying, &visitor, &made, transport, None, None).await
        });
        joined.instrument(span).await
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
        let (service, known_by, named) = (self.clone(), visitor.clone(), id.clone());
        let attempt = self.attempt(visitor, Some(id), "reconnect", move |trying| {
            let joining = async move {
                service.try_join(trying, &known_by, &named, transport, admission).await
            };
            Box::pin(joining)
        });
        attempt.instrument(resume_span(id, visitor)).await
    }

    async fn try_join(
        &self,
        trying: &mut Trying,
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
                return self.join_late(trying, visitor, id, transport, asked).await;
            }
            Some(Err(refusal)) => return Err(refusal.into()),
        };
        let record = self.own(visitor, id).await?;
        agents_only(&record)?;
        self.budget_success(id, now)?;
        self.attach(trying, visitor, &record, transport, Some(asked), presented).await
    }

    /// Counts what a client that came back was away and missed.
    fn count_return(&self, before: &Record, confirmed: &Confirmed) {
        let away = before.away_since().map(|gone| self.now().since(gone));
        let replayed = confirmed.record.head.next().steps_from(confirmed.replay_from);
        let lost = match confirmed.gap {
            Some(Gap::Evicted { lost, .. }) => lost.map_or(0, SeqRange::count),
            Some(Gap::PositionUnknown) | None => 0,
        };
        self.sessions().counted().returned_to_reader(away, replayed, lost);
        let gap = confirmed.gap;
        self.sessions().came_back(&confirmed.record, Return { away, replayed, gap, lost });
    }

    /// With a token that has expired and is good otherwise.
    async fn join_late(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        id: &SessionId,
        transport: Transport,
        asked: Asked,
    ) -> Result<Joined, Denial> {
        let record = self.own(visitor, id).await?;
        agents_only(&record)?;
        self.budget_success(id, self.now())?;
        let joined = self.attach(trying, visitor, &record, transport, Some(asked), None).await;
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
        let (service, known_by, named) = (self.clone(), visitor.clone(), id.clone());
        let attempt = self.attempt(visitor, Some(id), "reconnect", move |trying| {
            let renewing = async move {
                let fits = |_: &Record| true;
                let renewed =
                    service.try_renew(trying, &known_by, &named, token, None, fits).await?;
                service.next_token(renewed)
            };
            Box::pin(renewing)
        });
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
        let (service, known_by, named) = (self.clone(), visitor.clone(), id.clone());
        let attempt = self.attempt(visitor, Some(id), "reconnect", move |trying| {
            let renewing = async move {
                let is_mcp = |record: &Record| record.about.kind == Kind::Mcp;
                let call = Some(call);
                Ok(service.try_renew(trying, &known_by, &named, token, call, is_mcp).await?.0)
            };
            Box::pin(renewing)
        });
        attempt.instrument(resume_span(id, visitor)).await
    }

    async fn try_renew(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        id: &SessionId,
        token: String,
        call: Option<CallName>,
        fits: fn(&Record) -> bool,
    ) -> Result<(Renewed, Presented), Denial> {
        self.check_open()?;
        let now = self.now();
        let presented = Presented { call, ..self.judge(token, id, now)? };
        let record = self.own(visitor, id).await?;
        if !fits(&record) {
            return Err(Denial::NotFound);
        }
        self.budget_success(id, now)?;
        let renewed = self.use_up(trying, visitor, &record, &presented).await?;
        Ok((renewed, presented))
    }

    fn next_token(&self, (renewed, presented): (Renewed, Presented)) -> Result<Renewal, Denial> {
        let token = self.successor(&presented, &renewed.token)?;
        Ok(Renewal { record: renewed.record, token, first_used: renewed.token.used_at })
    }

    /// Uses a token up in a session that was `record` a moment ago, without attaching.
    pub(super) async fn use_up(
        &self,
        trying: &mut Trying,
        visitor: &Visitor,
        record: &Record,
        presented: &Presented,
    ) -> Result<Renewed, Denial> {
        let now = self.now();
        let renew = Renew {
            principal: visitor.caller.principal.clone(),
            token: self.token_use(presented, record.generation, now),
            attempt: trying.to_be_noted().map(Box::new),
            keep_for: self.sessions().settings().session.lifetime.session_ttl,
            now,
        };
        let renewed =
            self.sessions().store().change(trying.owned()).renew(record.id(), renew).await;
        let renewed = renewed.map_err(Denial::from);
        trying.note_if_changed(&renewed);
        let renewed = renewed?;
        if record.about.kind == Kind::Mcp {
            self.sessions().hubs().token_used(record.id());
        }
        Ok(renewed)
    }

    /// Makes a session for the caller, with its first token.
    pub async fn create_with_token(
        &self,
        visitor: &Visitor,
        kind: Kind,
        client: &str,
    ) -> Result<(Record, Issued), Denial> {
        let (service, about) = (self.clone(), self.about(visitor, kind, client, None).await?);
        let made = self.finish(|owned| async move {
            let record = service.create_in(owned, about).await?;
            let issued = service.issue_in(owned, &record).await?;
            Ok((record, issued))
        });
        made.await
    }

    /// A new token for a session that the caller may use.
    pub async fn issue_token(&self, visitor: &Visitor, id: &SessionId) -> Result<Issued, Denial> {
        let record = self.active_for(visitor, id, "token").await?;
        self.issue(&record).await
    }

    /// A new token for the client that is attached to a session.
    pub async fn issue(&self, record: &Record) -> Result<Issued, Denial> {
        let (service, record) = (self.clone(), record.clone());
        self.finish(|owned| async move { service.issue_in(owned, &record).await }).await
    }

    async fn issue_in(&self, owned: Owned, record: &Record) -> Result<Issued, Denial> {
        let (keys, now) = (self.keys(), self.now());
        let grant = Grant {
            session_id: record.id().clone(),
            principal: record.about.principal.clone(),
            generation: record.generation,
            lifetime: self.sessions().settings().session.token_ttl,
        };
        let issued = token::issue(&keys, &grant, random::bytes()?, now);
        let new = NewToken { hash: issued.hash, expires_at: issued.expires_at };
        self.sessions().store().change(owned).put_token(record.id(), new, now).await?;
        Ok(Issued { token: issued.token, expires_at: issued.expires_at })
    }

    /// Attaches, and takes the confirmation out of what the client is told.
    async fn attach_to(
        &self,
        owned: Owned,
        id: &SessionId,
        client: Client,
        attempt: Option<Attempt>,
    ) -> Result<(Attachment, Box<Confirmed>), Denial> {
        let mut attachment = self.sessions().attach_in(owned, id, client, attempt).await?;
        match attachment.next().await {
            Some(Told::Tell(Tell::Confirmed(confirmed))) => Ok((attachment, confirmed)),
            Some(Told::Tell(_) | Told::Leave(_)) | None => Err(Denial::Unavailable),
        }
    }

    /// Attaches to a session that was `record` a moment ago.
    pub(super) async fn attach(
        &self,
        trying: &mut Trying,
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
        let attempt = trying.to_be_noted();
        let principal = visitor.caller.principal.clone();
        let client = Client { principal, transport, asked, token };
        let attached = self.attach_to(trying.owned(), id, client, attempt).await;
        trying.note_if_changed(&attached);
        let (attachment, confirmed) = attached?;
        if confirmed.resumed {
            self.count_return(record, &confirmed);
        }
        let token = match (&presented, &confirmed.token) {
            (Some(presented), Some(used)) => self.successor(presented, used)?,
            (_, _) => self.issue_in(trying.owned(), &confirmed.record).await?,
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
        let claims = claims.within(self.sessions().settings().session.token_ttl, now)?;
        Ok(Presented { text, claims, call: None })
    }

    /// A session of the caller's own. An administrator sees everybody's, but comes back to its own.
    pub(crate) async fn own(&self, visitor: &Visitor, id: &SessionId) -> Result<Record, Denial> {
        let id = self.meant(visitor, id).await?;
        let record = self.sessions().noticed(&id).await?.ok_or(Denial::NotFound)?;
        let own = record.about.principal == visitor.caller.principal;
        if own { Ok(record) } else { Err(Denial::NotFound) }
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
