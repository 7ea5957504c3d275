//! Random changes, each made to both stores, whose answers must be the same.

use std::time::Duration;

use rejoin_core::attempt::Attempt;
use rejoin_core::codes::Reason;
use rejoin_core::lifetime::Lifetime;
use rejoin_core::log::{EntryKind, MessageDigest, Weight};
use rejoin_core::record::{Ending, Kind, Record};
use rejoin_core::state::{
    Ack, Attach, Create, Detach, End, Enter, Keep, NewSnapshot, NewToken, Origin, Renew, Restore,
    TakeLease, Takeover, TokenUse,
};
use rejoin_core::token::TokenHash;
use rejoin_core::{Epoch, InSeq, LogId, ProcessId, Seq, SessionId, Term};
use rejoin_store::audit::AuditRecord;
use rejoin_store::{Body, Restoration};

use super::world::{SESSIONS, World, principal};
use crate::support::{HOUR, attachment, body, creation, events_from, message, session_id};

/// Message ids and idempotency keys are taken from so many.
const NAMES: u64 = 30;

impl World {
    /// One random change, to both.
    pub(super) async fn step(&mut self) {
        self.now += self.dice.below(3_000);
        if self.dice.one_in(200) {
            self.now += 26 * 3_600_000; // ids grow old
        }
        let id = session_id(self.dice.below(self.made + 1));
        match self.dice.below(28) {
            0 | 1 if self.made < SESSIONS => self.create().await,
            0..=8 => self.append(&id).await,
            9..=12 => {
                let name = self.dice.below(NAMES);
                self.enter(&id, name).await;
            }
            13 | 14 => self.attach(&id).await,
            15 => self.detach(&id).await,
            16 | 17 => self.ack(&id).await,
            18 => self.lease(&id).await,
            19 => self.keep(&id).await,
            20 | 21 => self.token(&id).await,
            22 => self.renew(&id).await,
            23 => self.end(&id).await,
            24 => self.forget(&id).await,
            25 => self.audit().await,
            26 => self.settle().await,
            _ => self.restore(&id).await,
        }
        self.compare(&id).await;
    }

    fn some_body(&mut self) -> Body {
        let length = if self.dice.one_in(20) { 9_000 } else { self.dice.below(600) };
        (0..length).map(|_| self.dice.roll() as u8).collect::<Vec<u8>>().into()
    }

    fn creation(&mut self) -> Create {
        self.made += 1;
        let mut create = creation(self.made);
        create.about.created_at = self.now();
        create.about.principal = principal(self.made);
        create.about.kind = if self.dice.one_in(3) { Kind::Mcp } else { Kind::Agent };
        create.log = LogId::new(self.dice.roll());
        create
    }

    async fn create(&mut self) {
        let create = self.creation();
        let (a, b) = self.stores();
        assert_eq!(a.create(create.clone()).await, b.create(create).await);
        assert!(self.said.insert(session_id(self.made), Default::default()).is_none());
    }

    async fn append(&mut self, id: &SessionId) {
        let known = self.record(id).await;
        let count = self.dice.below(4);
        let bodies: Vec<Body> = (0..count).map(|_| self.some_body()).collect();
        let head = known.as_ref().map_or(Seq::ZERO, |record| record.head);
        let mut append = events_from(head.next().plus(self.dice.one_in(20).into()), &bodies);
        let has_results = known.as_ref().is_some_and(|record| record.about.kind == Kind::Mcp);
        for event in &mut append.events {
            if has_results && self.dice.one_in(3) {
                event.weight = Weight::result(event.body.len());
            }
        }
        let term = known.as_ref().map_or(Term::ZERO, |record| record.term);
        (append.now, append.named, append.term) = (self.now(), self.dice.one_in(2), term);
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
        if self.dice.one_in(3) {
            append.key = Some(key(self.dice.below(NAMES)));
        }
        let (a, b) = self.stores();
        let (x, y) = (a.append(id, append.clone()).await, b.append(id, append).await);
        assert_eq!(x, y, "append to {id}");
        if y.is_ok_and(|appended| appended.before.is_none()) {
            let said = self.said.get_mut(id).unwrap();
            said.extend((1..).map(|step| head.plus(step)).zip(bodies));
        }
    }

    /// Sends a message of a name, whose content is the same each time but now and then.
    async fn enter(&mut self, id: &SessionId, name: u64) {
        let other = self.dice.one_in(20);
        let mut enter = named_message(name, other, &self.record(id).await);
        enter.now = self.now();
        enter.kind = if self.dice.one_in(5) { EntryKind::Cancel } else { EntryKind::Message };
        if self.dice.one_in(8) {
            enter.digest = None;
        }
        if self.dice.one_in(2) {
            enter.generation = None;
        }
        let (a, b) = self.stores();
        assert_eq!(a.enter(id, enter.clone()).await, b.enter(id, enter).await, "enter in {id}");
    }

