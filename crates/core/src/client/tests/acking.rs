//! Acks are cumulative, on time, and of nothing that was not delivered.

use super::*;

#[test]
fn a_hundred_events_are_acked_at_once() {
    let mut scene = Scene::attached();
    for seq in 1..=99 {
        scene.receive(event(seq));
    }
    assert_eq!(scene.sent(), []);
    scene.receive(event(100));
    assert_eq!(scene.sent(), [ack(100, 100, false)]);
}

#[test]
fn fewer_events_are_acked_a_second_after_the_first() {
    let mut scene = Scene::attached();
    scene.receive(event(1));
    scene.pass(Duration::from_millis(600));
    scene.receive(event(2));
    scene.pass(Duration::from_millis(399));
    assert_eq!(scene.sent(), []);
    scene.pass(Duration::from_millis(1));
    assert_eq!(scene.sent(), [ack(2, 2, false)]);
    assert_eq!(scene.wait(), seconds(60) - seconds(1) + Duration::from_millis(600));
}

#[test]
fn a_replay_is_acked_like_anything_else() {
    let mut scene = Scene::from_saved(Some(saved(5, None)));
    scene.receive(resumed(epoch(1), 6, None));
    scene.outputs.clear();
    for seq in 6..=105 {
        scene.receive(event(seq));
    }
    assert_eq!(scene.sent(), [ack(105, 100, false)]);
}

#[test]
fn a_heartbeat_is_answered_at_once_even_if_there_is_nothing_new() {
    let mut scene = Scene::attached();
    scene.receive(event(1));
    scene.receive(heartbeat(1));
    scene.receive(heartbeat(1));
    assert_eq!(scene.sent(), [ack(1, 1, false), ack(1, 0, false)]);
}

#[test]
fn an_ack_never_covers_what_was_dropped() {
    let mut scene = Scene::attached_at(5);
    for seq in [5, 7, 8] {
        scene.receive(event(seq));
    }
    scene.receive(heartbeat(8));
    assert_eq!(scene.sent(), [ack(5, 0, true), ack(5, 0, true)]);
}

#[test]
fn a_gap_is_acked_once_it_was_told() {
    let mut scene = Scene::attached_at(5);
    scene.receive(ServerEvent::Gap(evicted(6, 8)));
    assert_eq!(scene.wait(), seconds(1));
    assert_eq!(scene.sent(), [ack(8, 0, false)]);
}

#[test]
fn a_position_is_saved_before_it_is_acked() {
    let mut scene = Scene::attached();
    scene.receive(event(1));
    scene.receive(heartbeat(1));
    let wanted = scene.take();
    let position_saved = |output: &Output| matches!(output, Output::Save(saved) if saved.position.as_ref().unwrap().seq == Seq::new(1));
    let saved_at = wanted.iter().position(position_saved).expect("saved");
    let acked_at = wanted.iter().position(|o| *o == Output::Send(ack(1, 1, false))).expect("acked");
    let delivered_at = wanted.iter().position(|o| matches!(o, Output::Deliver(_))).unwrap();
    assert!(delivered_at < saved_at && saved_at < acked_at, "{wanted:?}");
}

#[test]
fn what_was_delivered_before_a_drop_is_acked_after_it() {
    let mut scene = Scene::attached();
    scene.receive(event(1));
    scene.reopen();
    scene.receive(resumed(epoch(1), 2, None));
    scene.outputs.clear();
    assert_eq!(scene.wait(), seconds(1));
    assert_eq!(scene.sent(), [ack(1, 1, false)]);
}

#[test]
fn nothing_of_an_old_epoch_is_acked_in_the_new_one() {
    let mut scene = Scene::attached();
    scene.receive(event(1));
    scene.reopen();
    scene.receive(resumed(epoch(2), 1, None));
    scene.outputs.clear();
    scene.pass(seconds(2));
    assert_eq!(scene.sent(), []);
    scene.receive(heartbeat(0));
    assert_eq!(scene.sent(), [ack(0, 0, false)]);
}
