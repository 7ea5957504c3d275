//! What the streams of one MCP session share in this process: whether somebody is there, who reads which
//! stream, and what has been handed to the server behind.
//!
//! A session is attached while it has an open stream or a request under way. Its streams are readers of the
//! log like any other; the one attachment that stands for all of them is kept here, and let go a moment
//! after the last of them has gone, so that a client that calls without a standing stream does not come and
//! go with every call.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rejoin_core::reader::Standing;
use rejoin_core::record::{Record, Transport};
use rejoin_core::{InSeq, Seq, SessionId};
use rejoin_store::{Changes, Unavailable};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard, watch};

use super::Book;
use super::fetched::Fetched;
use super::logged::StreamName;
use crate::presence::Presence;
use crate::sessions::Sessions;
use crate::store_view::StoreView;
use crate::tasks::Owned;

/// How long a session stays attached after its last stream has ended.
const LINGERS: Duration = Duration::from_secs(1);

/// What is known in this process of all MCP sessions that are in use.
#[derive(Debug, Default)]
pub(crate) struct Hubs {
    hubs: Mutex<HashMap<SessionId, Weak<Hub>>>,
    /// Entries that were handed to the server behind and are not dealt with yet. They outlive the hub:
    /// nothing may be handed over a second time only because nobody was there in between.
    handed: Mutex<HashMap<SessionId, BTreeSet<InSeq>>>,
    /// Sessions whose token was used since their client was last given one.
    renewed: Mutex<HashSet<SessionId>>,
    pub(crate) fetched: Fetched,
    /// Sessions whose client was there when the process before this one ended.
    left: Mutex<Vec<SessionId>>,
}

/// What the streams of one session share.
#[derive(Debug)]
pub struct Hub {
    session: SessionId,
    state: Mutex<HubState>,
    /// Held while the attachment is made, so that one is made at a time.
    attaching: tokio::sync::Mutex<()>,
    /// Messages come in through it. It is shut while the client goes over to another session: what comes behind that
    /// is for the other one.
    door: RwLock<()>,
    /// Woken when the last one who was present may have gone.
    gone: Notify,
    /// Counts how often the connections were cut.
    cuts: watch::Sender<u64>,
    /// The revision that was agreed upon, once it is known.
    revision: OnceLock<Box<str>>,
}

#[derive(Debug, Default)]
struct HubState {
    /// How many are present.
    present: usize,
    /// The attachment that somebody keeps for them.
    attached: Option<KeptAttachment>,
    attachments: u64,
    /// Who reads each stream: the last who came.
    readers: HashMap<StreamName, Arc<Notify>>,
    /// How far the general stream has been read.
    general: Option<Seq>,
}

/// An attachment that is kept: which one, for others may have taken over.
#[derive(Debug)]
struct KeptAttachment {
    number: u64,
    presence: Arc<Presence>,
}

/// Somebody is there, until it is dropped.
#[derive(Debug)]
pub struct Present(Arc<Hub>);

/// The right to write a stream, until somebody else comes for it.
#[derive(Debug)]
pub struct Reading {
    hub: Arc<Hub>,
    stream: StreamName,
    replaced: Arc<Notify>,
}

impl Hubs {
    /// Notes the sessions whose client was there when the process before this one ended.
    pub(crate) fn note_left(&self, sessions: Vec<SessionId>) {
        *lock(&self.left) = sessions;
    }

    /// Those sessions, once.
    pub(crate) fn take_left(&self) -> Vec<SessionId> {
        std::mem::take(&mut *lock(&self.left))
    }

    /// The hub of a session.
    pub(crate) fn of(&self, session: &SessionId) -> Arc<Hub> {
        let mut hubs = lock(&self.hubs);
        if let Some(hub) = hubs.get(session).and_then(Weak::upgrade) {
            return hub;
        }
        if hubs.len() >= hubs.capacity() {
            hubs.retain(|_, hub| hub.strong_count() > 0); // before the map would grow
        }
        let hub = Arc::new(Hub {
            session: session.clone(),
            state: Mutex::default(),
            attaching: tokio::sync::Mutex::default(),
            door: RwLock::default(),
            gone: Notify::new(),
            cuts: watch::Sender::new(0),
            revision: OnceLock::new(),
        });
        hubs.insert(session.clone(), Arc::downgrade(&hub));
        hub
    }

