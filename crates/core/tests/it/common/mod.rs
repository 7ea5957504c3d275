//! Words for the tests: moments, a session as a store holds it, and what is done to it. Every test
//! passes the time in; nothing here waits.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part")]

pub mod live;

use std::sync::Arc;
use std::time::Duration;

use rejoin_core::lifetime::Lifetime;
use rejoin_core::log::{EntryKind, MessageDigest, Weight};
use rejoin_core::page::Body;
use rejoin_core::record::{About, Ending, Kind, Transport};
use rejoin_core::state::{
    Ack, AckRefused, Append, AppendRefused, Appended, Attach, Attached, Create, Detach, End, Enter,
    EnterRefused, Entered, NewEvent, NewSnapshot, Room, SessionState, TakeLease, Takeover,
};
use rejoin_core::{Epoch, InSeq, LogId, Principal, ProcessId, Seq, SessionId, Term, Timestamp};

pub type Stored = SessionState<Body>;

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

/// How long sessions live in the tests.
pub const SESSION_TTL: Duration = Duration::from_secs(24 * 3600);

/// When every test begins.
pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// So many seconds after the start.
pub fn at(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

pub fn seq(n: u64) -> Seq {
    Seq::new(n)
}

pub fn in_seq(n: u64) -> InSeq {
    InSeq::new(n)
}

pub fn body(text: &str) -> Body {
    Arc::from(text.as_bytes())
}

/// What it says: an event's content, or all of anything else.
pub fn text(body: &Body) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let content = text.strip_prefix(r#"{"event":"said","content":""#);
    let content = content.and_then(|rest| rest.strip_suffix(r#"","metadata":{}}"#));
    content.map_or_else(|| text.clone(), str::to_owned)
}

pub fn me() -> Principal {
    Principal::new("me")
}

pub fn somebody_else() -> Principal {
    Principal::new("somebody else")
}

pub fn process(n: u8) -> ProcessId {
    ProcessId::from_random([n; 9])
}

pub fn id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// My session of this name, to be made now.
pub fn create(name: &str, now: Timestamp) -> Create {
    let about = About {
        id: id(name),
        principal: me(),
        kind: Kind::Agent,
        client: "".into(),
        created_at: now,
    };
    let log = LogId::from_random(bytes_of(name));
    Create {
        about,
        log,
        epoch: Epoch::from_text(name),
        keep_for: SESSION_TTL,
        room: Room::UNLIMITED,
    }
}

/// Bytes that are the same in every run, and others for every name.
fn bytes_of(name: &str) -> [u8; 8] {
    let mut bytes = [0; 8];
    for (index, byte) in name.bytes().enumerate() {
        bytes[index % 8] ^= byte.rotate_left(index as u32 / 8);
    }
    bytes
}

/// A session that was made at the start.
pub fn session() -> Stored {
    Stored::create(create("session", START))
}

/// The same, whose agent has said so many things.
pub fn session_with(events: u64) -> Stored {
    let mut session = session();
    session.says(events, START);
    session
}

/// I attach without a token; whoever was there is replaced.
pub fn attach(now: Timestamp) -> Attach {
    Attach {
        principal: me(),
        transport: Transport::WebSocket,
        takeover: Takeover::Replace,
        token: None,
        attempt: None,
        now,
    }
}

/// A message with an id, sent over HTTP.
pub fn message(id: &str, content: &str, now: Timestamp) -> Enter<Body> {
    Enter {
        generation: None,
        kind: EntryKind::Message,
        digest: Some(MessageDigest::of(id, content.as_bytes())),
        size: u32::try_from(content.len()).unwrap(),
        body: body(content),
        max_waiting_bytes: 4096,
        keep_for: SESSION_TTL,
        now,
    }
}

pub fn ended_by_user(now: Timestamp) -> End {
    End {
        ending: Ending::Closed,
        only_parked: None,
        only_by: None,
        only_due: false,
        remember_for: HOUR,
        now,
    }
}

pub fn time_ran_out(now: Timestamp) -> End {
    End { ending: Ending::Expired, only_due: true, ..ended_by_user(now) }
}

/// What is done to a session in most tests, in the words of the tests.
pub trait Changes {
    /// I attach.
    fn comes(&mut self, now: Timestamp) -> Attached;
    /// Whoever is attached goes; the session is kept for an hour.
    fn goes(&mut self, now: Timestamp);
    /// The present connection has received everything up to there.
    fn acks(&mut self, up_to: u64) -> Result<(), AckRefused>;
    /// The agent says so many things.
    fn says(&mut self, events: u64, now: Timestamp) -> Appended;
    /// The agent stores a state that covers entries up to there, without an event.
    fn checkpoints(&mut self, state: &str, covers: u64, now: Timestamp) -> Appended;
    /// The agent covers entries up to there, without a state.
    fn covers(&mut self, covers: u64, now: Timestamp) -> Appended;
    /// I send a message under an id.
    fn gets(&mut self, id: &str, content: &str, now: Timestamp) -> Result<Entered, EnterRefused>;
    /// A process takes the lease for a minute.
    fn leased_to(&mut self, n: u8, now: Timestamp) -> Term;
    /// An append of so many events as a process of this term would make it.
    fn append_of(&self, events: u64, term: Term, now: Timestamp) -> Append<Body>;
    /// The events that are held.
    fn held(&self) -> Vec<u64>;
    /// The entries that wait.
    fn waiting(&self) -> Vec<u64>;
    /// The state that is stored.
    fn state(&self) -> Option<String>;
}

impl Changes for Stored {
    fn comes(&mut self, now: Timestamp) -> Attached {
        self.attach(&attach(now)).unwrap()
    }

    fn goes(&mut self, now: Timestamp) {
        let generation = self.vitals.generation;
        self.detach(&Detach { generation, lifetime: Lifetime::keeping(HOUR), now }).unwrap();
    }

    fn acks(&mut self, up_to: u64) -> Result<(), AckRefused> {
        self.ack(&Ack { generation: self.vitals.generation, seq: seq(up_to) })
    }

    fn says(&mut self, events: u64, now: Timestamp) -> Appended {
        self.append(self.append_of(events, self.vitals.term, now)).unwrap()
    }

    fn checkpoints(&mut self, state: &str, covers: u64, now: Timestamp) -> Appended {
        let size = u32::try_from(state.len()).unwrap();
        let snapshot = Some(NewSnapshot { size, body: body(state) });
        let covers = Some(in_seq(covers));
        let append = self.append_of(0, self.vitals.term, now);
        self.append(Append { snapshot, covers, ..append }).unwrap()
    }

    fn covers(&mut self, covers: u64, now: Timestamp) -> Appended {
        let append = self.append_of(0, self.vitals.term, now);
        self.append(Append { covers: Some(in_seq(covers)), ..append }).unwrap()
    }

    fn gets(&mut self, id: &str, content: &str, now: Timestamp) -> Result<Entered, EnterRefused> {
        self.enter(message(id, content, now))
    }

    fn leased_to(&mut self, n: u8, now: Timestamp) -> Term {
        self.take_lease(&TakeLease { holder: process(n), lasts: MINUTE, now }).unwrap()
    }

    fn append_of(&self, events: u64, term: Term, now: Timestamp) -> Append<Body> {
        let first = self.out.head().next();
        let numbered = (0..events).map(|n| format!("event {}", first.plus(n)));
        let events = numbered
            .map(|text| NewEvent { weight: Weight::passing(10), body: body(&text) })
            .collect();
        let (snapshot, covers, answered, named, key) = (None, None, Vec::new(), false, None);
        Append { term, first, events, snapshot, covers, answered, named, key, now }
    }

    fn held(&self) -> Vec<u64> {
        self.out.after(Seq::ZERO).map(|(seq, _)| seq.get()).collect()
    }

    fn waiting(&self) -> Vec<u64> {
        self.inbox.after(InSeq::ZERO).map(|(in_seq, _)| in_seq.get()).collect()
    }

    fn state(&self) -> Option<String> {
        self.snapshot.as_ref().map(|snapshot| text(&snapshot.body))
    }
}

/// What a process learns whose lease was taken.
pub fn fenced(named: u64, current: u64) -> AppendRefused {
    AppendRefused::Fenced { named: Term::new(named), current: Term::new(current) }
}
