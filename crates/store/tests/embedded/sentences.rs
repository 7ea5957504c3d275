//! When something is wrong with the disk or the files, the person who runs the server is told in one
//! sentence, and nothing is lost once the cause is gone.
//!
//! Full and read-only disks are small file systems in memory, mounted in a namespace of their own by
//! running a test of this file again under `unshare`; so neither root nor cleaning up is needed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::Seq;
use rejoin_core::state::{Ack, AppendRefused, EnterRefused};
use rejoin_store::embedded::{EmbeddedStore, OpenError};
use rejoin_store::{Body, CreateRefused, Failure, Store};

use crate::support::{
    append, attachment, body, creation, departure, events_from, message, open_whole, options,
    read_all, record, session_id, try_open,
};

/// Why the store does not open, as a person reads it.
fn refusal(directory: &Path) -> String {
    let error = try_open(directory).expect_err("the store must not open");
    let sentence = error.to_string();
    assert!(!sentence.contains('\n'), "one sentence: {sentence}");
    assert!(sentence.contains(&directory.display().to_string()), "which files: {sentence}");
    sentence
}

async fn store_with_an_event(directory: &Path) {
    let store = open_whole(directory);
    store.create(creation(0)).await.unwrap();
    append(&store, &session_id(0), &[body("kept")]).await;
    store.close().await.unwrap();
}

async fn still_has_the_event(directory: &Path) {
    let store = open_whole(directory);
    assert_eq!(read_all(&store, &session_id(0)).await[0].body, body("kept"));
}

#[tokio::test]
async fn a_second_opener_is_told_that_the_directory_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    assert!(refusal(directory.path()).contains("in use by another process"));
    store.close().await.unwrap();
    drop(open_whole(directory.path())); // closed is closed, also while somebody holds on to it
    drop(store);
}

#[tokio::test]
async fn a_newer_format_is_refused_with_both_versions_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    store_with_an_event(directory.path()).await;
    let set_version = |version: u32| {
        let db = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
        db.pragma_update(None, "user_version", version).unwrap();
    };
    set_version(7);
    let before = fs::read(directory.path().join("rejoin.db")).unwrap();
    let sentence = refusal(directory.path());
    assert!(sentence.contains("version 7") && sentence.contains("up to 2"), "{sentence}");
    assert_eq!(fs::read(directory.path().join("rejoin.db")).unwrap(), before);
    set_version(1);
    still_has_the_event(directory.path()).await;
}

#[tokio::test]
async fn other_peoples_files_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rejoin.db");
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=WAL; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)",
    )
    .unwrap();
    drop(db);
    for bytes in [fs::read(&file).unwrap(), b"dear diary".to_vec(), vec![0; 10_000]] {
        fs::write(&file, &bytes).unwrap();
        assert!(refusal(directory.path()).contains("not a database of Rejoin"));
        assert_eq!(fs::read(&file).unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_database_without_sense_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    store_with_an_event(directory.path()).await;
    let file = directory.path().join("rejoin.db");
    let whole = fs::read(&file).unwrap();
    let mut broken = whole.clone();
    broken[100..4096].fill(0x55); // the schema
    fs::write(&file, &broken).unwrap();
    assert!(refusal(directory.path()).contains("damaged beyond use"));
    assert_eq!(fs::read(&file).unwrap(), broken);
    fs::write(&file, &whole).unwrap();
    still_has_the_event(directory.path()).await;
}

#[tokio::test]
async fn a_file_in_the_place_of_the_directory_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("can't be used"));
}

const MOUNTED: &str = "REJOIN_TEST_MOUNTED";

/// Runs one of the tests below again, with a file system of its own.
fn run_mounted(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sentences::{test}"), "--ignored", "--nocapture"])
        .env(MOUNTED, directory.path())
        .status()
        .expect("these tests need `unshare` of util-linux");
    assert!(status.success(), "{test}: {status}");
}

/// Mounts a file system in memory. `how` is passed to mount: `size=48m`, `remount,ro`.
fn mount(how: &str) -> PathBuf {
    let directory = PathBuf::from(std::env::var(MOUNTED).expect("run by the test beside it"));
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", how, "tmpfs"])
        .arg(&directory)
        .status()
        .unwrap();
    assert!(mounted.success());
    directory
}

#[test]
fn a_full_disk_puts_commits_off_and_loses_nothing() {
    run_mounted("full_disk");
}

