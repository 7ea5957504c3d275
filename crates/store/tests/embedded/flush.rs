//! A flush fails, the store stops, and the next process finds in the kernel's cache what never reached the
//! disk. Whatever it acknowledges must outlive a power failure all the same.
//!
//! The disk is a copy of the files as of the last flush that worked, and gets what the next process writes:
//! `strace` tells where that is.

use std::fs;
use std::path::Path;
use std::process::Command;

use rejoin_store::Store;

use crate::support::{append, body, creation, open_whole, read_all, session_id};

const DIRECTORY: &str = "REJOIN_TEST_FLUSH";
const FILES: [&str; 2] = ["rejoin.db", "rejoin.db-wal"];

/// Where a process has written.
struct Written {
    file: &'static str,
    at: usize,
    length: usize,
}

/// `12 pwrite64(7</tmp/x/rejoin.db-wal>, "..."..., 4120, 32) = 4120`
fn parse(line: &str) -> Option<Written> {
    let (_, call) = line.split_once("pwrite64(")?;
    let file = FILES.into_iter().find(|file| call.contains(&format!("/{file}>")))?;
    let (call, length) = call.rsplit_once(" = ")?;
    let at = call.trim_end_matches(')').rsplit(", ").next()?;
    Some(Written { file, at: at.parse().ok()?, length: length.trim().parse().ok()? })
}

#[tokio::test]
async fn what_a_failed_flush_left_in_the_cache_is_written_again_before_it_is_built_on() {
    let cache = tempfile::tempdir().unwrap();
    let store = open_whole(cache.path());
    store.create(creation(0)).await.unwrap();
    append(&store, &session_id(0), &[body("durable")]).await;
    let flushed = FILES.map(|file| fs::read(cache.path().join(file)).unwrap());
    // Pretend that the flush of this one failed: it is in the cache, and not on the disk.
    append(&store, &session_id(0), &[body("in the cache")]).await;
    drop(store);

    let trace = cache.path().join("trace");
    run_traced("next_process", "pwrite64", cache.path(), &trace);
    let disk = power_failure(cache.path(), flushed, &fs::read_to_string(&trace).unwrap());
    let events = read_all(&open_whole(disk.path()), &session_id(0)).await;
    let texts: Vec<&[u8]> = events.iter().map(|event| &*event.body).collect();
    assert_eq!(texts, [&b"durable"[..], b"in the cache", b"acknowledged"]);
}

/// SQLite calls `fsync` unless it is compiled otherwise, and a crate that somebody else builds is compiled
/// with nobody's flags.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_commit_is_flushed_with_fdatasync_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    store.create(creation(0)).await.unwrap();
    drop(store);
    let trace = directory.path().join("trace");
    run_traced("next_process", "fsync,fdatasync,pwrite64", directory.path(), &trace);
    let trace = fs::read_to_string(&trace).unwrap();
    let mut of_log = trace.lines().rev().filter(|line| line.contains("/rejoin.db-wal>"));
    let (flushed, written) = (of_log.next().unwrap(), of_log.next().unwrap());
    assert!(flushed.contains(" fdatasync("), "{flushed}");
    assert!(written.contains(" pwrite64("), "{written}");
}

fn run_traced(test: &str, calls: &str, directory: &Path, trace: &Path) {
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "0", "-e", &format!("trace={calls}"), "-o"])
        .arg(trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("flush::{test}"), "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .status()
        .expect("this test needs `strace`");
    assert!(status.success(), "{test}: {status}");
}

/// What is on the disk afterwards: what had been flushed, and what was written since.
fn power_failure(cache: &Path, flushed: [Vec<u8>; 2], trace: &str) -> tempfile::TempDir {
    let disk = tempfile::tempdir().unwrap();
    let written: Vec<Written> = trace.lines().filter_map(parse).collect();
    assert!(!written.is_empty(), "the trace says nothing: {trace}");
    for (file, mut bytes) in FILES.into_iter().zip(flushed) {
        let now = fs::read(cache.join(file)).unwrap();
        bytes.resize(now.len(), 0);
        for Written { at, length, .. } in written.iter().filter(|written| written.file == file) {
            bytes[*at..at + length].copy_from_slice(&now[*at..at + length]);
        }
        fs::write(disk.path().join(file), bytes).unwrap();
    }
    fs::copy(cache.join("commits.mark"), disk.path().join("commits.mark")).unwrap();
    disk
}

#[tokio::test]
#[ignore = "is run by the test above, traced"]
async fn next_process() {
    let directory = std::env::var(DIRECTORY).expect("run by the test above");
    let store = open_whole(Path::new(&directory));
    append(&store, &session_id(0), &[body("acknowledged")]).await;
}
