//! The pages as a browser gets them from the binary: what they are, what may run in them, and how they are
//! kept. What they do is tested in a browser (`dashboard/test`).

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;

use std::collections::HashMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use common::server_process::ServerProcess;

/// An answer: its status, headers and body.
struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

async fn get(server: &ServerProcess, path: &str, more: &str) -> Answer {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let host = if more.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let request = format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

async fn server() -> ServerProcess {
    ServerProcess::start(vec!["--store=memory".into()], "", &[]).await
}

#[tokio::test]
async fn pages_and_their_files_are_in_the_binary_with_their_content_types() {
    let server = server().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/play", "text/html; charset=utf-8"),
        ("/assets/play/play.js", "text/javascript; charset=utf-8"),
        ("/assets/shared/base.css", "text/css; charset=utf-8"),
        ("/assets/shared/icon.svg", "image/svg+xml"),
        ("/assets/client/index.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = get(&server, path, "").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, kind), "{path}");
        assert!(!answer.body.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn nothing_runs_in_a_page_that_did_not_come_from_here() {
    let server = server().await;
    for path in ["/", "/play", "/assets/client/index.js", "/assets/play/nothing.js"] {
        let answer = get(&server, path, "").await;
        let policy = answer.header("content-security-policy");
        let directives: Vec<&str> = policy.split("; ").collect();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(directives.contains(&directive), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
    }
}

#[tokio::test]
async fn a_browser_asks_each_time_and_is_told_when_its_copy_is_good() {
    let server = server().await;
    let first = get(&server, "/assets/client/index.js", "").await;
    assert_eq!(first.header("cache-control"), "no-cache");
    let tag = first.header("etag");
    assert!(tag.len() > 10, "{tag}");
    let again = get(&server, "/assets/client/index.js", &format!("If-None-Match: {tag}\r\n")).await;
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", tag));
    let other =
        get(&server, "/assets/client/session.js", &format!("If-None-Match: {tag}\r\n")).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn the_client_on_the_pages_is_the_one_that_is_packed() {
    let server = server().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/js/src");
    for entry in std::fs::read_dir(folder).unwrap() {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path())).unwrap();
        let answer = get(&server, &format!("/assets/client/{}", name.to_str().unwrap()), "").await;
        assert_eq!(answer.body, std::fs::read_to_string(path).unwrap(), "{name:?}");
    }
}

#[tokio::test]
async fn what_is_not_a_file_of_a_page_is_not_found() {
    let server = server().await;
    for path in [
        "/assets/client/../package.json",
        "/assets/client/..%2fpackage.json",
        "/assets/test/check.js",
        "/assets/play/",
        "/assets/play",
        "/assets/",
        "/nothing",
    ] {
        assert_eq!(get(&server, path, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_page_is_not_served_under_a_name_that_is_not_ours() {
    let server = server().await;
    assert_eq!(get(&server, "/play", "Host: evil.example\r\n").await.status, 403);
}
