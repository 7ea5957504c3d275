//! A store that works until it is told not to, and can be made slow.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rejoin::core::lifetime::Verdict;
use rejoin::core::record::Record;
use rejoin::core::state::{
    Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached, Create,
    Detach, End, EndRefused, Enter, EnterRefused, Entered, Keep, LeaseHeld, NewToken, Renew,
    RenewRefused, Renewed, Restore, RestoreRefused, SessionOver, Stale, TakeLease, Tokens,
};
use rejoin::core::{InSeq, Principal, Seq, SessionId, Term, Timestamp};
use rejoin::store::audit::{AuditPage, AuditQuery, AuditRecord};
use rejoin::store::{
    Body, Changes, CreateRefused, Due, Failure, MemoryStore, MessagePage, Page, PageLimit, Query,
    Store, StoredEntry, StoredEvent, StoredSnapshot, Unavailable,
};
use tokio::sync::{Semaphore, watch};

#[derive(Debug)]
pub struct FailingStore {
    inner: MemoryStore,
    broken: AtomicBool,
    panics: AtomicBool,
    /// Writes wait here while it is slow.
    gate: Semaphore,
    slow: AtomicBool,
    /// Writes that wait at the gate.
    pub waiting: AtomicUsize,
    /// Leases that were asked for.
    pub leases_asked: AtomicUsize,
    /// Acks that were asked for.
    acks_asked: AtomicUsize,
    /// How often each call gives others a turn, before it does something and after that.
    turns: AtomicUsize,
    stalled: watch::Sender<bool>,
    /// Whether it says that no session's time has come.
    forgets_deadlines: AtomicBool,
    meanwhile: Meanwhile,
}

/// What happens to a session just before its out log is read.
#[derive(Default)]
struct Meanwhile(Mutex<Option<(SessionId, BoxFuture<'static, ()>)>>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").finish_non_exhaustive()
    }
}

impl Meanwhile {
    async fn happens_to(&self, id: &SessionId) {
        let due = self.0.lock().unwrap().take_if(|(session, _)| session == id);
        if let Some((_, happens)) = due {
            happens.await;
        }
    }
}

impl FailingStore {
    pub fn new() -> Arc<Self> {
        Self::on(MemoryStore::default())
    }

    pub fn on(inner: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            broken: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            gate: Semaphore::new(0),
            slow: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            leases_asked: AtomicUsize::new(0),
            acks_asked: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            stalled: watch::Sender::new(false),
            forgets_deadlines: AtomicBool::new(false),
            meanwhile: Meanwhile::default(),
        })
    }

    /// From now on nobody who asks for them learns of deadlines.
    pub fn forget_deadlines(&self) {
        self.forgets_deadlines.store(true, Ordering::SeqCst);
    }

    /// From now on every call fails, also those that wait.
    pub fn break_down(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.go_on();
    }

    /// The same, and readers are told.
    pub fn break_down_and_tell(&self) {
        self.break_down();
        let _ = self.inner.close().now_or_never();
    }

    /// The next write panics.
    pub fn panic_once(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    /// From now on every write waits.
    pub fn acks_asked(&self) -> usize {
        self.acks_asked.load(Ordering::SeqCst)
    }

    pub fn hold_writes(&self) {
        self.slow.store(true, Ordering::SeqCst);
    }

    /// Writes that wait have waited for too long.
    pub fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// Writes go through again.
    pub fn go_on(&self) {
        self.stalled.send_replace(false);
        self.slow.store(false, Ordering::SeqCst);
        self.gate.add_permits(1_000_000);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Runs this just before the next read of a session's out log, by any reader.
    pub fn before_next_read(
        &self,
        id: &SessionId,
        happens: impl Future<Output = ()> + Send + 'static,
    ) {
        *self.meanwhile.0.lock().unwrap() = Some((id.clone(), Box::pin(happens)));
    }

    /// From now on every call takes several polls, before it does something and after that.
    pub fn take_turns(&self, turns: usize) {
        self.turns.store(turns, Ordering::SeqCst);
    }

    async fn give_turns(&self) {
        for _ in 0..self.turns.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }

    async fn look(&self) -> Result<(), Unavailable> {
        self.give_turns().await;
        self.works()
    }

    /// Does it, and lets others have a turn before the caller knows.
    async fn done<T>(&self, work: impl Future<Output = T>) -> T {
        let outcome = work.await;
        self.give_turns().await;
        outcome
    }

    fn works(&self) -> Result<(), Unavailable> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Unavailable(Arc::from("the disk is gone")));
        }
        Ok(())
    }

    async fn write(&self) -> Result<(), Unavailable> {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a store that panics, on purpose");
        if self.slow.load(Ordering::SeqCst) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::ZERO).await; // a store always takes a moment
        self.give_turns().await;
        self.works()
    }
}

#[async_trait]
impl Store for FailingStore {
    fn identity(&self) -> &rejoin::core::identity::StoreIdentity {
        self.inner.identity()
    }

