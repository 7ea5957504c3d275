//! Attempts to get at a session: each runs to its end whoever goes away, counts against a budget if it fails, and leaves
//! one audit record with its true reason. If the attempt changed the session, the record was written with the change.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::network::Network;
use rejoin_core::{Principal, SessionId, Timestamp};
use rejoin_store::Unavailable;
use rejoin_store::audit::AuditRecord;
use tracing::Span;

use super::rate::Rate;
use super::reconnect::id_or_impossible;
use super::{Denial, Service, StateProblem, TokenProblem, Visitor};
use crate::access::{CredentialFault, PresentedFrom};
use crate::limits;
use crate::tasks::Owned;

/// The budgets of attempts.
#[derive(Debug)]
pub(super) struct Budgets {
    /// Failures of one principal at one session.
    session_failures: Rate<(SessionId, Principal)>,
    session_successes: Rate<SessionId>,
    /// Failures of one principal from one address: what one caller guesses wrong is not held against another.
    caller_failures: Rate<(Principal, Option<Network>)>,
    /// Records of what administrators do with the sessions of others.
    admin_records: Rate<(Principal, Option<SessionId>, &'static str)>,
    /// Records of credentials that were rejected, by address and in all.
    rejected_credentials: Rate<Option<Network>>,
    rejected_in_all: Rate<()>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            session_failures: Rate::per_minute(limits::SESSION_FAILURES_A_MINUTE),
            session_successes: Rate::per_minute(limits::SESSION_SUCCESSES_A_MINUTE),
            caller_failures: Rate::per_minute(limits::CALLER_FAILURES_A_MINUTE),
            admin_records: Rate::per_minute(limits::ADMIN_RECORDS_A_MINUTE),
            rejected_credentials: Rate::per_minute(limits::REJECTED_CREDENTIALS_A_MINUTE),
            rejected_in_all: Rate::per_minute(limits::REJECTED_CREDENTIALS_IN_ALL_A_MINUTE),
        }
    }
}

impl Budgets {
    /// Counts a failure; says how long to wait once a budget of failures is spent.
    fn failed(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let principal = &visitor.caller.principal;
        // The caller's comes first: who has spent it adds nothing to what is remembered of sessions.
        self.caller_failures.take((principal.clone(), visitor.address.map(Network::of)), now)?;
        let Some(id) = named else { return Ok(()) };
        self.session_failures.take((id.clone(), principal.clone()), now)
    }
}

/// An attempt that is being made.
pub(super) struct Trying {
    owned: Owned,
    /// What the audit trail does not say of it yet.
    unnoted: Option<Attempt>,
}

impl Trying {
    /// One that leaves no record.
    pub(super) fn unnoted(owned: Owned) -> Self {
        Self { owned, unnoted: None }
    }

    /// It runs in a task of the server.
    pub(super) fn owned(&self) -> Owned {
        self.owned
    }

    /// What is to be written in the same commit as the change that it makes next.
    pub(super) fn to_be_noted(&self) -> Option<Attempt> {
        self.unnoted.clone()
    }

    /// A change that carried it was made, if this is what came of it: then the record is written.
    pub(super) fn note_if_changed<T>(&mut self, outcome: &Result<T, Denial>) {
        if matches!(outcome, Ok(_) | Err(Denial::Token(TokenProblem::Reused))) {
            self.is_noted();
        }
    }

    /// The record is written.
    pub(super) fn is_noted(&mut self) {
        self.unnoted = None;
    }
}

/// An attempt on its way; what it borrows lives as long as it does.
type Attempting<'t, T> = BoxFuture<'t, Result<T, Denial>>;

