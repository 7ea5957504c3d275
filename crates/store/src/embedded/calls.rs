//! Each call of the contract: what it asks of the writer, or reads in memory.

use std::sync::PoisonError;

use async_trait::async_trait;
use rejoin_core::attempt::Attempt;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::lifetime::Verdict;
use rejoin_core::record::Record;
use rejoin_core::state::{
    Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached, Create,
    Detach, End, EndRefused, Enter, EnterRefused, Entered, Holding, Keep, LeaseHeld, NewToken,
    Renew, RenewRefused, Renewed, Restore, RestoreRefused, SessionOver, SessionState, Stale,
    TakeLease, Tokens,
};
use rejoin_core::{InSeq, Principal, Seq, SessionId, Term, Timestamp};
use tokio::sync::oneshot;

use super::piece::Piece;
use super::request::{Entering, Request};
use super::slot::{Session, Touches, Trace};
use super::{Audited, EmbeddedStore, audit, read};
use crate::audit::{AuditPage, AuditQuery, AuditRecord, RevokesTokens};
use crate::changes::Changes;
use crate::contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Parked, Query, Restoration,
    Store, StoredEntry, StoredEvent, StoredSnapshot, Unavailable,
};
use crate::measure::{Measurements, StoreBytes};
use crate::relief;

#[async_trait]
impl Store for EmbeddedStore {
    fn identity(&self) -> &StoreIdentity {
        &self.shared.identity
    }

    async fn create(&self, create: Create) -> Result<Record, Failure<CreateRefused>> {
        if !self.shared.disk_space.is_enough() {
            return Err(Failure::Refused(CreateRefused::Paused));
        }
        self.ask(|reply| Request::Create(Box::new(create), reply)).await
    }

