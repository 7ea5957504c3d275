//! The example, killed in the middle of an answer, counts each number once; its other route answers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rejoin_client::{Incoming, Session};

/// The program, on one address and one directory in all its lives.
struct Program<'a> {
    directory: &'a Path,
    address: SocketAddr,
    child: Child,
}

impl<'a> Program<'a> {
    fn start(directory: &'a Path) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { directory, address, child: spawn(directory, address) }
    }

    fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.directory, self.address);
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path, address: SocketAddr) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum-example"));
    let mut child =
        command.current_dir(directory).env("LISTEN", address.to_string()).spawn().unwrap();
    while TcpStream::connect(address).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the program ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[tokio::test]
async fn killed_twice_in_mid_answer_it_counts_each_number_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::start(directory.path());
    assert!(program.get("/").ends_with("fine"));
    let url = format!("ws://{}/ws", program.address);
    let mut session = Session::builder(url).start().await.unwrap();
    session.handle().send(&100).await.unwrap();
    let (mut numbers, mut said) = (Vec::new(), String::new());
    while let Some(incoming) = session.next().await {
        assert!(!matches!(incoming, Incoming::Gap(_)), "{incoming:?}");
        let Incoming::Event(event) = incoming else { continue };
        let content: String = serde_json::from_str(event.content_json()).unwrap();
        if event.name() == "agent.final_answer" {
            assert_eq!(content, said, "it is the whole answer");
            break;
        }
        numbers.push(content.trim().parse::<u64>().unwrap());
        said += &content;
        if [20, 60].contains(&numbers.len()) {
            program.kill_and_restart();
        }
    }
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
}
