//! The store as the rest of the server sees it: everything can be read, and only a task of the server can change anything.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::page::{MessagePage, Page, StoredEntry, StoredEvent, StoredSnapshot};
use rejoin_core::record::Record;
use rejoin_core::state::Tokens;
use rejoin_core::{InSeq, Principal, Seq, SessionId, Timestamp};
use rejoin_store::audit::{AuditPage, AuditQuery};
use rejoin_store::{Changes, Due, Measurements, PageLimit, Query, Store, StoreBytes, Unavailable};

use crate::tasks::Owned;

/// What can be read of a store. Each call is that of [`Store`].
///
/// A caller's future may be dropped at any await, and what follows a change must not be dropped with it: so changes are
/// made by [`Sessions`](crate::Sessions), in tasks that end whether or not somebody waits for them.
#[derive(Clone)]
pub struct StoreView(Arc<dyn Store>);

impl StoreView {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// The store itself, for a task of the server.
    pub(crate) fn change(&self, _: Owned) -> &dyn Store {
        &*self.0
    }

    /// See [`Store::close`].
    pub(crate) async fn close(&self) -> Result<(), Unavailable> {
        self.0.close().await
    }

    /// See [`Store::parked_at_start`].
    pub(crate) fn parked_at_start(&self) -> Vec<rejoin_store::Parked> {
        self.0.parked_at_start()
    }

    /// See [`Store::identity`].
    pub fn identity(&self) -> &StoreIdentity {
        self.0.identity()
    }

    /// See [`Store::session`].
    pub async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable> {
        self.0.session(id).await
    }

    /// See [`Store::changes`].
    pub fn changes(&self, id: &SessionId) -> Changes {
        self.0.changes(id)
    }

    /// See [`Store::sessions`].
    pub async fn sessions(&self, query: &Query) -> Result<Vec<Record>, Unavailable> {
        self.0.sessions(query).await
    }

    /// See [`Store::count`].
    pub async fn count(&self, principal: Option<&Principal>) -> Result<usize, Unavailable> {
        self.0.count(principal).await
    }

    /// See [`Store::due`].
    pub async fn due(&self, now: Timestamp, limit: usize) -> Result<Due, Unavailable> {
        self.0.due(now, limit).await
    }

    /// See [`Store::read`].
    pub async fn read(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Option<Page>, Unavailable> {
        self.0.read(id, after, limit).await
    }

    /// See [`Store::read_kept`].
    pub async fn read_kept(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<StoredEvent>, Unavailable> {
        self.0.read_kept(id, after, limit).await
    }

    /// See [`Store::entries`].
    pub async fn entries(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, Unavailable> {
        self.0.entries(id, after, limit).await
    }

    /// See [`Store::messages`].
    pub async fn messages(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: PageLimit,
    ) -> Result<Option<MessagePage>, Unavailable> {
        self.0.messages(id, after, limit).await
    }

    /// See [`Store::snapshot`].
    pub async fn snapshot(&self, id: &SessionId) -> Result<Option<StoredSnapshot>, Unavailable> {
        self.0.snapshot(id).await
    }

    /// See [`Store::tokens`].
    pub async fn tokens(&self, id: &SessionId) -> Result<Option<Tokens>, Unavailable> {
        self.0.tokens(id).await
    }

    /// See [`Store::audit_trail`].
    pub async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable> {
        self.0.audit_trail(query).await
    }

    /// See [`Store::note_alive`].
    pub(crate) fn note_alive(&self, now: Timestamp) {
        self.0.note_alive(now);
    }

    /// See [`Store::is_paused`].
    pub fn is_paused(&self) -> bool {
        self.0.is_paused()
    }

    /// See [`Store::stalled`].
    pub async fn stalled(&self) -> Unavailable {
        self.0.stalled().await
    }

    /// Refuses what needs a commit while none can be made. Nothing has changed then.
    pub(crate) fn check_commits(&self) -> Result<(), Unavailable> {
        self.0.stalled().now_or_never().map_or(Ok(()), Err)
    }

    /// What `work` comes to. If the store can't make commits meanwhile its caller is told so: whether the work will be
    /// done, and when, is not known then.
    pub async fn unless_stalled<T, E: From<Unavailable>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            biased;
            done = work => done,
            why = self.stalled() => Err(why.into()),
        }
    }

    /// See [`Store::measurements`].
    pub fn measurements(&self) -> Option<&Measurements> {
        self.0.measurements()
    }

    /// See [`Store::bytes`].
    pub fn bytes(&self) -> StoreBytes {
        self.0.bytes()
    }
}

impl fmt::Debug for StoreView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
