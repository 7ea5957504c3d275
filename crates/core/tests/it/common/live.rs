//! A live session in a test: the machines around it, a store in memory that they talk to, and a transcript
//! of what everybody was told.
//!
//! The store answers at once and clients take what they are sent at once, unless a test says
//! otherwise. Who is told what is written down in words, so that a test reads like a conversation:
//!
//! | heard by | what |
//! |---|---|
//! | `A`, `B`, `C` | what a client was told, and how it was closed |
//! | `store` | what the store was asked, in order; looks that find nothing new are left out |
//! | `agent` | what the agent was handed, or that it is to stop |
//! | `producer` | what became of publications |
//! | `sender` | what became of messages |
//! | `policy` | what is to be done about a session without a client |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::lifetime::Verdict;
use rejoin_core::limits::LogBounds;
use rejoin_core::log::{EntryKind, MessageDigest};
use rejoin_core::page::{Body, Page, StoredEntry, StoredEvent};
use rejoin_core::position::SeqRange;
use rejoin_core::reader::{LeaveReason, Reader, ReaderInput, ReaderOutput, Tell};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::settings::Settings;
use rejoin_core::state::{
    Append, Attach, AttachRefused, Attached, Detach, End, Enter, EnterRefused, Entered, Keep,
    SessionState, TakeLease,
};
use rejoin_core::worker::{Covering, Publication, Ticket, Worker, WorkerInput, WorkerOutput};
use rejoin_core::{AttachmentId, Generation, InSeq, Seq, SessionId, Timestamp};

use super::{START, Stored, attach, body, ended_by_user, process, seq, session, text};

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
    pub worker: Worker,
    settings: Arc<Settings>,
    clients: BTreeMap<AttachmentId, Client>,
    /// Under which generation each client was attached last.
    generations: BTreeMap<AttachmentId, Generation>,
    /// The state that each client was sent last.
    states: BTreeMap<AttachmentId, Body>,
    answers: VecDeque<Answer>,
    happened: VecDeque<Answer>,
    slow: BTreeSet<AttachmentId>,
    last_ticket: u64,
    transcript: Vec<(String, String)>,
}

/// A connection.
enum Client {
    /// The store has not answered yet.
    Attaching,
    Attached(Box<Reader>),
}

/// What the store answers, or what happens next.
enum Answer {
    Attached(AttachmentId, Option<Asked>, Box<Result<Attached, AttachRefused>>),
    Entered(Option<AttachmentId>, Result<Entered, EnterRefused>),
    Read(AttachmentId, ReaderInput),
    Worker(WorkerInput),
    Client(AttachmentId, ReaderInput),
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
            worker: Worker::new(store.record()),
            store,
            bounds: LogBounds::default(),
            page_events: 256,
            store_is_slow: false,
            agent_takes: true,
            settings: Arc::new(settings),
            clients: BTreeMap::new(),
            generations: BTreeMap::new(),
            states: BTreeMap::new(),
            answers: VecDeque::new(),
            happened: VecDeque::new(),
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

