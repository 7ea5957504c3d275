//! The promises. The judge is told of everything that becomes durable or visible to somebody, and
//! panics with the number of the promise that was broken.

use std::collections::{BTreeMap, BTreeSet};

use rejoin_core::page::Body;
use rejoin_core::position::SeqRange;
use rejoin_core::reader::Confirmed;
use rejoin_core::record::{Ending, Record, Status};
use rejoin_core::resume::{Asked, Gap};
use rejoin_core::state::{Attach, AttachRefused, Attached, End, SessionState, TokenFault};
use rejoin_core::token::TokenHash;
use rejoin_core::{EventId, InSeq, LogId, Seq, SessionId, Timestamp};

/// What happened in a run, to see that it exercised what it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that became durable.
    pub events: u64,
    /// Events that reached an application.
    pub delivered: u64,
    /// Gaps that applications were told of.
    pub gaps: u64,
    /// Messages that were accepted.
    pub accepted: u64,
    /// Messages that the agent has dealt with.
    pub done: u64,
    /// Clients that came back to their session.
    pub resumed: u64,
    /// Sessions made from a snapshot.
    pub restored: u64,
    /// Crashes of the server.
    pub crashes: u64,
    /// Logs that were damaged.
    pub losses: u64,
    /// Tokens that were used for the first time.
    pub tokens: u64,
    /// Reply lost: the same token again.
    pub tokens_again: u64,
    /// Tokens of which a theft was noticed.
    pub tokens_reused: u64,
    /// Attempts that were rightly refused.
    pub refused: u64,
}

impl Counts {
    /// Adds another run's.
    pub fn add(&mut self, other: &Counts) {
        self.events += other.events;
        self.delivered += other.delivered;
        self.gaps += other.gaps;
        self.accepted += other.accepted;
        self.done += other.done;
        self.resumed += other.resumed;
        self.restored += other.restored;
        self.crashes += other.crashes;
        self.losses += other.losses;
        self.tokens += other.tokens;
        self.tokens_again += other.tokens_again;
        self.tokens_reused += other.tokens_reused;
        self.refused += other.refused;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) counts: Counts,
    /// Every event that ever was durable, by the log's name and its seq.
    written: BTreeMap<(LogId, Seq), Body>,
    /// Events that were confirmed to their producer.
    confirmed: BTreeSet<(LogId, Seq)>,
    /// Messages the agent has dealt with, by line and message.
    done: BTreeSet<Body>,
    /// Messages that were still waiting when their session ended, as it may.
    abandoned: BTreeSet<Body>,
    /// Every token that was used, and when for the first time.
    used: BTreeMap<TokenHash, Timestamp>,
}

/// What one application has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    last: Seq,
    /// A gap that was told and not yet followed by an event.
    gap: Option<Gap>,
}

impl Judge {
    /// A session has changed on the disk.
    pub(crate) fn changed(&mut self, before: Option<&Record>, session: &SessionState<Body>) {
        let after = session.record();
        if let Some(before) = before {
            assert!(after.generation >= before.generation, "P5: a generation fell");
            assert!(after.term >= before.term, "P5: a term fell");
            assert!(after.acked >= before.acked, "P3: an ack fell");
            assert!(after.covered >= before.covered, "P12: a cover fell");
            assert!(after.head >= before.head, "P1: the head fell");
        }
        assert!(after.acked <= after.head, "P3: an ack beyond the head");
        let known = before.map_or(Seq::ZERO, |before| before.head);
        for (seq, held) in session.out.after(known) {
            self.write(after.log, seq, &held.body);
        }
        self.check_held(session);
    }

    /// Everything that was confirmed is there, until it was trimmed.
    fn check_held(&self, session: &SessionState<Body>) {
        let record = session.record();
        if !record.is_active() {
            return;
        }
        let from = (record.log, record.oldest);
        for (log, seq) in self.confirmed.range(from..=(record.log, Seq::new(u64::MAX))) {
            let held = session.out.get(*seq).map(|held| &held.body);
            assert_eq!(held, self.written.get(&(*log, *seq)), "P1: confirmed event {seq} differs");
        }
    }

