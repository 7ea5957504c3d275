//! What callers, readers and the writer have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rejoin_core::identity::StoreIdentity;
use rejoin_core::limits::LogBounds;
use tokio::sync::watch;

use super::disk_space::DiskSpace;
use super::error::Fault;
use super::index::Index;
use super::limits;
use super::piece::Ledger;
use super::queue::Queue;
use super::read::Readers;
use super::runs::CurrentRun;
use super::schema::Files;
use crate::account::{Accounts, Bounds};
use crate::changes::ChangeBoard;
use crate::contract::Unavailable;
use crate::measure::{Measurements, StoreBytes};

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) identity: StoreIdentity,
    pub(super) files: Files,
    pub(super) run: CurrentRun,
    pub(super) queue: Queue,
    pub(super) index: Index,
    pub(super) changes: ChangeBoard,
    pub(super) readers: Readers,
    pub(super) measurements: Measurements,
    pub(super) disk_space: DiskSpace,
    ledger: Arc<Ledger>,
    /// What each out log keeps.
    pub(super) bounds: LogBounds,
    /// What principals hold, and may hold.
    pub(super) accounts: Accounts,
    closed: AtomicBool,
    /// Somebody wants the store closed: a commit that can't be made is not tried for ever.
    closing: AtomicBool,
    failure: watch::Sender<Option<Unavailable>>,
    /// Why the commit under way has not been possible for so long that nobody should wait for it.
    stalled: watch::Sender<Option<Unavailable>>,
}

impl Shared {
    /// For this store in these files, with these bounds for each out log and for all that is held.
    pub(super) fn new(
        identity: StoreIdentity,
        files: Files,
        run: CurrentRun,
        bounds: LogBounds,
        max: Bounds,
        disk_space: DiskSpace,
        ledger: Arc<Ledger>,
    ) -> Arc<Self> {
        Arc::new(Self {
            identity,
            disk_space,
            ledger,
            run,
            queue: Queue::default(),
            index: Index::default(),
            changes: ChangeBoard::default(),
            readers: Readers::new(&files.database),
            measurements: Measurements::default(),
            bounds,
            accounts: Accounts::new(max),
            closed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            failure: watch::Sender::new(None),
            stalled: watch::Sender::new(None),
            files,
        })
    }

    /// How many bytes the store takes at this moment; a file that can't be asked for its size has none.
    pub(super) fn bytes(&self) -> StoreBytes {
        let size = |file| std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        let (database, wal) = (size(&self.files.database), size(&self.files.wal));
        StoreBytes { database, wal, memory: self.ledger.hot_bytes() }
    }

    /// The store has failed: nothing is written any more.
    pub(super) fn fail(&self, why: &Unavailable) {
        tracing::error!(directory = %self.files.directory.display(), "the store stops: {}", why.0);
        // First the reason: closing the queue makes callers ask for it.
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert_with(|| why.clone());
            first
        });
        self.queue.close(why);
        self.changes.announce_failure();
    }

    /// Somebody wants the store closed.
    pub(super) fn wants_to_close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether a commit that could not be made for so long is tried again.
    pub(super) fn tries_again(&self, waited: Duration) -> bool {
        let closing = self.closing.load(Ordering::Acquire) && waited >= limits::STALLED;
        !closing && !self.queue.is_closed()
    }

    /// A commit can't be made for now: waits a moment, and sees to it that little more comes.
    pub(super) fn wait_out(&self, fault: &Fault, first: bool, waited: Duration) {
        if first {
            let directory = self.files.directory.display();
            tracing::warn!(%directory, error = %fault, "commit put off: will be tried again");
        }
        if fault.is_full() || waited >= limits::STALLED {
            self.disk_space.stall(true);
        }
        if waited >= fault.patience() {
            let why = || Unavailable(fault.sentence(&self.files.directory).into());
            self.stalled.send_if_modified(|stalled| {
                let first = stalled.is_none();
                stalled.get_or_insert_with(why);
                first
            });
        }
        std::thread::sleep(limits::TRY_AGAIN);
    }

    /// The commit was made, or never will be.
    pub(super) fn goes_on(&self) {
        self.disk_space.stall(false);
        self.stalled.send_if_modified(|stalled| stalled.take().is_some());
    }

    /// Waits until a commit has not been possible for a while, and says why.
    pub(super) async fn stalled(&self) -> Unavailable {
        let mut stalled = self.stalled.subscribe();
        // Its sender lives as long as `self`.
        let why = stalled.wait_for(Option::is_some).await.map_or(None, |why| why.clone());
        why.unwrap_or_else(|| self.why_not())
    }

    /// Whether it has not been.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.borrow().is_some()
    }

    /// The store is closed: nothing is read any more either. Says what later calls are told.
    pub(super) fn close(&self) -> Unavailable {
        self.closed.store(true, Ordering::Release);
        let why = self.why_not();
        self.queue.close(&why);
        self.readers.close();
        self.changes.announce_failure();
        why
    }

    /// Whether reading is possible.
    pub(super) fn check_open(&self) -> Result<(), Unavailable> {
        if self.closed.load(Ordering::Acquire) { Err(self.why_not()) } else { Ok(()) }
    }

    /// Whether changes are possible.
    pub(super) fn check_working(&self) -> Result<(), Unavailable> {
        self.check_open()?;
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until the store fails, and says why. A store that is closed never fails.
    pub(super) async fn failed(&self) -> Unavailable {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_else(|| self.why_not()),
            Err(_) => std::future::pending().await,
        }
    }

    /// What a call is told that gets no answer.
    pub(super) fn why_not(&self) -> Unavailable {
        self.failure.borrow().clone().unwrap_or_else(|| Unavailable("it was closed".into()))
    }
}