    /// Notes that an entry is being handed to the server behind.
    pub(crate) fn hand(&self, session: &SessionId, in_seq: InSeq) {
        lock(&self.handed).entry(session.clone()).or_default().insert(in_seq);
    }

    /// Whether an entry was handed to a server behind by this process.
    pub(crate) fn was_handed(&self, session: &SessionId, in_seq: InSeq) -> bool {
        lock(&self.handed).get(session).is_some_and(|handed| handed.contains(&in_seq))
    }

    /// Notes that an entry was refused unseen.
    pub(crate) fn not_handed(&self, session: &SessionId, in_seq: InSeq) {
        self.settled(session, in_seq);
    }

    /// Notes that an entry is dealt with.
    pub(crate) fn settled(&self, session: &SessionId, in_seq: InSeq) {
        let mut handed = lock(&self.handed);
        if let Some(entries) = handed.get_mut(session) {
            entries.remove(&in_seq);
            if entries.is_empty() {
                handed.remove(session);
            }
        }
    }

    /// Notes that a session's token was used.
    pub(crate) fn token_used(&self, session: &SessionId) {
        lock(&self.renewed).insert(session.clone());
    }

    /// Whether a session's token was used since this was last asked.
    pub(crate) fn take_renewed(&self, session: &SessionId) -> bool {
        lock(&self.renewed).remove(session)
    }

    /// Forgets a session that is over.
    pub(crate) fn forget(&self, session: &SessionId) {
        lock(&self.handed).remove(session);
        self.forget_answers(session);
    }

    /// Forgets what the clients of a session have fetched. What its server was handed is known for as
    /// long as somebody may hand it over.
    pub(crate) fn forget_answers(&self, session: &SessionId) {
        lock(&self.renewed).remove(session);
        self.fetched.forget(session);
    }
}

impl Hub {
    /// Says that somebody is there: the session is attached if it was not. Where `anew` is set it is
    /// attached again in any case, under the next generation: a stream has been replaced.
    pub async fn enter(
        self: &Arc<Self>,
        sessions: &Sessions,
        record: &Record,
        transport: Transport,
        anew: bool,
    ) -> Present {
        let present = self.count_in();
        if !anew && self.is_attached_for_good() {
            return present;
        }
        let (hub, own, record) = (Arc::clone(self), sessions.clone(), record.clone());
        // To its end: who is superseded by it counts on it to stand for all of them.
        let attached = sessions.finish(|owned| async move {
            let _one_at_a_time = hub.attaching.lock().await;
            if anew || hub.lock().attached.is_none() {
                hub.attach(owned, &own, &record, transport).await;
            }
        });
        let _ = attached.await; // the server is going down: whoever reads the log is told so
        present
    }

    /// Whether there is an attachment that nobody is replacing right now. It stays while somebody is counted in.
    fn is_attached_for_good(&self) -> bool {
        self.attaching.try_lock().is_ok() && self.is_attached()
    }

    /// The same for somebody who is there only as long as another is.
    pub(crate) fn count_in(self: &Arc<Self>) -> Present {
        self.lock().present += 1;
        Present(Arc::clone(self))
    }

    async fn attach(
        self: &Arc<Self>,
        owned: Owned,
        sessions: &Sessions,
        record: &Record,
        transport: Transport,
    ) {
        let changes = sessions.store().changes(&self.session);
        // If it fails the session is over or the store is: whoever reads the log is told so.
        let Ok(presence) = sessions.be_present(owned, record, transport).await else { return };
        let presence = Arc::new(presence);
        let number = {
            let mut state = self.lock();
            state.attachments += 1;
            let number = state.attachments;
            state.attached = Some(KeptAttachment { number, presence: Arc::clone(&presence) });
            number
        };
        let (hub, stopping) = (Arc::clone(self), sessions.stopping());
        let store = sessions.store().clone();
        sessions.spawn(|_| async move {
            tokio::select! {
                () = keep(&hub, &store, changes, &presence, number) => {}
                () = stopping => hub.taken_away(number),
            }
        });
    }

