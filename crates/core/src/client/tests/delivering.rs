//! The application gets the out log in order and once, and is told of every gap.

use super::*;

#[test]
fn events_reach_the_application_in_order_and_once() {
    let mut scene = Scene::attached();
    for seq in [1, 2, 2, 1, 3, 3, 4] {
        scene.receive(event(seq));
    }
    assert_eq!(scene.told(), ["1", "2", "3", "4"]);
    assert_eq!(scene.client.counts().duplicates, 3);
    assert_eq!(scene.client.counts().delivered, 4);
}

#[test]
fn a_hole_is_reported_once_and_what_lies_beyond_is_dropped_until_it_is_filled() {
    let mut scene = Scene::attached_at(5);
    for seq in [7, 8, 9] {
        scene.receive(event(seq));
    }
    assert_eq!(scene.sent(), [ack(5, 0, true)]);
    for seq in [6, 7, 8] {
        scene.receive(event(seq));
    }
    assert_eq!(scene.told(), ["6", "7", "8"]);
    assert_eq!(scene.client.counts().out_of_order, 3);
}

#[test]
fn a_second_hole_is_reported_too() {
    let mut scene = Scene::attached_at(5);
    scene.receive(event(7));
    scene.receive(event(6));
    scene.outputs.clear();
    scene.receive(event(9));
    assert_eq!(scene.sent(), [ack(6, 1, true)]);
}

#[test]
fn a_hole_that_stays_open_is_reported_again_with_every_heartbeat() {
    let mut scene = Scene::attached_at(5);
    scene.receive(event(7));
    scene.outputs.clear();
    scene.receive(heartbeat(7));
    assert_eq!(scene.sent(), [ack(5, 0, true)]);
}

#[test]
fn a_tail_that_never_comes_is_asked_for_at_the_second_heartbeat() {
    let mut scene = Scene::attached_at(5);
    scene.receive(heartbeat(9));
    assert_eq!(scene.sent(), [ack(5, 0, false)], "it may still be on its way");
    scene.receive(heartbeat(9));
    assert_eq!(scene.sent(), [ack(5, 0, true)]);
    scene.receive(event(6));
    scene.receive(heartbeat(9));
    assert_eq!(scene.sent(), [ack(6, 1, false)], "something came in between");
}

#[test]
fn a_hole_is_forgotten_with_its_connection() {
    let mut scene = Scene::attached_at(5);
    scene.receive(event(7));
    scene.reopen();
    scene.receive(resumed(epoch(1), 6, None));
    scene.outputs.clear();
    scene.receive(event(8));
    assert_eq!(scene.sent(), [ack(5, 0, true)]);
}

#[test]
fn an_announced_gap_is_told_before_the_state_and_the_next_event() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 10, Some(range(6, 9))));
    scene.receive(ServerEvent::Gap(Gap::Evicted { missing: range(6, 9), lost: Some(range(8, 9)) }));
    scene.receive(state(7));
    scene.receive(event(10));
    scene.receive(state(10));
    let expected = ["gap 6…9 lost 8…9", "state 7 for the gap", "10", "state 10"];
    assert_eq!(scene.told(), expected);
}

#[test]
fn a_gap_in_the_confirmation_alone_is_told_too() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.receive(resumed(epoch(1), 10, Some(range(6, 9))));
    scene.receive(event(10));
    assert_eq!(scene.told(), ["gap 6…9 lost 6…9", "10"]);
}

#[test]
fn a_gap_in_the_middle_of_a_stream_moves_the_position() {
    let mut scene = Scene::attached_at(5);
    scene.receive(ServerEvent::Gap(evicted(6, 8)));
    scene.receive(event(8));
    scene.receive(event(9));
    assert_eq!(scene.told(), ["gap 6…8", "9"]);
}

#[test]
fn a_gap_is_told_as_far_as_it_concerns_the_application() {
    let cases = [
        ((2, 5), vec![]),          // it has them all
        ((4, 8), vec!["gap 6…8"]), // it has some of them
        ((6, 6), vec!["gap 6…6"]), // it has none
        ((7, 8), vec![]),          // 6 is missing and nobody said so: a hole
    ];
    for ((from, to), expected) in cases {
        let mut scene = Scene::attached_at(5);
        scene.receive(ServerEvent::Gap(evicted(from, to)));
        assert_eq!(scene.told(), expected, "{from}…{to}");
    }
}

#[test]
fn a_gap_beyond_a_hole_is_reported_as_a_hole() {
    let mut scene = Scene::attached_at(5);
    scene.receive(ServerEvent::Gap(evicted(7, 8)));
    assert_eq!(scene.sent(), [ack(5, 0, true)]);
}

#[test]
fn after_a_change_of_epoch_the_position_begins_where_the_server_begins() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.receive(resumed(epoch(2), 3, None));
    scene.receive(ServerEvent::Gap(Gap::PositionUnknown));
    scene.receive(state(2));
    for seq in [3, 4, 5, 6] {
        scene.receive(event(seq));
    }
    assert_eq!(scene.told(), ["gap unknown", "state 2 for the gap", "3", "4", "5", "6"]);
}

#[test]
fn a_change_of_epoch_is_told_even_if_no_notice_says_so() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.receive(resumed(epoch(2), 1, None));
    scene.receive(event(1));
    assert_eq!(scene.told(), ["gap unknown", "1"]);
}

