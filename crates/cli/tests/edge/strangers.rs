//! What callers can take who have not said who they are.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::common::server_process::ServerProcess;
use crate::{PATIENCE, ask};

const KEY: &str = "a key of sixteen or more";
const CONFIG: &str = "[[api_keys]]\nname = 'a'\nadmin = true\nkey_env = 'A_KEY'\n";

async fn keyed(arguments: &[&str]) -> ServerProcess {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    ServerProcess::start(arguments, CONFIG, &[("A_KEY", KEY)]).await
}

/// Memory of a process that is in use, in KiB.
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn half_a_head_costs_little_and_is_given_up() {
    let server = keyed(&[]).await;
    ask(server.address(), "GET", "/healthz", "", "").await;
    let before = resident(server.id());
    let mut held = Vec::new();
    let filler =
        format!("GET /api/sessions HTTP/1.1\r\nHost: localhost\r\nX-Slow: {}", "a".repeat(300_000));
    for _ in 0..500 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let write = stream.write_all(filler.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(100), write).await; // it is not read
        held.push(stream);
    }
    let after = resident(server.id());
    assert!(after < before + 500 * 64, "{} KiB for 500 connections", after - before);
    let answer = ask(server.address(), "GET", "/healthz", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let began = Instant::now();
    let mut slow = TcpStream::connect(server.address()).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: local").await.unwrap();
    let mut heard = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, slow.read_to_end(&mut heard)).await;
    assert!(closed.is_ok() && began.elapsed() > Duration::from_secs(5), "{heard:?}");
}

#[tokio::test]
async fn a_body_is_not_read_before_its_sender_is_known() {
    let server = keyed(&[]).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    let answered = tokio::time::timeout(PATIENCE, stream.read_exact(&mut first)).await;
    answered.expect("an answer without the body").unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
}

/// All that is read on `/ws` from a stranger, as `docs/protocol.md` says.
const STRANGER_BYTES: usize = 32 * 1024;

/// Opens a WebSocket and sends the beginning of one long frame: its head and some bytes, so many in all.
async fn begun_frame(server: &ServerProcess, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let upgrade = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    let mut frame = vec![0x81, 0xff]; // a text, masked, with a length of eight bytes
    frame.extend_from_slice(&900_000_u64.to_be_bytes());
    frame.resize(bytes, 0);
    stream.write_all(&frame).await.unwrap();
    stream
}

/// The code of the close frame in which what a server sends ends. Frames before it are skipped.
async fn close_code(stream: &mut TcpStream) -> u16 {
    loop {
        let (kind, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
        let length = match length {
            126 => usize::from(stream.read_u16().await.unwrap()),
            length => usize::from(length),
        };
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        if kind == 0x88 {
            return u16::from_be_bytes([body[0], body[1]]);
        }
    }
}

#[tokio::test]
async fn a_long_frame_of_a_stranger_is_closed_with_1009_before_it_is_read() {
    let server = keyed(&[]).await;
    // Not a byte more than is read: what lay unread would make the system reset the connection.
    let mut stranger = begun_frame(&server, STRANGER_BYTES).await;
    let code = tokio::time::timeout(PATIENCE, close_code(&mut stranger)).await.expect("a close");
    assert_eq!(code, 1009);
}

#[tokio::test]
async fn a_caller_that_has_authenticated_sends_large_frames() {
    let server = keyed(&[]).await;
    let url = format!("ws://{}/ws", server.address());
    let large = format!(r#"{{"event":"user.message","content":"{}"}}"#, "a".repeat(900_000));
    let (mut known, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let authenticate = format!(r#"{{"event":"user.authenticate","content":{{"token":"{KEY}"}}}}"#);
    known.send(Message::text(authenticate)).await.unwrap();
    known.send(Message::text(large)).await.unwrap(); // at once, before the answer has come
    loop {
        let message = tokio::time::timeout(PATIENCE, known.next()).await.expect("an answer");
        let text = message.unwrap().unwrap().into_text().unwrap();
        assert!(!text.contains("UNAUTHORIZED"), "{text}");
        if text.contains("agent.error") {
            assert!(text.contains("MISSING_SESSION_ID"), "{text}"); // the frame was read
            return;
        }
    }
}

/// While the server does not run at all, so that only the queue of its socket takes them: a connection that does not fit there
/// is not made until the system tries again, a second later at the earliest.
#[tokio::test]
async fn a_thousand_connections_fit_in_the_queue_of_the_socket() {
    let server = keyed(&[]).await;
    let address = server.address();
    signal(&server, "-STOP");
    let mut open = Vec::new();
    for number in 0..1_000 {
        let connect = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await;
        open.push(connect.unwrap_or_else(|_| panic!("only {number} fit")).unwrap());
    }
    signal(&server, "-CONT");
    drop(open);
    let answer = ask(address, "GET", "/healthz", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn signal(server: &ServerProcess, signal: &str) {
    let sent = Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn too_many_connections_are_closed_and_the_server_goes_on() {
    let server = keyed(&["--max-connections", "20"]).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let mut closed = 0;
    for stream in &mut held {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert!(closed >= 20, "{closed} of 40 were closed");
    drop(held);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        let asked = stream.write_all(request).await;
        if asked.is_ok() && stream.read_to_string(&mut answer).await.is_ok() && !answer.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "places never come back");
    }
}
