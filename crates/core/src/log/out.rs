//! The out log: what the agent produced for the client. It holds the newest events without holes and
//! only ever loses its oldest ones.

use std::collections::VecDeque;

use crate::limits::LogBounds;
use crate::position::Seq;
use crate::time::Timestamp;

/// One event as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<B> {
    /// When it was appended.
    pub at: Timestamp,
    /// What it counts against the bound in bytes.
    pub size: u32,
    /// Where its body is.
    pub body: B,
}

/// The events of a session from the oldest that is held to the head.
#[derive(Clone, Debug)]
pub struct OutLog<B> {
    head: Seq,
    acked: Seq,
    bytes: usize,
    events: VecDeque<Held<B>>,
}

/// What a trim took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Events that the client had acked, or a state covers and retention has passed.
    pub settled: u64,
    /// Events that the client had not acked: it will be told of a gap.
    pub unacked: u64,
}

impl<B> Default for OutLog<B> {
    fn default() -> Self {
        Self::starting_after(Seq::ZERO, Seq::ZERO)
    }
}

impl<B> OutLog<B> {
    /// An empty log whose next event is the one after `head`.
    pub fn starting_after(head: Seq, acked: Seq) -> Self {
        Self { head, acked, bytes: 0, events: VecDeque::new() }
    }

    /// The last event's seq; zero before the first.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// Everything up to here has been acked.
    pub fn acked(&self) -> Seq {
        self.acked
    }

    /// The oldest event that is held; the one after the head if none is.
    pub fn oldest(&self) -> Seq {
        Seq::new(self.head.get() + 1 - self.events.len() as u64)
    }

