//! People open the file with other tools while the server runs. None of them stops it, or makes it slow for
//! longer than it has the database locked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Seq;
use rejoin_core::state::EnterRefused;
use rejoin_store::embedded::EmbeddedStore;
use rejoin_store::{Failure, Store};
use rusqlite::Connection;

use crate::support::{append, body, creation, message, open_whole, options, read_all, session_id};

fn open_without_bounds(directory: &Path) -> EmbeddedStore {
    let mut options = options(directory);
    (options.bounds.events, options.bounds.bytes) = (usize::MAX, usize::MAX);
    EmbeddedStore::open(options).unwrap().0
}

fn tool(directory: &Path) -> Connection {
    let db = Connection::open(directory.join("rejoin.db")).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db
}

/// As long as it reads, the write-ahead log can't begin anew: it grows, and nobody waits.
#[tokio::test]
async fn a_reader_that_stays_makes_no_commit_wait() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_without_bounds(directory.path());
    store.create(creation(0)).await.unwrap();
    let tool = tool(directory.path());
    tool.execute_batch("BEGIN; SELECT count(*) FROM journal").unwrap();
    // More than the write-ahead log takes before it is copied.
    let much = body(vec![7; 1 << 20]);
    let append_all = async {
        for _ in 0..70 {
            append(&store, &session_id(0), std::slice::from_ref(&much)).await;
        }
    };
    // If each of the last thirty waited for the reader as long as SQLite's busy handler does, it would
    // take two and a half minutes.
    tokio::time::timeout(Duration::from_secs(100), append_all).await.expect("nobody waits");
    tool.execute_batch("COMMIT").unwrap();
    drop(tool);
    append(&store, &session_id(0), &[much]).await;
    drop(store);
    let events = read_all(&open_without_bounds(directory.path()), &session_id(0)).await;
    assert_eq!(events.len(), 71);
}

/// Longer than SQLite's own busy handler waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_another_tool_holds_for_long_stops_nothing_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open_whole(directory.path()));
    store.create(creation(0)).await.unwrap();
    append(&*store, &session_id(0), &[body("before")]).await;
    let tool = tool(directory.path());
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (writing, first) = (Arc::clone(&store), message("one", body("one")));
    let waits = tokio::spawn(async move { writing.enter(&session_id(0), first).await });
    let paused = async {
        while !store.is_paused() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let paused = tokio::time::timeout(Duration::from_secs(30), paused).await;
    paused.expect("it waits for the lock");
    let refused = store.enter(&session_id(0), message("two", body("two"))).await;
    assert_eq!(refused, Err(Failure::Refused(EnterRefused::Paused)));
    assert!(store.read(&session_id(0), Seq::ZERO, Default::default()).await.is_ok());
    tokio::time::sleep(Duration::from_secs(5)).await; // what ended the server
    assert!(!waits.is_finished());
    tool.execute_batch("ROLLBACK").unwrap();
    assert!(!waits.await.unwrap().unwrap().duplicate);
    let entered = store.enter(&session_id(0), message("two", body("two"))).await.unwrap();
    assert_eq!((entered.in_seq.get(), entered.duplicate), (2, false));
}
