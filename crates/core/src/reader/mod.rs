//! One reader of a session's out log: a client on a WebSocket, a stream, an observer. Sans-IO.
//!
//! A reader lives in the task of its own connection and asks the store itself; no other task stands between
//! the commit of an event and the socket. It is driven like every machine here:
//!
//! 1. [`Reader::handle`] one [`ReaderInput`], with the time it is now;
//! 2. [`Reader::poll_output`] until there is nothing left, carrying each [`ReaderOutput`] out in order;
//! 3. wait for the next input: the store says that the session changed, the transport took everything, the
//!    client sent a frame, or [`Reader::next_deadline`] has come.
//!
//! | file | concern |
//! |---|---|
//! | `mod.rs` | what goes in and out, and what the session's record means for the reader |
//! | `delivery.rs` | cursor, replay, gaps, and which events wait for an answer that must come first |
//! | `signs_of_life.rs` | heartbeats, and the state that is sent by itself |
//! | `tell.rs` | what a client is told |
//!
//! Everything that ends a reader is in the record: a higher generation supersedes it, a status ends it. So it
//! can't miss either, however many changes one look at the record stands for.

mod delivery;
mod signs_of_life;
mod tell;

use std::collections::VecDeque;
use std::sync::Arc;

pub use tell::{Confirmed, LeaveReason, Tell};

use self::delivery::Delivery;
use self::signs_of_life::{SignsOfLife, StateExport};
use crate::codes::CloseCode;
use crate::page::Page;
use crate::position::{Generation, InSeq, Seq};
use crate::record::{Record, Status};
use crate::resume::{self, Asked, Resume};
use crate::settings::Settings;
use crate::state::{Ack, Attached};
use crate::time::Timestamp;

/// What happened.
#[derive(Clone, Debug)]
pub enum ReaderInput {
    /// The store says that the session has changed. One may stand for several changes.
    Changed,
    /// The page that a [`ReaderOutput::Read`] asked for; nothing if the session is forgotten.
    Page {
        /// After which seq it was asked for.
        after: Seq,
        /// The page.
        page: Option<Box<Page>>,
    },
    /// The record that a [`ReaderOutput::Look`] asked for; nothing if the session is forgotten.
    Looked(Option<Box<Record>>),
    /// The transport has taken everything it was told and can take more.
    Writable,
    /// The client has received everything up to `seq`.
    Ack {
        /// The seq.
        seq: Seq,
        /// Whether it noticed a hole and wants everything after `seq` again.
        resend: bool,
    },
    /// A message of the client is on its way to the store: its answer must reach the client before any event
    /// that the agent says because of it.
    Posted,
    /// A message of the client was answered, and the client was told: under this number, if it was entered.
    Answered(Option<InSeq>),
    /// The state that a [`Tell::Checkpoint`] asked for is the one that the client was sent last: it was not sent.
    StateUnchanged,
    /// The client asked for the session's end and wants to stay connected; `false` if that came to nothing.
    EndsItself(bool),
    /// A frame came from the client.
    Heard,
    /// A pong came from the client: it lives, and that is all.
    Pong,
    /// The server is going down and will be back.
    Drain,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum ReaderOutput {
    /// Read events from the store; feed [`ReaderInput::Page`].
    Read {
        /// The last one it has.
        after: Seq,
    },
    /// Read the record alone; feed [`ReaderInput::Looked`].
    Look,
    /// Tell the store what the client has received. No answer is needed.
    Ack(Ack),
    /// Tell the client something.
    Tell(Tell),
    /// The client has let a heartbeat pass without a sign of life: it is counted.
    HeartbeatMissed,
    /// The reader is over; the client is told everything that came before, then this happens.
    Leave(LeaveReason),
}

/// A client that is attached, or an observer.
#[derive(Debug)]
pub struct Reader {
    settings: Arc<Settings>,
    /// The generation it is attached under; none for an observer, which nobody supersedes.
    generation: Option<Generation>,
    /// The session as it was last seen.
    record: Record,
    delivery: Delivery,
    /// An observer's transport looks after itself.
    signs_of_life: Option<SignsOfLife>,
    export: StateExport,
    /// An ack beyond the head that was last seen: the record is looked at again before it is called wrong.
    doubtful_ack: Option<DoubtfulAck>,
    /// The client asked for the end itself.
    ends_itself: bool,
    is_over: bool,
    outputs: VecDeque<ReaderOutput>,
}

/// How a client that was attached under a generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is attached.
    Attached,
    /// Another client has taken the session over, or another session goes on in its place: to a client that is the same.
    Superseded,
    /// The session was parked under it.
    Cut,
    /// The session has ended, or is forgotten.
    Ended,
}

