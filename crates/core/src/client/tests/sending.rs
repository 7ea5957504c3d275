//! Messages are sent until they are answered for, in order, and each is accounted for.

use super::*;

fn given_up(n: u64, reason: GivenUp) -> Output {
    Output::GivenUp { message_id: id(n), reason }
}

#[test]
fn a_message_goes_out_at_once_when_attached() {
    let mut scene = Scene::attached();
    scene.send(1);
    assert_eq!(scene.sent(), [message(1)]);
    scene.receive(accepted(1));
    let told = Output::Accepted { message_id: id(1), in_seq: InSeq::new(1) };
    assert_eq!(scene.take(), [told]);
}

#[test]
fn a_message_waits_for_the_attachment() {
    let mut scene = Scene::opened();
    scene.send(1);
    scene.outputs.clear();
    scene.receive(created(session(1), epoch(1)));
    assert_eq!(scene.sent(), [message(1)]);
}

#[test]
fn the_next_message_waits_until_the_one_before_is_accepted() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.send(2);
    assert_eq!(scene.sent(), [message(1)]);
    scene.receive(accepted(1));
    assert_eq!(scene.sent(), [message(2)]);
}

#[test]
fn several_messages_may_be_on_their_way_if_that_is_wanted() {
    let options = ClientOptions { messages_in_flight: 2, ..ClientOptions::default() };
    let mut scene = Scene::attached_with(options);
    for n in 1..=3 {
        scene.send(n);
    }
    assert_eq!(scene.sent(), [message(1), message(2)]);
    scene.receive(accepted(1));
    assert_eq!(scene.sent(), [message(3)]);
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), [message(2), message(3)]);
}

#[test]
fn unaccepted_messages_are_sent_again_in_order_after_every_attachment() {
    let mut scene = Scene::attached();
    for n in 1..=3 {
        scene.send(n);
    }
    scene.receive(accepted(1));
    for _ in 0..2 {
        scene.reopen();
        scene.outputs.clear();
        scene.receive(resumed(epoch(1), 1, None));
        assert_eq!(scene.sent(), [message(2)]);
    }
    scene.receive(accepted(2));
    assert_eq!(scene.sent(), [message(3)]);
    scene.receive(accepted(3));
    scene.reopen();
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), []);
}

#[test]
fn an_answer_that_comes_twice_is_told_once() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.receive(accepted(1));
    scene.outputs.clear();
    scene.receive(accepted(1));
    assert_eq!(scene.take(), []);
}

#[test]
fn the_same_id_is_the_same_message() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.send(1);
    scene.receive(accepted(1));
    assert_eq!(scene.sent(), [message(1)]);
}

#[test]
fn a_cancel_keeps_its_place_among_the_messages() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.input(Input::Cancel { message_id: id(2) });
    scene.send(3);
    scene.receive(accepted(1));
    scene.receive(accepted(2));
    let cancel = ClientCommand::Cancel { session_id: session(1), message_id: id(2) };
    assert_eq!(scene.sent(), [message(1), cancel, message(3)]);
}

#[test]
fn a_message_the_server_has_no_room_for_is_sent_again_when_it_said() {
    for code in [ErrorCode::ServerBusy, ErrorCode::RateLimited, ErrorCode::DatabaseUnavailable] {
        let mut scene = Scene::attached();
        scene.send(1);
        scene.send(2);
        scene.outputs.clear();
        scene.receive(refused_message(code, 1, Some(seconds(3))));
        assert_eq!(scene.wait(), seconds(3), "{code}");
        assert_eq!(scene.sent(), [message(1)], "{code}");
    }
}

#[test]
fn a_server_that_names_no_time_is_asked_less_and_less_often() {
    let mut scene = Scene::attached();
    scene.send(1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        scene.receive(refused_message(ErrorCode::ServerBusy, 1, None));
        waits.push(scene.wait());
    }
    assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8)]);
    scene.receive(accepted(1));
    scene.send(2);
    scene.receive(refused_message(ErrorCode::ServerBusy, 2, None));
    assert_eq!(scene.wait(), seconds(1));
}

#[test]
fn a_message_the_server_will_never_have_is_given_up_and_the_next_one_sent() {
    for code in [ErrorCode::InvalidMessage, ErrorCode::MessageTooLarge, ErrorCode::Unauthorized] {
        let mut scene = Scene::attached();
        scene.send(1);
        scene.send(2);
        scene.outputs.clear();
        scene.receive(refused_message(code, 1, None));
        let next = Output::Send(message(2));
        assert_eq!(scene.take(), [given_up(1, GivenUp::Refused(code)), next], "{code}");
    }
}