    async fn attach(&mut self, id: &SessionId) {
        let record = self.record(id).await;
        let generation = record.as_ref().map(|record| record.generation).unwrap_or_default();
        let owner = record.map(|record| record.about.principal.clone());
        let token = self.dice.one_in(2).then(|| self.some_use(generation));
        let attach = Attach {
            principal: owner.unwrap_or_else(|| principal(0)),
            takeover: if self.dice.one_in(4) { Takeover::Reject } else { Takeover::Replace },
            token,
            now: self.now(),
            ..attachment()
        };
        let (a, b) = self.stores();
        let (x, y) = (a.attach(id, attach.clone()).await, b.attach(id, attach).await);
        let told = |attached: rejoin_core::state::Attached| (attached.superseded, attached.token);
        assert_eq!(x.map(told), y.map(told), "attach to {id}");
    }

    async fn detach(&mut self, id: &SessionId) {
        let record = self.record(id).await;
        let generation = record.map(|record| record.generation).unwrap_or_default();
        let keep_for = Duration::from_millis(self.dice.below(7_200_000));
        let detach = Detach { generation, lifetime: Lifetime::keeping(keep_for), now: self.now() };
        let (a, b) = self.stores();
        assert_eq!(a.detach(id, detach).await, b.detach(id, detach).await);
    }

    /// Says where the client stands that was told everything there is, or something.
    async fn ack(&mut self, id: &SessionId) {
        let Some(record) = self.record(id).await else { return };
        let seq = Seq::new(self.dice.below(record.head.get() + 2));
        let ack = Ack { generation: record.generation, seq };
        let (a, b) = self.stores();
        assert_eq!(a.ack(id, ack).await, b.ack(id, ack).await);
    }

    async fn lease(&mut self, id: &SessionId) {
        let holder = ProcessId::from_random([self.dice.below(2) as u8; 9]);
        let take = TakeLease { holder, lasts: Duration::from_secs(1), now: self.now() };
        let give_up = self.dice.one_in(3);
        let (a, b) = self.stores();
        let (x, y) = (a.take_lease(id, take.clone()).await, b.take_lease(id, take).await);
        assert_eq!(x, y);
        if let (true, Ok(term)) = (give_up, x) {
            assert_eq!(a.give_up_lease(id, term).await, b.give_up_lease(id, term).await);
        }
    }

    async fn keep(&mut self, id: &SessionId) {
        let Some(record) = self.record(id).await else { return };
        let until = self.now() + Duration::from_millis(self.dice.below(7_200_000));
        let keep = Keep { generation: record.generation, until };
        let (a, b) = self.stores();
        assert_eq!(a.keep(id, keep).await, b.keep(id, keep).await);
    }

    async fn token(&mut self, id: &SessionId) {
        let (token, now) = (self.some_token(), self.now());
        let (a, b) = self.stores();
        assert_eq!(a.put_token(id, token, now).await, b.put_token(id, token, now).await);
    }

    async fn renew(&mut self, id: &SessionId) {
        let Some(record) = self.record(id).await else { return };
        let token = self.some_use(record.generation);
        let principal = record.about.principal.clone();
        let renew = Renew { principal, token, attempt: None, keep_for: HOUR, now: self.now() };
        let (a, b) = self.stores();
        let (x, y) = (a.renew(id, renew.clone()).await, b.renew(id, renew).await);
        assert_eq!(x.map(|ok| ok.token), y.map(|ok| ok.token), "renew {id}");
    }

    fn some_token(&mut self) -> NewToken {
        let hash = TokenHash([self.dice.below(8) as u8; 32]);
        NewToken { hash, expires_at: self.now() + HOUR }
    }

    fn some_use(&mut self, generation: rejoin_core::Generation) -> TokenUse {
        let by_call = self.dice.one_in(4);
        TokenUse { hash: self.some_token().hash, successor: self.some_token(), generation, by_call }
    }

    async fn end(&mut self, id: &SessionId) {
        let endings = [Ending::Closed, Ending::Expired, Ending::CleanedUp, Ending::Expired];
        let end = End {
            ending: endings[self.dice.below(4) as usize].clone(),
            only_parked: None,
            only_by: None,
            only_due: self.dice.one_in(3),
            remember_for: Duration::from_millis(self.dice.below(7_200_000)),
            now: self.now(),
        };
        let (a, b) = self.stores();
        let (x, y) = (a.end(id, end.clone()).await, b.end(id, end).await);
        assert_eq!(x.map(|_| ()), y.map(|_| ()), "end {id}");
    }