    fn write(&mut self, log: LogId, seq: Seq, body: &Body) {
        self.counts.events += 1;
        let before = self.written.insert((log, seq), Body::clone(body));
        assert!(before.is_none_or(|before| before == *body), "P1: seq {seq} was given out twice");
        if text(body).contains(r#""content":"done "#) {
            self.counts.done += 1;
            assert!(self.done.insert(Body::clone(body)), "P12: done twice: {}", text(body));
        }
    }

    /// A producer was told that its events exist.
    pub(crate) fn confirmed(&mut self, session: Option<&SessionState<Body>>, range: SeqRange) {
        let Some(session) = session else {
            panic!("P1: confirmed for a session that is not there")
        };
        let record = session.record();
        for number in range.from.get()..=range.to.get() {
            let key = (record.log, Seq::new(number));
            assert!(self.written.contains_key(&key), "P1: {number} was confirmed, not durable");
            self.confirmed.insert(key);
        }
    }

    /// A log has really lost something.
    pub(crate) fn lost(&mut self, session: &SessionState<Body>) {
        self.counts.losses += 1;
        let log = session.record().log;
        for (seq, held) in session.out.after(Seq::ZERO) {
            self.written.insert((log, seq), Body::clone(&held.body));
        }
    }

    /// A session has ended, with everything that was in it.
    pub(crate) fn ended(&mut self, before: &SessionState<Body>, end: &End) {
        let record = before.record();
        if record.has_work() && end.ending == Ending::Expired {
            let idle = end.now.since(record.last_activity);
            assert!(idle >= crate::server::SESSION_TTL, "P11: ended with work under way");
        }
        let waiting = before.inbox.after(InSeq::ZERO).map(|(_, entry)| Body::clone(&entry.body));
        self.abandoned.extend(waiting);
    }

    /// A client was told that a message is known already, and will not send it again.
    pub(crate) fn known_already(&self, session: &SessionState<Body>, message: &Body) {
        let mut waiting = session.inbox.after(InSeq::ZERO);
        let known = self.is_done(message) || waiting.any(|(_, entry)| entry.body == *message);
        assert!(known, "P12: {} is called known, and nobody will deal with it", text(message));
    }

    fn is_done(&self, message: &Body) -> bool {
        let done = crate::server::said(&format!("done {}", text(message)));
        self.done.contains(&done.into_body())
    }

    /// Whether a message that was accepted was dealt with, or went with its session.
    pub(crate) fn is_settled(&self, message: &Body) -> bool {
        self.is_done(message) || self.abandoned.contains(message)
    }

    /// A token was used to attach.
    pub(crate) fn token_used(&mut self, attach: &Attach, answer: &Result<Attached, AttachRefused>) {
        let Some(token) = &attach.token else { return };
        match answer {
            Ok(attached) => match &attached.token {
                Some(used) if used.first_use => {
                    self.counts.tokens += 1;
                    let before = self.used.insert(token.hash, attach.now);
                    assert_eq!(before, None, "P7: a token was used twice");
                }
                Some(used) => {
                    self.counts.tokens_again += 1;
                    let since = attach.now.since(used.used_at);
                    let grace = rejoin_core::limits::TOKEN_GRACE;
                    assert!(since <= grace, "P7: a used token worked after its grace");
                }
                None => panic!("P7: a token was brought and not used up"),
            },
            Err(AttachRefused::Token(TokenFault::Reused)) => self.counts.tokens_reused += 1,
            Err(_) => {}
        }
    }

    /// Whether a token was used so long ago that using it again can only be theft.
    pub(crate) fn is_spent(&self, token: &TokenHash, now: Timestamp) -> bool {
        let since = self.used.get(token).map(|at| now.since(*at));
        since.is_some_and(|since| since > rejoin_core::limits::TOKEN_GRACE)
    }

