//! Spans on their way to a collector, which is a thread of the test. The helpers also serve the log's
//! tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::settings::{Config, Environment, Flags};

/// One request as the collector got it.
pub(crate) struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    /// Protobuf keeps text as it is, so that it can be looked for.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.body.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// A collector that takes one batch, and its URL.
pub(crate) fn collector(answer: &'static str) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "it ended early: {head}");
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        sender.send(Got { head, body }).unwrap();
    });
    (url, receiver)
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

pub(crate) fn settings(flags: &[&str]) -> Settings {
    let line = ["rejoin"].into_iter().chain(flags.iter().copied());
    let matches = Flags::add_to(clap::Command::new("rejoin")).try_get_matches_from(line).unwrap();
    Config::load(&Flags::from_matches(&matches), &Environment::default()).unwrap().settings
}

/// What `work` makes is sent to the collector at `url`.
fn told(url: &str, flags: &[&str], work: impl FnOnce()) {
    let flags = [&["--otlp-endpoint", url], flags].concat();
    let telemetry = open(&settings(&flags)).unwrap().expect("telemetry is on");
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    tracing::subscriber::with_default(subscriber, work);
    telemetry.finish();
}

#[test]
fn without_an_endpoint_there_is_nothing() {
    assert!(open(&settings(&[])).unwrap().is_none());
}

#[test]
fn a_collector_gets_listed_spans_with_listed_attributes_and_nothing_else() {
    let (url, collected) = collector(OK);
    told(&url, &["--otlp-headers=x-tenant=ann%20b"], || {
        let span = tracing::info_span!(
            target: "rejoin::sessions",
            "attach",
            session = "sess_1",
            transport = tracing::field::Empty,
            token = "hunter2",
            otel.status_message = "hunter2",
        );
        span.record("transport", "websocket");
        span.in_scope(|| {
            tracing::error!(target: "rejoin", error = "hunter2", "hunter2");
            tracing::info_span!(target: "rejoin", "hunter2").in_scope(|| {});
            tracing::info_span!(target: "rejoin", "append", otel.name = "hunter2").in_scope(|| {});
            tracing::info_span!(target: "elsewhere", "resume").in_scope(|| {});
            tracing::debug_span!(target: "rejoin", "export", bytes = 7).in_scope(|| {});
        });
    });
    let got = collected.recv_timeout(LAST_WORDS).unwrap();
    assert!(got.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", got.head);
    assert!(got.head.to_lowercase().contains("x-tenant: ann b\r\n"), "{}", got.head);
    assert!(got.head.contains("application/x-protobuf"), "{}", got.head);
    for there in ["attach", "export", "sess_1", "websocket", "bytes", "service.name", "rejoin"] {
        assert!(got.has(there), "{there} is missing");
    }
    for absent in ["hunter2", "token", "resume", "append", "elsewhere", "tests.rs"] {
        assert!(!got.has(absent), "{absent} is there");
    }
}

#[test]
fn a_collector_that_is_not_there_or_says_nothing_does_not_hold_up_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [&silent, &closed].map(|l| format!("http://{}", l.local_addr().unwrap()));
    drop(closed);
    for url in urls {
        let begun = std::time::Instant::now();
        told(&url, &[], || tracing::info_span!(target: "rejoin", "attach").in_scope(|| {}));
        assert!(begun.elapsed() < LAST_WORDS * 2, "{:?}", begun.elapsed());
    }
}

#[test]
fn traces_have_a_path_of_their_own_under_the_endpoint() {
    for (base, url) in [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces", "https://c/v1/traces"),
        ("https://c/otlp/?key=a", "https://c/otlp/v1/traces?key=a"),
    ] {
        assert_eq!(traces_url(base), url);
    }
}
