//! Where a client goes on that comes back: the one decision of every reconnect, row by row.

use std::time::Duration;

use crate::common::*;
use rejoin_core::position::SeqRange;
use rejoin_core::record::{Ending, Record, SnapshotMark};
use rejoin_core::resume::{Asked, Gap, Refusal, Resume, decide, missing};
use rejoin_core::state::End;
use rejoin_core::{Epoch, EventId, LogId};

/// A session whose agent said `head` things, of which those from `oldest` on are held and those up
/// to `acked` were acked, in its first epoch.
fn log(oldest: u64, head: u64, acked: u64) -> Record {
    let mut session = session_with(head);
    session.out.ack(seq(acked));
    session.out.trim_before(seq(oldest));
    session.record()
}

/// The same after its log was lost once.
fn later_epoch(oldest: u64, head: u64, acked: u64) -> Record {
    let other = LogId::new(4711);
    Record {
        epoch: Epoch::from_text("second"),
        first_epoch: false,
        ack_lost: true,
        named: false,
        log: other,
        ..log(oldest, head, acked)
    }
}

/// With a state that stands for the position after this event.
fn with_state_at(n: u64, record: Record) -> Record {
    let mark = SnapshotMark { seq: seq(n), in_seq: in_seq(0), at: START };
    Record { snapshot: Some(mark), ..record }
}

fn nothing() -> Asked {
    Asked::default()
}

fn last_seq(n: u64) -> Asked {
    Asked { last_seq: Some(seq(n)), ..nothing() }
}

/// The event of this number in the log of `record`.
fn event_of(record: &Record, n: u64) -> Asked {
    let event = EventId { log: record.log, seq: seq(n) };
    Asked { last_event_id: Some(event), ..nothing() }
}

fn in_epoch(epoch: &str, asked: Asked) -> Asked {
    Asked { epoch: Some(Epoch::from_text(epoch)), ..asked }
}

fn replay(after: u64) -> Resume {
    Resume::Replay { after: seq(after) }
}

fn range(from: u64, to: u64) -> Option<SeqRange> {
    SeqRange::new(seq(from), seq(to))
}

fn evicted(from: u64, to: u64, lost: Option<SeqRange>) -> Resume {
    let missing = SeqRange { from: seq(from), to: seq(to) };
    Resume::SnapshotAndReplay { gap: Gap::Evicted { missing, lost }, after: seq(to) }
}

fn unknown_after(after: u64) -> Resume {
    Resume::SnapshotAndReplay { gap: Gap::PositionUnknown, after: seq(after) }
}

/// Asserts what comes of each thing that may be asked of a session.
fn check<const N: usize>(record: &Record, table: [(&str, Asked, Resume); N]) {
    for (what, asked, expected) in table {
        assert_eq!(decide(record, &asked, at(1)), expected, "{what}");
    }
}

#[test]
fn the_position_is_last_seq_else_the_last_event_else_the_last_ack() {
    let record = log(1, 10, 4);
    let both = Asked { last_seq: Some(seq(6)), ..event_of(&record, 8) };
    let elsewhere = event_of(&later_epoch(1, 10, 4), 8);
    check(
        &record,
        [
            ("last_seq", last_seq(6), replay(6)),
            ("last_seq goes before last_event_id", both, replay(6)),
            ("everything again", last_seq(0), replay(0)),
            ("less than was acked", last_seq(2), replay(2)),
            ("at the head", last_seq(10), Resume::UpToDate),
            ("an event", event_of(&record, 8), replay(8)),
            ("the event at the head", event_of(&record, 10), Resume::UpToDate),
            ("an event of another log", elsewhere, replay(4)),
            ("an event that never was", event_of(&record, 11), replay(4)),
            ("nothing", nothing(), replay(4)),
        ],
    );
    check(&log(1, 10, 10), [("nothing, and all acked", nothing(), Resume::UpToDate)]);
}

#[test]
fn in_the_first_epoch_a_position_may_go_without_one() {
    let table = [
        ("named", in_epoch("session", last_seq(6)), replay(6)),
        ("not named", last_seq(6), replay(6)),
        ("another one", in_epoch("other", last_seq(6)), unknown_after(0)),
        ("another one, at the head", in_epoch("other", last_seq(10)), unknown_after(0)),
    ];
    check(&log(1, 10, 4), table);
}

#[test]
fn in_a_later_epoch_a_position_counts_only_if_it_names_the_epoch() {
    let before_the_loss = event_of(&log(1, 10, 4), 6);
    let record = later_epoch(3, 10, 4);
    let event = event_of(&record, 6);
    let table = [
        ("named", in_epoch("second", last_seq(6)), replay(6)),
        ("not named", last_seq(6), unknown_after(2)),
        ("the one before", in_epoch("session", last_seq(6)), unknown_after(2)),
        ("the one before, at the head", in_epoch("session", last_seq(10)), unknown_after(2)),
        ("the one before, no position", in_epoch("session", nothing()), unknown_after(2)),
        ("the one before, an event", in_epoch("session", event.clone()), unknown_after(2)),
        ("an event, which names its log itself", event, replay(6)),
        ("an event of the log that was lost", before_the_loss.clone(), unknown_after(2)),
        ("nothing at all", nothing(), unknown_after(2)),
    ];
    check(&record, table);

    let acked_since = Record { ack_lost: false, ..record };
    let table = [
        ("an event of the log that was lost", before_the_loss, replay(4)),
        ("nothing at all", nothing(), replay(4)),
    ];
    check(&acked_since, table);
}

