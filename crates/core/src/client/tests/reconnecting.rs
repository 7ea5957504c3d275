//! What is asked for on a new socket, and what comes next when it is refused.

use super::*;

fn connected(n: u8, how: Joined) -> Status {
    Status::Connected { session_id: session(n), how }
}

#[test]
fn what_is_asked_for_depends_on_what_is_known() {
    let only_snapshot = Saved { session_id: None, ..saved(42, Some(snapshot(40))) };
    let cases = [
        (None, ClientCommand::CreateSession),
        (Some(saved(42, None)), reconnect(42, Some("token-1"))),
        (Some(saved(42, Some(snapshot(40)))), reconnect(42, Some("token-1"))),
        (Some(Saved { token: None, ..saved(42, None) }), reconnect(42, None)),
        (Some(only_snapshot), restore(40, 42)),
    ];
    for (saved, expected) in cases {
        let mut scene = Scene::from_saved(saved);
        assert_eq!(scene.sent(), [expected]);
    }
}

#[test]
fn a_new_session_is_told_and_saved() {
    let mut scene = Scene::opened();
    scene.outputs.clear();
    scene.receive(created(session(1), epoch(1)));
    let status = Output::Status(connected(1, Joined::Created));
    assert_eq!(scene.take(), [status, Output::Save(saved(0, None))]);
}

#[test]
fn a_client_comes_back_to_where_it_was() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(5, Some("token-1"))]);
    scene.receive(resumed(epoch(1), 6, None));
    assert_eq!(scene.statuses(), [connected(1, Joined::Resumed)]);
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(5, Some("token-2"))], "the token of the last attachment");
}

#[test]
fn a_lost_session_is_restored_if_there_is_a_snapshot() {
    for code in [
        ErrorCode::SessionNotFound,
        ErrorCode::SessionExpired,
        ErrorCode::SessionInactive,
        ErrorCode::SessionClosed,
        ErrorCode::IdInvalid,
    ] {
        let mut scene = Scene::from_saved(Some(saved(42, Some(snapshot(40)))));
        scene.outputs.clear();
        scene.receive(refused(code));
        let expected = Saved { session_id: None, token: None, ..saved(42, Some(snapshot(40))) };
        let wanted = [
            Output::Save(expected),
            Output::Status(Status::Restoring),
            Output::Send(restore(40, 42)),
        ];
        assert_eq!(scene.take(), wanted, "{code}");
    }
}

#[test]
fn a_lost_session_without_snapshot_is_followed_by_a_new_one() {
    let mut scene = Scene::from_saved(Some(saved(42, None)));
    scene.outputs.clear();
    let code = ErrorCode::SessionExpired;
    scene.receive(refused(code));
    let wanted = scene.take();
    assert!(wanted.contains(&Output::Status(Status::Expired { code })));
    assert_eq!(wanted.last(), Some(&Output::Send(ClientCommand::CreateSession)));
    scene.receive(created(session(3), epoch(3)));
    scene.receive(event(1));
    assert_eq!(scene.told(), ["1"], "its events begin anew");
}

#[test]
fn a_lost_session_is_the_end_where_no_other_is_wanted() {
    let options = ClientOptions { create_when_lost: false, ..ClientOptions::default() };
    let mut scene = Scene::new(options, Some(saved(42, None)));
    scene.input(Input::Opened);
    scene.outputs.clear();
    let code = ErrorCode::SessionNotFound;
    scene.receive(refused(code));
    let reason = StopReason::Lost { code };
    assert_eq!(scene.statuses(), [Status::Expired { code }, Status::Stopped { reason }]);
}

#[test]
fn a_refused_snapshot_is_dropped_and_a_new_session_created() {
    for code in [
        ErrorCode::StateExpired,
        ErrorCode::StateSuperseded,
        ErrorCode::StateVerificationFailed,
        ErrorCode::InvalidMessage,
    ] {
        let snapshot = Some(snapshot(40));
        let mut scene = Scene::from_saved(Some(Saved { session_id: None, ..saved(42, snapshot) }));
        scene.outputs.clear();
        scene.receive(refused(code));
        let wanted = scene.take();
        let dropped = |o: &Output| matches!(o, Output::Save(saved) if saved.snapshot.is_none());
        assert!(wanted.iter().any(dropped), "{code}");
        assert!(wanted.contains(&Output::Status(Status::Expired { code })), "{code}");
        assert_eq!(wanted.last(), Some(&Output::Send(ClientCommand::CreateSession)), "{code}");
    }
}

#[test]
fn a_restored_session_goes_on_with_the_numbering_and_without_the_snapshot() {
    let mut scene = Scene::from_saved(Some(saved(42, Some(snapshot(40)))));
    scene.receive(refused(ErrorCode::SessionExpired));
    scene.outputs.clear();
    scene.receive(restored(Some(range(43, 44))));
    scene.receive(ServerEvent::Gap(evicted(43, 44)));
    scene.receive(event(45));
    let wanted = scene.take();
    assert!(wanted.contains(&Output::Status(connected(2, Joined::Restored))));
    assert_eq!(wanted.iter().filter_map(told).collect::<Vec<_>>(), ["gap 43…44", "45"]);
    scene.receive(heartbeat(45));
    let expected = Saved {
        session_id: Some(session(2)),
        position: Some(Position { epoch: epoch(2), seq: Seq::new(45) }),
        token: Some(Secret::new("token-3")),
        snapshot: None,
    };
    assert_eq!(scene.last_saved(), Some(expected));
}

#[test]
fn a_lost_reply_to_a_restore_is_asked_for_again() {
    let mut scene = Scene::from_saved(Some(saved(42, Some(snapshot(40)))));
    scene.receive(refused(ErrorCode::SessionExpired));
    scene.outputs.clear();
    scene.reopen();
    assert_eq!(scene.sent(), [restore(40, 42)]);
}

