use super::*;

fn kind(text: &str) -> Kind {
    Message::parse(text).unwrap().kind
}

#[test]
fn a_message_is_what_its_members_say() {
    let id = RequestId::number(1);
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(kind(request), Kind::Request { id: id.clone(), method: "ping".into() });
    let notification = r#"{"jsonrpc":"2.0","method":"a","params":{}}"#;
    assert_eq!(kind(notification), Kind::Notification { method: "a".into() });
    let response = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
    let failed = Kind::Response { id: Some(id), failed: true };
    assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#), failed);
    let answered = Kind::Response { id: Some(RequestId::number(1)), failed: false };
    assert_eq!(kind(response), answered, "a null is a result too");
    for bad in ["[]", "3", r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"1.0","method":"a"}"#] {
        assert!(matches!(Message::parse(bad), Err(NoMessage::Invalid(_))), "{bad}");
    }
    assert!(matches!(Message::parse("{"), Err(NoMessage::Unreadable(_))));
    let object_id = r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#;
    assert!(matches!(Message::parse(object_id), Err(NoMessage::Invalid(_))));
}

#[test]
fn another_id_changes_nothing_else() {
    let text = r#"{"x": 1.50, "id": "a\u0062" ,"method":"m","jsonrpc":"2.0","params":{"id":7}}"#;
    let message = Message::parse(text).unwrap();
    assert_eq!(
        message.with_id(&RequestId::number(9)),
        r#"{"x": 1.50, "id": 9 ,"method":"m","jsonrpc":"2.0","params":{"id":7}}"#
    );
}

#[test]
fn a_null_beside_a_result_or_an_error_is_left_out() {
    for (text, put_right) in [
        (
            r#"{"jsonrpc":"2.0","id":1, "result":{"a": 1},"error":null}"#,
            r#"{"jsonrpc":"2.0","id":1, "result":{"a": 1}}"#,
        ),
        (
            r#"{"result":null,"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#,
        ),
    ] {
        assert_eq!(Message::parse(text).unwrap().text(), put_right);
    }
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping","error":null}"#;
    assert_eq!(Message::parse(request).unwrap().text(), request);
    for bad in [
        r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
    ] {
        assert!(matches!(Message::parse(bad), Err(NoMessage::Invalid(_))), "{bad}");
    }
}

#[test]
fn a_number_is_the_same_however_it_is_written() {
    let number = |raw: &str| RequestId::parse(raw).and_then(|id| id.as_number());
    assert_eq!(["3", "3.0", "3.00", "\"3\"", "\"3.0\""].map(number), [Some(3); 5]);
    let others = ["3.5", "-3", "\"q3\"", "\"rejoin-1-3\"", "1e1", "\"\""];
    assert_eq!(others.map(number), [None; 6]);
}

#[test]
fn a_cancellation_names_another_request() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId": 3, "reason":"no"}}"#;
    let message = Message::parse(text).unwrap();
    assert_eq!(message.cancelled_id(), Some(RequestId::number(3)));
    let other = message.with_cancelled_id(&RequestId::text("q-1"));
    assert!(other.contains(r#""requestId": "q-1", "reason":"no""#), "{other}");
}

#[test]
fn members_and_elements_are_added_without_touching_the_others() {
    assert_eq!(with_member(r#"{ "b": 1.0 }"#, "a", "2"), r#"{"a":2, "b": 1.0 }"#);
    assert_eq!(with_member("{ }", "a", "2"), r#"{"a":2 }"#);
    assert_eq!(with_element("[1 , 2 ]", "3"), "[1 , 2 ,3]");
    assert_eq!(with_element("[ ]", "3"), "[ 3]");
}

#[test]
fn what_a_client_calls_a_request_by_is_short() {
    let long = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    for form in [
        r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":ID}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID}}"#,
    ] {
        let with = |bytes| Message::of_client(&form.replace("ID", &long(bytes)));
        assert!(with(RPC_ID_BYTES).is_ok(), "{form}");
        let Err(NoMessage::Invalid(why)) = with(RPC_ID_BYTES + 1) else { panic!("{form}") };
        assert!(why.contains(&format!("at most {RPC_ID_BYTES} bytes")), "{why}");
    }
    let other = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"requestId":ID}}"#;
    assert!(Message::of_client(&other.replace("ID", &long(5_000))).is_ok());
}

#[test]
fn a_message_is_one_line() {
    let message = Message::parse("{\"jsonrpc\":\"2.0\",\r\n\"method\":\"a\"}\n").unwrap();
    assert!(!message.text().contains('\n') && !message.text().contains('\r'));
}
