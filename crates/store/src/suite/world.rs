//! What the cases have in common: a store, a time that passes only when they say so, and words for
//! what clients and agents do.
//!
//! The plain verbs (`attach`, `publish`, `say`) do the usual thing and expect it to work. Where a case
//! is about the unusual, it changes one field of a usual value (`attaching`, `appending`, …) and gives
//! that to the store itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_core::lifetime::Lifetime;
use rejoin_core::log::{EntryKind, MessageDigest, Weight};
use rejoin_core::record::{About, Ending, Kind, Record, Transport};
use rejoin_core::state::{
    Append, Attach, Create, Detach, End, Enter, NewEvent, NewSnapshot, NewToken, Origin, Recovery,
    Restore, Room, TakeLease, Takeover, TokenUse,
};
use rejoin_core::token::TokenHash;
use rejoin_core::{
    Epoch, Generation, InSeq, LogId, Principal, ProcessId, Seq, SessionId, Term, Timestamp,
};

use super::Reopen;
use crate::{Body, Failure, MemoryStore, PageLimit, Store};

/// How long sessions are kept here, unless a case is about that.
pub(super) const KEEP: Duration = Duration::from_secs(60 * 60);

/// The shortest time there is.
pub(super) const A_MOMENT: Duration = Duration::from_millis(1);

/// How long leases last here.
pub(super) const LEASE: Duration = Duration::from_secs(30);

/// How long ended sessions are remembered here.
pub(super) const REMEMBER: Duration = Duration::from_secs(10 * 60);

type Opened = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

/// A store under test, with a time of its own.
pub struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) now: Timestamp,
    made: AtomicU64,
    /// Opens what the store left behind; none for a store that leaves nothing.
    reopen: Option<Box<dyn Fn(Recovery) -> Opened + Send + Sync>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("store", &self.store).field("now", &self.now).finish()
    }
}

impl World {
    /// Around an empty store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let now = Timestamp::from_millis(1_794_744_000_000); // 2026-11-15T12:00:00Z
        Self { store, now, made: AtomicU64::new(0), reopen: None }
    }

    /// Around an empty store that can be opened again.
    pub async fn durable<T: Reopen>() -> Self {
        let home = Arc::new(T::new().await);
        let mut world = Self::new(nothing_open());
        world.reopen = Some(Box::new(move |recovery| {
            let home = Arc::clone(&home);
            Box::pin(async move { home.open(recovery).await })
        }));
        world.crash().await;
        world
    }

    /// Lets go of the store without closing it and opens what it left behind.
    pub(super) async fn crash(&mut self) {
        self.store = nothing_open();
        let recovery = Recovery { now: self.now, keep_for: KEEP, longest: 24 * KEEP };
        let reopen = self.reopen.as_ref().expect("only durable stores can be opened again");
        self.store = reopen(recovery).await;
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }
}

/// Stands in while no store is open: what is under test must not be open twice.
fn nothing_open() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// Sessions.
impl World {
    /// A new session of Ann's.
    pub(super) async fn session(&self) -> SessionId {
        let create = self.creating();
        let id = create.about.id.clone();
        self.store.create(create).await.unwrap();
        id
    }

    /// A session of Ann's that is to be made.
    pub(super) fn creating(&self) -> Create {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let about = About {
            id: session_id(&format!("sess_{number:03}")),
            principal: ann(),
            kind: Kind::Agent,
            client: r#"{"name":"suite"}"#.into(),
            created_at: self.now,
        };
        // Logs are named by random bits, and half of all random numbers have the highest bit set.
        let log = LogId::new(u64::MAX - number);
        let epoch = Epoch::from_text(&format!("epoch{number}"));
        Create { about, log, epoch, keep_for: KEEP, room: Room::UNLIMITED }
    }

    /// What the store says of a session that it knows.
    pub(super) async fn record(&self, id: &SessionId) -> Record {
        self.store.session(id).await.unwrap().expect("the session is known")
    }