/// Without a reserve, so that the disk itself says that it is full: a commit waits, and what is new is
/// refused, until there is space.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is run by the test above, with a small disk"]
async fn full_disk() {
    let directory = mount("size=48m");
    let store = Arc::new(open_without_bounds(&directory));
    let id = session_id(0);
    store.create(creation(0)).await.unwrap();
    let event: Body = body([7; 64 * 1024]);
    let mut acknowledged = 0;
    let waits = loop {
        let first = record(&*store, &id).await.head.next();
        let append = events_from(first, std::slice::from_ref(&event));
        let (writing, at) = (Arc::clone(&store), id.clone());
        let mut waits = tokio::spawn(async move { writing.append(&at, append).await });
        let paused = async {
            while !store.is_paused() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            appended = &mut waits => appended.unwrap().unwrap(),
            () = paused => break waits,
        };
        acknowledged += 1;
        assert!(acknowledged < 1_000, "the disk is never full");
    };
    nothing_new_is_taken(&store, acknowledged).await;
    assert!(!waits.is_finished(), "nobody is told anything");
    // Callers of the server are told that the outcome is not known.
    assert!(store.stalled().await.to_string().contains("no space left"));
    let generation = record(&*store, &id).await.generation;
    store.ack(&id, Ack { generation, seq: Seq::new(1) }).await.unwrap(); // does not wait
    assert!(!waits.is_finished());

    mount("remount,size=200m");
    assert_eq!(waits.await.unwrap().unwrap().head.get(), acknowledged + 1);
    assert!(tokio::time::timeout(Duration::ZERO, store.stalled()).await.is_err(), "it goes on");
    append(&*store, &id, std::slice::from_ref(&event)).await;
    drop(store);
    let store = open_without_bounds(&directory);
    let events = read_all(&store, &id).await;
    assert_eq!(events.len() as u64, acknowledged + 2);
    assert!(events.iter().all(|held| held.body == event));
}

fn open_without_bounds(directory: &Path) -> EmbeddedStore {
    open_with_reserve(directory, 0)
}

fn open_with_reserve(directory: &Path, disk_reserve: u64) -> EmbeddedStore {
    let mut options = options(directory);
    (options.bounds.events, options.bounds.bytes) = (usize::MAX, usize::MAX);
    options.disk_reserve = disk_reserve;
    let (store, report) = EmbeddedStore::open(options).unwrap();
    assert_eq!(report.damage, []);
    store
}

async fn nothing_new_is_taken(store: &EmbeddedStore, head: u64) {
    let created = store.create(creation(9)).await;
    assert_eq!(created, Err(Failure::Refused(CreateRefused::Paused)));
    let (id, next) = (session_id(0), Seq::new(head + 1));
    let entered = store.enter(&id, message("m", body("text"))).await;
    assert_eq!(entered, Err(Failure::Refused(EnterRefused::Paused)));
    let appended = store.append(&id, events_from(next, &[body("event")])).await;
    assert_eq!(appended, Err(Failure::Refused(AppendRefused::Paused)));
    let record = record(store, &id).await;
    assert_eq!(record.head.get(), head, "what was not committed is not seen");
    assert_eq!(read_all(store, &id).await.last().map(|event| event.seq.get()), Some(head));
}

#[test]
fn below_its_reserve_a_disk_takes_nothing_new_and_is_read() {
    run_mounted("low_disk");
}

#[tokio::test]
#[ignore = "is run by the test above, with a small disk"]
async fn low_disk() {
    let directory = mount("size=128m");
    let store = open_with_reserve(&directory, 64 << 20);
    let id = session_id(0);
    store.create(creation(0)).await.unwrap();
    append(&store, &id, &[body("before")]).await;
    let filler = directory.join("filler");
    fill(&filler);
    eventually(|| store.is_paused()).await;
    nothing_new_is_taken(&store, 1).await;
    // What makes sessions smaller, or moves clients, goes on.
    let attached = store.attach(&id, attachment()).await.unwrap();
    let generation = attached.record.generation;
    store.ack(&id, Ack { generation, seq: Seq::new(1) }).await.unwrap();
    store.detach(&id, departure(generation)).await.unwrap();

    fs::remove_file(filler).unwrap();
    eventually(|| !store.is_paused()).await;
    append(&store, &id, &[body("after")]).await;
    store.close().await.unwrap();
}

/// Takes all space that there is.
fn fill(file: &Path) {
    let mut file = fs::File::create(file).unwrap();
    while file.write_all(&[1; 64 * 1024]).is_ok() {}
}

async fn eventually(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_disk_too_full_to_open_is_said() {
    run_mounted("full_disk_at_start");
}

#[tokio::test]
#[ignore = "is run by the test above, with a small disk"]
async fn full_disk_at_start() {
    let directory = mount("size=8m");
    assert!(matches!(try_open(&directory), Err(OpenError::Full { .. })));
    let sentence = refusal(&directory);
    assert!(sentence.starts_with("no space left on the disk that holds "), "{sentence}");
    mount("remount,size=100m");
    store_with_an_event(&directory).await;
    still_has_the_event(&directory).await;
}

#[test]
fn a_read_only_disk_is_said() {
    run_mounted("read_only_disk");
}

#[tokio::test]
#[ignore = "is run by the test above, with a disk of its own"]
async fn read_only_disk() {
    let directory = mount("size=100m");
    store_with_an_event(&directory).await;
    mount("remount,ro");
    let sentence = refusal(&directory);
    assert!(sentence.contains("Read-only file system"), "{sentence}");
    let sentence = refusal(&directory.join("new"));
    assert!(sentence.contains("Read-only file system"), "{sentence}");
    mount("remount,rw");
    still_has_the_event(&directory).await;
}
