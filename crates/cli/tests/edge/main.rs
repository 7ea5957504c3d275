//! The edge of the binary, from outside: what children learn, how agents behind a URL are called, what strangers
//! can take, what SIGHUP does, what operators and supervisors are told.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod backends;
mod children;
mod refused_credentials;
mod revoking;
mod strangers;
#[cfg(target_os = "linux")]
mod supervisor;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// However slow the machine, nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request and reads the whole answer.
async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.expect("an answer").unwrap();
    answer
}

/// The text of a member of the answer's JSON.
fn member(answer: &str, name: &str) -> String {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).expect(body);
    body[name].as_str().unwrap_or_else(|| panic!("no {name} in {body}")).to_owned()
}

/// Waits until `done` gives something.
async fn eventually<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = done() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it never happens")
}