    /// Lets a message in, once the door is open.
    pub(crate) async fn go_through(&self) -> RwLockReadGuard<'_, ()> {
        self.door.read().await
    }

    /// Lets no message in meanwhile.
    pub(crate) async fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        self.door.write().await
    }

    /// Takes a stream over from whoever reads it.
    pub(crate) fn read(self: &Arc<Self>, stream: &StreamName) -> Reading {
        let replaced = Arc::new(Notify::new());
        let before = self.lock().readers.insert(stream.clone(), Arc::clone(&replaced));
        if let Some(before) = before {
            before.notify_one();
        }
        Reading { hub: Arc::clone(self), stream: stream.clone(), replaced }
    }

    /// Whether somebody reads a stream.
    pub fn is_read(&self, stream: &StreamName) -> bool {
        self.lock().readers.contains_key(stream)
    }

    /// Whether somebody reads any stream.
    pub fn has_readers(&self) -> bool {
        !self.lock().readers.is_empty()
    }

    /// Whether somebody keeps an attachment.
    pub fn is_attached(&self) -> bool {
        self.lock().attached.is_some()
    }

    /// Notes in the store that the client has everything up to `seq`. Only a client of one stream can be
    /// said to: where there are several, each stands elsewhere.
    pub(crate) fn has_all_up_to(&self, seq: Seq) {
        if let Some(kept) = &self.lock().attached {
            drop(kept.presence.ack(seq)); // if it comes to nothing it is offered once more
        }
    }

    /// How far the general stream has been read in this process.
    pub fn general(&self) -> Option<Seq> {
        self.lock().general
    }

    /// Notes how far the general stream has been read.
    pub(crate) fn general_read(&self, seq: Seq) {
        let mut state = self.lock();
        state.general = state.general.max(Some(seq));
    }

    /// The revision that client and server have agreed upon; nothing before they have.
    pub async fn revision(&self, store: &StoreView) -> Result<Option<&str>, Unavailable> {
        if self.revision.get().is_none() {
            let snapshot = store.snapshot(&self.session).await?;
            let book = Book::from_body(snapshot.as_ref().map(|snapshot| &snapshot.body));
            if let Some(revision) = book.revision() {
                let _ = self.revision.set(revision.into()); // somebody else read the same
            }
        }
        Ok(self.revision.get().map(|revision| &**revision))
    }

    /// Changes when the connections are to be cut.
    pub(crate) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }
}

/// Keeps the attachment until nobody has been there for a while, or it is taken away.
async fn keep(
    hub: &Hub,
    store: &StoreView,
    mut changes: Changes,
    presence: &Presence,
    number: u64,
) {
    loop {
        tokio::select! {
            () = changes.changed() => {
                let Ok(record) = store.session(&hub.session).await else {
                    break hub.taken_away(number); // whoever reads the log is told so
                };
                match Standing::of(record.as_ref(), presence.generation()) {
                    Standing::Attached => {}
                    // A stream was replaced, and another attachment stands for the rest of them.
                    Standing::Superseded => break,
                    Standing::Cut | Standing::Ended => break hub.taken_away(number),
                }
            }
            () = hub.nobody_for_a_while() => {
                if hub.let_go(number) {
                    break;
                }
            }
        }
    }
}

impl Hub {
    async fn nobody_for_a_while(&self) {
        loop {
            let gone = self.gone.notified();
            if self.lock().present > 0 {
                gone.await;
                continue;
            }
            tokio::time::sleep(LINGERS).await;
            return;
        }
    }

    /// Nobody may have come meanwhile.
    fn let_go(&self, number: u64) -> bool {
        let mut state = self.lock();
        let ours = state.is_attached_by(number);
        let go = state.present == 0 || !ours;
        if go && ours {
            state.attached = None;
        }
        go
    }

    /// The driver has ended the attachment: somebody cut the connection, or the session is over. If
    /// another one has taken its place the streams go on.
    fn taken_away(&self, number: u64) {
        let mut state = self.lock();
        if state.is_attached_by(number) {
            state.attached = None;
            drop(state);
            self.cuts.send_modify(|cuts| *cuts += 1);
        }
    }
}

impl HubState {
    fn is_attached_by(&self, number: u64) -> bool {
        self.attached.as_ref().is_some_and(|kept| kept.number == number)
    }
}

impl Reading {
    /// What the streams of its session share.
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Waits until somebody else has come for the stream.
    pub(crate) async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.present -= 1;
        if state.present == 0 {
            drop(state);
            self.0.gone.notify_waiters();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        let ours = |known: &Arc<Notify>| Arc::ptr_eq(known, &self.replaced);
        if state.readers.get(&self.stream).is_some_and(ours) {
            state.readers.remove(&self.stream);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
