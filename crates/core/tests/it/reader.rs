//! A reader: what its client hears and in which order, whatever comes between a look at the store and its
//! answer.

use std::time::Duration;

use crate::common::live::{page, tell_in_words};
use crate::common::*;
use rejoin_core::codes::CloseCode;
use rejoin_core::limits::LogBounds;
use rejoin_core::reader::{LeaveReason, Reader, ReaderInput, ReaderOutput};
use rejoin_core::resume::Asked;
use rejoin_core::settings::Settings;
use rejoin_core::{InSeq, Timestamp};

/// A reader and the session that it reads.
struct Reading {
    store: Stored,
    reader: Reader,
    now: Timestamp,
    heard: Vec<String>,
}

impl Reading {
    /// A client that came back with everything up to `last_seq`.
    fn of(mut store: Stored, last_seq: Option<u64>) -> Self {
        let attached = store.comes(START);
        let asked = last_seq.map(|n| Asked { last_seq: Some(seq(n)), ..Asked::default() });
        let reader = Reader::attached(attached, asked, settings(), START);
        let mut reading = Self { store, reader, now: START, heard: Vec::new() };
        reading.outputs();
        reading
    }

    fn happens(&mut self, input: ReaderInput) {
        self.reader.handle(input, self.now);
        self.outputs();
    }

    fn outputs(&mut self) {
        while let Some(output) = self.reader.poll_output() {
            let said = match output {
                ReaderOutput::Read { after } => format!("reads after {after}"),
                ReaderOutput::Look => "looks".to_owned(),
                ReaderOutput::Ack(ack) => format!("acks {} as {}", ack.seq, ack.generation),
                ReaderOutput::Tell(tell) => tell_in_words(tell),
                ReaderOutput::HeartbeatMissed => "heartbeat missed".to_owned(),
                ReaderOutput::Leave(LeaveReason::Closed(code)) => format!("leaves {code:?}"),
                ReaderOutput::Leave(LeaveReason::Cut) => "is cut".to_owned(),
            };
            self.heard.push(said);
        }
    }

    /// The answer to a read after `after`, as the store is now.
    fn page(&mut self, after: u64) {
        let page = Some(Box::new(page(&self.store, seq(after), 100)));
        self.happens(ReaderInput::Page { after: seq(after), page });
    }

    fn changes(&mut self) {
        self.happens(ReaderInput::Changed);
    }

    fn answered(&mut self, in_seq: u64) {
        self.happens(ReaderInput::Answered(Some(InSeq::new(in_seq))));
    }

    /// What was heard since the last call.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.heard), expected);
    }
}

fn settings() -> Settings {
    Settings { auto_export_interval: Duration::from_secs(10), ..Settings::default() }
}

#[test]
fn a_new_session_s_client_hears_events_as_they_come() {
    let mut one = Reading::of(session(), None);
    one.expect(&["confirmed: new, generation 1, from 1"]);
    one.store.says(2, START);
    one.changes();
    one.expect(&["reads after 0"]);
    one.page(0);
    one.expect(&["live 1 2"]);
    one.store.says(1, START);
    one.changes();
    one.expect(&["looks"]);
    one.happens(ReaderInput::Looked(Some(Box::new(one.store.record()))));
    one.expect(&[]);
    one.happens(ReaderInput::Writable);
    one.expect(&["reads after 2"]);
    one.page(2);
    one.expect(&["live 3"]);
}

#[test]
fn who_comes_back_hears_what_it_missed_then_that_it_is_complete_then_the_rest() {
    let mut one = Reading::of(session_with(4), Some(2));
    one.expect(&["confirmed: resumed, generation 1, from 3", "reads after 2"]);
    one.store.says(1, START);
    one.page(2);
    one.expect(&["replayed 3 4", "replay complete: 3…4", "live 5"]);
}

#[test]
fn a_change_while_a_page_is_on_its_way_is_not_missed() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.changes();
    one.expect(&["reads after 0"]);
    let empty = Some(Box::new(page(&one.store, seq(0), 100)));
    one.store.says(1, START);
    one.changes();
    one.expect(&[]);
    one.happens(ReaderInput::Page { after: seq(0), page: empty });
    one.expect(&["reads after 0"]);
    one.page(0);
    one.expect(&["live 1"]);
}

#[test]
fn an_answer_waits_until_its_message_was_accepted() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.happens(ReaderInput::Posted);
    one.store.gets("question", "", START).unwrap();
    one.store.says(1, START);
    one.changes();
    one.page(0);
    one.expect(&["reads after 0"]);
    one.answered(1);
    one.expect(&["live 1"]);
}

#[test]
fn events_do_not_wait_for_a_message_that_the_store_does_not_have() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.happens(ReaderInput::Posted);
    one.store.says(1, START);
    one.changes();
    one.page(0);
    one.expect(&["reads after 0", "live 1"]);
}

#[test]
fn a_page_that_waits_is_forgotten_if_the_client_asks_for_something_else() {
    let mut one = Reading::of(session_with(3), Some(3));
    one.heard.clear();
    one.happens(ReaderInput::Posted);
    one.store.gets("question", "", START).unwrap();
    one.store.says(1, START);
    one.changes();
    one.page(3);
    one.happens(ReaderInput::Ack { seq: seq(1), resend: true });
    one.expect(&["reads after 3", "acks 1 as 1", "reads after 1"]);
    one.answered(1);
    one.expect(&[]);
    one.page(1);
    one.expect(&["replayed 2 3 4", "replay complete: 2…4"]);
}

