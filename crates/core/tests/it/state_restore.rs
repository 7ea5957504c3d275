//! Going on from a snapshot that a client kept: it never undoes work, it can be repeated, and all
//! snapshots of one line meet in one session.

use std::collections::BTreeMap;

use crate::common::*;
use rejoin_core::limits;
use rejoin_core::page::Body;
use rejoin_core::record::{Ending, Status};
use rejoin_core::state::{
    End, Entered, MadeSession, NewSnapshot, Origin, Restore, RestoreRefused, Restored, Takeover,
    restore,
};
use rejoin_core::{Epoch, Generation, LogId, SessionId, Term, Timestamp};

/// What a store has: sessions by their ids.
#[derive(Default)]
struct Sessions(BTreeMap<SessionId, Stored>);

impl Sessions {
    fn with(name: &str, session: Stored) -> Self {
        Self([(id(name), session)].into())
    }

    fn get(&mut self, name: &str) -> &mut Stored {
        self.0.get_mut(&id(name)).expect("the store knows it")
    }

    /// Restores a snapshot as a store does: what was made is kept, and a trace of what was forgotten.
    fn restore(&mut self, asked: Restore<Body>) -> Result<String, RestoreRefused> {
        match restore(asked, &mut self.0)? {
            Restored::Made(made) => {
                let MadeSession { session, from, trace, .. } = *made;
                let id = session.about.id.clone();
                self.0.extend(trace.map(|trace| (from, trace)));
                self.0.insert(id.clone(), session);
                Ok(format!("made {id}"))
            }
            Restored::Joined(id) => Ok(format!("joined {id}")),
        }
    }
}

/// A snapshot of `from` that stands for these positions in both logs, to go on in `to`.
fn snapshot(from: &str, to: &str, at_seq: u64, at_in_seq: u64) -> Restore<Body> {
    Restore {
        from: id(from),
        origin: Origin::Unsaid,
        create: create(to, at(10)),
        epoch: Epoch::from_text("the snapshot's"),
        seq: seq(at_seq),
        in_seq: in_seq(at_in_seq),
        taken_at: START,
        state: NewSnapshot { size: 6, body: body("sealed") },
        last_seq: None,
        takeover: Takeover::Replace,
        remember_for: HOUR,
        only_at: None,
        attempt: None,
        now: at(10),
    }
}

/// A session with events 1 to 5, messages "a" and "b", and a state that covers "a" as of event 5.
fn session_a() -> Stored {
    let mut session = Stored::create(create("A", START));
    session.says(5, START);
    for id in ["a", "b"] {
        session.gets(id, "", START).expect("there is room");
    }
    session.checkpoints("its own", 1, START);
    session
}

fn ending_of(session: &Stored) -> Ending {
    let Status::Ended { ending, .. } = &session.vitals.status else { panic!("it goes on") };
    ending.clone()
}

#[test]
fn what_a_client_said_of_itself_goes_along() {
    let mut made = create("A", START);
    made.about.client = r#"{"app_version":"7"}"#.into();
    let mut sessions = Sessions::with("A", Stored::create(made));
    sessions.restore(snapshot("A", "B", 5, 1)).unwrap();
    sessions.restore(snapshot("forgotten", "C", 5, 1)).unwrap();
    assert_eq!(&*sessions.get("B").about.client, r#"{"app_version":"7"}"#);
    assert_eq!(sessions.get("C").about.client, create("C", START).about.client);
}

#[test]
fn a_living_session_hands_everything_over_and_ends() {
    let mut sessions = Sessions::with("A", session_a());
    let log = sessions.get("A").vitals.log;
    sessions.get("A").comes(START);
    assert_eq!(sessions.restore(snapshot("A", "B", 3, 0)), Ok("made B".into()));
    let new = sessions.get("B");
    assert_eq!((new.held(), new.waiting()), (vec![1, 2, 3, 4, 5], vec![2]));
    assert_eq!(new.state().as_deref(), Some("its own"), "an older snapshot undoes nothing");
    assert_eq!(new.vitals.log, log, "events keep their ids");
    assert_eq!(new.vitals.epoch.as_str(), "B");
    assert!(new.vitals.first_epoch);
    assert_eq!(new.vitals.generation, Generation::ZERO);
    let again = new.gets("a", "", at(11)).unwrap();
    assert_eq!(again, Entered { in_seq: in_seq(1), duplicate: true });
    let old = sessions.get("A");
    assert_eq!(ending_of(old), Ending::Restored { to: id("B") });
    assert!(old.held().is_empty() && old.waiting().is_empty() && old.state().is_none());
    assert_eq!((old.vitals.attached, &old.vitals.lease), (None, &None));
}

#[test]
fn a_process_that_runs_the_old_agent_can_write_nothing_more() {
    let mut sessions = Sessions::with("A", session_a());
    let term = sessions.get("A").leased_to(1, START);
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    let old = sessions.get("A");
    let append = old.append_of(1, term, at(11));
    assert!(old.append(append).is_err());
    assert_eq!(sessions.get("B").vitals.term, Term::ZERO);
}

#[test]
fn a_sealed_state_that_is_newer_than_the_server_s_own_is_used() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 9, 4)).unwrap();
    let new = sessions.get("B");
    assert_eq!(new.state().as_deref(), Some("sealed"));
    assert_eq!((new.out.head(), new.inbox.head()), (seq(5), in_seq(4)));
    assert!(new.waiting().is_empty(), "it covers all of it");
    assert_eq!(new.held(), [1, 2, 3, 4, 5], "its client may not have seen them");
}