    async fn create(&self, create: Create) -> Result<Record, Failure<CreateRefused>> {
        self.write().await?;
        self.done(self.inner.create(create)).await
    }
    async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        self.look().await?;
        self.done(self.inner.session(id)).await
    }
    async fn sessions(&self, query: &Query) -> Result<Vec<Record>, Unavailable> {
        self.look().await?;
        self.done(self.inner.sessions(query)).await
    }
    async fn count(&self, principal: Option<&Principal>) -> Result<usize, Unavailable> {
        self.look().await?;
        self.done(self.inner.count(principal)).await
    }
    fn changes(&self, id: &SessionId) -> Changes {
        self.inner.changes(id)
    }
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due, Unavailable> {
        self.look().await?;
        if self.forgets_deadlines.load(Ordering::SeqCst) {
            return Ok(Due::default());
        }
        self.done(self.inner.due(now, limit)).await
    }
    async fn attach(
        &self,
        id: &SessionId,
        attach: Attach,
    ) -> Result<Attached, Failure<AttachRefused>> {
        self.write().await?;
        self.done(self.inner.attach(id, attach)).await
    }
    async fn detach(
        &self,
        id: &SessionId,
        detach: Detach,
    ) -> Result<Option<Verdict>, Failure<Stale>> {
        self.write().await?;
        self.done(self.inner.detach(id, detach)).await
    }
    async fn ack(&self, id: &SessionId, ack: Ack) -> Result<(), Failure<AckRefused>> {
        self.acks_asked.fetch_add(1, Ordering::SeqCst);
        self.write().await?;
        self.done(self.inner.ack(id, ack)).await
    }
    async fn enter(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        self.write().await?;
        self.done(self.inner.enter(id, enter)).await
    }
    async fn take_lease(
        &self,
        id: &SessionId,
        take: TakeLease,
    ) -> Result<Term, Failure<LeaseHeld>> {
        self.leases_asked.fetch_add(1, Ordering::SeqCst);
        self.write().await?;
        self.done(self.inner.take_lease(id, take)).await
    }
    async fn give_up_lease(&self, id: &SessionId, term: Term) -> Result<(), Unavailable> {
        self.write().await?;
        self.done(self.inner.give_up_lease(id, term)).await
    }
    async fn append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>> {
        self.write().await?;
        self.done(self.inner.append(id, append)).await
    }
    async fn read(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Option<Page>, Unavailable> {
        self.look().await?;
        self.meanwhile.happens_to(id).await;
        self.done(self.inner.read(id, after, limit)).await
    }
    async fn entries(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, Unavailable> {
        self.look().await?;
        self.done(self.inner.entries(id, after, limit)).await
    }
    async fn messages(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: PageLimit,
    ) -> Result<Option<MessagePage>, Unavailable> {
        self.works()?;
        self.inner.messages(id, after, limit).await
    }
    async fn read_kept(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<StoredEvent>, Unavailable> {
        self.look().await?;
        self.done(self.inner.read_kept(id, after, limit)).await
    }
    async fn snapshot(&self, id: &SessionId) -> Result<Option<StoredSnapshot>, Unavailable> {
        self.look().await?;
        self.done(self.inner.snapshot(id)).await
    }
    async fn put_token(
        &self,
        id: &SessionId,
        token: NewToken,
        now: Timestamp,
    ) -> Result<(), Failure<SessionOver>> {
        self.write().await?;
        self.done(self.inner.put_token(id, token, now)).await
    }
    async fn tokens(&self, id: &SessionId) -> Result<Option<Tokens>, Unavailable> {
        self.look().await?;
        self.done(self.inner.tokens(id)).await
    }
    async fn renew(&self, id: &SessionId, renew: Renew) -> Result<Renewed, Failure<RenewRefused>> {
        self.write().await?;
        self.done(self.inner.renew(id, renew)).await
    }
    async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>> {
        self.write().await?;
        self.done(self.inner.keep(id, keep)).await
    }
    async fn end(&self, id: &SessionId, end: End) -> Result<Record, Failure<EndRefused>> {
        self.write().await?;
        self.done(self.inner.end(id, end)).await
    }
    async fn forget(&self, id: &SessionId, now: Timestamp) -> Result<(), Unavailable> {
        self.write().await?;
        self.done(self.inner.forget(id, now)).await
    }
    async fn restore(
        &self,
        restore: Restore<Body>,
    ) -> Result<rejoin_store::Restoration, Failure<RestoreRefused>> {
        self.write().await?;
        self.done(self.inner.restore(restore)).await
    }
    async fn audit(&self, record: AuditRecord) -> Result<(), Unavailable> {
        self.done(self.inner.audit(record)).await
    }
    async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable> {
        self.done(self.inner.audit_trail(query)).await
    }
    async fn stalled(&self) -> Unavailable {
        let _ = self.stalled.subscribe().wait_for(|stalled| *stalled).await;
        Unavailable(Arc::from("no commit is possible"))
    }
    async fn close(&self) -> Result<(), Unavailable> {
        self.done(self.inner.close()).await
    }
}
