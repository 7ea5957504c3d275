//! A live session in a test: the state machine, a store in memory that it talks to, and a transcript
//! of what everybody was told.
//!
//! The store answers at once and clients take what they are sent at once, unless a test says
//! otherwise. Who is told what is written down in words, so that a test reads like a conversation:
//!
//! | heard by | what |
//! |---|---|
//! | `A`, `B`, `C` | what a client was told, and how it was closed |
//! | `store` | what the store was asked, in order |
//! | `agent` | what the agent was handed, or that it is to stop |
//! | `producer` | what became of publications |
//! | `sender` | what became of messages |
//! | `policy` | what is to be done about a session without a client |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::lifetime::Verdict;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::{Body, Page, StoredEntry, StoredEvent};
use rejoin_core::position::SeqRange;
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::session::{
    AttachRequest, Covering, Input, Interest, LeaveReason, Message, Output, Publication, Session,
    Settings, Tell, Ticket,
};
use rejoin_core::state::{Append, Attach, SessionState, TakeLease};
use rejoin_core::{AttachmentId, InSeq, Seq, Timestamp};

use super::{START, Stored, attach, body, process, seq, session, text};

pub const A: AttachmentId = AttachmentId(0);
pub const B: AttachmentId = AttachmentId(1);
pub const C: AttachmentId = AttachmentId(2);

pub struct Live {
    pub now: Timestamp,
    pub store: Stored,
    /// What the store's out log keeps to.
    pub bounds: LogBounds,
    /// How many events the store gives out at once.
    pub page_events: usize,
    /// While set, the store does what it is asked, but its answers wait for [`Live::store_answers`].
    pub store_is_slow: bool,
    /// The agent takes what it is handed at once.
    pub agent_takes: bool,
    pub session: Session,
    answers: VecDeque<Input>,
    inputs: VecDeque<Input>,
    slow: BTreeSet<AttachmentId>,
    last_ticket: u64,
    transcript: Vec<(String, String)>,
}