    async fn forget(&mut self, id: &SessionId) {
        let now = self.now();
        let (a, b) = self.stores();
        assert_eq!(a.forget(id, now).await, b.forget(id, now).await);
    }

    pub(super) async fn audit(&mut self) {
        let number = self.dice.below(1_000);
        let attempt = Attempt {
            at: self.now(),
            session_id: Some(session_id(number % 4)),
            principal: principal(number),
            address: self.dice.one_in(2).then(|| "127.0.0.1".into()),
            transport: "test".into(),
            action: format!("action {number}").into(),
        };
        let record = AuditRecord { attempt, reason: Reason::Reconnected };
        let (a, b) = self.stores();
        assert_eq!(a.audit(record.clone()).await, b.audit(record).await);
    }

    async fn settle(&mut self) {
        let now = self.now();
        let (a, b) = self.stores();
        assert_eq!(a.settle(now).await, b.settle(now).await);
    }

    async fn restore(&mut self, from: &SessionId) {
        if self.made < SESSIONS {
            self.make_from(from).await;
        }
    }

    /// Restores a session from a snapshot that is older or newer than what the store has.
    async fn make_from(&mut self, from: &SessionId) {
        let known = self.record(from).await;
        let state = self.some_body();
        let mut create = self.creation();
        if let Some(known) = &known {
            create.about.kind = known.about.kind;
            create.about.principal = known.about.principal.clone();
        }
        let to = create.about.id.clone();
        let seq = Seq::new(self.dice.below(30));
        let restore = Restore {
            from: from.clone(),
            origin: Origin::Unsaid,
            attempt: None,
            create,
            epoch: Epoch::from_text("the snapshot's"),
            seq,
            in_seq: InSeq::new(self.dice.below(10)),
            taken_at: self.now(),
            state: NewSnapshot { size: state.len() as u32, body: state },
            last_seq: self.dice.one_in(2).then(|| seq.plus(self.dice.below(5))),
            takeover: Takeover::Replace,
            remember_for: HOUR,
            only_at: None,
            now: self.now(),
        };
        let (a, b) = self.stores();
        let (x, y) = (a.restore(restore.clone()).await, b.restore(restore).await);
        let id = |done: &Restoration| done.record().id().clone();
        assert_eq!(x.as_ref().map(id), y.as_ref().map(id), "restore {from}");
        if y.is_ok_and(|done| *done.record().id() == to) {
            let went_on = known.is_some_and(|known| known.is_active());
            let said = self.said.insert(from.clone(), Default::default()).unwrap_or_default();
            self.said.insert(to.clone(), if went_on { said } else { Default::default() });
            if self.loose.contains(from) {
                self.loose.insert(to);
            }
        }
    }

    /// Restores every session that can be.
    pub(super) async fn bring_all_back(&mut self) {
        for id in self.ids() {
            self.make_from(&id).await;
        }
        self.compare_all().await;
    }

    /// Sends every message and publishes under every key, in all sessions: what is known is a duplicate.
    pub(super) async fn send_everything_again(&mut self) {
        for id in self.ids() {
            for name in 0..NAMES {
                self.enter(&id, name).await;
                self.publish(&id, name).await;
            }
            self.compare(&id).await;
        }
    }

    async fn publish(&mut self, id: &SessionId, name: u64) {
        let Some(record) = self.record(id).await else { return };
        let mut append = events_from(record.head.next(), &[body("again")]);
        (append.term, append.key, append.now) = (record.term, Some(key(name)), self.now());
        let (a, b) = self.stores();
        let (x, y) = (a.append(id, append.clone()).await, b.append(id, append).await);
        assert_eq!(x, y, "publish under key {name} in {id}");
        if y.is_ok_and(|appended| appended.before.is_none()) {
            self.said.get_mut(id).unwrap().insert(record.head.next(), body("again"));
        }
    }
}

/// An idempotency key, always used for the same content.
fn key(name: u64) -> MessageDigest {
    MessageDigest::of(&format!("key{name}"), b"content")
}

fn named_message(name: u64, other: bool, to: &Option<Record>) -> Enter<Body> {
    let content = if other { "other".into() } else { format!("content of {name}") };
    let mut enter = message(&format!("m{name}"), body(content));
    enter.generation = to.as_ref().map(|record| record.generation);
    enter
}