impl Standing {
    /// As the session's record says.
    pub fn of(record: Option<&Record>, generation: Generation) -> Self {
        let Some(record) = record else { return Self::Ended };
        match &record.status {
            Status::Ended { ending, .. } if ending.leads_to().is_some() => Self::Superseded,
            Status::Ended { .. } => Self::Ended,
            Status::Active if record.generation > generation => Self::Superseded,
            Status::Active if record.attached.is_none() => Self::Cut,
            Status::Active => Self::Attached,
        }
    }
}

/// See [`Reader::doubtful_ack`].
#[derive(Clone, Copy, Debug)]
struct DoubtfulAck {
    seq: Seq,
    resend: bool,
    /// Whether the store was asked since it came.
    looked: bool,
}

impl Reader {
    /// For a client that the store has just attached. `asked` is where it wants to go on; nothing for a session
    /// that was made for it just now.
    pub fn attached(
        attached: Attached,
        asked: Option<Asked>,
        settings: impl Into<Arc<Settings>>,
        now: Timestamp,
    ) -> Self {
        let settings = settings.into();
        let signs_of_life = Some(SignsOfLife::starting(now, &settings));
        let generation = Some(attached.record.generation);
        let mut reader = Self::new(attached.record.clone(), generation, signs_of_life, settings);
        reader.confirm(attached, asked, now);
        reader
    }

    /// For somebody who reads after `after` without being attached.
    pub fn observing(record: Record, after: Seq, settings: impl Into<Arc<Settings>>) -> Self {
        let mut reader = Self::new(record, None, None, settings.into());
        reader.delivery.start_live(after);
        reader.pump();
        reader
    }