impl Live {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self::of(session(), settings)
    }

    /// A session as the store has it.
    pub fn of(store: Stored, settings: Settings) -> Self {
        Self {
            now: START,
            session: Session::new(store.record(), settings),
            store,
            bounds: LogBounds::default(),
            page_events: 256,
            store_is_slow: false,
            agent_takes: true,
            answers: VecDeque::new(),
            inputs: VecDeque::new(),
            slow: BTreeSet::new(),
            last_ticket: 0,
            transcript: Vec::new(),
        }
    }

    /// What `who` has heard since the last time this was asked.
    pub fn heard_by(&mut self, who: &str) -> Vec<String> {
        let all = std::mem::take(&mut self.transcript);
        let (his, rest) = all.into_iter().partition(|(to, _)| to == who);
        self.transcript = rest;
        his.into_iter().map(|(_, what)| what).collect()
    }

    /// Forgets what was heard so far: the test is about what comes next.
    pub fn all_heard(&mut self) {
        self.transcript.clear();
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    // Time.

    /// Time passes, and whatever was due in it happens when it was due.
    pub fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(due) = self.session.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.happens(Input::Tick);
        }
        self.now = until;
    }

    /// Time passes without anybody looking at it.
    pub fn later(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now + duration;
        self
    }

    // Clients.

    /// A client attaches to a session that was made for it.
    pub fn begins(&mut self, client: AttachmentId) {
        self.attaches(client, None, attach(self.now));
    }

    /// A client comes back with the last seq it has.
    pub fn comes_back(&mut self, client: AttachmentId, last_seq: u64) {
        let asked = Asked { last_seq: Some(seq(last_seq)), ..Asked::default() };
        self.attaches(client, Some(asked), attach(self.now));
    }

    pub fn attaches(&mut self, client: AttachmentId, asked: Option<Asked>, attach: Attach) {
        let request =
            AttachRequest { attachment: client, attach, asked, interest: Interest::Events };
        self.happens(Input::Attach(Box::new(request)));
    }

    pub fn leaves(&mut self, client: AttachmentId) {
        self.happens(Input::Left { attachment: client });
    }

    pub fn speaks(&mut self, client: AttachmentId) {
        self.happens(Input::Heard { attachment: client });
    }

    pub fn pongs(&mut self, client: AttachmentId) {
        self.happens(Input::Pong { attachment: client });
    }

    pub fn acks(&mut self, client: AttachmentId, up_to: u64) {
        self.happens(Input::Ack { attachment: client, seq: seq(up_to), resend: false });
    }

    /// A client noticed a hole after this seq.
    pub fn misses_something_after(&mut self, client: AttachmentId, last: u64) {
        self.happens(Input::Ack { attachment: client, seq: seq(last), resend: true });
    }

    /// From now on the client's transport takes events only when [`Live::takes`] says so.
    pub fn is_slow(&mut self, client: AttachmentId) {
        self.slow.insert(client);
    }

    pub fn takes(&mut self, client: AttachmentId) {
        self.happens(Input::Writable { attachment: client });
    }

    /// A client sends a message under an id.
    pub fn sends(&mut self, client: AttachmentId, id: &str) {
        self.sent(Some(client), id);
    }

    /// A message comes over HTTP, whoever is attached.
    pub fn posted(&mut self, id: &str) {
        self.sent(None, id);
    }

    fn sent(&mut self, from: Option<AttachmentId>, id: &str) {
        let ticket = self.next_ticket();
        let digest = Some(MessageDigest::of(id, id.as_bytes()));
        let kind = EntryKind::Message;
        let message = Message { ticket, from, kind, digest, body: body(id) };
        self.happens(Input::Message(Box::new(message)));
    }

    // The agent.

    /// This process takes the lease, and an agent is started under it.
    pub fn agent_starts(&mut self, covering: Covering) {
        self.leased();
        self.happens(Input::AgentReady { covering });
    }

    pub fn agent_dies(&mut self) {
        self.happens(Input::AgentGone);
    }

    /// This process takes the lease.
    pub fn leased(&mut self) {
        let take = TakeLease { holder: process(1), lasts: super::HOUR, now: self.now };
        let term = self.store.take_lease(&take).unwrap();
        self.happens(Input::Leased { term });
    }

    /// Another process takes the lease, as if this one had been dead for long.
    pub fn lease_is_taken_over(&mut self) {
        self.store.give_up_lease(self.store.vitals.term);
        let take = TakeLease { holder: process(2), lasts: super::HOUR, now: self.now };
        self.store.take_lease(&take).unwrap();
    }

    /// The agent says these things, each an event of one publication.
    pub fn says(&mut self, events: &[&str]) {
        self.publishes(saying(events));
    }

    pub fn publishes(&mut self, publication: Publication) {
        let ticket = self.next_ticket();
        self.happens(Input::Publish { ticket, publication });
    }

    // The store.

    /// The store's oldest answer that waits arrives.
    pub fn store_answers(&mut self) {
        self.answer_arrives(0);
    }

    /// One of the answers that wait arrives, counted from the oldest.
    pub fn answer_arrives(&mut self, index: usize) {
        let answer = self.answers.remove(index).expect("an answer of the store waits");
        self.happens(answer);
    }

    pub fn answers_on_their_way(&self) -> usize {
        self.answers.len()
    }

    // The machine.

    /// Feeds one thing that happened, and carries out everything that comes of it.
    pub fn happens(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            self.session.handle(input, self.now);
            while let Some(output) = self.session.poll_output() {
                self.carry_out(output);
            }
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    fn write(&mut self, who: &str, what: impl Into<String>) {
        self.transcript.push((who.to_owned(), what.into()));
    }

    fn answer(&mut self, answer: Input) {
        if self.store_is_slow { &mut self.answers } else { &mut self.inputs }.push_back(answer);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Attach { attachment, attach } => {
                self.write("store", format!("attach {}", name(attachment)));
                let answer = Box::new(self.store.attach(&attach));
                self.answer(Input::AttachAnswered { attachment, answer });
            }
            Output::Detach { detach, then } => {
                let generation = detach.generation;
                self.write("store", format!("detach generation {generation}"));
                self.write("policy", format!("parked: {}", verdict(then, self.now)));
                let result = self.store.detach(&detach);
                assert_eq!(result, Ok(()), "what is parked is what is attached");
            }
            Output::Ack(ack) => {
                self.write("store", format!("ack {}", ack.seq));
                self.store.ack(&ack).unwrap();
            }
            Output::Enter { ticket, from, enter } => {
                self.write("store", format!("enter {}", text(&enter.body)));
                let answer = self.store.enter(*enter);
                self.answer(Input::EnterAnswered { ticket, from, answer });
            }
            Output::Append(append) => {
                self.write("store", append_in_words(&append));
                let answer = self.store.append(*append);
                self.store.settle(&self.bounds, self.now);
                self.answer(Input::Appended(answer));
            }
            Output::Read { attachment, after } => {
                self.write("store", format!("read for {} after {after}", name(attachment)));
                let page = Some(Box::new(page(&self.store, after, self.page_events)));
                self.answer(Input::Page { attachment, after, page });
            }
            Output::ReadEntries { after } => {
                self.write("store", format!("read entries after {after}"));
                let entries = entries(&self.store, after);
                self.answer(Input::Entries { after, entries });
            }
            Output::Hand(entries) => {
                for StoredEntry { in_seq, body, .. } in entries {
                    self.write("agent", format!("{in_seq}: {}", text(&body)));
                    if self.agent_takes {
                        self.inputs.push_back(Input::Took { in_seq });
                    }
                }
            }
            Output::StopAgent => self.write("agent", "stop"),
            Output::Published { ticket, result } => {
                let what = match result {
                    Ok(published) => format!("published {}…{}", published.first, published.last),
                    Err(refused) => format!("refused: {refused}"),
                };
                self.write("producer", format!("#{} {what}", ticket.0));
            }
            Output::Entered { ticket: _, from, result } => {
                let from = from.map_or("http", name);
                let what = match result {
                    Ok(entered) if entered.duplicate => format!("{} already", entered.in_seq),
                    Ok(entered) => format!("{} entered", entered.in_seq),
                    Err(refused) => format!("refused: {refused}"),
                };
                self.write("sender", format!("{from}: {what}"));
            }
            Output::Tell { attachment, tell } => {
                if matches!(tell, Tell::Events { .. }) && !self.slow.contains(&attachment) {
                    self.inputs.push_back(Input::Writable { attachment });
                }
                self.write(name(attachment), tell_in_words(tell));
            }
            Output::HeartbeatMissed => self.write("metrics", "heartbeat missed".to_owned()),
            Output::Leave { attachment, reason } => {
                let what = match reason {
                    LeaveReason::Closed(code) => format!("closed {}", code.code()),
                    LeaveReason::Refused => "not attached".to_owned(),
                };
                self.write(name(attachment), what);
            }
            Output::WorkDone(then) => {
                self.write("policy", format!("work done: {}", verdict(then, self.now)));
            }
        }
    }
}

