//! No credential and no state shows up where it does not belong: not in the log at its most talkative,
//! not in metrics, answers, spans or files. A run of the real binary with every kind of request, good and
//! bad; afterwards each secret that was used or handed out is looked for everywhere.
//!
//! | file | what it is |
//! |---|---|
//! | `known.rs` | the secrets that the run begins with |
//! | `server.rs`, `collector.rs` | the binary at its most talkative, and where its spans go |
//! | `trial.rs` | everything that is tried |
//! | `caller.rs` | how: sockets, and what came back |
//! | `search.rs` | noticing a secret, in whatever disguise |

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod caller;
mod collector;
mod known;
mod search;
mod server;
mod trial;

use std::path::Path;

use self::caller::Trial;
use self::collector::collect;
use self::server::{Auth, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_its_place_with_api_keys_and_a_log_of_json() {
    no_secret_leaves_its_place(Auth::ApiKeys, "json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_its_place_with_web_tokens_and_a_log_of_text() {
    no_secret_leaves_its_place(Auth::Jwt, "text").await;
}

async fn no_secret_leaves_its_place(auth: Auth, log: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (collector, spans) = collect();
    let mut server = Server::start(directory.path(), auth, log, &collector);
    let mut trial = Trial::new(server.address.clone(), auth);
    trial.over_websocket().await;
    trial.over_http();
    let metrics = trial.http("GET", "/metrics", &[], "");
    assert!(metrics.contains("rejoin_build_info"), "{metrics}");
    let log = server.end();
    for said in ["DEBUG", "ignored a line", "printed by mistake", "agent.error"] {
        assert!(log.contains(said), "it does not say {said:?}: {log}");
    }

    let Trial { mut secrets, answers, .. } = trial;
    assert!(secrets.handed_out >= 6, "tokens and states were handed out: {}", secrets.handed_out);
    for (place, text) in &answers {
        secrets.are_not_in(place, text);
    }
    for (place, bytes) in files(&directory.path().join("data")) {
        // Here the agent's words are at home.
        secrets.are_not_in(&place, &String::from_utf8_lossy(&bytes));
    }
    secrets.add_contents();
    log.lines().for_each(|line| secrets.are_not_in("the log", line));
    secrets.are_not_in("/metrics", &metrics);
    let spans = spans.lock().unwrap();
    assert!(!spans.is_empty(), "spans were sent");
    spans.iter().for_each(|span| secrets.are_not_in("a span", &String::from_utf8_lossy(span)));
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}
