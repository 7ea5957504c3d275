//! What the application wants besides messages: the state, and the end.

use super::*;

fn request_state() -> ClientCommand {
    ClientCommand::RequestState { session_id: session(1) }
}

fn end_session() -> ClientCommand {
    ClientCommand::EndSession { session_id: session(1) }
}

const ENDED: Status = Status::Stopped { reason: StopReason::Ended };

#[test]
fn the_state_is_asked_for_until_it_comes() {
    let mut scene = Scene::attached();
    scene.input(Input::RequestState);
    assert_eq!(scene.sent(), [request_state()]);
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), [request_state()]);
    scene.receive(state(0));
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), []);
}

#[test]
fn a_refused_state_is_told_and_not_asked_for_again() {
    let mut scene = Scene::attached();
    scene.input(Input::RequestState);
    scene.outputs.clear();
    let code = ErrorCode::StateTooLarge;
    scene.receive(refused(code));
    assert_eq!(scene.take(), [Output::Refused { code }]);
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), []);
}

#[test]
fn ending_asks_the_server_and_then_forgets_everything() {
    let mut scene = Scene::attached();
    scene.input(Input::End);
    assert_eq!(scene.sent(), [end_session()]);
    scene.receive(ServerEvent::SessionEnded);
    let expected = [Output::Save(Saved::default()), Output::Close, Output::Status(ENDED)];
    assert_eq!(scene.take(), expected);
}

#[test]
fn ending_while_away_is_done_on_return_and_sends_no_messages_before() {
    let mut scene = Scene::attached();
    scene.close(None);
    scene.send(1);
    scene.outputs.clear();
    scene.input(Input::End);
    assert_eq!(scene.take(), [Output::GivenUp { message_id: id(1), reason: GivenUp::NotSent }]);
    scene.wait();
    scene.input(Input::Opened);
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), [end_session()]);
}

#[test]
fn ending_a_session_that_is_gone_is_the_end() {
    let mut scene = Scene::attached();
    scene.receive(state(0));
    scene.input(Input::End);
    scene.reopen();
    scene.outputs.clear();
    scene.receive(refused(ErrorCode::SessionClosed));
    assert_eq!(scene.statuses(), [ENDED]);
}

#[test]
fn ending_before_there_is_a_session_is_the_end() {
    let mut scene = Scene::new(ClientOptions::default(), None);
    scene.outputs.clear();
    scene.input(Input::End);
    assert_eq!(scene.statuses(), [ENDED]);
}

#[test]
fn ending_while_a_session_is_being_created_ends_that_one() {
    let mut scene = Scene::opened();
    scene.input(Input::End);
    scene.outputs.clear();
    scene.receive(created(session(1), epoch(1)));
    assert_eq!(scene.sent(), [end_session()]);

    let mut scene = Scene::opened();
    scene.input(Input::End);
    scene.close(None);
    assert_eq!(scene.statuses().last(), Some(&ENDED), "it never heard of one");
}

#[test]
fn a_message_after_the_wish_to_end_is_given_up() {
    let mut scene = Scene::attached();
    scene.input(Input::End);
    scene.outputs.clear();
    scene.send(1);
    scene.input(Input::RequestState);
    let reason = GivenUp::NotSent;
    assert_eq!(scene.take(), [Output::GivenUp { message_id: id(1), reason }]);
}

#[test]
fn ending_leaves_nothing_due_that_is_never_done() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.receive(refused_message(ErrorCode::ServerBusy, 1, Some(seconds(3))));
    scene.input(Input::End);
    assert_eq!(scene.wait(), seconds(60), "only the patience with the server");
}

#[test]
fn a_superseded_client_stops_and_keeps_what_it_saved() {
    let mut scene = Scene::attached_at(5);
    scene.receive(ServerEvent::Superseded);
    let stopped = Output::Status(Status::Stopped { reason: StopReason::Superseded });
    assert_eq!(scene.take(), [Output::Close, stopped]);
    scene.close(Some(4100));
    assert_eq!(scene.take(), []);
}

#[test]
fn a_client_superseded_by_its_own_late_ask_comes_back_once() {
    let mut scene = Scene::attached_at(5);
    scene.reopen(); // asks …
    scene.reopen(); // … is not answered, and asks again
    scene.receive(resumed(epoch(1), 6, None));
    scene.outputs.clear();
    scene.receive(ServerEvent::Superseded); // the first ask has arrived
    assert!(scene.take().contains(&Output::Close));
    scene.reopen();
    scene.receive(resumed(epoch(1), 6, None));
    scene.outputs.clear();
    scene.receive(ServerEvent::Superseded);
    let stopped = Output::Status(Status::Stopped { reason: StopReason::Superseded });
    assert_eq!(scene.take(), [Output::Close, stopped]);
}