    async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        self.view(id, Session::record)
    }

    fn changes(&self, id: &SessionId) -> Changes {
        self.shared.changes.subscribe(id)
    }

    async fn sessions(&self, query: &Query) -> Result<Vec<Record>, Unavailable> {
        self.shared.check_open()?;
        Ok(self.shared.index.list(query))
    }

    async fn count(&self, principal: Option<&Principal>) -> Result<usize, Unavailable> {
        self.shared.check_open()?;
        Ok(self.shared.index.count(principal))
    }

    fn parked_at_start(&self) -> Vec<Parked> {
        std::mem::take(&mut *self.parked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due, Unavailable> {
        self.shared.check_open()?;
        Ok(self.shared.index.due(now, limit))
    }

    async fn attach(
        &self,
        id: &SessionId,
        attach: Attach,
    ) -> Result<Attached, Failure<AttachRefused>> {
        self.change_beside(id, None, Touches::Record, None, move |session| {
            let outcome = session.attach(&attach);
            audited(attach.attempt.as_deref(), outcome)
        })
        .await
    }

    async fn detach(
        &self,
        id: &SessionId,
        detach: Detach,
    ) -> Result<Option<Verdict>, Failure<Stale>> {
        let change = move |session: &mut SessionState<Piece>| row_if_ok(session.detach(&detach));
        self.change(id, Touches::Record, Some(detach.now), change).await
    }

    async fn ack(&self, id: &SessionId, ack: Ack) -> Result<(), Failure<AckRefused>> {
        self.shared.check_working()?;
        if let Some(slot) = self.shared.index.find(id) {
            let mut session = slot.lock();
            // Nothing is under way: the state is what is committed, and an ack need not be.
            if !session.plan.is_changed() {
                session.state.ack(&ack).map_err(Failure::Refused)?;
                session.unsaved = true;
                return Ok(());
            }
            if self.shared.is_stalled() {
                return Ok(()); // a later one says it again, and acks must not pile up
            }
        }
        let change = move |session: &mut SessionState<Piece>| (Trace::Nothing, session.ack(&ack));
        self.change(id, Touches::Record, None, change).await
    }

    async fn enter(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.enter_at_desk(id, Entering { enter, early: None }).await
    }

    async fn enter_early(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
        early: oneshot::Sender<InSeq>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.enter_at_desk(id, Entering { enter, early: Some(early) }).await
    }

    async fn take_lease(
        &self,
        id: &SessionId,
        take: TakeLease,
    ) -> Result<Term, Failure<LeaseHeld>> {
        self.change(id, Touches::Record, None, move |session| {
            let had = session.vitals.term;
            let outcome = session.take_lease(&take);
            // Leases are void after a restart; only a new term must never be given out again.
            let trace = if session.vitals.term == had { Trace::Nothing } else { Trace::Row };
            (trace, outcome)
        })
        .await
    }

    async fn give_up_lease(&self, id: &SessionId, term: Term) -> Result<(), Unavailable> {
        let change = move |session: &mut SessionState<Piece>| -> (Trace, Result<(), Unavailable>) {
            session.give_up_lease(term);
            (Trace::Nothing, Ok(()))
        };
        match self.change(id, Touches::Record, None, change).await {
            Ok(()) | Err(Failure::NotFound) => Ok(()),
            Err(Failure::Refused(unavailable) | Failure::Unavailable(unavailable)) => {
                Err(unavailable)
            }
        }
    }

    async fn append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>> {
        match self.begin_append(id, append) {
            Ok((outcome, durable)) => {
                durable.await.map_err(|why| why.unwrap_or_else(|| self.shared.why_not()))?;
                outcome
            }
            // Less frequent, and large: every append's future would have room for it.
            Err(Some(append)) => {
                Box::pin(self.ask(|reply| Request::Append(id.clone(), append, reply))).await
            }
            Err(None) => Err(Failure::Refused(AppendRefused::Paused)),
        }
    }

    async fn read(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Option<Page>, Unavailable> {
        match self.view(id, |session| read::page(session, after, limit))? {
            Some(page) => self.fetch(page).await.map(Some),
            None => Ok(None),
        }
    }

    async fn read_kept(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<StoredEvent>, Unavailable> {
        match self.view(id, |session| read::kept(session, after, limit))? {
            Some(events) => self.fetch(events).await,
            None => Ok(Vec::new()),
        }
    }

    async fn entries(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, Unavailable> {
        match self.view(id, |session| read::entries(session, after, limit))? {
            Some(entries) => self.fetch(entries).await,
            None => Ok(Vec::new()),
        }
    }

    async fn messages(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: PageLimit,
    ) -> Result<Option<MessagePage>, Unavailable> {
        match self.view(id, |session| read::messages(session, after, limit))? {
            Some(messages) => self.fetch(messages).await.map(Some),
            None => Ok(None),
        }
    }

    async fn snapshot(&self, id: &SessionId) -> Result<Option<StoredSnapshot>, Unavailable> {
        match self.view(id, read::snapshot)? {
            Some(snapshot) => self.fetch(snapshot).await,
            None => Ok(None),
        }
    }

    async fn put_token(
        &self,
        id: &SessionId,
        token: NewToken,
        now: Timestamp,
    ) -> Result<(), Failure<SessionOver>> {
        let change =
            move |session: &mut SessionState<Piece>| row_if_ok(session.put_token(token, now));
        self.change(id, Touches::Record, None, change).await
    }

    async fn tokens(&self, id: &SessionId) -> Result<Option<Tokens>, Unavailable> {
        self.view(id, |session| session.state.tokens.clone())
    }

    async fn renew(&self, id: &SessionId, renew: Renew) -> Result<Renewed, Failure<RenewRefused>> {
        self.change_beside(id, None, Touches::Record, None, move |session| {
            let outcome = session.renew(&renew);
            audited(renew.attempt.as_deref(), outcome)
        })
        .await
    }

    async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>> {
        self.change(id, Touches::Record, None, move |session| {
            let outcome = session.keep(&keep);
            (if outcome.is_ok() { Trace::Note } else { Trace::Nothing }, outcome)
        })
        .await
    }

    async fn end(&self, id: &SessionId, end: End) -> Result<Record, Failure<EndRefused>> {
        let beside = end.ending.leads_to().cloned();
        if beside.as_ref() == Some(id) {
            return Err(Failure::NotFound);
        }
        self.change_beside(id, beside, Touches::Everything, None, move |session| {
            let (trace, outcome) = row_if_ok(session.end(&end).map(|()| session.record()));
            (trace, None, outcome)
        })
        .await
    }

    async fn forget(&self, id: &SessionId, now: Timestamp) -> Result<(), Unavailable> {
        self.ask(|reply| Request::Forget(id.clone(), now, reply)).await
    }

    async fn restore(
        &self,
        restore: Restore<Body>,
    ) -> Result<Restoration, Failure<RestoreRefused>> {
        if !self.shared.disk_space.is_enough() {
            return Err(Failure::Refused(RestoreRefused::Paused));
        }
        self.ask(|reply| Request::Restore(Box::new(restore), reply)).await
    }

    async fn audit(&self, record: AuditRecord) -> Result<(), Unavailable> {
        self.ask(|reply| Request::Audit(Box::new(record), reply)).await
    }

    async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable> {
        self.shared.check_open()?;
        let query = query.clone();
        self.read_file(move |db| Ok(audit::read(db, &query)?)).await
    }

    async fn settle(&self, now: Timestamp) -> Result<Option<Timestamp>, Unavailable> {
        self.shared.check_working()?;
        let (mut after, mut any) = (None, false);
        while self.shared.measurements.holds_any()
            && let Some((last, gone)) = self.shared.settle_some(after.as_ref(), now)
        {
            any |= gone;
            after = Some(last);
            tokio::task::yield_now().await; // others want to look at sessions too
        }
        if any {
            self.ask(Request::TidyUp).await?;
        }
        Ok(Some(relief::look_again(&self.shared.bounds, now)))
    }

    fn held_by(&self, principal: &Principal) -> Option<Holding> {
        Some(self.shared.accounts.of(principal))
    }

    fn note_alive(&self, now: Timestamp) {
        if let Err(error) = self.shared.run.is_alive(now) {
            tracing::debug!(%error, "runs.mark can't be written");
        }
    }

    fn is_paused(&self) -> bool {
        !self.shared.disk_space.is_enough()
    }

    async fn stalled(&self) -> Unavailable {
        self.shared.stalled().await
    }

    fn measurements(&self) -> Option<&Measurements> {
        Some(&self.shared.measurements)
    }

    fn bytes(&self) -> StoreBytes {
        self.shared.bytes()
    }

    async fn close(&self) -> Result<(), Unavailable> {
        self.shared.wants_to_close();
        self.ask(Request::Close).await
    }
}

/// A token that was used twice revokes all others: that must be durable as well.
fn audited<T, R: RevokesTokens>(attempt: Option<&Attempt>, outcome: Result<T, R>) -> Audited<T, R> {
    let changed = outcome.as_ref().map_or_else(R::revokes_tokens, |_| true);
    let trace = if changed { Trace::Row } else { Trace::Nothing };
    (trace, AuditRecord::of_change(attempt, &outcome), outcome)
}

fn row_if_ok<T, R>(outcome: Result<T, R>) -> (Trace, Result<T, R>) {
    (if outcome.is_ok() { Trace::Row } else { Trace::Nothing }, outcome)
}