#[test]
fn a_refusal_that_names_no_message_is_about_the_one_on_its_way() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.outputs.clear();
    scene.receive(refused(ErrorCode::ServerBusy));
    scene.wait();
    assert_eq!(scene.sent(), [message(1)]);
    scene.receive(refused(ErrorCode::InvalidMessage));
    let reason = GivenUp::Refused(ErrorCode::InvalidMessage);
    assert_eq!(scene.take(), [given_up(1, reason)]);
}

#[test]
fn a_message_too_large_for_a_frame_is_not_sent_for_ever() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.close(Some(1009));
    let reason = GivenUp::Refused(ErrorCode::MessageTooLarge);
    assert!(scene.take().contains(&given_up(1, reason)));
    scene.wait();
    scene.input(Input::Opened);
    scene.outputs.clear();
    scene.receive(resumed(epoch(1), 1, None));
    assert_eq!(scene.sent(), []);
}

#[test]
fn unaccepted_messages_follow_into_a_restored_session() {
    let mut scene = Scene::attached();
    scene.receive(state(0));
    scene.send(1);
    scene.reopen();
    scene.receive(refused(ErrorCode::SessionExpired));
    scene.outputs.clear();
    scene.receive(restored(None));
    let again =
        ClientCommand::Message { session_id: session(2), message_id: id(1), content: content(1) };
    assert_eq!(scene.sent(), [again]);
}

#[test]
fn a_message_that_may_have_been_acted_on_is_not_sent_to_another_session_unasked() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.send(2);
    scene.reopen();
    scene.receive(refused(ErrorCode::SessionExpired));
    scene.outputs.clear();
    scene.receive(created(session(2), epoch(2)));
    let wanted = scene.take();
    assert!(wanted.contains(&given_up(1, GivenUp::OutcomeUnknown)), "it was sent: {wanted:?}");
    let never_sent =
        ClientCommand::Message { session_id: session(2), message_id: id(2), content: content(2) };
    assert_eq!(wanted.last(), Some(&Output::Send(never_sent)));
}

#[test]
fn the_outbox_is_bounded_in_number_and_bytes() {
    let options = ClientOptions { max_unaccepted: 2, ..ClientOptions::default() };
    let mut scene = Scene::new(options, None);
    scene.outputs.clear();
    for n in 1..=3 {
        scene.send(n);
    }
    assert_eq!(scene.take(), [given_up(3, GivenUp::OutboxFull)]);

    let options = ClientOptions { max_unaccepted_bytes: 10, ..ClientOptions::default() };
    let mut scene = Scene::new(options, None);
    scene.outputs.clear();
    let send = |scene: &mut Scene, n, bytes| {
        scene.input(Input::Send { message_id: id(n), content: vec![b'1'; bytes].into() });
    };
    send(&mut scene, 1, 11);
    assert_eq!(scene.take(), [], "a larger one is kept alone");
    send(&mut scene, 2, 1);
    assert_eq!(scene.take(), [given_up(2, GivenUp::OutboxFull)]);
    scene.input(Input::Opened);
    scene.receive(created(session(1), epoch(1)));
    scene.receive(accepted(1));
    scene.outputs.clear();
    send(&mut scene, 3, 5);
    send(&mut scene, 4, 5);
    scene.outputs.clear();
    send(&mut scene, 5, 1);
    assert_eq!(scene.take(), [given_up(5, GivenUp::OutboxFull)]);
    scene.receive(accepted(3));
    scene.receive(accepted(4));
    assert_eq!(scene.take().len(), 3, "3 and 4 were kept and told, and 4 was sent");
}

#[test]
fn messages_are_accounted_for_at_the_end() {
    let mut scene = Scene::attached();
    scene.send(1);
    scene.send(2);
    scene.outputs.clear();
    scene.receive(ServerEvent::Superseded);
    scene.send(3);
    let stopped = Output::Status(Status::Stopped { reason: StopReason::Superseded });
    let expected = [
        given_up(1, GivenUp::OutcomeUnknown),
        given_up(2, GivenUp::NotSent),
        Output::Close,
        stopped,
        given_up(3, GivenUp::NotSent),
    ];
    assert_eq!(scene.take(), expected);
}

#[test]
fn message_ids_are_parsed_once_at_the_edge() {
    assert!(MessageId::parse("").is_err());
    assert_eq!(MessageId::parse("a b").unwrap().as_str(), "a b");
    assert!(MessageId::parse(&"x".repeat(129)).is_err());
    assert_eq!(MessageId::parse("m-1").unwrap().as_str(), "m-1");
}