#[test]
fn of_two_states_the_one_that_covers_more_messages_is_the_newer() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 4, 2)).unwrap();
    let new = sessions.get("B");
    assert_eq!(new.state().as_deref(), Some("sealed"));
    assert!(new.waiting().is_empty());
    assert_eq!(new.held(), [1, 2, 3, 4, 5], "no event is lost by it");
}

#[test]
fn an_equal_state_leaves_the_server_s_own() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 5, 1)).unwrap();
    assert_eq!(sessions.get("B").state().as_deref(), Some("its own"));
}

#[test]
fn the_numbering_goes_on_after_the_highest_seq_anybody_knows() {
    let table = [
        ("the old session's", 3, None, 5),
        ("the snapshot's", 8, None, 8),
        ("the client's", 3, Some(7), 7),
        ("the old session's again", 3, Some(4), 5),
    ];
    for (whose, snapshot_at, last_seq, expected) in table {
        let mut sessions = Sessions::with("A", session_a());
        sessions.get("A").end(&time_ran_out(START + SESSION_TTL)).unwrap();
        let asked = Restore { last_seq: last_seq.map(seq), ..snapshot("A", "B", snapshot_at, 0) };
        sessions.restore(asked).unwrap();
        assert_eq!(sessions.get("B").out.head(), seq(expected), "{whose}");
    }
}

#[test]
fn a_claim_beyond_the_head_of_a_living_session_drops_nothing_that_it_holds() {
    for (snapshot_at, last_seq) in [(3, 7), (5, 1_000), (8, 9)] {
        let mut sessions = Sessions::with("A", session_a());
        let last_seq = Some(seq(last_seq));
        sessions.restore(Restore { last_seq, ..snapshot("A", "B", snapshot_at, 0) }).unwrap();
        let new = sessions.get("B");
        assert_eq!((new.out.head(), new.held()), (seq(5), vec![1, 2, 3, 4, 5]));
    }
}

#[test]
fn another_principal_s_session_is_not_restored_at_any_hop() {
    let foreign = || {
        let mut foreign = create("A", START);
        foreign.about.principal = rejoin_core::Principal::new("somebody else");
        Stored::create(foreign)
    };
    let refused = |session| Err(RestoreRefused::Foreign { session: id(session) });
    let mut sessions = Sessions::with("A", foreign());
    assert_eq!(sessions.restore(snapshot("A", "B", 3, 0)), refused("A"));
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    sessions.0.insert(id("B"), foreign());
    assert_eq!(sessions.restore(snapshot("A", "C", 3, 0)), refused("B"));
}

#[test]
fn a_line_that_leads_in_a_circle_ends() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    let end = End { ending: Ending::Restored { to: id("A") }, ..ended_by_user(at(20)) };
    sessions.get("B").end(&end).unwrap();
    assert_eq!(sessions.restore(snapshot("A", "C", 3, 0)), Err(RestoreRefused::Superseded));
}