#[test]
fn a_position_beyond_the_head_is_unknown_and_everything_held_is_sent() {
    let table = [
        ("one beyond", last_seq(11), unknown_after(4)),
        ("far beyond", last_seq(u64::MAX), unknown_after(4)),
        ("with its epoch", in_epoch("session", last_seq(11)), unknown_after(4)),
    ];
    check(&log(5, 10, 4), table);
    check(&log(11, 10, 4), [("nothing is held", last_seq(11), unknown_after(10))]);
}

#[test]
fn an_evicted_position_names_the_gap() {
    let record = log(6, 10, 2);
    let table = [
        ("the next one is held", last_seq(5), replay(5)),
        ("one is gone", last_seq(4), evicted(5, 5, range(5, 5))),
        ("several are gone", last_seq(2), evicted(3, 5, range(3, 5))),
        ("all from the first are gone", last_seq(0), evicted(1, 5, range(1, 5))),
        ("by the last ack", nothing(), evicted(3, 5, range(3, 5))),
        ("by an event", event_of(&record, 3), evicted(4, 5, range(4, 5))),
    ];
    check(&record, table);
}

#[test]
fn what_the_state_does_not_reach_of_a_gap_is_lost() {
    let table = [
        ("a state older than the position", 1, range(3, 5)),
        ("a state at the position", 2, range(3, 5)),
        ("a state of a part", 3, range(4, 5)),
        ("a state of all but one", 4, range(5, 5)),
        ("a state of all", 5, None),
        ("a state of more", 9, None),
    ];
    for (what, state_at, lost) in table {
        let record = with_state_at(state_at, log(6, 10, 0));
        check(&record, [(what, last_seq(2), evicted(3, 5, lost))]);
    }
}

#[test]
fn an_empty_log_is_no_gap_unless_something_unseen_was_in_it() {
    let table = [
        ("nothing was ever said", nothing(), Resume::UpToDate),
        ("nor asked for", last_seq(0), Resume::UpToDate),
        ("beyond nothing", last_seq(1), unknown_after(0)),
    ];
    check(&log(1, 0, 0), table);
    let table = [
        ("all seen", last_seq(10), Resume::UpToDate),
        ("all acked", nothing(), Resume::UpToDate),
        ("not all seen", last_seq(7), evicted(8, 10, range(8, 10))),
    ];
    check(&log(11, 10, 10), table);
    let covered = with_state_at(10, log(11, 10, 10));
    check(&covered, [("covered by the state", last_seq(7), evicted(8, 10, None))]);
}

#[test]
fn a_session_that_is_over_is_refused_with_its_reason() {
    let mut closed = session_with(3);
    closed.end(&ended_by_user(at(0))).unwrap();
    let mut expired = session_with(3);
    expired.end(&time_ran_out(START + SESSION_TTL)).unwrap();
    let mut restored = session_with(3);
    let ending = Ending::Restored { to: id("next") };
    restored.end(&End { ending, ..ended_by_user(at(0)) }).unwrap();
    let refused = |why| [("whatever is asked", last_seq(3), Resume::Refuse(why))];
    check(&closed.record(), refused(Refusal::Closed));
    check(&expired.record(), refused(Refusal::Expired));
    check(&restored.record(), refused(Refusal::Closed));
}

#[test]
fn time_runs_out_at_the_deadline_noticed_or_not_unless_a_client_is_attached() {
    let parked = session_with(3);
    let deadline = START + SESSION_TTL;
    let just_before = deadline - Duration::from_millis(1);
    assert_eq!(decide(&parked.record(), &last_seq(3), just_before), Resume::UpToDate);
    assert_eq!(decide(&parked.record(), &last_seq(3), deadline), Resume::Refuse(Refusal::Expired));
    let mut attached = parked;
    attached.comes(at(1));
    assert_eq!(decide(&attached.record(), &last_seq(3), deadline), Resume::UpToDate);
}

#[test]
fn a_reader_at_any_place_is_told_of_a_gap_exactly_when_its_next_event_is_gone() {
    for oldest in 1..=6 {
        let record = log(oldest, 5, 0);
        for after in 0..=5 {
            let next_is_gone = after + 1 < oldest;
            let told = missing(&record, seq(after)).is_some();
            assert_eq!(told, next_is_gone, "oldest {oldest}, after {after}");
        }
    }
}