impl Service {
    /// Makes an attempt, to its end. `named` is the session, as far as one is known.
    pub(super) async fn attempt<T: Send + 'static>(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        action: &'static str,
        attempt: impl for<'t> FnOnce(&'t mut Trying) -> Attempting<'t, T> + Send + 'static,
    ) -> Result<T, Denial> {
        let (service, visitor, named) = (self.clone(), visitor.clone(), named.cloned());
        let attempt = self.finish(|owned| async move {
            let unnoted = Some(service.attempt_of(&visitor, named.as_ref(), action));
            let mut trying = Trying { owned, unnoted };
            let outcome = attempt(&mut trying).await;
            let outcome = service.budgeted(outcome, &visitor, named.as_ref());
            service.conclude(trying, &visitor, outcome).await
        });
        attempt.await
    }

    /// Counts a failure that may have been a guess, and hides it once the budget is spent.
    fn budgeted<T>(
        &self,
        outcome: Result<T, Denial>,
        visitor: &Visitor,
        named: Option<&SessionId>,
    ) -> (Reason, Result<T, Denial>) {
        // That a token was stolen is not hidden by whoever has spent the budget before.
        let stolen = matches!(&outcome, Err(Denial::Token(TokenProblem::Reused)));
        let outcome = outcome.map_err(|denial| {
            if !may_be_a_guess(&denial) {
                return denial;
            }
            match self.inner.budgets.failed(visitor, named, self.now()) {
                Ok(()) => denial,
                Err(retry_after) => Denial::RateLimited { retry_after },
            }
        });
        let reason = match stolen {
            true => Reason::TokenReused,
            false => outcome.as_ref().err().map_or(Reason::Reconnected, Denial::reason),
        };
        (reason, outcome)
    }

    /// The attempt is over: it is counted, and written down unless the change it made says so already.
    async fn conclude<T>(
        &self,
        trying: Trying,
        visitor: &Visitor,
        (reason, outcome): (Reason, Result<T, Denial>),
    ) -> Result<T, Denial> {
        self.sessions().counted().attempted(visitor.over, reason);
        Span::current().record("reason", reason.as_str());
        if let Some(attempt) = trying.unnoted {
            self.write_down(trying.owned, AuditRecord { attempt, reason }).await;
        }
        outcome
    }

    /// Takes one from the budget of successes.
    pub(super) fn budget_success(&self, id: &SessionId, now: Timestamp) -> Result<(), Denial> {
        let budget = self.inner.budgets.session_successes.take(id.clone(), now);
        budget.map_err(|retry_after| Denial::RateLimited { retry_after })
    }

    /// Writes an attempt to renew a session down that came to nothing before its token was looked at.
    pub(crate) async fn write_down_renewal(&self, visitor: &Visitor, name: &str, reason: Reason) {
        let mut id = id_or_impossible(name).ok();
        if let Some(said) = &id {
            id = self.meant(visitor, said).await.ok();
        }
        self.sessions().counted().attempted(visitor.over, reason);
        let attempt = self.attempt_of(visitor, id.as_ref(), "reconnect");
        self.note(AuditRecord { attempt, reason }).await;
    }

    /// Notes that an administrator gets at a session of another principal, or at several.
    pub(super) async fn note_admin(
        &self,
        visitor: &Visitor,
        id: Option<&SessionId>,
        action: &'static str,
    ) {
        let key = (visitor.caller.principal.clone(), id.cloned(), action);
        if self.inner.budgets.admin_records.take(key, self.now()).is_ok() {
            let attempt = self.attempt_of(visitor, id, action);
            self.note(AuditRecord { attempt, reason: Reason::AdminAccess }).await;
        }
    }

    /// Notes that a credential was rejected; its caller is not told why. Nobody waits for it, and strangers can't make the
    /// server write more than so much: says whether it is noted.
    pub(crate) fn note_rejected_credential(
        &self,
        fault: CredentialFault,
        from: PresentedFrom,
    ) -> bool {
        let PresentedFrom { address, over } = from;
        let (Some(reason), now) = (reason_of(fault), self.now()) else { return false };
        let budgets = &self.inner.budgets;
        let by_address = budgets.rejected_credentials.take(address.map(Network::of), now);
        if by_address.and_then(|()| budgets.rejected_in_all.take((), now)).is_err() {
            return false;
        }
        let attempt = Attempt {
            at: now,
            session_id: None,
            principal: Principal::new(NOBODY),
            address: address.map(|address| address.to_canonical().to_string().into()),
            transport: over.into(),
            action: "authenticate".into(),
        };
        let record = AuditRecord { attempt, reason };
        let service = self.clone();
        self.sessions().spawn(|owned| async move { service.write_down(owned, record).await });
        true
    }

    /// Adds a record to the audit trail, to the end.
    pub(super) async fn note(&self, record: AuditRecord) {
        let (service, named, reason) =
            (self.clone(), record.attempt.session_id.clone(), record.reason);
        let noted = self.sessions().finish(|owned| async move {
            service.write_down(owned, record).await;
        });
        if let Err(unavailable) = noted.await {
            not_audited(named.as_ref(), reason, &unavailable);
        }
    }

    async fn write_down(&self, owned: Owned, record: AuditRecord) {
        let (named, reason) = (record.attempt.session_id.clone(), record.reason);
        let store = self.sessions().store();
        let written = store.unless_stalled(store.change(owned).audit(record)).await;
        if let Err(unavailable) = written {
            not_audited(named.as_ref(), reason, &unavailable);
        }
    }

    /// What the audit trail notes of what a caller tries now.
    pub(super) fn attempt_of(
        &self,
        visitor: &Visitor,
        named: Option<&SessionId>,
        action: &'static str,
    ) -> Attempt {
        Attempt {
            at: self.now(),
            session_id: named.cloned(),
            principal: visitor.caller.principal.clone(),
            address: visitor.address.map(|address| address.to_canonical().to_string().into()),
            transport: visitor.over.into(),
            action: action.into(),
        }
    }
}

/// Says in the log what the audit trail may lack.
fn not_audited(named: Option<&SessionId>, reason: Reason, Unavailable(why): &Unavailable) {
    let session = named.map(tracing::field::display);
    tracing::error!(session, %reason, why = &**why, "an attempt could not be audited");
}

/// Stands for the principal where none is known.
const NOBODY: &str = "";

/// Why a credential was rejected, in the audit trail. A request without one is no attempt at anything.
fn reason_of(fault: CredentialFault) -> Option<Reason> {
    Some(match fault {
        CredentialFault::Missing => return None,
        CredentialFault::Malformed => Reason::CredentialMalformed,
        CredentialFault::UnknownKey => Reason::CredentialUnknownKey,
        CredentialFault::Expired => Reason::CredentialExpired,
        CredentialFault::NotYetValid => Reason::CredentialNotYetValid,
        CredentialFault::Issuer => Reason::CredentialIssuer,
        CredentialFault::Audience => Reason::CredentialAudience,
        CredentialFault::Subject => Reason::CredentialSubject,
    })
}

/// Whether a failure says something that the caller may have guessed at. How its own session has ended is no such thing, and
/// a client that is not told can neither restore nor begin anew: that is never hidden, and costs no budget.
fn may_be_a_guess(denial: &Denial) -> bool {
    match denial {
        Denial::Ended(_)
        | Denial::Superseded
        | Denial::State(StateProblem::Expired | StateProblem::Superseded) => false,
        // Not the caller's doing.
        Denial::Unavailable | Denial::Busy { .. } | Denial::RateLimited { .. } => false,
        Denial::NotFound
        | Denial::AlreadyAttached
        | Denial::Token(_)
        | Denial::State(StateProblem::NotAuthentic | StateProblem::TooLarge)
        | Denial::Invalid(_)
        | Denial::TooLarge(_)
        | Denial::IdInvalid(_)
        | Denial::Forbidden => true,
    }
}