    /// Whether nobody is there, and nothing is on its way or to be done.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.worker.is_idle()
    }

    // Time.

    /// When something is due for a client.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.clients.values().filter_map(Client::next_deadline).min()
    }

    /// Time passes, and whatever was due in it happens when it was due.
    pub fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(due) = self.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            for client in self.clients.keys().copied().collect::<Vec<_>>() {
                self.client(client, ReaderInput::Tick);
            }
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
        self.write("store", format!("attach {}", name(client)));
        self.clients.insert(client, Client::Attaching);
        let answer = Box::new(self.store.attach(&attach));
        self.answer(Answer::Attached(client, asked, answer));
        self.run();
    }

    pub fn leaves(&mut self, client: AttachmentId) {
        if let Some(Client::Attached(_)) = self.clients.remove(&client) {
            self.detach(client);
        }
        self.run();
    }

    fn detach(&mut self, client: AttachmentId) {
        let (generation, lifetime) = (self.generations[&client], self.settings.lifetime);
        let now = self.now;
        if let Ok(Some(then)) = self.store.detach(&Detach { generation, lifetime, now }) {
            self.write("store", format!("detach generation {generation}"));
            self.write("policy", format!("parked: {}", verdict(then, self.now)));
            self.changed();
        }
    }

    /// The connection of whoever is attached is cut, as a network might.
    pub fn is_cut(&mut self) {
        let (generation, lifetime, now) =
            (self.store.vitals.generation, self.settings.lifetime, self.now);
        self.store.detach(&Detach { generation, lifetime, now }).unwrap();
        self.changed();
        self.run();
    }

    pub fn speaks(&mut self, client: AttachmentId) {
        self.client(client, ReaderInput::Heard);
    }

    pub fn pongs(&mut self, client: AttachmentId) {
        self.client(client, ReaderInput::Pong);
    }

    pub fn acks(&mut self, client: AttachmentId, up_to: u64) {
        self.client(client, ReaderInput::Ack { seq: seq(up_to), resend: false });
    }

    /// A client noticed a hole after this seq.
    pub fn misses_something_after(&mut self, client: AttachmentId, last: u64) {
        self.client(client, ReaderInput::Ack { seq: seq(last), resend: true });
    }

    /// From now on the client's transport takes events only when [`Live::takes`] says so.
    pub fn is_slow(&mut self, client: AttachmentId) {
        self.slow.insert(client);
    }

    pub fn takes(&mut self, client: AttachmentId) {
        self.client(client, ReaderInput::Writable);
    }

    /// A client sends a message under an id.
    pub fn sends(&mut self, client: AttachmentId, id: &str) {
        self.client(client, ReaderInput::Posted);
        self.sent(Some(client), id);
    }

    /// A message comes over HTTP, whoever is attached.
    pub fn posted(&mut self, id: &str) {
        self.sent(None, id);
    }

    fn sent(&mut self, from: Option<AttachmentId>, id: &str) {
        let enter = Enter {
            generation: from.and_then(|client| self.generations.get(&client)).copied(),
            kind: EntryKind::Message,
            digest: Some(MessageDigest::of(id, id.as_bytes())),
            size: u32::try_from(id.len()).unwrap(),
            body: body(id),
            max_waiting_bytes: self.settings.max_waiting_bytes,
            keep_for: self.settings.lifetime.session_ttl,
            now: self.now,
        };
        self.write("store", format!("enter {}", text(&enter.body)));
        let answer = self.store.enter(enter);
        self.answer(Answer::Entered(from, answer));
        self.run();
    }

    /// The session is ended, by a client or by somebody else.
    pub fn ends(&mut self, by: Option<AttachmentId>) {
        if let Some(client) = by {
            self.client(client, ReaderInput::EndsItself(true));
        }
        let _ = self.store.end(&ended_by_user(self.now)); // a test may have ended it already
        self.changed();
        self.run();
    }

    /// Another session goes on in the place of this one.
    pub fn is_replaced(&mut self) {
        let to = SessionId::parse("the-session-that-goes-on").unwrap();
        let ending = rejoin_core::record::Ending::Restored { to };
        self.store.end(&End { ending, ..ended_by_user(self.now) }).unwrap();
        self.changed();
        self.run();
    }

    /// The server goes down.
    pub fn drains(&mut self) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.client(client, ReaderInput::Drain);
        }
    }

    // The agent.

    /// This process takes the lease, and an agent is started under it.
    pub fn agent_starts(&mut self, covering: Covering) {
        self.leased();
        self.happens(WorkerInput::AgentReady { covering });
    }

    pub fn agent_dies(&mut self) {
        self.happens(WorkerInput::AgentGone);
    }

    /// This process takes the lease.
    pub fn leased(&mut self) {
        let take = TakeLease { holder: process(1), lasts: super::HOUR, now: self.now };
        let term = self.store.take_lease(&take).unwrap();
        self.happens(WorkerInput::Leased { term });
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
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.happens(WorkerInput::Publish { ticket, publication: Box::new(publication) });
    }

    // The store.

    /// The store's oldest answer that waits arrives.
    pub fn store_answers(&mut self) {
        self.answer_arrives(0);
    }

    /// One of the answers that wait arrives, counted from the oldest.
    pub fn answer_arrives(&mut self, index: usize) {
        let answer = self.answers.remove(index).expect("an answer of the store waits");
        self.happened.push_back(answer);
        self.run();
    }

    pub fn answers_on_their_way(&self) -> usize {
        self.answers.len()
    }

    /// Everybody learns that the session has changed.
    fn changed(&mut self) {
        for client in self.clients.keys() {
            self.happened.push_back(Answer::Client(*client, ReaderInput::Changed));
        }
        let record = Some(Box::new(self.store.record()));
        self.happened.push_back(Answer::Worker(WorkerInput::Looked(record)));
    }

    // The machines.

    /// Feeds the agent's machine one thing that happened, and carries out everything that comes of it.
    pub fn happens(&mut self, input: WorkerInput) {
        self.happened.push_back(Answer::Worker(input));
        self.run();
    }

    fn client(&mut self, client: AttachmentId, input: ReaderInput) {
        self.happened.push_back(Answer::Client(client, input));
        self.run();
    }

    fn run(&mut self) {
        while let Some(answer) = self.happened.pop_front() {
            match answer {
                Answer::Attached(client, asked, answer) => self.attached(client, asked, *answer),
                Answer::Entered(from, answer) => self.entered(from, answer),
                Answer::Read(client, input) | Answer::Client(client, input) => {
                    self.feed_client(client, input);
                }
                Answer::Worker(input) => {
                    let appended = matches!(input, WorkerInput::Appended(Ok(_)));
                    self.worker.handle(input, self.now);
                    if appended {
                        self.changed();
                    }
                    while let Some(output) = self.worker.poll_output() {
                        self.carry_out(output);
                    }
                }
            }
        }
    }

    fn attached(
        &mut self,
        client: AttachmentId,
        asked: Option<Asked>,
        answer: Result<Attached, AttachRefused>,
    ) {
        match answer {
            Ok(attached) => {
                self.generations.insert(client, attached.record.generation);
                self.changed();
                if !self.clients.contains_key(&client) {
                    return self.detach(client); // it left before the store answered
                }
                let settings = Arc::clone(&self.settings);
                let reader = Reader::attached(attached, asked, settings, self.now);
                self.clients.insert(client, Client::Attached(Box::new(reader)));
                self.outputs_of(client);
            }
            Err(refused) => {
                self.clients.remove(&client);
                self.write(name(client), format!("refused: {refused}"));
                self.write(name(client), "not attached");
            }
        }
    }

    fn entered(&mut self, from: Option<AttachmentId>, answer: Result<Entered, EnterRefused>) {
        let what = match &answer {
            Ok(entered) if entered.duplicate => format!("{} already", entered.in_seq),
            Ok(entered) => format!("{} entered", entered.in_seq),
            Err(refused) => format!("refused: {refused}"),
        };
        self.write("sender", format!("{}: {what}", from.map_or("http", name)));
        self.changed();
        if let Some(client) = from {
            let in_seq = answer.ok().map(|entered| entered.in_seq);
            self.happened.push_back(Answer::Client(client, ReaderInput::Answered(in_seq)));
        }
    }

    fn feed_client(&mut self, client: AttachmentId, input: ReaderInput) {
        if let Some(Client::Attached(reader)) = self.clients.get_mut(&client) {
            reader.handle(input, self.now);
            self.outputs_of(client);
        }
    }

    fn outputs_of(&mut self, client: AttachmentId) {
        loop {
            let Some(Client::Attached(reader)) = self.clients.get_mut(&client) else { return };
            let Some(output) = reader.poll_output() else { return };
            self.carry_out_for(client, output);
        }
    }

    fn carry_out_for(&mut self, client: AttachmentId, output: ReaderOutput) {
        match output {
            ReaderOutput::Read { after } => {
                let page = page(&self.store, after, self.page_events);
                let is_news = !page.events.is_empty() || page.record.oldest > after.next();
                let page = Some(Box::new(page));
                let answer = Answer::Read(client, ReaderInput::Page { after, page });
                match is_news {
                    true => {
                        self.write("store", format!("read for {} after {after}", name(client)));
                        self.answer(answer);
                    }
                    false => self.happened.push_back(answer),
                }
            }
            ReaderOutput::Look => {
                let record = Some(Box::new(self.store.record()));
                self.happened.push_back(Answer::Read(client, ReaderInput::Looked(record)));
            }
            ReaderOutput::Ack(ack) => {
                self.write("store", format!("ack {}", ack.seq));
                self.store.ack(&ack).unwrap();
            }
            ReaderOutput::Tell(tell) => self.tell(client, tell),
            ReaderOutput::HeartbeatMissed => self.write("metrics", "heartbeat missed".to_owned()),
            ReaderOutput::Leave(reason) => {
                let what = match reason {
                    LeaveReason::Closed(code) => format!("closed {}", code.code()),
                    LeaveReason::Cut => "cut".to_owned(),
                };
                self.write(name(client), what);
                self.clients.remove(&client);
                self.detach(client);
            }
        }
    }

    fn tell(&mut self, client: AttachmentId, tell: Tell) {
        if matches!(tell, Tell::Events { .. }) && !self.slow.contains(&client) {
            self.happened.push_back(Answer::Client(client, ReaderInput::Writable));
        }
        if matches!(tell, Tell::Checkpoint) {
            let state = self.store.snapshot.as_ref().map(|state| Arc::clone(&state.body));
            if state.is_some() && self.states.get(&client) == state.as_ref() {
                let unchanged = Answer::Client(client, ReaderInput::StateUnchanged);
                return self.happened.push_back(unchanged);
            }
            state.into_iter().for_each(|state| drop(self.states.insert(client, state)));
        }
        self.write(name(client), tell_in_words(tell));
    }

    fn write(&mut self, who: &str, what: impl Into<String>) {
        self.transcript.push((who.to_owned(), what.into()));
    }

    fn answer(&mut self, answer: Answer) {
        if self.store_is_slow { &mut self.answers } else { &mut self.happened }.push_back(answer);
    }

    fn carry_out(&mut self, output: WorkerOutput) {
        match output {
            WorkerOutput::Append(append) => {
                self.write("store", append_in_words(&append));
                let answer = self.store.append(*append);
                self.store.settle(&self.bounds, self.now);
                self.answer(Answer::Worker(WorkerInput::Appended(answer)));
            }
            WorkerOutput::ReadEntries { after } => {
                self.write("store", format!("read entries after {after}"));
                let entries = entries(&self.store, after);
                self.answer(Answer::Worker(WorkerInput::Entries { after, entries }));
            }
            WorkerOutput::Hand(entries) => {
                for StoredEntry { in_seq, body, .. } in entries {
                    self.write("agent", format!("{in_seq}: {}", text(&body)));
                    if self.agent_takes {
                        self.happened.push_back(Answer::Worker(WorkerInput::Took { in_seq }));
                    }
                }
            }
            WorkerOutput::StopAgent => self.write("agent", "stop"),
            WorkerOutput::Published { ticket, result } => {
                let what = match result {
                    Ok(published) => format!("published {}…{}", published.first, published.last),
                    Err(refused) => format!("refused: {refused}"),
                };
                self.write("producer", format!("#{} {what}", ticket.0));
            }
            WorkerOutput::WorkDone => self.work_done(),
        }
    }

    fn work_done(&mut self) {
        let record = self.store.record();
        let Some(then) = self.settings.lifetime.after_work(&record, self.now) else { return };
        self.write("policy", format!("work done: {}", verdict(then, self.now)));
        if let Verdict::KeepUntil(until) = then {
            self.store.keep(&Keep { generation: record.generation, until }).unwrap();
        }
    }
}

impl Client {
    fn next_deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Attaching => None,
            Self::Attached(reader) => reader.next_deadline(),
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