#[test]
fn a_page_of_another_position_is_not_sent() {
    let mut one = Reading::of(session_with(3), Some(3));
    one.heard.clear();
    one.store.says(1, START);
    one.changes();
    one.happens(ReaderInput::Ack { seq: seq(1), resend: true });
    one.expect(&["reads after 3", "acks 1 as 1"]);
    one.page(3);
    one.expect(&["reads after 1"]);
    one.page(1);
    one.expect(&["replayed 2 3", "replay complete: 2…3", "live 4"]);
}

#[test]
fn a_gap_is_told_before_the_event_behind_it() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.changes();
    one.store.says(5, START);
    let bounds = LogBounds { events: 2, ..LogBounds::default() };
    one.store.settle(&bounds, START);
    one.page(0);
    one.expect(&["reads after 0", "gap 1…3, lost 1…3", "live 4 5"]);
}

#[test]
fn who_is_superseded_hears_nothing_else_even_if_it_is_slow() {
    let mut one = Reading::of(session(), None);
    one.store.says(1, START);
    one.changes();
    one.page(0);
    one.heard.clear();
    one.store.comes(START);
    one.store.says(1, START);
    one.changes();
    one.expect(&["looks"]);
    one.happens(ReaderInput::Looked(Some(Box::new(one.store.record()))));
    one.expect(&["superseded", "leaves Superseded"]);
    one.happens(ReaderInput::Writable);
    one.changes();
    one.happens(ReaderInput::Ack { seq: seq(1), resend: true });
    one.expect(&[]);
    assert!(one.reader.is_over());
}

#[test]
fn an_end_is_told_and_who_asked_for_it_stays() {
    for (asked, expected) in
        [(false, &["ended", "leaves SessionEnded"][..]), (true, &["ended"][..])]
    {
        let mut one = Reading::of(session_with(1), Some(1));
        one.heard.clear();
        if asked {
            one.happens(ReaderInput::EndsItself(true));
        }
        one.store.end(&ended_by_user(START)).unwrap();
        one.changes();
        one.heard.clear();
        one.page(1);
        one.expect(expected);
        assert!(one.reader.is_over());
    }
    let mut forgotten = Reading::of(session(), None);
    forgotten.changes();
    forgotten.heard.clear();
    forgotten.happens(ReaderInput::Page { after: seq(0), page: None });
    forgotten.expect(&["ended", "leaves SessionEnded"]);
}

#[test]
fn an_ack_beyond_the_head_is_looked_up_before_it_is_called_wrong() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.store.says(2, START); // its client has them from elsewhere
    one.happens(ReaderInput::Ack { seq: seq(2), resend: false });
    one.expect(&["reads after 0"]);
    one.page(0);
    one.expect(&["acks 2 as 1", "live 1 2"]);
    one.happens(ReaderInput::Ack { seq: seq(9), resend: false });
    one.expect(&["looks"]);
    one.happens(ReaderInput::Looked(Some(Box::new(one.store.record()))));
    one.expect(&["ack ahead of 2"]);
    one.happens(ReaderInput::Ack { seq: seq(1), resend: false });
    one.expect(&[]);
}

#[test]
fn a_look_that_began_before_an_ack_does_not_judge_it() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.changes();
    let old = Some(Box::new(page(&one.store, seq(0), 100)));
    one.store.says(1, START);
    one.happens(ReaderInput::Ack { seq: seq(1), resend: false });
    one.happens(ReaderInput::Page { after: seq(0), page: old });
    one.expect(&["reads after 0", "reads after 0"]);
    one.page(0);
    one.expect(&["acks 1 as 1", "live 1"]);
}

#[test]
fn a_changed_state_is_sent_by_itself_but_not_too_often() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.store.checkpoints("one", 0, START);
    one.changes();
    one.page(0);
    one.expect(&["reads after 0", "checkpoint"]);
    one.store.checkpoints("two", 0, at(1));
    one.changes();
    one.page(0);
    one.expect(&["reads after 0"]);
    assert_eq!(one.reader.next_deadline(), Some(at(10)));
    one.now = at(10);
    one.happens(ReaderInput::Tick);
    one.expect(&["checkpoint"]);
}

#[test]
fn who_is_silent_is_asked_and_then_cut_off() {
    let mut one = Reading::of(session(), None);
    one.heard.clear();
    one.now = at(30);
    one.happens(ReaderInput::Tick);
    one.expect(&["heartbeat at 0"]);
    one.happens(ReaderInput::Pong);
    one.now = at(60);
    one.happens(ReaderInput::Tick);
    one.expect(&["heartbeat at 0"]);
    one.now = at(90);
    one.happens(ReaderInput::Tick);
    one.expect(&["heartbeat missed", &format!("leaves {:?}", CloseCode::HeartbeatLost)]);
}

#[test]
fn an_observer_reads_and_is_neither_superseded_nor_asked_whether_it_lives() {
    let mut store = session_with(3);
    store.comes(START);
    let reader = Reader::observing(store.record(), seq(1), settings());
    let mut one = Reading { store, reader, now: START, heard: Vec::new() };
    one.outputs();
    one.page(1);
    one.expect(&["reads after 1", "live 2 3"]);
    one.store.comes(START);
    one.changes();
    one.happens(ReaderInput::Looked(Some(Box::new(one.store.record()))));
    one.expect(&["looks"]);
    assert_eq!(one.reader.next_deadline(), None);
}