    fn new(
        record: Record,
        generation: Option<Generation>,
        signs_of_life: Option<SignsOfLife>,
        settings: Arc<Settings>,
    ) -> Self {
        Self {
            settings,
            generation,
            delivery: Delivery::of(&record),
            export: StateExport::of(&record),
            record,
            signs_of_life,
            doubtful_ack: None,
            ends_itself: false,
            is_over: false,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. Afterwards [`Reader::poll_output`] says what to do.
    pub fn handle(&mut self, input: ReaderInput, now: Timestamp) {
        if self.is_over {
            return;
        }
        match input {
            ReaderInput::Changed => self.delivery.is_stale = true,
            ReaderInput::Page { after, page } => self.on_page(after, page, now),
            ReaderInput::Looked(record) => self.on_looked(record.as_deref(), now),
            ReaderInput::Writable => self.on_writable(now),
            ReaderInput::Ack { seq, resend } => self.on_ack(seq, resend, now),
            ReaderInput::Posted => self.delivery.unanswered += 1,
            ReaderInput::Answered(in_seq) => self.on_answered(in_seq, now),
            ReaderInput::StateUnchanged => self.export.was_not_sent(),
            ReaderInput::EndsItself(ends) => self.ends_itself = ends,
            ReaderInput::Heard => self.on_heard(now),
            ReaderInput::Pong => self.on_pong(now),
            ReaderInput::Drain => self.tell(Tell::Draining),
            ReaderInput::Tick => self.on_tick(now),
        }
        self.pump();
    }

    /// The next thing to do, in order; nothing if all is done.
    pub fn poll_output(&mut self) -> Option<ReaderOutput> {
        let output = self.outputs.pop_front();
        if output.is_none() {
            self.outputs = VecDeque::new(); // most readers are idle most of the time
        }
        output
    }

    /// The session as it was last seen.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The generation it is attached under.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Whether it has left: nothing that goes in has an effect.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Tells the client that it is attached, and where it goes on.
    fn confirm(&mut self, attached: Attached, asked: Option<Asked>, now: Timestamp) {
        let Attached { record, token, was_seen, superseded } = attached;
        let resumed = asked.is_some();
        let (after, gap) = match resume::decide(&record, &asked.unwrap_or_default(), now) {
            Resume::UpToDate => (record.head, None),
            Resume::Replay { after } => (after, None),
            Resume::SnapshotAndReplay { gap, after } => (after, Some(gap)),
            // The store has just attached it, so it is neither closed nor expired.
            Resume::Refuse(_) => (record.head, None),
        };
        let (head, replay_from) = (record.head, after.next());
        let confirmed = Confirmed { resumed, record, replay_from, gap, token };
        self.tell(Tell::Confirmed(Box::new(confirmed)));
        match gap {
            Some(gap) => self.tell_gap(gap),
            None if !superseded => self.export.is_due_since(was_seen),
            None => {} // who was there before was sent it
        }
        if resumed {
            self.delivery.start_replay(after, head);
            self.complete_replay();
        } else {
            self.delivery.start_live(after);
        }
        self.pump();
    }

    /// The session is as this record says, or forgotten. Says whether the reader goes on.
    fn sees(&mut self, record: Option<&Record>) -> bool {
        let standing = match (self.generation, record) {
            (Some(mine), record) => Standing::of(record, mine),
            (None, Some(record)) if record.is_active() => Standing::Attached, // as far as an observer is
            (None, record) => Standing::of(record, Generation::ZERO),
        };
        match (standing, record) {
            (Standing::Attached, Some(record)) => {
                let acked = self.record.acked.max(record.acked); // one may be on its way to the store
                self.record = Record { acked, ..record.clone() };
                self.sees_state();
                self.judge_doubtful_ack();
                return true;
            }
            (Standing::Attached | Standing::Ended, _) => self.ends(),
            (Standing::Superseded, _) => {
                self.tell(Tell::Superseded);
                self.leave(LeaveReason::Closed(CloseCode::Superseded));
            }
            (Standing::Cut, _) => self.leave(LeaveReason::Cut),
        }
        false
    }

    fn ends(&mut self) {
        self.tell(Tell::Ended);
        if self.ends_itself {
            self.is_over = true;
        } else {
            self.leave(LeaveReason::Closed(CloseCode::SessionEnded));
        }
    }

    fn leave(&mut self, reason: LeaveReason) {
        self.is_over = true;
        self.emit(ReaderOutput::Leave(reason));
    }

    fn on_ack(&mut self, seq: Seq, resend: bool, now: Timestamp) {
        self.on_heard(now);
        if seq > self.record.head {
            self.doubtful_ack = Some(DoubtfulAck { seq, resend, looked: false });
            self.delivery.is_stale = true;
            return;
        }
        self.takes_ack(seq, resend);
    }

    fn takes_ack(&mut self, seq: Seq, resend: bool) {
        if resend {
            self.delivery.start_replay(seq, self.record.head);
        }
        if let Some(generation) = self.generation
            && seq > self.record.acked
        {
            self.record.acked = seq;
            self.emit(ReaderOutput::Ack(Ack { generation, seq }));
        }
        if resend {
            self.complete_replay();
        }
    }

    /// The record was looked at since the ack came: if it is still beyond the head, it is wrong.
    fn judge_doubtful_ack(&mut self) {
        let looked = |ack: &mut DoubtfulAck| ack.looked;
        let Some(DoubtfulAck { seq, resend, .. }) = self.doubtful_ack.take_if(looked) else {
            return;
        };
        if seq > self.record.head {
            self.tell(Tell::AckAhead { head: self.record.head });
        } else {
            self.takes_ack(seq, resend);
        }
    }

    fn emit(&mut self, output: ReaderOutput) {
        self.outputs.push_back(output);
    }

    fn tell(&mut self, tell: Tell) {
        self.emit(ReaderOutput::Tell(tell));
    }
}
