//! When to try again, and when to lose patience.

use super::*;
use crate::codes::CloseCode;

fn reconnecting(attempt: u32, millis: u64) -> Status {
    Status::Reconnecting { attempt, delay: Duration::from_millis(millis) }
}

#[test]
fn a_client_connects_at_once_when_it_is_made() {
    let mut scene = Scene::new(ClientOptions::default(), None);
    assert_eq!(scene.take(), [Output::Status(Status::Connecting), Output::Connect]);
    assert_eq!(scene.client.next_deadline(), None);
}

#[test]
fn an_unreachable_server_is_tried_for_ever_with_growing_waits() {
    let mut scene = Scene::new(ClientOptions::default(), None);
    let mut waits = Vec::new();
    for _ in 0..50 {
        scene.input(Input::ConnectFailed { random: HALF });
        waits.push(scene.wait().as_millis());
    }
    assert_eq!(waits[..8], [500, 1000, 2000, 4000, 8000, 15_000, 30_000, 30_000]);
    assert_eq!(scene.take().iter().filter(|o| **o == Output::Connect).count(), 51);
}

#[test]
fn a_lost_connection_is_told_and_the_next_attempt_announced() {
    let mut scene = Scene::attached();
    scene.close(Some(1006));
    scene.wait();
    let expected = [Status::ConnectionLost, reconnecting(1, 500), Status::Connecting];
    assert_eq!(scene.statuses(), expected);
}

#[test]
fn the_server_says_how_to_wait() {
    let mut scene = Scene::attached();
    scene.receive(ServerEvent::Connected {
        backoff: vec![seconds(10), seconds(20)],
        max_attempts: 9,
        heartbeat_interval: seconds(5),
    });
    assert_eq!(scene.wait(), seconds(10), "two heartbeats of five seconds");
    scene.close(None);
    assert_eq!(scene.wait(), seconds(5));
    scene.input(Input::ConnectFailed { random: HALF });
    assert_eq!(scene.wait(), seconds(10));
}

#[test]
fn an_attachment_begins_the_count_anew() {
    let mut scene = Scene::new(ClientOptions::default(), None);
    for _ in 0..4 {
        scene.input(Input::ConnectFailed { random: HALF });
        scene.wait();
    }
    scene.input(Input::Opened);
    scene.receive(created(session(1), epoch(1)));
    scene.outputs.clear();
    scene.close(None);
    assert_eq!(scene.statuses(), [Status::ConnectionLost, reconnecting(1, 500)]);
}

#[test]
fn an_open_socket_alone_does_not_begin_the_count_anew() {
    let mut scene = Scene::opened();
    scene.close(None);
    scene.wait();
    scene.input(Input::Opened);
    scene.outputs.clear();
    scene.close(None);
    assert_eq!(scene.statuses(), [reconnecting(2, 1000)]);
}

#[test]
fn retry_after_in_a_close_frame_is_a_lower_bound() {
    let mut scene = Scene::attached();
    let code = Some(CloseCode::Busy.code());
    scene.input(Input::Closed { code, retry_after: Some(seconds(20)), random: 0 });
    assert_eq!(scene.wait(), seconds(20));
}

#[test]
fn retry_after_in_a_refusal_is_a_lower_bound() {
    let mut scene = Scene::opened();
    let retry_after = Some(seconds(20));
    let code = ErrorCode::ServerBusy;
    scene.receive(ServerEvent::Refused { code, retry_after, message_id: None });
    assert_eq!(scene.take().last(), Some(&Output::Close));
    scene.close(None);
    assert_eq!(scene.wait(), seconds(20) + Duration::from_millis(500));
}

#[test]
fn refusals_in_a_row_end_the_attempts() {
    let mut scene = Scene::opened();
    for _ in 0..4 {
        scene.receive(refused(ErrorCode::RateLimited));
        scene.reopen();
    }
    scene.outputs.clear();
    scene.receive(refused(ErrorCode::ServerBusy));
    let reason = StopReason::Refused { code: ErrorCode::ServerBusy };
    assert_eq!(scene.statuses(), [Status::Stopped { reason }]);
    assert_eq!(scene.client.next_deadline(), None);
}

#[test]
fn closes_that_mean_come_back_never_end_the_attempts() {
    let mut scene = Scene::opened();
    for code in [1006, 1001, 4000, 4001, 4003, 4099, 4000, 4003, 1011, 4200] {
        scene.close(Some(code));
        scene.wait();
        scene.input(Input::Opened);
    }
    assert!(!scene.statuses().iter().any(|status| matches!(status, Status::Stopped { .. })));
}

