//! A backup is made while the store is used. It is whole, of one moment, for its owner alone, and whoever opens it knows
//! that it may be behind what clients have seen.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rejoin_store::Store as _;
use rejoin_store::embedded::{Damage, EmbeddedStore, OpenError, backup, verify};

use crate::damage::tamper;
use crate::support::{
    append, body, creation, first_epoch, open, open_whole, read_all, record, session_id,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_store_that_is_written_to_is_whole_and_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("backup"));
    let store = Arc::new(open_whole(&from));
    for number in 0..4 {
        store.create(creation(number)).await.unwrap();
        append(&*store, &session_id(number), &[body([1; 5_000])]).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let writing: Vec<_> =
        (0..4).map(|n| tokio::spawn(write_until(store.clone(), n, done.clone()))).collect();
    for round in 0..5 {
        let to = to.with_extension(round.to_string());
        let before = head_sum(&store).await;
        let (source, copy) = (from.clone(), to.clone());
        tokio::task::spawn_blocking(move || backup(&source, &copy)).await.unwrap().unwrap();
        let after = head_sum(&store).await;
        let live = verify(&from).unwrap();
        assert_eq!((&live.damage[..], live.is_copy), (&[][..], false), "the store that is in use");
        let found = verify(&to).unwrap();
        assert_eq!((&found.damage[..], found.is_copy, found.sessions), (&[][..], true, 4));
        let events = found.events as u64;
        assert!((before..=after).contains(&events), "{before} <= {events} <= {after}");
        assert!(verify(&to).unwrap() == found, "looking changes nothing");
    }
    done.store(true, Relaxed);
    for writer in writing {
        assert!(writer.await.unwrap() > 0, "it was written to");
    }
}

async fn write_until(store: Arc<EmbeddedStore>, number: u64, done: Arc<AtomicBool>) -> u64 {
    let mut written = 0;
    while !done.load(Relaxed) {
        append(&*store, &session_id(number), &[body([2; 300])]).await;
        written += 1;
    }
    written
}

/// How many events there are in all.
async fn head_sum(store: &EmbeddedStore) -> u64 {
    let mut sum = 0;
    for number in 0..4 {
        sum += record(store, &session_id(number)).await.head.get();
    }
    sum
}

#[tokio::test]
async fn a_backup_that_is_opened_begins_a_new_epoch_whatever_the_file_system_knows() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("backup"));
    let store = open_whole(&from);
    store.create(creation(0)).await.unwrap();
    append(&store, &session_id(0), &[body("one"), body("two")]).await;
    backup(&from, &to).unwrap();
    append(&store, &session_id(0), &[body("three")]).await;
    let (restored, report) = open(&to); // which does not ask when files were made
    assert_eq!((&report.damage[..], report.new_epochs), (&[Damage::PutBack][..], 1));
    assert_ne!(record(&restored, &session_id(0)).await.epoch, first_epoch());
    let bodies: Vec<_> =
        read_all(&restored, &session_id(0)).await.into_iter().map(|e| e.body).collect();
    assert_eq!(bodies, [body("one"), body("two")]);
    drop(restored);
    drop(open_whole(&to)); // it is said once
    assert_eq!(
        record(&store, &session_id(0)).await.epoch,
        first_epoch(),
        "the other goes on as before"
    );
}

#[tokio::test]
async fn seals_that_were_used_up_stay_used_up_in_a_backup_that_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("backup"));
    drop(open_whole(&from));
    tamper(
        &from,
        "INSERT INTO meta (name, value) VALUES ('forgotten seals of alice', x'0000000000000007')",
    );
    backup(&from, &to).unwrap();
    drop(open(&to));
    let db = rusqlite::Connection::open(to.join("rejoin.db")).unwrap();
    let select = "SELECT value FROM meta WHERE name = 'forgotten seals of alice'";
    let kept: [u8; 8] = db.query_row(select, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, [0, 0, 0, 0, 0, 0, 0, 7]);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn keys_go_along_and_everything_is_for_the_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("backup"));
    let store = open_whole(&from);
    store.create(creation(0)).await.unwrap();
    fs::write(from.join("keys"), "secret").unwrap();
    fs::write(from.join("rejoin.db.damaged-1"), "of no use").unwrap();
    backup(&from, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("keys")).unwrap(), "secret");
    let mut names: Vec<_> = fs::read_dir(&to)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["commits.mark", "keys", "rejoin.db", "runs.mark"]);
    assert_eq!(mode(&to), 0o700);
    names.iter().for_each(|name| assert_eq!(mode(&to.join(name)), 0o600, "{name}"));
    let again = backup(&from, &to).unwrap_err().to_string();
    assert!(again.contains("there is a store in it already"), "{again}");
}

#[test]
fn where_no_store_is_none_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("backup");
    assert!(matches!(backup(directory.path(), &to), Err(OpenError::Nothing { .. })));
    assert!(!to.exists());
    assert!(matches!(verify(directory.path()), Err(OpenError::Nothing { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