    /// How many events are held.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no event is held.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
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
        self.bytes += event.size as usize;
        self.events.push_back(event);
        self.head
    }

    /// The event with this seq, if it is held.
    pub fn get(&self, seq: Seq) -> Option<&Held<B>> {
        self.events.get(self.index_of(seq)?)
    }

    /// The same, to move its body elsewhere.
    pub fn get_mut(&mut self, seq: Seq) -> Option<&mut Held<B>> {
        let index = self.index_of(seq)?;
        self.events.get_mut(index)
    }

    /// The held events after `seq`, oldest first.
    pub fn after(&self, seq: Seq) -> impl Iterator<Item = (Seq, &Held<B>)> {
        let oldest = self.oldest();
        let skip = seq.next().steps_from(oldest) as usize;
        let numbered = self.events.iter().enumerate().skip(skip);
        numbered.map(move |(index, event)| (oldest.plus(index as u64), event))
    }

    /// Notes that everything up to `seq` was received. Acks only grow; the caller has checked that
    /// `seq` is not beyond the head.
    pub fn ack(&mut self, seq: Seq) {
        debug_assert!(seq <= self.head);
        self.acked = self.acked.max(seq);
    }

    /// Lets go of what is over the bounds, oldest first, and of what is settled (acked, or covered by
    /// a state as of `covered`) and older than the retention. Since acked events are the oldest ones,
    /// they go first by themselves.
    pub fn trim(&mut self, bounds: &LogBounds, covered: Seq, now: Timestamp) -> Trimmed {
        let mut trimmed = Trimmed::default();
        while let Some(oldest) = self.events.front() {
            let seq = self.oldest();
            let over = self.events.len() > bounds.events
                || (self.bytes > bounds.bytes && self.events.len() > 1);
            let settled = seq <= self.acked || seq <= covered;
            let old = now.since(oldest.at) >= bounds.retention;
            if !(over || (settled && old)) {
                break;
            }
            if seq <= self.acked || (settled && old) {
                trimmed.settled += 1;
            } else {
                trimmed.unacked += 1;
            }
            self.drop_oldest();
        }
        self.give_back_memory();
        trimmed
    }

    /// Whether its oldest event is settled, everything up to `settled` being so, and has outlived the
    /// retention.
    pub fn has_outlived(&self, bounds: &LogBounds, settled: Seq, now: Timestamp) -> bool {
        let old = |oldest: &Held<B>| now.since(oldest.at) >= bounds.retention;
        self.oldest() <= settled && self.events.front().is_some_and(old)
    }

    /// Lets go of its oldest events, none after `last`, until so many bytes are free: there is too much
    /// of everything. Those up to `settled` are.
    pub fn shed(&mut self, bytes: usize, last: Seq, settled: Seq) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let enough = self.bytes.saturating_sub(bytes);
        while self.bytes > enough && self.oldest() <= last {
            match self.oldest() <= settled {
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
        while !self.events.is_empty() && self.oldest() < seq {
            self.drop_oldest();
        }
        self.give_back_memory();
    }

    /// Goes on numbering after `seq`, if that lies ahead. The events that are held would leave a hole
    /// before the next one, so they go.
    pub fn jump_to(&mut self, seq: Seq) {
        if seq > self.head {
            self.events = VecDeque::new();
            self.bytes = 0;
            self.head = seq;
        }
    }

    fn give_back_memory(&mut self) {
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.size as usize;
        }
    }

    fn index_of(&self, seq: Seq) -> Option<usize> {
        let oldest = self.oldest();
        (seq >= oldest && seq <= self.head).then(|| seq.steps_from(oldest) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn log_of(sizes: &[u32]) -> OutLog<()> {
        let mut log = OutLog::default();
        for size in sizes {
            log.push(Held { at: Timestamp::from_millis(0), size: *size, body: () });
        }
        log
    }

    fn bounds(events: usize, bytes: usize) -> LogBounds {
        LogBounds { events, bytes, retention: Duration::from_secs(60) }
    }

    fn now(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    #[test]
    fn numbering_starts_at_one_and_has_no_holes() {
        let log = log_of(&[1, 1, 1]);
        let seqs: Vec<u64> = log.after(Seq::ZERO).map(|(seq, _)| seq.get()).collect();
        assert_eq!(seqs, [1, 2, 3]);
        assert_eq!(log.head(), Seq::new(3));
    }

    #[test]
    fn reading_after_a_position_starts_at_the_next_event_that_is_held() {
        let mut log = log_of(&[1; 10]);
        log.trim_before(Seq::new(5));
        let after = |seq| log.after(Seq::new(seq)).map(|(seq, _)| seq.get()).collect::<Vec<_>>();
        assert_eq!(after(0), [5, 6, 7, 8, 9, 10]);
        assert_eq!(after(7), [8, 9, 10]);
        assert!(after(10).is_empty() && after(99).is_empty());
    }

    #[test]
    fn count_and_bytes_each_bound_the_log_and_unacked_losses_are_counted() {
        let mut log = log_of(&[10; 10]);
        log.ack(Seq::new(3));
        let trimmed = log.trim(&bounds(5, 1000), Seq::ZERO, now(0));
        assert_eq!(trimmed, Trimmed { settled: 3, unacked: 2 });
        assert_eq!(log.oldest(), Seq::new(6));
        assert_eq!(log.trim(&bounds(5, 25), Seq::ZERO, now(0)).unacked, 3);
        assert_eq!((log.len(), log.bytes()), (2, 20));
    }

    #[test]
    fn a_single_event_over_the_bound_is_kept_alone() {
        let mut log = log_of(&[10, 5000]);
        log.trim(&bounds(5, 100), Seq::ZERO, now(0));
        assert_eq!((log.oldest(), log.len()), (Seq::new(2), 1));
    }

    #[test]
    fn only_settled_events_grow_old() {
        let mut log = log_of(&[1; 4]);
        log.ack(Seq::new(1));
        assert_eq!(log.trim(&bounds(9, 99), Seq::ZERO, now(59)), Trimmed::default());
        assert_eq!(log.trim(&bounds(9, 99), Seq::ZERO, now(60)).settled, 1);
        assert_eq!(log.trim(&bounds(9, 99), Seq::new(3), now(60)).settled, 2);
        assert_eq!(log.oldest(), Seq::new(4));
    }

    #[test]
    fn what_is_shed_are_the_oldest_and_no_more_than_are_needed() {
        let mut log = log_of(&[10; 10]);
        log.ack(Seq::new(3));
        let (settled, head) = (log.acked(), log.head());
        assert_eq!(log.shed(15, settled, settled), Trimmed { settled: 2, unacked: 0 });
        assert_eq!(log.shed(99, settled, settled), Trimmed { settled: 1, unacked: 0 });
        assert_eq!(log.shed(20, head, settled), Trimmed { settled: 0, unacked: 2 });
        assert_eq!(log.shed(99, head, settled), Trimmed { settled: 0, unacked: 5 });
        assert_eq!((log.oldest(), log.bytes()), (Seq::new(11), 0));
    }

    #[test]
    fn jumping_ahead_leaves_no_hole_among_the_held_events() {
        let mut log = log_of(&[1; 4]);
        log.jump_to(Seq::new(2));
        assert_eq!(log.len(), 4);
        log.jump_to(Seq::new(9));
        assert!(log.is_empty());
        assert_eq!(log.push(Held { at: now(0), size: 1, body: () }), Seq::new(10));
    }
}