#[test]
fn closes_that_mean_stop_are_final() {
    let cases = [
        (4100, StopReason::Superseded),
        (4101, StopReason::Ended),
        (4102, StopReason::Closed { code: 4102 }),
        (4103, StopReason::Closed { code: 4103 }),
        (4150, StopReason::Closed { code: 4150 }),
    ];
    for (code, reason) in cases {
        let mut scene = Scene::attached();
        scene.close(Some(code));
        let wanted = scene.take();
        assert_eq!(wanted.last(), Some(&Output::Status(Status::Stopped { reason })), "{code}");
        assert!(!wanted.contains(&Output::Close), "{code}: it is closed already");
        scene.input(Input::Wake);
        scene.pass(seconds(3600));
        scene.input(Input::Opened);
        assert_eq!(scene.take(), [], "{code}");
        assert_eq!(scene.client.next_deadline(), None, "{code}");
    }
}

#[test]
fn a_server_silent_for_two_heartbeats_is_given_up() {
    let mut scene = Scene::attached();
    scene.pass(seconds(59));
    scene.receive(heartbeat(0));
    scene.pass(seconds(59));
    assert!(!scene.take().contains(&Output::Close));
    assert_eq!(scene.wait(), seconds(1));
    assert_eq!(scene.take(), [Output::Status(Status::ConnectionLost), Output::Close]);
    scene.receive(event(1));
    assert_eq!(scene.take(), [], "the socket was given up");
    scene.close(None);
    assert_eq!(scene.statuses(), [reconnecting(1, 500)]);
}

#[test]
fn a_server_that_never_answers_the_request_is_given_up_too() {
    let mut scene = Scene::opened();
    scene.outputs.clear();
    assert_eq!(scene.wait(), seconds(60));
    assert_eq!(scene.take(), [Output::Close]);
}

#[test]
fn a_server_that_was_merely_heard_of_is_not_silent() {
    let mut scene = Scene::attached();
    scene.pass(seconds(50));
    scene.input(Input::Heard);
    assert_eq!(scene.take(), []);
    assert_eq!(scene.wait(), seconds(60), "patience begins anew");
}

#[test]
fn a_server_without_heartbeats_may_be_silent() {
    let mut scene = Scene::attached();
    let heartbeat_interval = Duration::ZERO;
    scene.receive(ServerEvent::Connected { backoff: vec![], max_attempts: 5, heartbeat_interval });
    assert_eq!(scene.client.next_deadline(), None);
    scene.pass(seconds(3600));
    scene.input(Input::Wake);
    assert_eq!(scene.take(), []);
}

#[test]
fn waking_cuts_a_wait_short() {
    let mut scene = Scene::attached();
    scene.close(None);
    scene.outputs.clear();
    scene.input(Input::Wake);
    assert_eq!(scene.take(), [Output::Status(Status::Connecting), Output::Connect]);
}

#[test]
fn waking_does_not_cut_short_what_the_server_asked_for() {
    let mut scene = Scene::attached();
    scene.input(Input::Closed { code: None, retry_after: Some(seconds(20)), random: HALF });
    scene.pass(seconds(5));
    scene.outputs.clear();
    scene.input(Input::Wake);
    assert_eq!(scene.take(), []);
    assert_eq!(scene.wait(), seconds(15), "the jitter is saved");
}

#[test]
fn waking_gives_up_a_connection_that_missed_its_heartbeat_and_comes_back_at_once() {
    let mut scene = Scene::attached();
    scene.now = scene.now + seconds(31);
    scene.input(Input::Wake);
    assert_eq!(scene.take(), [Output::Status(Status::ConnectionLost), Output::Close]);
    scene.close(None);
    assert_eq!(scene.take(), [Output::Status(Status::Connecting), Output::Connect]);
}

#[test]
fn waking_leaves_a_live_connection_alone() {
    let mut scene = Scene::attached();
    scene.now = scene.now + seconds(30);
    scene.input(Input::Wake);
    assert_eq!(scene.take(), []);
}

#[test]
fn draining_is_told_and_the_connection_kept() {
    let mut scene = Scene::attached();
    scene.receive(ServerEvent::Draining);
    assert_eq!(scene.take(), [Output::Status(Status::Draining)]);
    scene.receive(event(1));
    assert_eq!(scene.told(), ["1"]);
}