/// A publication of these events.
pub fn saying(events: &[&str]) -> Publication {
    let said = |text: &&str| rejoin_core::EventBody::new("said", text).unwrap();
    let events = events.iter().map(said).collect();
    Publication { events, ..Publication::default() }
}

/// With the agent's state after them.
pub fn with_state(state: &str, publication: Publication) -> Publication {
    Publication { state: Some(body(state)), ..publication }
}

/// Saying that entries up to this one are dealt with.
pub fn covering(up_to: u64, publication: Publication) -> Publication {
    Publication { in_seq: Some(InSeq::new(up_to)), ..publication }
}

fn name(attachment: AttachmentId) -> &'static str {
    ["A", "B", "C"][usize::try_from(attachment.0).unwrap()]
}

fn verdict(verdict: Verdict, now: Timestamp) -> String {
    match verdict {
        Verdict::End => "end it".to_owned(),
        Verdict::KeepUntil(until) => format!("keep it {}s", until.since(now).as_secs()),
    }
}

fn append_in_words(append: &Append<Body>) -> String {
    let texts: Vec<String> = append.events.iter().map(|event| text(&event.body)).collect();
    let state = append.snapshot.as_ref().map(|state| format!(", state {}", text(&state.body)));
    let covers = append.covers.map(|in_seq| format!(", covers {in_seq}"));
    let (state, covers) = (state.unwrap_or_default(), covers.unwrap_or_default());
    format!("append from {}: [{}]{state}{covers}", append.first, texts.join(" "))
}

pub fn tell_in_words(tell: Tell) -> String {
    match tell {
        Tell::Confirmed(confirmed) => {
            let how = if confirmed.resumed { "resumed" } else { "new" };
            let (generation, from) = (confirmed.record.generation, confirmed.replay_from);
            let gap = confirmed.gap.map(|gap| format!(", gap {}", gap_in_words(gap)));
            let gap = gap.unwrap_or_default();
            format!("confirmed: {how}, generation {generation}, from {from}{gap}")
        }
        Tell::Refused(refused) => format!("refused: {refused}"),
        Tell::Gap(gap) => format!("gap {}", gap_in_words(gap)),
        Tell::State => "state".to_owned(),
        Tell::Checkpoint => "checkpoint".to_owned(),
        Tell::Events { events, replayed } => {
            let seqs: Vec<String> = events.iter().map(|event| event.seq.to_string()).collect();
            let how = if replayed { "replayed" } else { "live" };
            format!("{how} {}", seqs.join(" "))
        }
        Tell::ReplayComplete { range, replayed } => {
            let all = replayed == range.map_or(0, SeqRange::count);
            let sent = if all { String::new() } else { format!(", {replayed} sent") };
            let range = range.map_or("nothing".to_owned(), |range| range.to_string());
            format!("replay complete: {range}{sent}")
        }
        Tell::Heartbeat { head, renew_token } => {
            let token = if renew_token { ", new token" } else { "" };
            format!("heartbeat at {head}{token}")
        }
        Tell::AckAhead { head } => format!("ack ahead of {head}"),
        Tell::Superseded => "superseded".to_owned(),
        Tell::Draining => "draining".to_owned(),
        Tell::Ended => "ended".to_owned(),
    }
}

fn gap_in_words(gap: Gap) -> String {
    let in_words = |range: Option<SeqRange>| range.map_or("nothing".to_owned(), |r| r.to_string());
    match gap {
        Gap::Evicted { missing, lost } => format!("{missing}, lost {}", in_words(lost)),
        Gap::PositionUnknown => "unknown".to_owned(),
    }
}

pub fn page(store: &Stored, after: Seq, limit: usize) -> Page {
    let held = store.out.after(after).take(limit);
    let stored =
        held.map(|(seq, held)| StoredEvent { seq, at: held.at, body: Arc::clone(&held.body) });
    Page { events: stored.collect(), record: store.record() }
}

fn entries(store: &SessionState<Body>, after: InSeq) -> Vec<StoredEntry> {
    let waiting = store.inbox.after(after).take(rejoin_core::limits::HAND_ENTRIES);
    let stored = waiting.map(|(in_seq, entry)| StoredEntry {
        in_seq,
        kind: entry.kind,
        at: entry.at,
        body: Arc::clone(&entry.body),
    });
    stored.collect()
}
