//! The out log: what the agent produced for the client. It holds the newest events without holes and
//! loses its oldest ones first; of those that it would lose, results are kept beside it while there is
//! something else that can go.

use std::collections::VecDeque;

use super::Weight;
use crate::limits::LogBounds;
use crate::position::Seq;
use crate::time::Timestamp;

/// One event as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<B> {
    /// When it was appended.
    pub at: Timestamp,
    /// What it counts against the bounds.
    pub weight: Weight,
    /// Where its body is.
    pub body: B,
}

/// The events of a session from the oldest that is held to the head, and results from before that.
#[derive(Clone, Debug)]
pub struct OutLog<B> {
    head: Seq,
    acked: Seq,
    /// Of everything that is held.
    bytes: usize,
    events: VecDeque<Held<B>>,
    /// In a box, because most logs have none and there are many logs.
    results: Option<Box<Results<B>>>,
}

/// What must be known of results.
#[derive(Clone, Debug)]
struct Results<B> {
    /// How many of the events are some.
    among_events: usize,
    /// Those that are older than all events, in their order. Empty if there are no events.
    kept: VecDeque<(Seq, Held<B>)>,
    /// Of those.
    kept_bytes: usize,
}

impl<B> Default for Results<B> {
    fn default() -> Self {
        Self { among_events: 0, kept: VecDeque::new(), kept_bytes: 0 }
    }
}

/// What a trim took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Events that the client had acked, or a state covers and retention has passed.
    pub settled: u64,
    /// Events that the client had not acked: it will be told of a gap.
    pub unacked: u64,
}

/// The newest events have at least this part of a log's bounds: a client that reads as fast as it can
/// sees what passes by, however many results there are.
const NEWEST: usize = 4;

impl<B> Default for OutLog<B> {
    fn default() -> Self {
        Self::starting_after(Seq::ZERO, Seq::ZERO)
    }
}

impl<B> OutLog<B> {
    /// An empty log whose next event is the one after `head`.
    pub fn starting_after(head: Seq, acked: Seq) -> Self {
        Self { head, acked, bytes: 0, events: VecDeque::new(), results: None }
    }

    /// The last event's seq; zero before the first.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// Everything up to here has been acked.
    pub fn acked(&self) -> Seq {
        self.acked
    }

    /// The oldest event from which on there is no hole; the one after the head if none is held.
    pub fn oldest(&self) -> Seq {
        Seq::new(self.head.get() + 1 - self.events.len() as u64)
    }

    /// How many events are held.
    pub fn len(&self) -> usize {
        self.events.len() + self.results.as_ref().map_or(0, |results| results.kept.len())
    }

    /// Whether no event is held.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether some of what is held are results: then it is not always the oldest that goes first.
    pub fn holds_results(&self) -> bool {
        self.results.is_some()
    }

    /// The newest event.
    pub fn newest(&self) -> Option<&Held<B>> {
        self.events.back()
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for exactly so many more events.
    pub fn reserve(&mut self, events: usize) {
        self.events.reserve_exact(events);
    }

    /// Appends an event and says its seq.
    pub fn push(&mut self, event: Held<B>) -> Seq {
        self.head = self.head.next();
        self.bytes += event.weight.bytes();
        if event.weight.is_result() {
            self.results.get_or_insert_default().among_events += 1;
        }
        self.events.push_back(event);
        self.head
    }

    /// Takes back a result from before the oldest event, later than those that were taken back before.
    /// Only where there are events.
    pub fn keep(&mut self, seq: Seq, event: Held<B>) {
        debug_assert!(seq < self.oldest() && self.kept_after(seq.previous()).next().is_none());
        self.step_aside(seq, event);
    }

    /// The event with this seq, if it is held.
    pub fn get(&self, seq: Seq) -> Option<&Held<B>> {
        match self.index_of(seq) {
            Some(index) => self.events.get(index),
            None => {
                let index = self.kept_index(seq)?;
                self.results.as_ref()?.kept.get(index).map(|(_, event)| event)
            }
        }
    }

    /// The same, to move its body elsewhere.
    pub fn get_mut(&mut self, seq: Seq) -> Option<&mut Held<B>> {
        match self.index_of(seq) {
            Some(index) => self.events.get_mut(index),
            None => {
                let index = self.kept_index(seq)?;
                self.results.as_mut()?.kept.get_mut(index).map(|(_, event)| event)
            }
        }
    }

    /// Everything that is held, in order, to move bodies elsewhere.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Held<B>> {
        let kept = self.results.iter_mut().flat_map(|results| &mut results.kept);
        kept.map(|(_, event)| event).chain(&mut self.events)
    }

    /// The held events after `seq`, oldest first and without a hole.
    pub fn after(&self, seq: Seq) -> impl Iterator<Item = (Seq, &Held<B>)> {
        let oldest = self.oldest();
        let skip = seq.next().steps_from(oldest) as usize;
        let numbered = self.events.iter().enumerate().skip(skip);
        numbered.map(move |(index, event)| (oldest.plus(index as u64), event))
    }

    /// The results after `seq` that are kept from before the oldest event.
    pub fn kept_after(&self, seq: Seq) -> impl Iterator<Item = (Seq, &Held<B>)> {
        let kept = self.results.as_ref().map(|results| &results.kept);
        let from = kept.map_or(0, |kept| kept.partition_point(|(kept, _)| *kept <= seq));
        kept.into_iter().flatten().skip(from).map(|(seq, event)| (*seq, event))
    }

