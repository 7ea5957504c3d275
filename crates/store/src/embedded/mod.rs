//! The embedded store: sessions in one SQLite file, for a server that runs alone.
//!
//! Every session's state is in memory, as far as it is small; every change of it goes into a journal
//! with **one row per commit**, however many sessions it touches. That layout, not the engine, makes
//! it fast. SQLite is there because nothing survives crashes better, and people can open the file.
//!
//! Where to start reading:
//!
//! | file | what it does |
//! |---|---|
//! | `desk`, `queue`, `request`, `apply`, `batch` | how a call becomes part of a commit: by its caller's own work |
//! | `writer`, `prepare`, `commit`, `publish`, `ending` | the thread that makes commits: prepare, commit, publish, answer |
//! | `wal_vfs`, `insert_row` | below rusqlite: a commit is one write and one flush, its row is not copied |
//! | `disk_space` | whether anything new is taken: not while the disk is nearly full |
//! | `waiting` | those who wait for a commit, and how they are woken |
//! | `slot`, `index`, `read` | what readers see, and that it is only what is committed |
//! | `journal`, `rows`, `audit`, `schema` | what is in the file |
//! | `room` | what would add to what a principal holds, and what is forgotten for it |
//! | `piece`, `cleanup`, `spill`, `relieve` | which bytes are still needed, in the file and in memory |
//! | `open`, `lock`, `private`, `write_again`, `witness`, `birth`, `runs`, `scan`, `recover`, `salvage` | opening: what was there, and is it whole? |
//! | `backup`, `verify` | for other processes: a copy of a store in use, and whether one is whole |
//! | `load`, `rebuild`, `packed`, `take_over`, `assemble`, `parallel` | … and how it comes back into memory |
//! | `limits` | every bound |

mod apply;
mod assemble;
mod audit;
mod backup;
mod batch;
mod birth;
mod cleanup;
mod commit;
mod desk;
mod disk_space;
mod ending;
mod error;
mod index;
mod insert_row;
mod journal;
mod key_map;
mod limits;
mod load;
mod lock;
mod open;
mod packed;
mod parallel;
mod piece;
mod prepare;
mod private;
mod publish;
mod queue;
mod read;
mod rebuild;
mod recover;
mod relieve;
mod request;
mod room;
mod rows;
mod runs;
mod salvage;
mod scan;
mod schema;
mod shared;
mod slot;
mod spill;
mod take_over;
mod verify;
mod waiting;
mod wal_vfs;
mod witness;
mod write_again;
mod writer;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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

pub use self::backup::backup;
use self::desk::{AppliedAppend, Desk};
pub use self::error::{Damage, OpenError};
pub use self::open::{OpenReport, Options, Random};
use self::piece::Piece;
use self::read::{Bodies, Unfetched};
use self::request::{Answer, Applied, Change, Entering, Reply, Request};
use self::shared::Shared;
use self::slot::{Session, Touches, Trace};
pub use self::verify::{Verification, verify};
use crate::audit::{AuditPage, AuditQuery, AuditRecord, RevokesTokens};
use crate::changes::Changes;
use crate::contract::{
    Body, CreateRefused, Due, Failure, MessagePage, Page, PageLimit, Parked, Query, Restoration,
    Store, StoredEntry, StoredEvent, StoredSnapshot, Unavailable,
};
use crate::measure::{Measurements, StoreBytes};
use crate::relief;

