//! The state machine behind a session's agent: what happened goes in, what to do comes out.
//!
//! There is one [`Worker`] for each session that an agent works for, or somebody publishes to, in this
//! process. Every other session has none, also if a client is attached: clients read the store
//! themselves ([`crate::reader`]) and write to it themselves. The driver owns the machine and the order
//! of calls is always the same:
//!
//! 1. [`Worker::handle`] one [`WorkerInput`], with the time it is now;
//! 2. [`Worker::poll_output`] until there is nothing left, carrying each [`WorkerOutput`] out in order;
//! 3. wait for whatever comes first from the agent or the store.
//!
//! | file | concern |
//! |---|---|
//! | `mod.rs` | what goes in and out, and what the session's record means for the agent |
//! | `inbox.rs` | handing entries of the in log to the agent |
//! | `publish.rs` | what the agent says, and the lease that lets it |
//!
//! Nothing in here believes that a change has happened before the store says so. In particular an
//! event is confirmed to nobody before [`WorkerInput::Appended`] came back for it.

mod inbox;
mod publish;

use std::collections::VecDeque;

pub use publish::{Covering, Publication, PublishRefused, Published, Workload};

use self::publish::AgentSide;
use crate::page::{Body, StoredEntry};
use crate::position::{InSeq, Term};
use crate::record::{Record, SnapshotMark};
use crate::state::{Append, AppendRefused, Appended};
use crate::time::Timestamp;

/// Names a publication whose outcome somebody waits for. The driver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum WorkerInput {
    /// The session as the store shows it; nothing if it is forgotten.
    Looked(Option<Box<Record>>),
    /// The store will have this message as the next, but has not answered yet: only the agent may know.
    Entering(StoredEntry),
    /// The store has the message with this number, and all before it.
    Entered {
        /// The number.
        in_seq: InSeq,
    },
    /// This process has the lease: it may publish.
    Leased {
        /// The term of it.
        term: Term,
    },
    /// The agent is ready to be handed entries. It was started under the lease, from
    /// the state that the store has: not before everything of its predecessor has been answered
    /// (see [`Worker::awaits_store`]).
    AgentReady {
        /// Whether the agent says itself which entries it has dealt with.
        covering: Covering,
    },
    /// The agent has taken an entry that it was handed, and with it all before.
    Took {
        /// Which.
        in_seq: InSeq,
    },
    /// The agent has taken everything and been silent for so long that it is let go: if it never says
    /// what it has dealt with, that counts as dealt with now.
    AgentIdle,
    /// The agent has died or was stopped. What its state does not cover is handed to the next one.
    AgentGone,
    /// Entries that a [`WorkerOutput::ReadEntries`] asked for.
    Entries {
        /// After which entry they were asked for.
        after: InSeq,
        /// The entries.
        entries: Vec<StoredEntry>,
    },
    /// The agent, or a backend on its behalf, speaks.
    Publish {
        /// Who waits for it.
        ticket: Ticket,
        /// What it says. In a box: it is passed on several times before it is stored.
        publication: Box<Publication>,
    },
    /// The store answered the [`WorkerOutput::Append`]; there is never more than one on its way.
    Appended(Result<Appended, AppendRefused>),
}

/// What to do.
#[derive(Clone, Debug)]
pub enum WorkerOutput {
    /// Ask the store to append; feed [`WorkerInput::Appended`].
    Append(Box<Append<Body>>),
    /// Read waiting entries from the store; feed [`WorkerInput::Entries`].
    ReadEntries {
        /// The last one that was handed over.
        after: InSeq,
    },
    /// Hand entries to the agent, in order.
    Hand(Vec<StoredEntry>),
    /// Another process has taken the lease, or the session is over: stop the agent.
    StopAgent,
    /// Tell a producer what became of its publication.
    Published {
        /// Who waits.
        ticket: Ticket,
        /// What became of it.
        result: Result<Published, PublishRefused>,
    },
    /// The agent has finished all its work. If nobody is attached the policy is asked what becomes of the
    /// session: see [`Lifetime::after_work`](crate::lifetime::Lifetime::after_work).
    WorkDone,
}

/// A session that an agent works for in this process.
#[derive(Debug)]
pub struct Worker {
    /// The session as the store last showed it, moved on by what the store has confirmed since.
    record: Record,
    agent: AgentSide,
    is_over: bool,
    outputs: VecDeque<WorkerOutput>,
}

impl Worker {
    /// The machine for a session that is as `record` says.
    pub fn new(record: Record) -> Self {
        Self {
            is_over: !record.is_active(),
            agent: AgentSide::default(),
            record,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. Afterwards [`Worker::poll_output`] says what to do.
    pub fn handle(&mut self, input: WorkerInput, now: Timestamp) {
        match input {
            WorkerInput::Looked(record) => self.on_looked(record.as_deref()),
            WorkerInput::Entering(entry) => self.on_entering(entry),
            WorkerInput::Entered { in_seq } => self.on_entered(in_seq),
            WorkerInput::Leased { term } => self.on_leased(term),
            WorkerInput::AgentReady { covering } => self.on_agent_ready(covering),
            WorkerInput::AgentGone => self.on_agent_gone(),
            WorkerInput::Took { in_seq } => self.on_took(in_seq, now),
            WorkerInput::AgentIdle => self.on_agent_idle(now),
            WorkerInput::Entries { after, entries } => self.on_entries(after, entries),
            WorkerInput::Publish { ticket, publication } => {
                self.on_publish(ticket, publication, now);
            }
            WorkerInput::Appended(answer) => self.on_appended(answer, now),
        }
    }

    /// The next thing to do, in order; nothing if all is done.
    pub fn poll_output(&mut self) -> Option<WorkerOutput> {
        let output = self.outputs.pop_front();
        if output.is_none() {
            self.outputs = VecDeque::new(); // most sessions are idle most of the time
        }
        output
    }

    /// The session as far as it is known here.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether the session has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether nothing is on its way and the agent has nothing to do.
    pub fn is_idle(&self) -> bool {
        let working = self.record.has_work() && !self.is_over;
        !self.agent.is_busy() && !working
    }

    /// Whether something the agent said is still on its way to the store.
    pub fn awaits_store(&self) -> bool {
        self.agent.is_busy()
    }

    /// Whether another [`WorkerInput::Publish`] is taken now; if not, the producer has to wait.
    pub fn accepts_publication(&self) -> bool {
        self.agent.accepts()
    }

    /// The store was asked: clients may have come and gone, messages be there, or the session be over.
    fn on_looked(&mut self, record: Option<&Record>) {
        match record.filter(|record| record.is_active()) {
            Some(record) => {
                self.note(record);
                self.ask_for_entries();
            }
            None if !self.is_over => {
                self.is_over = true;
                self.emit(WorkerOutput::StopAgent);
            }
            None => {}
        }
    }

    /// Takes over what the store has shown, without forgetting what it has confirmed since.
    fn note(&mut self, seen: &Record) {
        let known = &self.record;
        let newest = |mark: &SnapshotMark| (mark.in_seq, mark.seq);
        let snapshot = known.snapshot.into_iter().chain(seen.snapshot).max_by_key(newest);
        self.record = Record {
            head: known.head.max(seen.head),
            acked: known.acked.max(seen.acked),
            oldest: known.oldest.max(seen.oldest),
            in_head: known.in_head.max(seen.in_head),
            covered: known.covered.max(seen.covered),
            named: known.named || seen.named,
            term: known.term.max(seen.term),
            snapshot,
            ..seen.clone()
        };
    }

    fn emit(&mut self, output: WorkerOutput) {
        self.outputs.push_back(output);
    }
}
