//! What arrived, and whether that is every event, once and in order. No IO here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::out::{Ink, Out};

/// How an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// When it was made.
    Live,
    /// Later, because the client was away when it was made.
    Replayed,
}

/// Counts what arrives.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Every event in the order in which it arrived.
    arrived: Vec<(u64, Came)>,
    /// What the server said was gone.
    gaps: usize,
    /// What went wrong, and how long the client was away because of it.
    outages: Vec<(&'static str, Duration)>,
}

/// Numbers that are not as they should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Which never arrived.
    missing: Vec<u64>,
    /// Which arrived more than once.
    twice: Vec<u64>,
    /// Which arrived after a later one.
    late: Vec<u64>,
    /// Which no server has made.
    unheard_of: Vec<u64>,
    /// How often the server said that something is gone.
    gaps: usize,
}

impl Tally {
    /// An event has arrived.
    pub(super) fn event(&mut self, seq: u64, came: Came) {
        self.arrived.push((seq, came));
    }

    /// The server says that events are gone.
    pub(super) fn gap(&mut self) {
        self.gaps += 1;
    }

    /// The client is back.
    pub(super) fn outage(&mut self, what: &'static str, lasted: Duration) {
        self.outages.push((what, lasted));
    }

    /// How many events came in this way.
    pub(super) fn count(&self, came: Came) -> usize {
        self.arrived.iter().filter(|(_, how)| *how == came).count()
    }

    /// Compares with what the server has made: the numbers from 1 to `head`.
    pub(super) fn verdict(&self, head: u64) -> Verdict {
        let mut times: BTreeMap<u64, usize> = (1..=head).map(|seq| (seq, 0)).collect();
        let (mut late, mut highest) = (Vec::new(), 0);
        for (seq, _) in &self.arrived {
            *times.entry(*seq).or_default() += 1;
            if *seq < highest {
                late.push(*seq);
            }
            highest = highest.max(*seq);
        }
        let which = |wanted: fn(usize) -> bool| {
            times.iter().filter(|(_, n)| wanted(**n)).map(|(seq, _)| *seq).collect()
        };
        Verdict {
            missing: which(|n| n == 0),
            twice: which(|n| n > 1),
            late,
            unheard_of: times.range(head + 1..).map(|(seq, _)| *seq).collect(),
            gaps: self.gaps,
        }
    }

    /// A mark for each event in the order of their numbers, and what the marks mean.
    pub(super) fn strip(&self, head: u64, out: &Out) -> String {
        let marks =
            (1..=head).map(|seq| match self.arrived.iter().find(|(arrived, _)| *arrived == seq) {
                Some((_, Came::Live)) => out.paint(Ink::Green, "■"),
                Some((_, Came::Replayed)) => out.paint(Ink::Yellow, "□"),
                None => out.paint(Ink::Red, "×"),
            });
        format!("1 {} {head}", marks.collect::<String>())
    }

    /// The outages, a line each.
    pub(super) fn outages(&self) -> impl Iterator<Item = String> {
        self.outages
            .iter()
            .map(|(what, lasted)| format!("{what:<22} {:>4.1} s", lasted.as_secs_f64()))
    }
}

impl Verdict {
    /// What is wrong, a sentence each; nothing if all is as it should be.
    pub(super) fn complaints(&self) -> Vec<String> {
        let lists = [
            (&self.missing, "a hole: never arrived"),
            (&self.twice, "duplicates: arrived more than once"),
            (&self.late, "out of order: arrived after a later one"),
            (&self.unheard_of, "arrived, and the server has made no such event"),
        ];
        let wrong = lists.into_iter().filter(|(numbers, _)| !numbers.is_empty());
        let mut complaints: Vec<String> =
            wrong.map(|(numbers, what)| format!("{what}: {numbers:?}")).collect();
        if self.gaps > 0 {
            complaints.push(format!("the server told of {} gaps", self.gaps));
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(seqs: &[u64]) -> Tally {
        let mut tally = Tally::default();
        seqs.iter().for_each(|seq| tally.event(*seq, Came::Live));
        tally
    }

    #[test]
    fn every_number_once_and_in_order_is_what_is_wanted() {
        assert!(tally(&[1, 2, 3]).verdict(3).complaints().is_empty());
        assert!(tally(&[]).verdict(0).complaints().is_empty());
    }

    #[test]
    fn a_hole_a_duplicate_a_late_one_and_a_gap_are_each_told() {
        let complaint = |tally: Tally, head| tally.verdict(head).complaints().join("; ");
        assert_eq!(complaint(tally(&[1, 3]), 3), "a hole: never arrived: [2]");
        assert_eq!(complaint(tally(&[1, 2]), 3), "a hole: never arrived: [3]");
        assert!(complaint(tally(&[1, 2, 2]), 2).starts_with("duplicates"));
        assert!(complaint(tally(&[2, 1]), 2).starts_with("out of order"));
        assert!(complaint(tally(&[1, 2]), 1).contains("no such event: [2]"));
        let mut told = tally(&[1]);
        told.gap();
        assert_eq!(complaint(told, 1), "the server told of 1 gaps");
    }

    #[test]
    fn the_strip_has_a_mark_for_every_number() {
        let mut tally = tally(&[1]);
        tally.event(2, Came::Replayed);
        assert_eq!(tally.strip(3, &Out::plain()), "1 ■□× 3");
        assert_eq!((tally.count(Came::Live), tally.count(Came::Replayed)), (1, 1));
    }
}