/// Sessions in a directory of the local disk.
///
/// One process at a time may have a directory open. A call that changes something returns once its
/// commit has reached the disk; commits of calls that run at the same time are made together.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// See [`Store::parked_at_start`].
    parked: Mutex<Vec<Parked>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is made if need be, and says what was found there.
    ///
    /// Blocks while it reads the journal. Every session that was attached when the last process ended
    /// is parked now. If something that was durable is gone, the report says so, the sessions that
    /// may be concerned have begun a new epoch, and the damaged files are kept beside the new ones.
    pub fn open(options: Options) -> Result<(Self, OpenReport), OpenError> {
        let (shared, desk, writer, report) = open::open(options)?;
        let (writer, parked) = (Mutex::new(Some(writer)), Mutex::new(report.parked.clone()));
        Ok((Self { shared, desk, writer, parked }, report))
    }

    /// Waits until the store fails, and says why. From then on it acknowledges nothing; a server
    /// should end, so that it is started again on what is durable.
    pub async fn failure(&self) -> Unavailable {
        self.shared.failed().await
    }

    /// Asks for something and waits for the answer.
    async fn ask<T, E: From<Unavailable>>(
        &self,
        request: impl FnOnce(Reply<T, E>) -> Request,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        if let Err(request) = self.desk.accept(request(reply))
            && let Some(at_gate) = self.shared.queue.push(request)?
        {
            Box::pin(at_gate.enter()).await?; // rare, and large: not part of every call's future
        }
        // No answer: the writer has gone, and with it the request.
        answer.await.unwrap_or_else(|_| Err(self.shared.why_not().into()))
    }

    /// Applies an append at once, gives it back to be asked for, or takes it for good: the disk is nearly full.
    #[expect(clippy::result_large_err, reason = "no error: it is asked for in another way then")]
    fn begin_append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<AppliedAppend, Option<Append<Body>>> {
        let brings_something = !append.events.is_empty() || append.snapshot.is_some();
        if brings_something && !self.shared.disk_space.is_enough() {
            return Err(None);
        }
        self.desk.append(id, append).map_err(Some)
    }

    /// Asks for a change of one session.
    async fn change<T, R>(
        &self,
        id: &SessionId,
        touches: Touches,
        settle_at: Option<Timestamp>,
        change: impl FnOnce(&mut SessionState<Piece>) -> (Trace, Result<T, R>) + Send + 'static,
    ) -> Result<T, Failure<R>>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let change = |session: &mut SessionState<Piece>| {
            let (trace, outcome) = change(session);
            (trace, None, outcome)
        };
        self.change_beside(id, None, touches, settle_at, change).await
    }

    /// The same for a change that may be in the audit trail, and only while another session, if one is given, is active.
    async fn change_beside<T, R>(
        &self,
        id: &SessionId,
        beside: Option<SessionId>,
        touches: Touches,
        settle_at: Option<Timestamp>,
        change: impl FnOnce(&mut SessionState<Piece>) -> Audited<T, R> + Send + 'static,
    ) -> Result<T, Failure<R>>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let id = id.clone();
        self.ask(|reply| {
            let apply = Box::new(move |session: Option<&mut SessionState<Piece>>| {
                let Some(session) = session else {
                    let answer = Answer::new(reply, Err(Failure::NotFound));
                    return Applied { trace: Trace::Nothing, audit: None, answer };
                };
                let (trace, audit, outcome) = change(session);
                let answer = Answer::new(reply, outcome.map_err(Failure::Refused));
                Applied { trace, audit, answer }
            });
            Request::Change(id, Change { beside, touches, settle_at, apply })
        })
        .await
    }

    async fn enter_at_desk(
        &self,
        id: &SessionId,
        entering: Entering,
    ) -> Result<Entered, Failure<EnterRefused>> {
        if !self.shared.disk_space.is_enough() {
            return Err(Failure::Refused(EnterRefused::Paused));
        }
        self.ask(|reply| Request::Enter(id.clone(), entering, reply)).await
    }

    /// Looks at a session as of its last commit.
    fn view<T>(
        &self,
        id: &SessionId,
        view: impl FnOnce(&Session) -> T,
    ) -> Result<Option<T>, Unavailable> {
        self.shared.check_open()?;
        Ok(self.shared.index.find(id).map(|slot| view(&slot.lock())))
    }

    /// Fetches the bodies that are not in memory.
    async fn fetch<T>(&self, found: Unfetched<T>) -> Result<T, Unavailable>
    where
        T: Bodies + Send + 'static,
    {
        match found.here() {
            Ok(whole) => Ok(whole),
            Err(found) => self.read_file(move |db| found.fetch(db)).await,
        }
    }

    /// Reads from the file on a thread that may block. What can't be read any more is damage, and is
    /// answered when the store is opened again: until then nothing more is built on it.
    async fn read_file<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Result<T, error::Fault> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || {
            shared.readers.read(read).map_err(|fault| {
                let why = Unavailable(fault.sentence(&shared.files.directory).into());
                if fault.is_damage() {
                    shared.fail(&why);
                }
                why
            })
        });
        reading.await.unwrap_or_else(|_| Err(Unavailable("reading from it was cut short".into())))
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = &self.shared.files.directory;
        f.debug_struct("EmbeddedStore").field("directory", directory).finish_non_exhaustive()
    }
}

impl Drop for EmbeddedStore {
    /// Ends the writer, as a crash would: what was acknowledged is durable, acks and trims since the
    /// last note are lost. See [`Store::close`] for the orderly way.
    fn drop(&mut self) {
        self.shared.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join(); // it says itself why it ended
        }
    }
}

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

/// What a change does besides changing its session, and what comes of it.
type Audited<T, R> = (Trace, Option<AuditRecord>, Result<T, R>);

/// A token that was used twice revokes all others: that must be durable as well.
fn audited<T, R: RevokesTokens>(attempt: Option<&Attempt>, outcome: Result<T, R>) -> Audited<T, R> {
    let changed = outcome.as_ref().map_or_else(R::revokes_tokens, |_| true);
    let trace = if changed { Trace::Row } else { Trace::Nothing };
    (trace, AuditRecord::of_change(attempt, &outcome), outcome)
}

fn row_if_ok<T, R>(outcome: Result<T, R>) -> (Trace, Result<T, R>) {
    (if outcome.is_ok() { Trace::Row } else { Trace::Nothing }, outcome)
}
