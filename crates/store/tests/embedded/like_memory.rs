//! Whatever is done to it, the embedded store answers and shows what the memory store does, also
//! after being dropped in the middle and opened again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rejoin_core::codes::Reason;
use rejoin_core::limits::{GRACE_AFTER_START, LogBounds, REMEMBERED_ID_BYTES};
use rejoin_core::log::{EntryKind, Weight};
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{
    Ack, End, Keep, NewSnapshot, NewToken, Origin, Recovery, Renew, Restore, TakeLease, Takeover,
    TokenUse,
};
use rejoin_core::token::TokenHash;
use rejoin_core::{Epoch, InSeq, Principal, ProcessId, Seq, SessionId, Term, Timestamp};
use rejoin_store::audit::AuditRecord;
use rejoin_store::embedded::{EmbeddedStore, Options};
use rejoin_store::{Body, MemoryStore, PageLimit, Query, Restoration, Store};

use crate::support::{
    Dice, HOUR, at, attachment, creation, departure, events_from, message, options, read_all,
    session_id,
};

const SESSIONS: u64 = 12;

const ALL: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

fn bounds() -> LogBounds {
    let minute = Duration::from_secs(60);
    LogBounds { events: 20, bytes: 8_000, retention: minute, result_retention: minute }
}

/// Both stores, the time, and what may differ since the last crash.
struct World {
    dice: Dice,
    now: u64,
    embedded: EmbeddedStore,
    memory: MemoryStore,
    next_session: u64,
    /// Whether some events are results.
    results: bool,
    /// Sessions some of whose acks and trims a crash may have taken back.
    loose: BTreeSet<SessionId>,
}

fn small_store(directory: &Path, now: u64) -> Options {
    let mut options = options(directory);
    options.bounds = bounds();
    options.memory_bytes = 20_000;
    options.recovery = Recovery { now: at(now), keep_for: HOUR, longest: 1000 * HOUR };
    options
}

impl World {
    fn new(directory: &Path, seed: u64) -> Self {
        let (embedded, report) = EmbeddedStore::open(small_store(directory, 1)).unwrap();
        assert_eq!(report.damage, []);
        let memory = MemoryStore::new(bounds(), 1_000);
        let loose = BTreeSet::new();
        let (dice, next_session, results) = (Dice(seed), 0, false);
        Self { dice, now: 1, embedded, memory, next_session, results, loose }
    }

    fn some_session(&mut self) -> SessionId {
        session_id(self.dice.below(self.next_session + 1))
    }

    fn some_body(&mut self) -> Body {
        let length = if self.dice.one_in(20) { 9_000 } else { self.dice.below(600) };
        (0..length).map(|_| self.dice.roll() as u8).collect::<Vec<u8>>().into()
    }

