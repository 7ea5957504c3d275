//! Which entry an agent has in hand, so that what it says can name it.

use std::collections::VecDeque;

use rejoin_core::limits::WAITING_ENTRIES;
use rejoin_core::page::StoredEntry;
use rejoin_core::worker::Publication;
use rejoin_core::{EventBody, InSeq, MessageId};

use crate::entry::EntryBody;

/// The entries that an agent was handed and may be at work on.
#[derive(Debug, Default)]
pub(super) struct InHand {
    /// In order. The first is the newest that is covered, if one is.
    handed: VecDeque<(InSeq, Option<MessageId>)>,
    /// Up to here the agent has said itself that entries are dealt with.
    named: InSeq,
}

/// How far an agent has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The last entry that it took.
    pub(super) taken: InSeq,
    /// Everything up to here is dealt with.
    pub(super) covered: InSeq,
    /// Whether it says itself what it has dealt with.
    pub(super) names_entries: bool,
}

impl InHand {
    /// It was handed these.
    pub(super) fn hand(&mut self, entries: &[StoredEntry]) {
        let handed = entries
            .iter()
            .map(|entry| (entry.in_seq, EntryBody::for_agent(&entry.body).message_id));
        self.handed.extend(handed);
        let too_many = self.handed.len().saturating_sub(WAITING_ENTRIES);
        self.handed.drain(..too_many); // of an agent that says nothing
    }

    /// Another agent begins, and is handed again what is not covered.
    pub(super) fn clear(&mut self) {
        self.handed.clear();
    }

    /// The same publication, each of its events naming the entry that it belongs to: the one that the
    /// publication covers, or else the one that the agent has in hand. Unchanged if there is none.
    pub(super) fn stamp(
        &mut self,
        mut publication: Box<Publication>,
        progress: Progress,
    ) -> Box<Publication> {
        self.named = self.named.max(publication.in_seq.unwrap_or_default());
        let covered = progress.covered.max(self.named);
        let entry = match publication.in_seq.filter(|in_seq| *in_seq > InSeq::ZERO) {
            Some(in_seq) => {
                let known = self.handed.iter().find(|(handed, _)| *handed == in_seq);
                Some(known.cloned().unwrap_or((in_seq, None)))
            }
            None => self.in_hand(progress).cloned(),
        };
        while self.handed.get(1).is_some_and(|(second, _)| *second <= covered) {
            self.handed.pop_front();
        }
        let Some((in_seq, message_id)) = entry else { return publication };
        let stamp = |event: EventBody| event.belonging_to(in_seq, message_id.as_ref());
        let events = std::mem::take(&mut publication.events);
        publication.events = events.into_iter().map(stamp).collect();
        publication
    }

    /// One that names entries works on the oldest that is not dealt with; any other on the last that it took.
    fn in_hand(&self, progress: Progress) -> Option<&(InSeq, Option<MessageId>)> {
        let Progress { taken, covered, names_entries } = progress;
        let covered = covered.max(self.named);
        let took = self.handed.iter().take_while(|(in_seq, _)| *in_seq <= taken);
        let oldest = took.clone().find(|(in_seq, _)| names_entries && *in_seq > covered);
        oldest.or_else(|| took.last())
    }
}

#[cfg(test)]
mod tests {
    use rejoin_core::Timestamp;
    use rejoin_core::log::EntryKind;

    use super::*;

    fn handed(numbers: std::ops::RangeInclusive<u64>) -> InHand {
        let mut in_hand = InHand::default();
        let entries: Vec<_> = numbers
            .map(|number| StoredEntry {
                in_seq: InSeq::new(number),
                kind: EntryKind::Message,
                at: Timestamp::default(),
                body: format!(r#"{{"content":1,"message_id":"m{number}"}}"#).into_bytes().into(),
            })
            .collect();
        in_hand.hand(&entries);
        in_hand
    }

    fn says(in_hand: &mut InHand, in_seq: Option<u64>, taken: u64, names_entries: bool) -> String {
        let events = vec![EventBody::parse(br#"{"event":"a"}"#).unwrap()];
        let in_seq = in_seq.map(InSeq::new);
        let publication = Publication { events, in_seq, ..Publication::default() };
        let (taken, covered) = (InSeq::new(taken), InSeq::ZERO);
        let stamped =
            in_hand.stamp(Box::new(publication), Progress { taken, covered, names_entries });
        let event: serde_json::Value = serde_json::from_slice(&stamped.events[0]).unwrap();
        event["metadata"].to_string()
    }

    #[test]
    fn an_agent_that_names_entries_works_on_the_oldest_that_is_not_covered() {
        let mut in_hand = handed(1..=3);
        assert_eq!(says(&mut in_hand, None, 0, true), "{}");
        assert_eq!(says(&mut in_hand, None, 3, true), r#"{"in_seq":1,"message_id":"m1"}"#);
        assert_eq!(says(&mut in_hand, Some(1), 3, true), r#"{"in_seq":1,"message_id":"m1"}"#);
        assert_eq!(says(&mut in_hand, None, 3, true), r#"{"in_seq":2,"message_id":"m2"}"#);
        assert_eq!(says(&mut in_hand, Some(3), 3, true), r#"{"in_seq":3,"message_id":"m3"}"#);
        assert_eq!(says(&mut in_hand, None, 3, true), r#"{"in_seq":3,"message_id":"m3"}"#);
        assert_eq!(in_hand.handed.len(), 1);
    }

    #[test]
    fn any_other_works_on_the_last_that_it_took() {
        let mut in_hand = handed(1..=3);
        assert_eq!(says(&mut in_hand, None, 2, false), r#"{"in_seq":2,"message_id":"m2"}"#);
        assert_eq!(says(&mut in_hand, Some(9), 2, false), r#"{"in_seq":9}"#);
        assert_eq!(says(&mut InHand::default(), None, 2, false), "{}");
    }
}