#[test]
fn a_refused_token_is_dropped_and_the_session_asked_for_without_it_once() {
    for code in [ErrorCode::TokenInvalid, ErrorCode::TokenExpired, ErrorCode::TokenReused] {
        let mut scene = Scene::from_saved(Some(saved(42, None)));
        scene.outputs.clear();
        scene.receive(refused(code));
        let forgotten = Saved { token: None, ..saved(42, None) };
        let again = [Output::Save(forgotten), Output::Send(reconnect(42, None))];
        assert_eq!(scene.take(), again, "{code}");
        scene.receive(refused(code));
        let reason = StopReason::Refused { code };
        assert_eq!(scene.statuses(), [Status::Stopped { reason }], "{code}");
    }
}

#[test]
fn a_token_shown_without_an_answer_is_shown_again_only_while_that_is_no_alarm() {
    let mut scene = Scene::from_saved(Some(saved(42, None)));
    scene.reopen();
    scene.outputs.clear();
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(42, Some("token-1"))], "within the grace");
    scene.pass(seconds(10));
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(42, None)]);
}

#[test]
fn a_token_that_was_turned_away_unused_stays_good() {
    let cases = [
        (ErrorCode::RateLimited, Some("token-1")),
        (ErrorCode::SessionAlreadyActive, Some("token-1")),
        (ErrorCode::DatabaseUnavailable, None), // used up, for all the server knows
    ];
    for (code, shown) in cases {
        let mut scene = Scene::from_saved(Some(saved(42, None)));
        scene.receive(refused(code));
        scene.outputs.clear();
        scene.pass(seconds(10));
        scene.reopen();
        assert_eq!(scene.sent(), [reconnect(42, shown)], "{code}");
    }
}

#[test]
fn a_token_never_shown_stays_good_however_long_the_server_is_away() {
    let mut scene = Scene::attached_at(5);
    scene.close(None);
    for _ in 0..10 {
        scene.wait();
        scene.input(Input::ConnectFailed { random: HALF });
    }
    scene.wait();
    scene.outputs.clear();
    scene.input(Input::Opened);
    assert_eq!(scene.sent(), [reconnect(5, Some("token-1"))]);
}

#[test]
fn the_token_in_a_heartbeat_takes_the_place_of_the_old_one() {
    let mut scene = Scene::attached_at(5);
    let token = Some(Secret::new("token-9"));
    scene.receive(ServerEvent::Heartbeat { head: Seq::new(5), token: token.clone() });
    assert_eq!(scene.last_saved().unwrap().token, token);
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(5, Some("token-9"))]);
}

#[test]
fn a_caller_who_may_not_be_here_stops() {
    let mut scene = Scene::from_saved(Some(saved(42, None)));
    let code = ErrorCode::Unauthorized;
    scene.outputs.clear();
    scene.receive(refused(code));
    let stopped = Output::Status(Status::Stopped { reason: StopReason::Refused { code } });
    assert_eq!(scene.take(), [Output::Close, stopped], "what was saved stays");
}

#[test]
fn a_new_session_that_is_refused_for_its_shape_stops() {
    let mut scene = Scene::opened();
    let code = ErrorCode::InvalidMessage;
    scene.outputs.clear();
    scene.receive(refused(code));
    let reason = StopReason::Refused { code };
    assert_eq!(scene.statuses(), [Status::Stopped { reason }]);
}

#[test]
fn every_refusal_of_every_request_leads_somewhere() {
    let requests = [
        None,
        Some(saved(42, None)),
        Some(Saved { token: None, ..saved(42, Some(snapshot(40))) }),
        Some(Saved { session_id: None, ..saved(42, Some(snapshot(40))) }),
    ];
    for saved in requests {
        for code in ErrorCode::ALL {
            let mut scene = Scene::from_saved(saved.clone());
            let mut requests = 0;
            while matches!(scene.client.phase, Phase::Asking(_)) {
                requests += scene.sent().len();
                assert!(requests <= 4, "{saved:?} {code}");
                scene.receive(refused(*code));
            }
            let (ended, closing) = (Phase::Stopped, scene.outputs.contains(&Output::Close));
            assert!(scene.client.phase == ended || closing, "{saved:?} {code}");
        }
    }
}

#[test]
fn a_session_lost_while_attached_is_recovered_on_the_same_socket() {
    let mut scene = Scene::attached_at(5);
    scene.receive(state(4));
    scene.outputs.clear();
    scene.receive(refused(ErrorCode::SessionClosed));
    assert_eq!(scene.sent(), [restore(4, 5)]);
}

#[test]
fn a_client_that_is_not_attached_after_all_comes_back() {
    let mut scene = Scene::attached_at(5);
    scene.receive(refused(ErrorCode::SessionNotOwned));
    assert_eq!(scene.take(), [Output::Status(Status::ConnectionLost), Output::Close]);
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(5, Some("token-1"))]);
}

#[test]
fn a_snapshot_is_saved_and_told() {
    let mut scene = Scene::attached_at(5);
    scene.receive(state(4));
    assert_eq!(scene.outputs.iter().filter_map(told).collect::<Vec<_>>(), ["state 4"]);
    assert_eq!(scene.last_saved(), Some(saved(5, Some(snapshot(4)))));
}

#[test]
fn a_snapshot_too_large_for_a_frame_is_not_tried_for_ever() {
    let snapshot = Some(snapshot(40));
    let mut scene = Scene::from_saved(Some(Saved { session_id: None, ..saved(42, snapshot) }));
    scene.outputs.clear();
    scene.close(Some(1009));
    scene.wait();
    scene.input(Input::Opened);
    assert_eq!(scene.sent(), [ClientCommand::CreateSession]);
}