    /// One random change, to both.
    async fn step(&mut self) {
        self.now += self.dice.below(3_000);
        let id = self.some_session();
        let now = at(self.now);
        let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
        let known = b.session(&id).await.unwrap();
        let generation = known.as_ref().map(|record| record.generation).unwrap_or_default();
        match self.dice.below(21) {
            0 | 1 if self.next_session < SESSIONS => {
                self.next_session += 1;
                let create = creation(self.next_session);
                assert_eq!(a.create(create.clone()).await, b.create(create).await);
            }
            0..=7 => {
                let count = self.dice.below(4);
                let bodies: Vec<Body> = (0..count).map(|_| self.some_body()).collect();
                let head = known.as_ref().map_or(Seq::ZERO, |record| record.head);
                let wrong = u64::from(self.dice.one_in(20));
                let mut append = events_from(head.next().plus(wrong), &bodies);
                for event in &mut append.events {
                    if self.results && self.dice.one_in(3) {
                        event.weight = Weight::result(event.body.len());
                    }
                }
                append.now = now;
                append.term = known.as_ref().map_or(Term::ZERO, |record| record.term);
                if self.dice.one_in(4) {
                    let state = self.some_body();
                    append.snapshot = Some(NewSnapshot { size: state.len() as u32, body: state });
                }
                if self.dice.one_in(4) {
                    append.covers = Some(InSeq::new(self.dice.below(20)));
                }
                for _ in 0..self.dice.below(3) {
                    append.answered.push(InSeq::new(self.dice.below(30)));
                }
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.append(&id, append.clone()).await, b.append(&id, append).await);
            }
            8..=10 => {
                let name = format!("m{}", self.dice.below(40));
                let mut enter = message(&name, self.some_body());
                enter.now = now;
                enter.kind =
                    if self.dice.one_in(5) { EntryKind::Cancel } else { EntryKind::Message };
                if self.dice.one_in(5) {
                    enter.digest = None;
                }
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.enter(&id, enter.clone()).await, b.enter(&id, enter).await);
            }
            11 => {
                let mut attach = attachment();
                attach.now = now;
                let (x, y) = (a.attach(&id, attach.clone()).await, b.attach(&id, attach).await);
                assert_eq!(x.is_ok(), y.is_ok());
            }
            12 => {
                let mut detach = departure(generation);
                detach.now = now;
                assert_eq!(a.detach(&id, detach).await, b.detach(&id, detach).await);
            }
            13 | 14 => {
                let head = known.map_or(0, |record| record.head.get());
                let ack = Ack { generation, seq: Seq::new(self.dice.below(head + 2)) };
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.ack(&id, ack).await, b.ack(&id, ack).await);
            }
            15 => {
                let holder = ProcessId::from_random([self.dice.below(2) as u8; 9]);
                let take = TakeLease { holder, lasts: Duration::from_secs(1), now };
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.take_lease(&id, take.clone()).await, b.take_lease(&id, take).await);
            }
            16 => {
                let keep = Keep { generation, until: at(self.now + self.dice.below(200_000)) };
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.keep(&id, keep).await, b.keep(&id, keep).await);
            }
            17 => {
                let token = some_token(self.dice.below(5), now);
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                assert_eq!(a.put_token(&id, token, now).await, b.put_token(&id, token, now).await);
            }
            18 => {
                let token = TokenUse {
                    hash: some_token(self.dice.below(5), now).hash,
                    successor: some_token(5 + self.dice.below(5), now),
                    generation,
                    by_call: self.dice.one_in(4),
                };
                let principal = Principal::anonymous();
                let renew = Renew { principal, token, attempt: None, keep_for: HOUR, now };
                let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
                let (x, y) = (a.renew(&id, renew.clone()).await, b.renew(&id, renew).await);
                assert_eq!(x.map(|ok| ok.token), y.map(|ok| ok.token));
            }
            19 => self.end_or_forget(&id, now).await,
            _ => self.restore(&id, now).await,
        }
        if self.dice.one_in(20) {
            let (x, y) = (self.embedded.settle(now).await, self.memory.settle(now).await);
            assert_eq!(x, y);
        }
        self.compare(&id).await;
    }

    async fn end_or_forget(&mut self, id: &SessionId, now: Timestamp) {
        let endings = [Ending::Closed, Ending::Expired, Ending::CleanedUp];
        let ending = endings[self.dice.below(3) as usize].clone();
        let forget = self.dice.one_in(2);
        let end = End {
            ending,
            only_parked: None,
            only_by: None,
            only_due: false,
            remember_for: HOUR / 60,
            now,
        };
        let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
        if forget {
            assert_eq!(a.forget(id, now).await, b.forget(id, now).await);
            return;
        }
        let (x, y) = (a.end(id, end.clone()).await, b.end(id, end).await);
        assert_eq!(x.map(|_| ()), y.map(|_| ()));
    }

    async fn restore(&mut self, from: &SessionId, now: Timestamp) {
        if self.next_session >= SESSIONS {
            return;
        }
        self.next_session += 1;
        let state = self.some_body();
        let mut create = creation(self.next_session);
        create.about.created_at = now;
        let (seq, in_seq) = (Seq::new(self.dice.below(30)), InSeq::new(self.dice.below(10)));
        let restore = Restore {
            from: from.clone(),
            origin: Origin::Unsaid,
            create,
            epoch: Epoch::from_text("the snapshot's"),
            seq,
            in_seq,
            taken_at: now,
            state: NewSnapshot { size: state.len() as u32, body: state },
            last_seq: None,
            takeover: Takeover::Replace,
            remember_for: HOUR,
            only_at: None,
            attempt: None,
            now,
        };
        let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
        let (x, y) = (a.restore(restore.clone()).await, b.restore(restore).await);
        let id = |done: &Restoration| done.record().id().clone();
        assert_eq!(x.as_ref().map(id), y.as_ref().map(id));
        if self.loose.contains(from)
            && let Ok(done) = x
        {
            self.loose.insert(id(&done));
        }
    }

    /// Everything a reader can see of a session.
    async fn compare(&self, id: &SessionId) {
        let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
        let (mut x, mut y) = (a.session(id).await.unwrap(), b.session(id).await.unwrap());
        if let (Some(x), Some(y)) = (&mut x, &mut y) {
            // The memory store trims also when an append is refused.
            assert!(x.oldest <= y.oldest, "nothing is trimmed too early");
            assert!(x.held() <= bounds().events as u64, "nothing is kept for ever");
            (x.oldest, x.held_bytes) = (y.oldest, y.held_bytes);
            if self.loose.contains(id) {
                assert!(x.acked <= y.acked, "a crash takes acks back, and makes none up");
                x.acked = y.acked;
            }
        }
        assert_eq!(x, y);
        let Some(y) = y else { return };
        let mut kept = a.read_kept(id, Seq::ZERO, ALL).await.unwrap();
        let left = b.read_kept(id, Seq::ZERO, ALL).await.unwrap();
        kept.extend(read_all(a, id).await);
        assert!(left.iter().all(|event| kept.contains(event)), "no result goes too early");
        let mut events = read_all(a, id).await;
        events.retain(|event| event.seq >= y.oldest);
        assert_eq!(events, read_all(b, id).await);
        let limit = PageLimit { events: 3, bytes: 1_000 };
        let after = y.oldest;
        let (x, y) =
            (a.read(id, after, limit).await.unwrap(), b.read(id, after, limit).await.unwrap());
        assert_eq!(x.map(|page| page.events), y.map(|page| page.events));
        let after = InSeq::ZERO;
        assert_eq!(a.entries(id, after, 99).await, b.entries(id, after, 99).await);
        assert_eq!(a.snapshot(id).await, b.snapshot(id).await);
    }

    async fn compare_all(&self) {
        for number in 0..=SESSIONS {
            self.compare(&session_id(number)).await;
        }
        let query = Query { limit: 100, ..Query::default() };
        let ids = |records: Vec<Record>| records.iter().map(|r| r.id().clone()).collect::<Vec<_>>();
        let (a, b) = (&self.embedded as &dyn Store, &self.memory as &dyn Store);
        assert_eq!(ids(a.sessions(&query).await.unwrap()), ids(b.sessions(&query).await.unwrap()));
        let (x, y) =
            (a.due(at(u64::MAX), 99).await.unwrap(), b.due(at(u64::MAX), 99).await.unwrap());
        assert_eq!(ids(x.records), ids(y.records));
        for store in [a, b] {
            let held: u64 =
                store.sessions(&query).await.unwrap().iter().map(|r| r.held_bytes as u64).sum();
            let counted: u64 = store.measurements().unwrap().buffered_bytes.load(Ordering::Relaxed);
            assert_eq!(counted, held, "what is held is counted");
        }
        let fixed = |store: &dyn Store| store.held_by(&Principal::anonymous()).unwrap().fixed;
        // Ids may be remembered for longer; everything else is counted alike, also after a restart.
        let more = fixed(a).checked_sub(fixed(b)).expect("nothing is counted too little");
        assert_eq!(more % REMEMBERED_ID_BYTES as u64, 0, "{} and {}", fixed(a), fixed(b));
    }

    /// Ends the embedded store, by closing or dropping it, and opens it again; does to the memory
    /// store what opening does.
    async fn open_again(mut self, directory: &Path) -> Self {
        let orderly = self.dice.one_in(3);
        if orderly {
            self.embedded.close().await.unwrap();
        }
        drop(self.embedded);
        let (embedded, report) = EmbeddedStore::open(small_store(directory, self.now)).unwrap();
        assert_eq!(report.damage, []);
        self.embedded = embedded;
        // The first commit writes down that the sessions are parked; until then, opening it once more
        // would park them as of then.
        self.embedded.audit(some_audit_record()).await.unwrap();
        for number in 0..=SESSIONS {
            let id = session_id(number);
            let Some(record) = self.memory.session(&id).await.unwrap() else { continue };
            if !orderly {
                self.loose.insert(id.clone());
            }
            if !record.is_active() {
                continue;
            }
            let now = at(self.now);
            if record.attached.is_some() {
                let mut detach = departure(record.generation);
                detach.now = now;
                self.memory.detach(&id, detach).await.unwrap();
            }
            self.memory.give_up_lease(&id, record.term).await.unwrap();
            let expires = self.memory.session(&id).await.unwrap().unwrap().expires_at;
            let until = expires.clamp(now + GRACE_AFTER_START, now + 1000 * HOUR);
            let keep = Keep { generation: record.generation, until };
            self.memory.keep(&id, keep).await.unwrap();
            // Opening trims, and the memory store trims when something is appended.
            let mut nothing = events_from(record.head.next(), &[]);
            (nothing.term, nothing.now) = (record.term, now);
            self.memory.append(&id, nothing).await.unwrap();
        }
        self
    }
}

fn some_token(number: u64, now: Timestamp) -> NewToken {
    NewToken { hash: TokenHash([number as u8; 32]), expires_at: now + HOUR }
}

fn some_audit_record() -> AuditRecord {
    AuditRecord {
        at: at(1),
        session_id: None,
        principal: Principal::anonymous(),
        address: None,
        transport: "test".into(),
        action: "reconnect".into(),
        reason: Reason::Reconnected,
    }
}

async fn run(seed: u64, steps: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path(), seed);
    for _ in 0..steps {
        world.step().await;
        if world.dice.one_in(60) {
            world = world.open_again(directory.path()).await;
            world.compare_all().await;
        }
    }
    world.compare_all().await;
}

/// Without opening it again: which results were let go before is not written down.
#[tokio::test]
async fn it_keeps_the_results_that_the_memory_store_keeps() {
    for seed in 100..120 {
        println!("seed {seed}");
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(directory.path(), seed);
        world.results = true;
        for _ in 0..400 {
            world.step().await;
        }
        world.compare_all().await;
    }
}

#[tokio::test]
async fn it_behaves_like_the_memory_store_whatever_happens() {
    for seed in 0..40 {
        println!("seed {seed}");
        run(seed, 400).await;
    }
}