    /// Notes that everything up to `seq` was received. Acks only grow; the caller has checked that
    /// `seq` is not beyond the head.
    pub fn ack(&mut self, seq: Seq) {
        debug_assert!(seq <= self.head);
        self.acked = self.acked.max(seq);
    }

    /// Lets go of what is over the bounds, oldest first but results last, and of what is settled (acked,
    /// or covered by a state as of `covered`) and older than the retention. Since acked events are the
    /// oldest ones, they go first by themselves.
    pub fn trim(&mut self, bounds: &LogBounds, covered: Seq, now: Timestamp) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let settled = self.acked.max(covered);
        while self.has_outlived(bounds, settled, now) {
            trimmed.settled += 1;
            self.drop_oldest();
        }
        while self.len() > bounds.events || (self.bytes > bounds.bytes && self.len() > 1) {
            match self.drop_least(bounds) {
                Some(seq) if seq <= self.acked => trimmed.settled += 1,
                Some(_) => trimmed.unacked += 1,
                None => {}
            }
        }
        self.give_back_memory();
        trimmed
    }

    /// Whether its oldest event is settled, everything up to `settled` being so, and has outlived the
    /// retention.
    pub fn has_outlived(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        let first = self.kept_after(Seq::ZERO).next();
        let first = first.or_else(|| self.events.front().map(|event| (self.oldest(), event)));
        let old = |event: &Held<B>| now.since(event.at) >= bounds.retention;
        first.is_some_and(|(seq, event)| seq <= settled && old(event))
    }

    /// Lets go of its oldest events, none after `last`, until so many bytes are free: there is too much
    /// of everything. Those up to `settled` are.
    pub fn shed(&mut self, bytes: usize, last: Seq, settled: Seq) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let enough = self.bytes.saturating_sub(bytes);
        while self.bytes > enough && self.first() <= last {
            match self.first() <= settled {
                true => trimmed.settled += 1,
                false => trimmed.unacked += 1,
            }
            self.drop_oldest();
        }
        self.give_back_memory();
        trimmed
    }

    /// Lets go of everything before `seq`, whatever the bounds say.
    pub fn trim_before(&mut self, seq: Seq) {
        while !self.events.is_empty() && self.first() < seq {
            self.drop_oldest();
        }
        self.give_back_memory();
    }

    /// Goes on numbering after `seq`, if that lies ahead. The events that are held would leave a hole
    /// before the next one, so they go.
    pub fn jump_to(&mut self, seq: Seq) {
        if seq > self.head {
            *self = Self::starting_after(seq, self.acked);
        }
    }

    /// The oldest of all that is held; the one after the head if nothing is.
    pub fn first(&self) -> Seq {
        self.kept_after(Seq::ZERO).next().map_or(self.oldest(), |(seq, _)| seq)
    }

    fn give_back_memory(&mut self) {
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        if self.results.as_ref().is_some_and(|r| r.among_events == 0 && r.kept.is_empty()) {
            self.results = None;
        }
    }

    /// Drops what can best be done without: the oldest event that only passes by, if there is one that
    /// is not among the newest, else the oldest there is. Results that are in the way step aside. Says
    /// which one has gone.
    fn drop_least(&mut self, bounds: &LogBounds) -> Option<Seq> {
        while self.has_passing() && !self.has_only_newest(bounds) {
            let seq = self.oldest();
            let event = self.pop()?;
            if !event.weight.is_result() {
                return Some(seq);
            }
            self.step_aside(seq, event);
        }
        let seq = self.first();
        self.drop_oldest();
        Some(seq)
    }

    /// Whether an event is no result.
    fn has_passing(&self) -> bool {
        self.results.as_ref().is_none_or(|results| results.among_events < self.events.len())
    }

    /// Whether all events are among the newest, and there are results to drop in their place.
    fn has_only_newest(&self, bounds: &LogBounds) -> bool {
        let Some(results) = self.results.as_ref().filter(|results| !results.kept.is_empty()) else {
            return false;
        };
        let few = self.events.len() <= (bounds.events / NEWEST).max(1);
        let bytes = self.bytes - results.kept_bytes;
        few && (bytes <= bounds.bytes / NEWEST || self.events.len() == 1)
    }

    fn step_aside(&mut self, seq: Seq, event: Held<B>) {
        let results = self.results.get_or_insert_default();
        self.bytes += event.weight.bytes();
        results.kept_bytes += event.weight.bytes();
        results.kept.push_back((seq, event));
    }

    fn drop_oldest(&mut self) {
        let results = self.results.as_mut();
        let kept = results.and_then(|results| {
            let (_, event) = results.kept.pop_front()?;
            results.kept_bytes -= event.weight.bytes();
            Some(event)
        });
        match kept {
            Some(event) => self.bytes -= event.weight.bytes(),
            None => drop(self.pop()),
        }
    }

    fn pop(&mut self) -> Option<Held<B>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.weight.bytes();
        if let Some(results) = self.results.as_mut().filter(|_| event.weight.is_result()) {
            results.among_events -= 1;
        }
        Some(event)
    }

    fn index_of(&self, seq: Seq) -> Option<usize> {
        let oldest = self.oldest();
        (seq >= oldest && seq <= self.head).then(|| seq.steps_from(oldest) as usize)
    }

    fn kept_index(&self, seq: Seq) -> Option<usize> {
        let kept = &self.results.as_ref()?.kept;
        kept.binary_search_by_key(&seq, |(kept, _)| *kept).ok()
    }
}

#[cfg(test)]
mod tests;