#[test]
fn restoring_never_lowers_an_ack() {
    let mut session = session_a();
    session.comes(START);
    session.acks(4).unwrap();
    let mut sessions = Sessions::with("A", session);
    sessions.restore(snapshot("A", "B", 2, 0)).unwrap();
    assert_eq!(sessions.get("B").out.acked(), seq(4));
}

#[test]
fn a_client_is_believed_up_to_a_million_events_past_its_snapshot() {
    let believed = 3 + limits::BELIEVED_PAST_SNAPSHOT;
    let claim = |n| Restore { last_seq: Some(seq(n)), ..snapshot("A", "B", 3, 0) };
    let mut sessions = Sessions::default();
    let refused = RestoreRefused::Implausible { claimed: seq(believed + 1), seq: seq(3) };
    assert_eq!(sessions.restore(claim(believed + 1)), Err(refused));
    assert!(sessions.restore(claim(believed)).is_ok());
}

#[test]
fn the_same_snapshot_again_comes_back_to_the_session_it_made() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    sessions.get("B").says(1, at(11));
    assert_eq!(sessions.restore(snapshot("A", "C", 3, 0)), Ok("joined B".into()));
    assert_eq!(sessions.get("B").held(), [1, 2, 3, 4, 5, 6]);
    assert!(!sessions.0.contains_key(&id("C")));
}

#[test]
fn a_newer_snapshot_of_the_old_session_joins_too() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    assert_eq!(sessions.restore(snapshot("A", "C", 5, 1)), Ok("joined B".into()));
}

#[test]
fn every_snapshot_of_a_line_leads_to_its_end() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    sessions.restore(snapshot("B", "C", 5, 1)).unwrap();
    assert_eq!(sessions.restore(snapshot("A", "D", 3, 0)), Ok("joined C".into()));
    assert_eq!(sessions.restore(snapshot("B", "D", 3, 0)), Ok("joined C".into()));
    assert_eq!(sessions.restore(snapshot("C", "D", 5, 1)), Ok("made D".into()));
    assert_eq!(sessions.restore(snapshot("A", "E", 3, 0)), Ok("joined D".into()));
}

#[test]
fn a_snapshot_whose_session_its_user_ended_is_superseded() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.get("A").end(&ended_by_user(START)).unwrap();
    assert_eq!(sessions.restore(snapshot("A", "B", 3, 0)), Err(RestoreRefused::Superseded));
}

#[test]
fn a_session_that_a_policy_or_the_hook_ended_goes_on_from_a_snapshot() {
    let mut sessions = Sessions::with("A", session_a());
    let clean_up = End { ending: Ending::CleanedUp, ..ended_by_user(START) };
    sessions.get("A").end(&clean_up).unwrap();
    assert_eq!(sessions.restore(snapshot("A", "B", 5, 1)), Ok("made B".into()));
    let covered = sessions.get("B").gets("a", "", at(11)).unwrap();
    assert_eq!(covered, Entered { in_seq: in_seq(1), duplicate: true });
    assert_eq!(sessions.restore(snapshot("A", "C", 5, 1)), Ok("joined B".into()));
}

#[test]
fn where_the_later_one_does_not_win_a_restore_does_not_supersede_who_is_attached() {
    let reject = |asked| Restore { takeover: Takeover::Reject, ..asked };
    let refused = |session| Err(RestoreRefused::AlreadyAttached { session: id(session) });
    let mut sessions = Sessions::with("A", session_a());
    sessions.get("A").attach(&attach(at(1))).unwrap();
    assert_eq!(sessions.restore(reject(snapshot("A", "B", 3, 0))), refused("A"));
    assert_eq!(sessions.restore(snapshot("A", "B", 3, 0)), Ok("made B".into()));
    assert_eq!(sessions.restore(reject(snapshot("A", "C", 3, 0))), Ok("joined B".into()));
    sessions.get("B").attach(&attach(at(11))).unwrap();
    assert_eq!(sessions.restore(reject(snapshot("A", "C", 3, 0))), refused("B"));
}

#[test]
fn an_ack_of_a_log_that_was_lost_stays_one_in_the_session_that_goes_on() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.get("A").begin_epoch(Epoch::from_text("second"), LogId::from_random([9; 8]));
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    assert!(sessions.get("B").vitals.ack_lost);
}

