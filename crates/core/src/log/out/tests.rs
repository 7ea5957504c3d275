use std::time::Duration;

use super::*;

fn held(weight: Weight) -> Held<()> {
    Held { at: Timestamp::from_millis(0), weight, body: () }
}

fn log_of(sizes: &[u32]) -> OutLog<()> {
    let mut log = OutLog::default();
    for size in sizes {
        log.push(held(Weight::passing(*size as usize)));
    }
    log
}

fn bounds(events: usize, bytes: usize) -> LogBounds {
    let retention = Duration::from_secs(60);
    LogBounds { events, bytes, retention, ..LogBounds::default() }
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
    assert_eq!(log.push(held(Weight::passing(1))), Seq::new(10));
}

/// `r` is a result, anything else passes by; each counts ten bytes.
fn log_like(text: &str) -> OutLog<()> {
    let mut log = OutLog::default();
    for class in text.bytes() {
        log.push(held(if class == b'r' { Weight::result(10) } else { Weight::passing(10) }));
    }
    log
}

fn seqs(log: &OutLog<()>) -> (Vec<u64>, Vec<u64>) {
    let numbers = |events: &mut dyn Iterator<Item = (Seq, &Held<()>)>| {
        events.map(|(seq, _)| seq.get()).collect()
    };
    (numbers(&mut log.kept_after(Seq::ZERO)), numbers(&mut log.after(Seq::ZERO)))
}

#[test]
fn results_go_last() {
    let mut log = log_like("rpprpppp");
    let trimmed = log.trim(&bounds(6, 1000), Seq::ZERO, now(0));
    assert_eq!(trimmed, Trimmed { settled: 0, unacked: 2 });
    assert_eq!(seqs(&log), (vec![1], vec![4, 5, 6, 7, 8]));
    log.trim(&bounds(9, 40), Seq::ZERO, now(0));
    assert_eq!(seqs(&log), (vec![1, 4], vec![7, 8]));
    assert_eq!((log.len(), log.bytes(), log.oldest()), (4, 40, Seq::new(7)));
    assert!(log.get(Seq::new(4)).is_some() && log.get(Seq::new(5)).is_none());
}

#[test]
fn where_there_are_only_results_the_oldest_go_and_none_steps_aside() {
    let mut log = log_like("rrrrrr");
    log.trim(&bounds(4, 1000), Seq::ZERO, now(0));
    assert_eq!(seqs(&log), (vec![], vec![3, 4, 5, 6]));
}

#[test]
fn what_passes_by_has_a_part_of_the_bounds_however_many_results_there_are() {
    let mut log = log_like("rrrrrrrrpp");
    for _ in 0..20 {
        log.push(held(Weight::passing(10)));
        log.trim(&bounds(8, 1000), Seq::ZERO, now(0));
    }
    assert_eq!(seqs(&log), (vec![3, 4, 5, 6, 7, 8], vec![29, 30]));
    let mut large = log_like("rrrrrrrr");
    for _ in 0..5 {
        large.push(held(Weight::passing(10)));
        large.trim(&bounds(99, 80), Seq::ZERO, now(0));
    }
    assert_eq!(seqs(&large), (vec![3, 4, 5, 6, 7, 8], vec![12, 13]));
}

#[test]
fn results_grow_old_as_everything_does() {
    let mut log = log_like("rpppp");
    log.trim(&bounds(3, 1000), Seq::ZERO, now(0));
    let head = log.head();
    assert!(log.has_outlived(&bounds(3, 1000), head, now(60)));
    assert_eq!(log.trim(&bounds(3, 1000), head, now(60)).settled, 3);
    assert!(log.is_empty() && log.bytes() == 0);
}

#[test]
fn what_is_shed_or_trimmed_by_position_are_the_oldest_results_too() {
    let mut log = log_like("rprppp");
    log.trim(&bounds(4, 1000), Seq::ZERO, now(0));
    assert_eq!(seqs(&log), (vec![1, 3], vec![5, 6]));
    let mut shed = log.clone();
    assert_eq!(shed.shed(15, log.head(), Seq::ZERO).unacked, 2);
    assert_eq!(seqs(&shed), (vec![], vec![5, 6]));
    log.trim_before(Seq::new(3));
    assert_eq!(seqs(&log), (vec![3], vec![5, 6]));
}
