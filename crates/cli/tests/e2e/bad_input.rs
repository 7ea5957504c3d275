//! Bad input never ends a session and never stops the server, and others notice nothing.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Client, Server};

/// Somebody who works in peace while others misbehave.
struct Bystander {
    client: Client,
    id: String,
    seq: u64,
}

impl Bystander {
    async fn of(server: &Server) -> Self {
        let mut client = server.connect().await;
        let id = client.create().await;
        Self { client, id, seq: 0 }
    }

    async fn works(&mut self) {
        self.seq += 1;
        assert_eq!(self.client.thoughts(&self.id, 1).await[0]["seq"], self.seq);
    }
}

#[tokio::test]
async fn every_kind_of_wrong_frame_is_answered_with_the_code_that_says_why() {
    let server = Server::start(&[]).await;
    let mut bystander = Bystander::of(&server).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"event":"user.message","session_id":"{id}","content":{open}{close}}}"#)
    };
    let with = |rest: &str| format!(r#"{{"session_id":"{id}",{rest}}}"#);
    let invalid = [
        String::new(),
        " ".into(),
        "{".into(),
        "}".into(),
        "null".into(),
        "[]".into(),
        r#"["user.create_session"]"#.into(),
        "42".into(),
        r#""user.message""#.into(),
        "{}".into(),
        r#"{"event":null}"#.into(),
        r#"{"event":7}"#.into(),
        r#"{"event":["user.message"]}"#.into(),
        r#"{"Event":"user.message"}"#.into(),
        r#"{"event":"user.create_session"}{"event":"user.create_session"}"#.into(),
        "{\"event\":\"user.create_session\"}\u{0}".into(),
        "\u{0}\u{0}\u{0}".into(),
        "\u{feff}{\"event\":\"user.create_session\"}".into(),
        r#"{'event':'user.create_session'}"#.into(),
        r#"{"event":"user.ack","event":"user.ack"}"#.into(),
        r#"{"event":"user.create_session","content":{"a":"\ud800"}"#.into(),
        r#"{"event":"user.create_session","session_id":{}}"#.into(),
        r#"{"event":"user.reconnect","session_id":7}"#.into(),
        deep(200),
        deep(100_000),
        "[".repeat(500_000),
        with(r#""event":"user.message""#),
        with(r#""event":"user.message","content":null"#),
        with(r#""event":"user.message","content":1,"message_id":"""#),
        with(r#""event":"user.message","content":1,"message_id":7"#),
        format!(
            r#"{{"event":"user.message","session_id":"{id}","content":1,"message_id":"{}"}}"#,
            "x".repeat(129)
        ),
        with(r#""event":"user.ack""#),
        with(r#""event":"user.ack","metadata":{}"#),
        with(r#""event":"user.ack","metadata":[]"#),
        with(r#""event":"user.ack","metadata":[0]"#),
        with(r#""event":"user.ack","metadata":{"last_seq":"1"}"#),
        with(r#""event":"user.ack","metadata":{"last_seq":-1}"#),
        with(r#""event":"user.ack","metadata":{"last_seq":1.5}"#),
        with(r#""event":"user.ack","metadata":{"last_seq":18446744073709551616}"#),
        with(r#""event":"user.ack","metadata":{"last_seq":0,"gap_detected":"yes"}"#),
        with(r#""event":"user.reconnect","content":[]"#),
        with(r#""event":"user.reconnect","content":"now""#),
        with(r#""event":"user.reconnect","content":{"last_seq":"4"}"#),
        with(r#""event":"user.reconnect","content":{"last_seq":-4}"#),
        with(r#""event":"user.reconnect","content":{"epoch":1}"#),
        with(r#""event":"user.reconnect","content":{"batch":"true"}"#),
        with(r#""event":"user.reconnect","content":{"reconnect_token":{}}"#),
        with(r#""event":"user.request_state","content":{"include_plan":1}"#),
        r#"{"event":"user.reconnect_with_state","signed_state":7}"#.into(),
        r#"{"event":"user.authenticate"}"#.into(),
        r#"{"event":"user.authenticate","content":{}}"#.into(),
        r#"{"event":"user.authenticate","content":["whatever"]}"#.into(),
        r#"{"event":"user.authenticate","content":{"token":7}}"#.into(),
    ];
    let unknown = [
        "user.dance",
        "",
        "agent.thinking",
        "agent.error",
        "system.heartbeat",
        "USER.MESSAGE",
        "user.message ",
    ];
    let unknown = unknown.map(|event| json!({ "event": event, "session_id": id }).to_string());
    let missing = ["reconnect", "request_state", "message", "cancel", "ack", "end_session"];
    let missing = missing.map(|name| {
        json!({ "event": format!("user.{name}"), "content": 1, "metadata": { "last_seq": 0 } })
            .to_string()
    });
    let nobody = ["sess_unknown", "a/b", "", "sess_\u{0}", "../../etc/passwd"];
    let nobody =
        nobody.map(|id| json!({ "event": "user.reconnect", "session_id": id }).to_string());
    let table = invalid
        .into_iter()
        .map(|text| (text, "INVALID_MESSAGE"))
        .chain(unknown.into_iter().map(|text| (text, "UNKNOWN_EVENT")))
        .chain(missing.into_iter().map(|text| (text, "MISSING_SESSION_ID")))
        .chain(nobody.into_iter().map(|text| (text, "SESSION_NOT_FOUND")));
    for (number, (text, code)) in table.enumerate() {
        client.raw(Message::text(text.clone())).await;
        let answer = client.next().await;
        let shown: String = text.chars().take(100).collect();
        assert_eq!(answer["event"], "agent.error", "{shown}");
        assert_eq!(answer["metadata"]["error_code"], code, "{shown}");
        if number % 20 == 19 {
            bystander.works().await;
        }
    }
    client.raw(Message::binary(vec![0, 159, 146, 150])).await;
    client.error("INVALID_MESSAGE").await;
    client.raw(Message::binary(br#"{"event":"user.create_session"}"#.to_vec())).await;
    client.error("INVALID_MESSAGE").await;
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 1);
    bystander.works().await;
}

#[tokio::test]
async fn the_largest_numbers_are_positions_like_others() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 1).await;
    client.ack(&id, u64::MAX).await;
    client.error("ACK_AHEAD").await;
    let confirmed = client.reconnect(&id, json!({ "last_seq": u64::MAX })).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": null, "to": null }));
    client.replay().await;
    let gap = json!({ "last_seq": u64::MAX, "gap_detected": true });
    client.send(json!({ "event": "user.ack", "session_id": id, "metadata": gap })).await;
    client.error("ACK_AHEAD").await;
    let sealed = client.export(&id, json!({})).await["metadata"]["signed_state"].clone();
    client.ask_restore(&sealed, json!({ "last_seq": u64::MAX })).await;
    client.error("INVALID_MESSAGE").await;
    assert_eq!(client.thoughts(&id, 1).await[0]["seq"], 2);
}

#[tokio::test]
async fn unknown_members_are_ignored() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client
        .send(json!({
            "event": "user.message", "session_id": id, "content": { "count": 1 },
            "timestamp": "whenever", "priority": 7, "metadata": "not even an object",
        }))
        .await;
    assert_eq!(client.next().await["event"], "system.accepted");
    assert_eq!(client.next().await["seq"], 1);
}

#[tokio::test]
async fn a_frame_over_the_limit_closes_with_1009_and_one_at_the_limit_is_read() {
    let server = Server::start(&["--max-frame-bytes=8KiB", "--max-state-bytes=4KiB"]).await;
    let mut bystander = Bystander::of(&server).await;
    for text in [true, false] {
        for size in [8 * 1024 + 1, 64 * 1024, 4 * 1024 * 1024] {
            let mut client = server.connect().await;
            let id = client.create().await;
            let content = vec![b'x'; size];
            let message = match text {
                true => Message::text(String::from_utf8(content).unwrap()),
                false => Message::binary(content),
            };
            let _ = client.try_raw(message).await; // it may be cut short
            assert_eq!(client.closed().await.code, 1009, "{size} bytes");
            server.connect().await.reconnect(&id, json!({})).await;
        }
    }
    let mut client = server.connect().await;
    let id = client.create().await;
    let frame = json!({ "event": "user.message", "session_id": id, "content": "" }).to_string();
    let padding = "x".repeat(8 * 1024 - frame.len());
    client.tell(&id, json!(padding)).await;
    bystander.works().await;
}

#[tokio::test]
async fn a_hundred_bad_messages_close_with_4103_and_the_session_stays() {
    let server = Server::start(&[]).await;
    let mut bystander = Bystander::of(&server).await;
    for bad in ["{", "{}", r#"{"event":"user.dance"}"#] {
        let mut client = server.connect().await;
        let id = client.create().await;
        for _ in 0..99 {
            client.raw(Message::text(bad)).await;
        }
        for _ in 0..99 {
            assert_eq!(client.next().await["event"], "agent.error");
        }
        client.thoughts(&id, 1).await;
        client.raw(Message::text(bad)).await;
        let closed = client.closed().await;
        assert_eq!((closed.code, &closed.reason["reason"]), (4103, &json!("protocol_abuse")));
        let mut client = server.connect().await;
        assert_eq!(client.reconnect(&id, json!({})).await["metadata"]["last_seq"], 1);
        bystander.works().await;
    }
}

#[tokio::test]
async fn thousands_of_tiny_frames_at_once_close_with_4103() {
    let server = Server::start(&[]).await;
    let mut bystander = Bystander::of(&server).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let tiny: Vec<u8> = (0..5_000).flat_map(|_| frame(TEXT, b"x")).collect();
    client.bytes(&tiny).await;
    assert_eq!(client.closed().await.code, 4103);
    bystander.works().await;
    server.connect().await.reconnect(&id, json!({})).await;
}

#[tokio::test]
async fn thousands_of_good_frames_at_once_are_no_abuse() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    for _ in 0..3_000 {
        client.ack(&id, 0).await;
    }
    client.thoughts(&id, 1).await;
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// A frame of a client, masked with nothing.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    let mut bytes = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

/// Frames that break the WebSocket protocol itself end the connection, and nothing else.
#[tokio::test]
async fn what_is_no_websocket_ends_the_connection_and_nothing_else() {
    let server = Server::start(&[]).await;
    let mut bystander = Bystander::of(&server).await;
    let wrong: [(&str, Vec<u8>); 7] = [
        ("invalid UTF-8", frame(TEXT, &[b'{', 0xff, 0xfe, b'}'])),
        ("a reserved opcode", frame(3, b"x")),
        ("no mask", vec![0x81, 1, b'x']),
        ("reserved bits", vec![0xf1, 0x81, 0, 0, 0, 0, b'x']),
        ("a continuation of nothing", frame(0, b"x")),
        ("a ping in pieces", {
            let mut ping = frame(PING, b"x");
            ping[0] &= 0x7f;
            ping
        }),
        ("a length of 2^63", vec![0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (what, bytes) in wrong {
        let mut client = server.connect().await;
        let id = client.create().await;
        client.thoughts(&id, 1).await;
        client.bytes(&bytes).await;
        client.gone().await;
        let mut client = server.connect().await;
        let confirmed = client.reconnect(&id, json!({ "last_seq": 1 })).await;
        assert_eq!(confirmed["metadata"]["last_seq"], 1, "{what}");
        bystander.works().await;
    }
}

#[tokio::test]
async fn a_client_that_closes_properly_is_closed_properly_and_its_session_is_parked() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.bytes(&frame(CLOSE, &1000_u16.to_be_bytes())).await;
    client.gone().await;
    server.connect().await.reconnect(&id, json!({})).await;
}

#[tokio::test]
async fn a_message_in_many_pieces_is_one_message() {
    let server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    let text =
        json!({ "event": "user.message", "session_id": id, "content": { "count": 1 } }).to_string();
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(10).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let mut bytes = frame(if index == 0 { TEXT } else { 0 }, piece);
        if index + 1 < pieces.len() {
            bytes[0] &= 0x7f;
        }
        client.bytes(&bytes).await;
    }
    assert_eq!(client.next().await["event"], "system.accepted");
    assert_eq!(client.next().await["seq"], 1);
}

#[tokio::test]
async fn what_is_no_http_at_all_leaves_the_server_alone() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::start(&[]).await;
    let mut bystander = Bystander::of(&server).await;
    let noise: Vec<u8> = (0..=255).collect();
    for bytes in [&noise[..], b"GET /ws HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b""] {
        let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    bystander.works().await;
    let plain: Value = json!(server.http("GET", "/ws").await);
    assert!(plain.as_str().unwrap().starts_with("HTTP/1.1 4"), "{plain}");
}
