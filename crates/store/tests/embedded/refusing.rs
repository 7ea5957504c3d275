//! A store that lost more than its last few commits is not opened unless somebody says that the loss is accepted, and it
//! is left as it was found. `verify` finds the same, and changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use rejoin_store::Store as _;
use rejoin_store::embedded::{Damage, EmbeddedStore, OpenError, OpenReport, verify};
use tempfile::TempDir;

use crate::damage::{copy_of, tamper, used_bytes};
use crate::support::{append, body, creation, open_whole, options, read_all, session_id, try_open};

const COMMITS: usize = 40;

/// A store of a killed process, and how long its write-ahead log was before the last commits.
async fn left_behind(last: usize) -> (TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    store.create(creation(0)).await.unwrap();
    let mut length = 0;
    for number in 1..=COMMITS {
        append(&store, &session_id(0), &[body([7; 100])]).await;
        if number == COMMITS - last {
            length = used_bytes(&directory.path().join("rejoin.db-wal"));
        }
    }
    drop(store);
    (directory, length)
}

/// The store without its last commits.
async fn without_the_last(commits: usize) -> TempDir {
    let (directory, length) = left_behind(commits).await;
    let wal = File::options().write(true).open(directory.path().join("rejoin.db-wal")).unwrap();
    wal.set_len(length).unwrap();
    directory
}

fn accepting(directory: &Path) -> (EmbeddedStore, OpenReport) {
    let mut options = options(directory);
    options.accept_data_loss = true;
    EmbeddedStore::open(options).expect("the loss is accepted")
}

/// What the files hold, but for what SQLite's connections share. A reader may leave an empty log.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    };
    files.map(read).filter(|(name, bytes)| name != "rejoin.db-shm" && !bytes.is_empty()).collect()
}

#[tokio::test]
async fn the_last_few_commits_may_be_missing_without_anybody_being_asked() {
    let directory = without_the_last(16).await;
    let (store, report) = try_open(directory.path()).expect("a small loss is told, not refused");
    assert!(matches!(report.damage[..], [Damage::CommitsLost { from, to }] if to - from == 15));
    assert_eq!(report.new_epochs, 1);
    assert_eq!(read_all(&store, &session_id(0)).await.len(), COMMITS - 16);
}

#[tokio::test]
async fn one_commit_more_is_refused_and_nothing_is_changed() {
    let directory = without_the_last(17).await;
    let before = contents(directory.path());
    let refused = try_open(directory.path()).expect_err("it is refused");
    let sentence = refused.to_string();
    assert!(matches!(refused, OpenError::DataLoss { sessions: 1, events: 23, .. }), "{sentence}");
    assert!(sentence.contains("are lost") && sentence.contains("--accept-data-loss"), "{sentence}");
    assert!(contents(directory.path()) == before, "a file was changed");
    let (store, report) = accepting(directory.path());
    assert!(matches!(report.damage[..], [Damage::CommitsLost { from, to }] if to - from == 16));
    assert_eq!(read_all(&store, &session_id(0)).await.len(), COMMITS - 17);
    drop(store);
    drop(open_whole(directory.path()));
}

#[tokio::test]
async fn what_is_damaged_inside_is_refused_and_verify_says_the_same() {
    let (directory, _) = left_behind(0).await;
    for sql in [
        "DELETE FROM journal WHERE id = (SELECT max(id) FROM journal) - 7",
        "DELETE FROM journal",
        "UPDATE journal SET body = zeroblob(100) WHERE id % 10 = 0",
        "DELETE FROM sessions",
    ] {
        let copy = copy_of(directory.path());
        tamper(copy.path(), sql);
        let before = contents(copy.path());
        let found = verify(copy.path()).unwrap().damage;
        assert_ne!(found, [], "{sql}");
        let Err(OpenError::DataLoss { damage, .. }) = try_open(copy.path()) else {
            panic!("{sql} is not refused");
        };
        assert_eq!(damage, found, "{sql}");
        assert!(contents(copy.path()) == before, "{sql}: a file was changed");
        accepting(copy.path());
        assert_eq!(verify(copy.path()).unwrap().damage, [], "{sql}");
    }
}

#[tokio::test]
async fn without_its_mark_nothing_says_how_much_is_lost() {
    let (directory, _) = left_behind(0).await;
    fs::remove_file(directory.path().join("commits.mark")).unwrap();
    assert!(matches!(try_open(directory.path()), Err(OpenError::DataLoss { events: 40, .. })));
    assert_eq!(accepting(directory.path()).1.events, COMMITS);
}

#[tokio::test]
async fn verify_finds_what_opening_does_not_look_for() {
    let (directory, _) = left_behind(0).await;
    let file = directory.path().join("rejoin.db");
    // The server does not use the index of the ids.
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("PRAGMA writable_schema = ON").unwrap();
    let drop_unique = "UPDATE sqlite_schema SET rootpage = \
                       (SELECT rootpage FROM sqlite_schema WHERE name = 'audit_by_session') \
                       WHERE name = 'sqlite_autoindex_sessions_1'";
    assert_eq!(db.execute(drop_unique, []).unwrap(), 1);
    drop(db);
    let found = verify(directory.path()).unwrap();
    assert!(matches!(found.damage[..], [Damage::File { .. }, ..]), "{:?}", found.damage);
}
