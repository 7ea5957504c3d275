//! What callers can take who have not said who they are.

use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

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

#[tokio::test]
async fn a_stranger_sends_small_frames_and_a_known_caller_large_ones() {
    let server = keyed(&[]).await;
    let url = format!("ws://{}/ws", server.address());
    let (mut stranger, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let large = format!(r#"{{"event":"user.message","content":"{}"}}"#, "a".repeat(900_000));
    let _ = stranger.send(Message::text(large.clone())).await;
    let mut code = None;
    while let Ok(Some(Ok(message))) = tokio::time::timeout(PATIENCE, stranger.next()).await {
        if let Message::Close(frame) = message {
            code = frame.map(|frame| frame.code);
        }
    }
    assert!(code.is_none_or(|code| code == CloseCode::Size), "{code:?}");
    let (mut known, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
    let authenticate = format!(r#"{{"event":"user.authenticate","content":{{"token":"{KEY}"}}}}"#);
    known.send(Message::text(authenticate)).await.unwrap();
    known.send(Message::text(large)).await.unwrap(); // at once, before the answer has come
    loop {
        let message = tokio::time::timeout(PATIENCE, known.next()).await.expect("an answer");
        let text = message.unwrap().unwrap().into_text().unwrap();
        assert!(!text.contains("UNAUTHORIZED"), "{text}");
        if text.contains("agent.error") {
            return; // the session is not there, but the frame was read
        }
    }
}

#[tokio::test]
async fn a_thousand_connections_at_once_do_not_wait_for_a_retry() {
    let server = keyed(&[]).await;
    let address = server.address();
    let began = Instant::now();
    let all = (0..1_000).map(|_| tokio::spawn(TcpStream::connect(address)));
    let all: Vec<_> = all.collect();
    let mut open = Vec::new();
    for one in all {
        open.push(one.await.unwrap().unwrap());
    }
    assert!(began.elapsed() < PATIENCE);
    let answer = ask(address, "GET", "/healthz", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
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