#[test]
fn a_change_of_epoch_that_could_not_be_told_is_announced_again() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.receive(resumed(epoch(2), 1, None));
    scene.outputs.clear();
    scene.reopen();
    assert_eq!(scene.sent(), [reconnect(5, Some("token-2"))], "still the position of epoch 1");
}

#[test]
fn a_position_beyond_the_head_is_given_up_when_the_server_says_so() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.receive(resumed(epoch(1), 2, None));
    scene.receive(ServerEvent::Gap(Gap::PositionUnknown));
    scene.receive(event(2));
    scene.receive(event(3));
    assert_eq!(scene.told(), ["gap unknown", "2", "3"]);
}

#[test]
fn an_unknown_position_without_a_beginning_goes_on_with_whatever_comes() {
    let mut scene =
        Scene::from_saved(Some(Saved { session_id: None, ..saved(5, Some(snapshot(4))) }));
    scene.receive(restored(None));
    scene.receive(ServerEvent::Gap(Gap::PositionUnknown));
    scene.receive(event(90));
    scene.receive(event(92));
    scene.receive(event(91));
    assert_eq!(scene.told(), ["gap unknown", "90", "91"]);
}

#[test]
fn what_a_confirmation_said_of_the_beginning_is_of_no_use_later() {
    let mut scene = Scene::from_saved(Some(saved(5, None)));
    scene.receive(resumed(epoch(1), 6, None));
    scene.receive(event(6));
    scene.receive(ServerEvent::Gap(Gap::PositionUnknown));
    scene.receive(event(3));
    assert_eq!(scene.told(), ["6", "gap unknown", "3"]);
}

#[test]
fn a_gap_that_was_told_is_saved_as_passed() {
    let mut scene = Scene::attached_at(5);
    scene.receive(ServerEvent::Gap(evicted(6, 8)));
    assert_eq!(scene.last_saved(), Some(saved(8, None)));
}

/// Found by the model: the session was lost and its log before that, and the connection broke between
/// the confirmation and the notice.
#[test]
fn a_restore_cut_before_its_first_notice_does_not_vouch_for_the_position() {
    let mut scene =
        Scene::from_saved(Some(Saved { session_id: None, ..saved(5, Some(snapshot(4))) }));
    scene.receive(restored(None));
    scene.outputs.clear();
    scene.reopen();
    let expected = ClientCommand::Reconnect {
        session_id: session(2),
        last_seq: Seq::new(5),
        epoch: Some(epoch(1)),
        token: Some(Secret::new("token-3")),
    };
    assert_eq!(scene.sent(), [expected], "not yet a position of epoch 2");
}

#[test]
fn the_greatest_possible_seq_does_no_harm() {
    let mut scene =
        Scene::from_saved(Some(Saved { session_id: None, ..saved(5, Some(snapshot(4))) }));
    scene.receive(restored(None));
    scene.receive(ServerEvent::Gap(Gap::PositionUnknown));
    for seq in [u64::MAX, u64::MAX, 1] {
        scene.receive(event(seq));
    }
    scene.receive(ServerEvent::Gap(evicted(1, u64::MAX)));
    scene.receive(heartbeat(u64::MAX));
    assert_eq!(scene.told(), ["gap unknown".to_owned(), u64::MAX.to_string()]);
}

#[test]
fn events_before_the_confirmation_are_not_delivered() {
    let mut scene = Scene::from_saved(Some(saved(5, None)));
    scene.receive(event(6));
    assert_eq!(scene.told(), [""; 0]);
    scene.receive(resumed(epoch(1), 6, None));
    scene.receive(event(6));
    assert_eq!(scene.told(), ["6"]);
}

#[test]
fn without_a_saved_position_everything_is_delivered_again() {
    let mut scene = Scene::from_saved(Some(Saved { position: None, ..saved(0, None) }));
    let asked = scene.sent();
    assert!(
        matches!(&asked[..], [ClientCommand::Reconnect { last_seq: Seq::ZERO, epoch: None, .. }]),
        "{asked:?}"
    );
    scene.receive(resumed(epoch(3), 1, None));
    scene.receive(event(1));
    assert_eq!(scene.told(), ["1"]);
}

#[test]
fn the_end_of_a_replay_is_told_once_an_attachment() {
    let mut scene = Scene::from_saved(Some(saved(5, None)));
    scene.receive(resumed(epoch(1), 6, None));
    scene.outputs.clear();
    scene.receive(ServerEvent::ReplayComplete);
    scene.receive(ServerEvent::ReplayComplete);
    assert_eq!(scene.statuses(), [Status::CaughtUp]);
}

#[test]
fn an_unknown_position_that_only_the_confirmation_speaks_of_is_told_too() {
    let mut scene = Scene::attached_at(5);
    scene.reopen();
    scene.outputs.clear();
    let gap = Some(Gap::PositionUnknown);
    let (session_id, replay_from) = (session(1), Seq::new(2));
    let epoch = epoch(1);
    let resumed = true;
    scene.receive(ServerEvent::SessionCreated {
        session_id,
        resumed,
        epoch,
        replay_from,
        gap,
        token: None,
    });
    scene.receive(event(2));
    assert_eq!(scene.told(), ["gap unknown", "2"]);
}