    /// A session was made from a snapshot.
    pub(crate) fn restored(&mut self, old: Option<&Record>, new: &SessionState<Body>) {
        self.counts.restored += 1;
        let new = new.record();
        if let Some(old) = old {
            assert!(new.head >= old.head, "P8: restoring lowered the head");
            let closed = matches!(old.status, Status::Ended { ending: Ending::Closed, .. });
            assert!(!closed, "P8: a session that its user ended was restored");
            if old.is_active() {
                assert!(new.acked >= old.acked, "P8: restoring lowered the ack");
                assert!(new.covered >= old.covered, "P8: restoring undid work");
                let place = |r: &Record| r.snapshot.map(|mark| (mark.in_seq, mark.seq));
                assert!(place(&new) >= place(old), "P8: restoring undid a newer state");
            }
        }
    }

    /// A client was told where it goes on.
    pub(crate) fn resumed(&mut self, asked: &Asked, confirmed: &Confirmed) {
        let record = &confirmed.record;
        let last = asked.last_seq.unwrap_or(record.acked);
        let unknown = asked.epoch.as_ref().is_some_and(|epoch| *epoch != record.epoch);
        match confirmed.gap {
            Some(Gap::PositionUnknown) => {}
            Some(Gap::Evicted { missing, .. }) => {
                assert!(!unknown, "P4: a position of another epoch was taken for one of this");
                assert_eq!(missing.from, last.next(), "P4: the gap begins elsewhere");
                assert_eq!(confirmed.replay_from, missing.to.next(), "P4: the gap ends elsewhere");
            }
            None => {
                assert!(!unknown, "P4: a position of another epoch was taken for one of this");
                assert_eq!(confirmed.replay_from, last.next(), "P2: the replay begins elsewhere");
            }
        }
    }

    /// A client found a hole where the network had made none.
    pub(crate) fn unexplained_hole(&self) {
        panic!("P2: the server left out an event, and only the client noticed");
    }

    /// An application got an event.
    pub(crate) fn delivered(&mut self, seen: &mut Seen, event: EventId, body: &Body) {
        self.counts.delivered += 1;
        let seq = event.seq;
        match seen.gap.take() {
            None => assert_eq!(seq, seen.last.next(), "P2: a hole, a double or disorder"),
            Some(Gap::Evicted { missing, .. }) => {
                assert_eq!(seq, missing.to.next(), "P4: the gap was told wrongly");
            }
            Some(Gap::PositionUnknown) => {}
        }
        seen.last = seq;
        let written = self.written.get(&(event.log, seq));
        assert_eq!(written, Some(body), "P2: event {seq} is not what was written");
    }

    /// An application was told of a gap.
    pub(crate) fn told_gap(&mut self, seen: &mut Seen, gap: Gap) {
        self.counts.gaps += 1;
        if let Gap::Evicted { missing, .. } = gap {
            let last = match seen.gap {
                Some(Gap::Evicted { missing, .. }) => missing.to,
                Some(Gap::PositionUnknown) => missing.from.previous(),
                None => seen.last,
            };
            assert!(missing.from <= last.next(), "P4: a gap begins after what was seen");
        }
        seen.gap = Some(gap);
    }

    /// Somebody tried what must not work.
    pub(crate) fn refused(&mut self, promise: &str, worked: bool) {
        assert!(!worked, "{promise}");
        self.counts.refused += 1;
    }

    /// All faults have stopped and everything has come to rest: the application has everything.
    pub(crate) fn caught_up(&self, seen: &Seen, record: &Record, id: &SessionId) {
        let end = match seen.gap {
            Some(Gap::Evicted { missing, .. }) => missing.to,
            Some(Gap::PositionUnknown) if record.held() == 0 => record.head,
            Some(Gap::PositionUnknown) | None => seen.last,
        };
        assert_eq!(end, record.head, "P11: a client of {id} did not catch up");
    }
}

impl Seen {
    pub(crate) fn last(&self) -> Seq {
        self.last
    }
}

fn text(body: &Body) -> String {
    String::from_utf8_lossy(body).into_owned()
}
