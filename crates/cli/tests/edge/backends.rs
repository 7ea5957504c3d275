//! An agent behind a URL is called as the settings say: signed, and once at a time for as long as it answers.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::common::server_process::ServerProcess;
use crate::{PATIENCE, ask, member};

const SECRET: &str = "a secret of the server and its backend";

/// The beginning of a response that goes on.
const BEGUN: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\
                     Transfer-Encoding: chunked\r\n\r\n";

/// A byte of it that says nothing.
const NEWLINE: &str = "1\r\n\n\r\n";

/// A request to the backend, which has not been answered.
struct Request {
    stream: TcpStream,
    head: String,
    body: String,
}

impl Request {
    async fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = header(head, "content-length").expect("a length");
                if body.len() == length.parse::<usize>().unwrap() {
                    return Self { stream, head: head.to_owned(), body: body.to_owned() };
                }
            }
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "cut off: {text}");
        }
    }

    async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Waits until the server has closed it.
    async fn closed(mut self) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest).await; // closed or reset
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// A server with a backend that the test plays, and a message for it.
async fn called(flags: &[&str]) -> (ServerProcess, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/agent", listener.local_addr().unwrap());
    let mut arguments = vec!["--agent".to_owned(), url];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let server = ServerProcess::start(arguments, "", &[]).await;
    let made = ask(server.address(), "POST", "/api/sessions", "", "{}").await;
    let path = format!("/api/sessions/{}/messages", member(&made, "session_id"));
    ask(server.address(), "POST", &path, "", r#"{"content":"hello"}"#).await;
    (server, listener)
}

async fn next(listener: &TcpListener) -> Request {
    let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("a request").unwrap();
    timeout(PATIENCE, Request::read(stream)).await.expect("the whole request")
}

#[tokio::test]
async fn requests_are_signed_with_the_secret_of_the_settings() {
    let (_server, listener) = called(&["--agent-secret", SECRET]).await;
    let request = next(&listener).await;
    let signed = header(&request.head, "rejoin-signature").expect("a signature");
    let (time, hex) = signed.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let mac = ring::hmac::sign(&key, format!("{time}.{}", request.body).as_bytes());
    let expected: String = mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}

#[tokio::test]
async fn a_second_request_comes_only_after_a_response_was_silent_for_as_long_as_the_settings_say() {
    let (_server, listener) = called(&["--agent-idle-timeout", "1s"]).await;
    let mut first = next(&listener).await;
    first.write(BEGUN).await;
    for _ in 0..12 {
        first.write(NEWLINE).await;
        let second = timeout(Duration::from_millis(250), listener.accept()).await;
        assert!(second.is_err(), "a second request while the first goes on");
    }
    sleep(Duration::from_millis(100)).await;
    // From here on it is silent: the server gives it up, and only then asks again.
    timeout(PATIENCE, first.closed()).await.expect("it is given up");
    next(&listener).await;
}
