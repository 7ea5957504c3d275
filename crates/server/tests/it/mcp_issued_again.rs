//! A stateless client that lost its connection and asks the same again at once, before anybody has noticed the
//! loss: the call runs once.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;

use crate::common::failing::FailingStore;
use crate::common::http::Request;
use crate::common::mcp::{Fake, posting};
use crate::common::soon;
use crate::common::web::{Setup, Web};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const REVISION: &str = "2026-07-28";

/// How often a connection is lost.
const LOSSES: usize = 40;

/// A call that waits for this gate.
fn call(web: &Web, gate: &str) -> Request {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
    });
    let params = json!({ "name": "t", "arguments": { "gate": gate }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let request = web.post("/mcp").header("mcp-protocol-version", REVISION);
    let request = posting(request.header("mcp-name", "t"), &body);
    request.header("mcp-method", "tools/call").header("accept", "application/json")
}

/// A connection that the server has taken and answered something on.
async fn connection(web: &Web) -> TcpStream {
    let mut socket = TcpStream::connect(web.address).await.unwrap();
    let nothing = web.request("DELETE", "/mcp").to_bytes("HTTP/1.1");
    socket.write_all(&nothing).await.unwrap();
    answer(&mut socket).await;
    socket
}

/// The body of an answer.
async fn answer(socket: &mut TcpStream) -> Value {
    let mut read = Vec::new();
    loop {
        soon(socket.read_buf(&mut read)).await.unwrap();
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return serde_json::from_str(body).unwrap();
        }
    }
}

fn runs(fake: &Fake) -> usize {
    fake.told().iter().filter(|line| line.contains(r#""method":"tools/call""#)).count()
}

#[tokio::test]
async fn a_call_that_is_issued_again_before_its_loss_is_noticed_runs_once() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    for number in 1..=LOSSES {
        let gate = format!("gate-{number}-");
        let (mut first, mut second) = (connection(&web).await, connection(&web).await);
        let bytes = call(&web, &gate).to_bytes("HTTP/1.1");
        first.write_all(&bytes).await.unwrap();
        fake.until_told(&gate).await;
        // Nothing of the server runs between these two: the second call is there when the first goes.
        assert_eq!(second.try_write(&bytes).unwrap(), bytes.len());
        drop(first);
        tokio::task::yield_now().await;
        fake.open(&gate);
        let answer = answer(&mut second).await;
        assert!(answer["result"]["content"].is_array(), "{answer}");
        assert_eq!(runs(&fake), number, "each ran once");
    }
}

#[tokio::test]
async fn an_equal_call_beside_one_whose_client_is_there_runs_too() {
    let fake = Fake::new();
    let web = fake.serve(Setup::open()).await;
    let bytes = call(&web, "gate").to_bytes("HTTP/1.1");
    let mut both = [connection(&web).await, connection(&web).await];
    for (number, socket) in (1..).zip(&mut both) {
        socket.write_all(&bytes).await.unwrap();
        crate::common::until(async || runs(&fake) == number).await;
    }
    fake.open("gate");
    for socket in &mut both {
        assert!(answer(socket).await["result"].is_object());
    }
}

#[tokio::test]
async fn a_call_whose_client_goes_before_it_is_entered_is_found_by_the_next() {
    let fake = Fake::new();
    let store = FailingStore::new();
    let web = fake.serve(Setup { store: Arc::clone(&store) as _, ..Setup::open() }).await;
    let (mut warm, mut first, mut second) =
        (connection(&web).await, connection(&web).await, connection(&web).await);
    fake.open("before");
    warm.write_all(&call(&web, "before").to_bytes("HTTP/1.1")).await.unwrap();
    answer(&mut warm).await;
    let bytes = call(&web, "again").to_bytes("HTTP/1.1");
    store.hold_writes();
    first.write_all(&bytes).await.unwrap();
    crate::common::until(async || store.waiting() > 0).await;
    drop(first);
    second.write_all(&bytes).await.unwrap();
    connection(&web).await; // all that came before it has been read
    store.go_on();
    fake.until_told("again").await;
    fake.open("again");
    assert!(answer(&mut second).await["result"].is_object());
    assert_eq!(runs(&fake), 2, "one before, and this one once");
}
