//! What the server may say, and what it had better not.

use super::*;

fn told(text: &str) -> ServerEvent {
    let Frame::Told(mut events) = read(text).unwrap() else { panic!("{text}") };
    assert_eq!(events.len(), 1, "{text}");
    events.remove(0)
}

fn bad(text: &str) -> BadFrame {
    read(text).unwrap_err()
}

#[test]
fn whatever_has_a_seq_is_an_event_of_the_out_log() {
    let text = r#"{"event":"system.heartbeat","seq":7,"event_id":"evt_0000000000000abc-7","metadata":{"replayed":true}}"#;
    let ServerEvent::Event(event) = told(text) else { panic!() };
    assert_eq!((event.seq, event.replayed), (Seq::new(7), true));
    assert_eq!(event.event_id.unwrap().to_string(), "evt_0000000000000abc-7");
    assert_eq!(&*event.body, text.as_bytes());
}

#[test]
fn metadata_of_an_agent_may_have_any_shape() {
    for metadata in [r#""words""#, "[1]", r#"{"replayed":"yes"}"#, "null", "{}"] {
        let text = format!(r#"{{"event":"plan.x","seq":1,"metadata":{metadata}}}"#);
        let ServerEvent::Event(event) = told(&text) else { panic!() };
        assert!(!event.replayed, "{metadata}");
    }
}

#[test]
fn numbers_that_are_no_seq_are_refused() {
    for value in ["0", "9007199254740992", "18446744073709551615"] {
        assert_eq!(bad(&format!(r#"{{"event":"a","seq":{value}}}"#)), BadFrame::Seq, "{value}");
    }
    for value in ["-1", "1.5", "\"1\"", "1e400", "[1]", "99999999999999999999"] {
        assert_eq!(
            bad(&format!(r#"{{"event":"a","seq":{value}}}"#)),
            BadFrame::Envelope,
            "{value}"
        );
    }
    let gap = r#"{"event":"system.notice","metadata":{"code":"gap","from":9,"to":3}}"#;
    assert_eq!(bad(gap), BadFrame::Seq);
}

#[test]
fn what_is_no_json_object_is_refused() {
    let deep = format!(r#"{{"event":"a","seq":1,"content":{}"#, "[".repeat(100_000));
    for text in ["", "null", "[]", "7", "{", "{}", r#"{"event":1}"#, "\u{0}", deep.as_str()] {
        assert_eq!(bad(text), BadFrame::Envelope);
    }
}

#[test]
fn greetings_without_wishes_mean_the_usual_ones() {
    let usual = ServerEvent::Connected {
        backoff: vec![],
        max_attempts: rejoin_core::limits::MAX_ATTEMPTS,
        heartbeat_interval: rejoin_core::limits::HEARTBEAT_INTERVAL,
    };
    assert_eq!(told(r#"{"event":"system.connected"}"#), usual);
    let absurd = r#"{"event":"system.connected","content":{"heartbeat_interval_seconds":-1,"reconnect_backoff":[-3,1e300]}}"#;
    assert_eq!(told(absurd), usual);
    let own = r#"{"event":"system.connected","content":{"heartbeat_interval_seconds":0,"reconnect_backoff":[0.5,2],"max_reconnect_attempts":9}}"#;
    let expected = ServerEvent::Connected {
        backoff: vec![Duration::from_millis(500), Duration::from_secs(2)],
        max_attempts: 9,
        heartbeat_interval: Duration::ZERO,
    };
    assert_eq!(told(own), expected);
}

#[test]
fn a_session_is_confirmed_with_everything_that_is_needed_to_go_on() {
    let new = r#"{"event":"agent.session_created","content":{"session_id":"sess_1","epoch":"e"},"metadata":{"resumed":false,"epoch":"e","replay_from":1,"gap":null,"reconnect_token":"t"}}"#;
    let expected = ServerEvent::SessionCreated {
        session_id: SessionId::parse("sess_1").unwrap(),
        resumed: false,
        epoch: Epoch::from_text("e"),
        replay_from: Seq::new(1),
        gap: None,
        token: Some(Secret::new("t")),
    };
    assert_eq!(told(new), expected);
    let old = r#"{"event":"agent.session_created","session_id":"sess_1","content":"Session reconnected successfully","metadata":{"resumed":true,"epoch":"e","replay_from":9,"gap":{"from":3,"to":8}}}"#;
    let ServerEvent::SessionCreated { resumed, gap, .. } = told(old) else { panic!() };
    assert!(resumed);
    let missing = SeqRange { from: Seq::new(3), to: Seq::new(8) };
    assert_eq!(gap, Some(Gap::Evicted { missing, lost: Some(missing) }));
    let log_lost = r#"{"event":"agent.session_created","session_id":"sess_1","metadata":{"resumed":true,"epoch":"f","replay_from":1,"gap":{"from":null,"to":null}}}"#;
    let ServerEvent::SessionCreated { gap, .. } = told(log_lost) else { panic!() };
    assert_eq!(gap, Some(Gap::PositionUnknown), "a client that can't read this waits for ever");
    let nameless = r#"{"event":"agent.session_created","content":"x","metadata":{"epoch":"e","replay_from":9}}"#;
    assert_eq!(bad(nameless), BadFrame::Missing);
}

#[test]
fn a_gap_says_what_it_knows() {
    let notice = |rest: &str| {
        told(&format!(r#"{{"event":"system.notice","metadata":{{"code":"gap",{rest}}}}}"#))
    };
    let missing = SeqRange { from: Seq::new(2), to: Seq::new(5) };
    let lost = SeqRange { from: Seq::new(4), to: Seq::new(5) };
    let evicted = |lost| ServerEvent::Gap(Gap::Evicted { missing, lost });
    let tail = r#""from":2,"to":5,"reason":"evicted","lost""#;
    assert_eq!(notice(&format!("{tail}:null")), evicted(None));
    assert_eq!(notice(&format!(r#"{tail}:{{"from":4,"to":5}}"#)), evicted(Some(lost)));
    let unknown = r#""from":null,"to":null,"reason":"position_unknown","lost":null"#;
    assert_eq!(notice(unknown), ServerEvent::Gap(Gap::PositionUnknown));
}

#[test]
fn a_batch_is_its_events_or_nothing() {
    let batch = |events: &str| {
        read(&format!(
            r#"{{"event":"system.notice","metadata":{{"code":"replay"}},"content":{{"events":[{events}]}}}}"#
        ))
    };
    let Frame::Told(events) = batch(r#"{"event":"a","seq":1},{"event":"b","seq":2}"#).unwrap()
    else {
        panic!()
    };
    let seqs = events.iter().map(|event| {
        let ServerEvent::Event(event) = event else { panic!("{event:?}") };
        (event.seq.get(), event.replayed)
    });
    assert_eq!(seqs.collect::<Vec<_>>(), [(1, true), (2, true)]);
    assert_eq!(batch(r#"{"event":"a","seq":1},7"#), Err(BadFrame::Envelope));
    assert_eq!(batch(r#"{"event":"a"}"#), Err(BadFrame::Missing));
}

#[test]
fn unknown_error_codes_are_the_servers_fault() {
    let refusal = |metadata: &str| {
        told(&format!(r#"{{"event":"agent.error","content":"x","metadata":{metadata}}}"#))
    };
    let known = refusal(
        r#"{"error_code":"SERVER_BUSY","retry_after_ms":18446744073709551615,"message_id":"m1"}"#,
    );
    let expected = ServerEvent::Refused {
        code: ErrorCode::ServerBusy,
        retry_after: Some(limits::MAX_RETRY_AFTER),
        message_id: Some(MessageId::parse("m1").unwrap()),
    };
    assert_eq!(known, expected);
    let internal = ServerEvent::Refused {
        code: ErrorCode::InternalError,
        retry_after: None,
        message_id: None,
    };
    assert_eq!(refusal(r#"{"error_code":"NEW_ONE"}"#), internal);
    assert_eq!(refusal("null"), internal);
}

#[test]
fn what_a_later_version_says_is_unknown_and_no_error() {
    let later = ["system.weather", "agent.cancelled", "anything"];
    for name in later {
        assert_eq!(read(&format!(r#"{{"event":"{name}","content":[1]}}"#)), Ok(Frame::Unknown));
    }
    let notice = r#"{"event":"system.notice","metadata":{"code":"no_buffered_events"}}"#;
    assert_eq!(read(notice), Ok(Frame::Unknown));
    assert_eq!(read(r#"{"event":"system.authenticated"}"#), Ok(Frame::Authenticated));
}

#[test]
fn a_close_reason_may_say_when_to_come_back() {
    assert_eq!(retry_after_in(r#"{"retry_after_ms":1500}"#), Some(Duration::from_millis(1500)));
    for reason in
        ["", "going away", "{}", r#"{"retry_after_ms":"soon"}"#, r#"{"retry_after_ms":-1}"#]
    {
        assert_eq!(retry_after_in(reason), None, "{reason}");
    }
}

#[test]
fn nothing_of_a_frame_shows_up_in_what_is_said_about_it() {
    let exported =
        r#"{"event":"agent.state_exported","metadata":{"signed_state":"hunter2","seq":3}}"#;
    assert!(!format!("{:?}", read(exported)).contains("hunter2"));
    let wrong = r#"{"event":"agent.state_exported","metadata":{"signed_state":["hunter2"]}}"#;
    assert!(!format!("{} {:?}", bad(wrong), bad(wrong)).contains("hunter2"));
}

/// The cases that every client passes are played against the brain in `rejoin-core`; that their frames
/// can be read is checked here.
#[test]
fn the_frames_of_the_conformance_cases_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/frames.json");
    let frames = std::fs::read_to_string(path).unwrap();
    let frames: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&frames).unwrap();
    let from_server = |name: &str| !name.starts_with("user.");
    for (name, mut frame) in frames {
        if !frame["event"].as_str().is_some_and(from_server) {
            continue; // a frame of the client, or something saved
        }
        if name == "event" {
            frame["seq"] = 1.into();
        }
        let expected = if name == "no_buffered_events" { "Unknown" } else { "Told" };
        let shown = format!("{:?}", read(&frame.to_string()).unwrap());
        assert!(shown.starts_with(expected), "{name}: {shown}");
    }
}
