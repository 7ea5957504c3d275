//! What systemd is told: a datagram for each step, on a socket with a path or without.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use crate::common::server_process::ServerProcess;
use crate::{PATIENCE, ask};

/// The supervisor's end.
fn listening_at(address: &SocketAddr) -> UnixDatagram {
    let socket = UnixDatagram::bind_addr(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn next(socket: &UnixDatagram) -> String {
    let mut text = [0; 512];
    let length = socket.recv(&mut text).expect("the server says something");
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Whether something was said that nobody has read.
fn has_more(socket: &UnixDatagram) -> bool {
    socket.set_nonblocking(true).unwrap();
    let more = socket.recv(&mut [0; 512]).is_ok();
    socket.set_nonblocking(false).unwrap();
    more
}

fn signal(server: &ServerProcess, name: &str) {
    let sent = Command::new("kill").args([name, &server.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Starts a server, and stops it with SIGTERM once the supervisor has heard that it listens.
async fn is_told_of_start_and_stop(name: &str, socket: &UnixDatagram) {
    let arguments = vec!["--drain-timeout".to_owned(), "7s".to_owned()];
    let mut server = ServerProcess::start(arguments, "", &[("NOTIFY_SOCKET", name)]).await;
    assert_eq!(next(socket), "READY=1");
    let answer = ask(server.address(), "GET", "/readyz", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!has_more(socket), "nobody has asked for a watchdog");
    signal(&server, "-TERM");
    assert_eq!(next(socket), "STOPPING=1\nEXTEND_TIMEOUT_USEC=37000000");
    assert!(server.ended().await.success());
    assert!(!has_more(socket));
}

#[tokio::test]
async fn a_supervisor_hears_that_the_server_listens_and_that_it_drains() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = listening_at(&SocketAddr::from_pathname(&path).unwrap());
    is_told_of_start_and_stop(path.to_str().unwrap(), &socket).await;
}

#[tokio::test]
async fn a_supervisor_without_a_path_hears_it_too() {
    let name = format!("rejoin-test-{}", std::process::id());
    let socket = listening_at(&SocketAddr::from_abstract_name(&name).unwrap());
    is_told_of_start_and_stop(&format!("@{name}"), &socket).await;
}

#[tokio::test]
async fn a_watchdog_hears_of_the_server_until_it_stands_still() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = listening_at(&SocketAddr::from_pathname(&path).unwrap());
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let server = ServerProcess::start(Vec::new(), "", &environment).await;
    assert_eq!(next(&socket), "READY=1");
    for _ in 0..5 {
        assert_eq!(next(&socket), "WATCHDOG=1");
    }
    signal(&server, "-STOP");
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while socket.recv(&mut [0; 512]).is_ok() {} // what it had said before, for it says no more
    signal(&server, "-CONT");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(next(&socket), "WATCHDOG=1");
}

#[tokio::test]
async fn a_watchdog_of_another_process_and_a_supervisor_that_is_gone_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = listening_at(&SocketAddr::from_pathname(&path).unwrap());
    let name = path.to_str().unwrap();
    let of_another = [("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let server = ServerProcess::start(Vec::new(), "", &of_another).await;
    assert_eq!(next(&socket), "READY=1");
    let answer = ask(server.address(), "GET", "/healthz", "", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!has_more(&socket));
    drop(socket);
    let mut alone = ServerProcess::start(Vec::new(), "", &[("NOTIFY_SOCKET", name)]).await;
    signal(&alone, "-TERM");
    assert!(alone.ended().await.success());
    assert!(alone.log().contains("the supervisor can't be told"), "{}", alone.log());
}