    /// Ends a session as its user does.
    pub(super) async fn close(&self, id: &SessionId) {
        self.store.end(id, self.ending(Ending::Closed)).await.unwrap();
    }

    /// An end without conditions.
    pub(super) fn ending(&self, ending: Ending) -> End {
        let now = self.now;
        End {
            ending,
            only_parked: None,
            only_by: None,
            only_due: false,
            remember_for: REMEMBER,
            now,
        }
    }
}

/// The client's side.
impl World {
    /// Attaches Ann, whoever was attached before.
    pub(super) async fn attach(&self, id: &SessionId) -> Generation {
        let attached = self.store.attach(id, self.attaching()).await.unwrap();
        attached.record.generation
    }

    /// Ann attaching over a WebSocket, without a token.
    pub(super) fn attaching(&self) -> Attach {
        Attach {
            principal: ann(),
            transport: Transport::WebSocket,
            takeover: Takeover::Replace,
            token: None,
            attempt: None,
            now: self.now,
        }
    }

    /// A client going.
    pub(super) fn detaching(&self, generation: Generation) -> Detach {
        Detach { generation, lifetime: Lifetime::keeping(KEEP), now: self.now }
    }

    /// Enters a message without an id and says its number.
    pub(super) async fn say(&self, id: &SessionId, text: &str) -> InSeq {
        self.store.enter(id, self.entering(None, text)).await.unwrap().in_seq
    }

    /// A message over HTTP, with an id or without.
    pub(super) fn entering(&self, message_id: Option<&str>, text: &str) -> Enter<Body> {
        Enter {
            generation: None,
            kind: EntryKind::Message,
            digest: message_id.map(|id| MessageDigest::of(id, text.as_bytes())),
            size: text.len() as u32,
            body: body(text),
            max_waiting_bytes: 1024 * 1024,
            keep_for: Duration::ZERO,
            now: self.now,
        }
    }

    /// The numbers of the entries that wait for the agent.
    pub(super) async fn waiting(&self, id: &SessionId) -> Vec<u64> {
        let entries = self.store.entries(id, InSeq::ZERO, usize::MAX).await.unwrap();
        entries.iter().map(|entry| entry.in_seq.get()).collect()
    }
}

/// Tokens. A token is named by a word; only its hash matters here.
impl World {
    /// A token that is good for a quarter of an hour.
    pub(super) fn token(&self, word: &str) -> NewToken {
        let expires_at = self.now + Duration::from_secs(15 * 60);
        NewToken { hash: TokenHash::of(word), expires_at }
    }

    /// Gives out a token.
    pub(super) async fn put_token(&self, id: &SessionId, word: &str) {
        self.store.put_token(id, self.token(word), self.now).await.unwrap();
    }

    /// The use of a token that another one follows.
    pub(super) fn using(&self, word: &str, successor: &str) -> TokenUse {
        let (hash, successor) = (TokenHash::of(word), self.token(successor));
        TokenUse { hash, successor, generation: Generation::ZERO, by_call: false }
    }

    /// Ann attaching with a token that another one follows.
    pub(super) fn attaching_with(&self, word: &str, successor: &str) -> Attach {
        Attach { token: Some(self.using(word, successor)), ..self.attaching() }
    }
}

/// The agent's side.
impl World {
    /// Takes the lease for the process that runs the agents here, or keeps it.
    pub(super) async fn lease(&self, id: &SessionId) -> Term {
        self.store.take_lease(id, self.taking(1)).await.unwrap()
    }

    /// A process that wants the lease; they are told apart by their numbers.
    pub(super) fn taking(&self, process: u8) -> TakeLease {
        let holder = ProcessId::from_random([process; 9]);
        TakeLease { holder, lasts: LEASE, now: self.now }
    }

