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
//! | `calls`, `desk`, `queue`, `request`, `apply`, `batch` | how a call becomes part of a commit: by its caller's own work |
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
mod calls;
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

use rejoin_core::state::{Append, EnterRefused, Entered, SessionState};
use rejoin_core::{SessionId, Timestamp};
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
use crate::audit::AuditRecord;
use crate::contract::{Body, Failure, Parked, Unavailable};

/// Sessions in a directory of the local disk.
///
/// One process at a time may have a directory open. A call that changes something returns once its
/// commit has reached the disk; commits of calls that run at the same time are made together.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// See [`crate::Store::parked_at_start`].
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
    /// last note are lost. See [`crate::Store::close`] for the orderly way.
    fn drop(&mut self) {
        self.shared.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join(); // it says itself why it ended
        }
    }
}

/// What a change does besides changing its session, and what comes of it.
type Audited<T, R> = (Trace, Option<AuditRecord>, Result<T, R>);
