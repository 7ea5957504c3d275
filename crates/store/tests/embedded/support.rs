//! Helpers that speak of sessions and events instead of structs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::lifetime::Lifetime;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::{EntryKind, MessageDigest, Weight};
use rejoin_core::record::{About, Kind, Record, Transport};
use rejoin_core::state::{
    Append, Appended, Attach, Create, Detach, Enter, NewEvent, NewSnapshot, Recovery, Room,
    Takeover,
};
use rejoin_core::{Epoch, Generation, InSeq, LogId, Principal, Seq, SessionId, Term, Timestamp};
use rejoin_store::embedded::{EmbeddedStore, OpenError, OpenReport, Options};
use rejoin_store::{Body, PageLimit, Store, StoredEvent};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The same numbers for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Options for tests: nothing expires by itself, everything else as by default.
pub(crate) fn options(directory: &Path) -> Options {
    let mut dice = Dice(42);
    Options {
        directory: directory.to_path_buf(),
        bounds: LogBounds::default(),
        max_buffered_bytes: u64::MAX,
        max_bytes_per_principal: u64::MAX,
        audit_max: 1_000,
        memory_bytes: 256 * 1024 * 1024,
        disk_reserve: 0,
        notice_copies: false,
        accept_data_loss: false,
        recovery: Recovery { now: at(1_000), keep_for: HOUR, longest: 1000 * HOUR },
        random: Box::new(move |bytes| bytes.fill_with(|| dice.roll() as u8)),
    }
}

pub(crate) fn open(directory: &Path) -> (EmbeddedStore, OpenReport) {
    try_open(directory).expect("the store opens")
}

pub(crate) fn try_open(directory: &Path) -> Result<(EmbeddedStore, OpenReport), OpenError> {
    EmbeddedStore::open(options(directory))
}

/// Opens it and expects that nothing is missing.
pub(crate) fn open_whole(directory: &Path) -> EmbeddedStore {
    let (store, report) = open(directory);
    assert_eq!(report.damage, [], "nothing is missing");
    store
}

pub(crate) fn session_id(number: u64) -> SessionId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    SessionId::from_random(bytes)
}

pub(crate) fn first_epoch() -> Epoch {
    Epoch::from_text("first")
}

pub(crate) fn creation(number: u64) -> Create {
    let about = About {
        id: session_id(number),
        principal: Principal::anonymous(),
        kind: Kind::Agent,
        client: "{}".into(),
        created_at: at(1),
    };
    let (log, epoch) = (LogId::new(number), first_epoch());
    Create { about, log, epoch, keep_for: 100 * HOUR, room: Room::UNLIMITED }
}

pub(crate) fn body(bytes: impl AsRef<[u8]>) -> Body {
    Arc::from(bytes.as_ref())
}

pub(crate) fn events_from(first: Seq, bodies: &[Body]) -> Append<Body> {
    let event =
        |body: &Body| NewEvent { weight: Weight::passing(body.len()), body: Arc::clone(body) };
    Append {
        term: Term::ZERO,
        first,
        events: bodies.iter().map(event).collect(),
        snapshot: None,
        covers: None,
        answered: Vec::new(),
        named: true,
        key: None,
        now: at(2),
    }
}

pub(crate) fn with_state(mut append: Append<Body>, state: Body, covers: InSeq) -> Append<Body> {
    append.snapshot = Some(NewSnapshot { size: state.len() as u32, body: state });
    append.covers = Some(covers);
    append
}

pub(crate) fn message(id: &str, content: Body) -> Enter<Body> {
    Enter {
        generation: None,
        kind: EntryKind::Message,
        digest: Some(MessageDigest::of(id, &content)),
        size: content.len() as u32,
        body: content,
        max_waiting_bytes: 1 << 20,
        keep_for: HOUR,
        now: at(3),
    }
}

pub(crate) fn attachment() -> Attach {
    Attach {
        principal: Principal::anonymous(),
        transport: Transport::WebSocket,
        takeover: Takeover::Replace,
        token: None,
        attempt: None,
        now: at(4),
    }
}

pub(crate) fn departure(generation: Generation) -> Detach {
    Detach { generation, lifetime: Lifetime::keeping(HOUR), now: at(5) }
}

/// Appends at the head, wherever that is.
pub(crate) async fn append(store: &dyn Store, id: &SessionId, bodies: &[Body]) -> Appended {
    let head = record(store, id).await.head;
    store.append(id, events_from(head.next(), bodies)).await.expect("appended")
}

pub(crate) async fn record(store: &dyn Store, id: &SessionId) -> Record {
    store.session(id).await.expect("the store works").expect("the session is known")
}

/// All events that are held, page by page.
pub(crate) async fn read_all(store: &dyn Store, id: &SessionId) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    let mut after = Seq::ZERO;
    loop {
        let page = store.read(id, after, PageLimit::default()).await.expect("the store works");
        let page = page.expect("the session is known");
        let Some(last) = page.events.last() else { return events };
        after = last.seq;
        events.extend(page.events);
    }
}

/// The bytes of the store's files, as they count against the disk.
pub(crate) fn file_bytes(directory: &Path) -> u64 {
    let length = |name| std::fs::metadata(directory.join(name)).map_or(0, |file| file.len());
    length("rejoin.db") + length("rejoin.db-wal")
}