#[test]
fn a_snapshot_from_whose_line_a_newer_session_has_gone_is_superseded_however_it_went() {
    let gone: [fn(&mut Sessions); 3] = [
        |sessions| sessions.get("B").end(&ended_by_user(at(20))).unwrap(),
        |sessions| sessions.get("B").end(&time_ran_out(at(10) + SESSION_TTL)).unwrap(),
        |sessions| drop(sessions.0.remove(&id("B"))),
    ];
    for go in gone {
        let mut sessions = Sessions::with("A", session_a());
        sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
        go(&mut sessions);
        assert_eq!(sessions.restore(snapshot("A", "C", 3, 0)), Err(RestoreRefused::Superseded));
    }
}

#[test]
fn the_newest_snapshot_of_a_line_still_works_when_its_session_has_expired() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    sessions.get("B").end(&time_ran_out(at(10) + SESSION_TTL)).unwrap();
    assert_eq!(sessions.restore(snapshot("B", "C", 5, 1)), Ok("made C".into()));
    assert_eq!(sessions.restore(snapshot("A", "D", 3, 0)), Ok("joined C".into()));
}

#[test]
fn from_an_expired_session_the_sealed_state_goes_on_with_its_numbering_and_message_ids() {
    let mut sessions = Sessions::with("A", session_a());
    sessions.get("A").end(&time_ran_out(START + SESSION_TTL)).unwrap();
    sessions.restore(snapshot("A", "B", 3, 1)).unwrap();
    let new = sessions.get("B");
    assert_eq!(new.state().as_deref(), Some("sealed"));
    assert_eq!((new.out.head(), new.inbox.head()), (seq(5), in_seq(2)));
    let dealt_with = new.gets("a", "", at(11)).unwrap();
    assert_eq!(dealt_with, Entered { in_seq: in_seq(1), duplicate: true });
    let went_with_the_log = new.gets("b", "", at(11)).unwrap();
    assert_eq!(went_with_the_log, Entered { in_seq: in_seq(3), duplicate: false });
}

#[test]
fn from_a_session_whose_time_ran_out_unnoticed_everything_is_still_taken() {
    let mut sessions = Sessions::with("A", session_a());
    let late = START + SESSION_TTL;
    let asked = Restore { now: late, create: create("B", late), ..snapshot("A", "B", 3, 0) };
    assert_eq!(sessions.restore(asked), Ok("made B".into()));
    assert_eq!(sessions.get("B").held(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_forgotten_session_goes_on_from_the_snapshot_alone_and_leaves_a_trace() {
    let mut sessions = Sessions::default();
    assert_eq!(sessions.restore(snapshot("A", "B", 3, 2)), Ok("made B".into()));
    let new = sessions.get("B");
    assert_eq!(new.state().as_deref(), Some("sealed"));
    assert_eq!((new.out.head(), new.inbox.head()), (seq(3), in_seq(2)));
    assert_eq!(sessions.restore(snapshot("A", "C", 3, 2)), Ok("joined B".into()));
}

#[test]
fn the_old_session_is_remembered_long_enough_to_lead_to_the_new_one() {
    let forget_at = |session: &Stored| -> Timestamp {
        let Status::Ended { forget_at, .. } = session.vitals.status else { panic!("it goes on") };
        forget_at
    };
    let mut sessions = Sessions::with("A", session_a());
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    assert_eq!(forget_at(sessions.get("A")), at(10) + HOUR);
    let mut sessions = Sessions::with("A", session_a());
    sessions.get("A").end(&time_ran_out(START + SESSION_TTL)).unwrap();
    sessions.restore(snapshot("A", "B", 3, 0)).unwrap();
    let longer = START + SESSION_TTL + HOUR;
    assert_eq!(forget_at(sessions.get("A")), longer, "never shorter than it would have been");
}

#[test]
fn a_session_that_has_moved_is_joined_if_it_was_to_be_gone_on_from_as_it_was() {
    let at_five = Some((seq(5), in_seq(2)));
    let restore = |only_at| Restore { only_at, ..snapshot("A", "B", 7, 1) };
    let mut sessions = Sessions::with("A", session_a());
    assert_eq!(sessions.restore(restore(Some((seq(4), in_seq(2))))).unwrap(), "joined A");
    assert_eq!(sessions.restore(restore(Some((seq(5), in_seq(1))))).unwrap(), "joined A");
    assert_ne!(sessions.restore(restore(at_five)).unwrap(), "joined A");
}