    /// Appends that many events, one by one.
    pub(super) async fn publish(&self, id: &SessionId, count: u64) {
        for _ in 0..count {
            let append = self.appending(id).await;
            let text = format!("event {}", append.first);
            let append = Append { events: vec![event(text)], ..append };
            self.store.append(id, append).await.unwrap();
        }
    }

    /// Appends one event with the agent's state, which covers every entry.
    pub(super) async fn checkpoint(&self, id: &SessionId, text: &str) {
        let append = self.appending(id).await;
        let covers = Some(self.record(id).await.in_head);
        let (events, snapshot) = (vec![event(text)], Some(state(text)));
        self.store.append(id, Append { events, snapshot, covers, ..append }).await.unwrap();
    }

    /// An append of nothing yet, at the head, by the holder of the lease.
    pub(super) async fn appending(&self, id: &SessionId) -> Append<Body> {
        let term = self.lease(id).await;
        let first = self.record(id).await.head.next();
        let (events, snapshot, covers, answered) = (Vec::new(), None, None, Vec::new());
        let (named, key, now) = (false, None, self.now);
        Append { term, first, events, snapshot, covers, answered, named, key, now }
    }

    /// The seqs of all events that are held.
    pub(super) async fn seqs(&self, id: &SessionId) -> Vec<u64> {
        self.seqs_after(id, 0, PageLimit { events: usize::MAX, bytes: usize::MAX }).await
    }

    /// The seqs of one page.
    pub(super) async fn seqs_after(
        &self,
        id: &SessionId,
        after: u64,
        limit: PageLimit,
    ) -> Vec<u64> {
        let page = self.store.read(id, Seq::new(after), limit).await.unwrap().unwrap();
        page.events.iter().map(|event| event.seq.get()).collect()
    }

    /// The text of the agent's last state.
    pub(super) async fn state(&self, id: &SessionId) -> Option<String> {
        let snapshot = self.store.snapshot(id).await.unwrap()?;
        Some(String::from_utf8(snapshot.body.to_vec()).unwrap())
    }
}

/// Restoring.
impl World {
    /// Ann bringing a snapshot with this state, taken of `from` at these positions.
    pub(super) fn restoring(&self, from: &SessionId, seq: u64, in_seq: u64) -> Restore<Body> {
        Restore {
            from: from.clone(),
            origin: Origin::Unsaid,
            create: self.creating(),
            epoch: Epoch::from_text("the snapshot's"),
            seq: Seq::new(seq),
            in_seq: InSeq::new(in_seq),
            taken_at: self.now,
            state: state("sealed"),
            last_seq: None,
            takeover: Takeover::Replace,
            remember_for: REMEMBER,
            only_at: None,
            attempt: None,
            now: self.now,
        }
    }
}

/// The owner of most sessions here.
pub(super) fn ann() -> Principal {
    Principal::new("ann@example.org")
}

/// Somebody else, with a name that needs care in a query.
pub(super) fn bob() -> Principal {
    Principal::new(r#"Bób O'Neil; "%_\"#)
}

/// The id with this text.
pub(super) fn session_id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

/// Bytes as a store takes them.
pub(super) fn body(bytes: impl AsRef<[u8]>) -> Body {
    Body::from(bytes.as_ref())
}

/// An event that is to be appended.
pub(super) fn event(bytes: impl AsRef<[u8]>) -> NewEvent<Body> {
    let bytes = bytes.as_ref();
    NewEvent { weight: Weight::passing(bytes.len()), body: body(bytes) }
}

/// A state that is to be kept.
pub(super) fn state(bytes: impl AsRef<[u8]>) -> NewSnapshot<Body> {
    let bytes = bytes.as_ref();
    NewSnapshot { size: bytes.len() as u32, body: body(bytes) }
}

/// Why the store would not do it.
#[track_caller]
pub(super) fn refusal<T: fmt::Debug, R: fmt::Debug>(result: Result<T, Failure<R>>) -> R {
    match result {
        Err(Failure::Refused(reason)) => reason,
        other => panic!("this should have been refused: {other:?}"),
    }
}
