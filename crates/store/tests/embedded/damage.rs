//! What was durable and is gone is noticed when the store opens, and answered with a new epoch. Never
//! is anything missing without a word.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rejoin_core::record::Record;
use rejoin_core::{InSeq, Seq, SessionId};
use rejoin_store::embedded::{Damage, EmbeddedStore, OpenError, OpenReport};
use rejoin_store::{Body, Store, StoredEntry, StoredEvent, StoredSnapshot};
use tempfile::TempDir;

use crate::support::{
    Dice, append, body, creation, events_from, first_epoch, message, open_whole, read_all,
    session_id, with_state,
};

const SESSIONS: u64 = 8;
const FLIPS: u64 = 40;

/// Opened by somebody who takes what is left.
fn try_open(directory: &Path) -> Result<(EmbeddedStore, OpenReport), OpenError> {
    let mut options = crate::support::options(directory);
    options.accept_data_loss = true;
    EmbeddedStore::open(options)
}

fn open(directory: &Path) -> (EmbeddedStore, OpenReport) {
    try_open(directory).expect("the store opens")
}

/// All that a session holds.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    record: Record,
    events: Vec<StoredEvent>,
    entries: Vec<StoredEntry>,
    snapshot: Option<StoredSnapshot>,
}

async fn contents(store: &EmbeddedStore, id: &SessionId) -> Option<Contents> {
    let record = store.session(id).await.unwrap()?;
    Some(Contents {
        record,
        events: read_all(store, id).await,
        entries: store.entries(id, InSeq::ZERO, 1_000).await.unwrap(),
        snapshot: store.snapshot(id).await.unwrap(),
    })
}

async fn all_contents(store: &EmbeddedStore) -> Vec<Contents> {
    let mut all = Vec::new();
    for number in 0..SESSIONS {
        all.extend(contents(store, &session_id(number)).await);
    }
    all
}

/// Does a bit of everything to every session.
async fn live(store: &EmbeddedStore, dice: &mut Dice, rounds: u64) {
    for _ in 0..rounds {
        let id = session_id(dice.below(SESSIONS));
        let record = store.session(&id).await.unwrap().unwrap();
        let length = 1 + dice.below(3_000) as usize;
        let bytes: Body = (0..length).map(|_| dice.roll() as u8).collect::<Vec<_>>().into();
        match dice.below(5) {
            0 => {
                let name = format!("m{}", record.in_head.next());
                store.enter(&id, message(&name, bytes)).await.unwrap();
            }
            1 => {
                let covers = InSeq::new(record.in_head.get() / 2);
                let append = events_from(record.head.next(), std::slice::from_ref(&bytes));
                store.append(&id, with_state(append, bytes, covers)).await.unwrap();
            }
            _ => drop(append(store, &id, &[bytes]).await),
        }
    }
}

/// A directory with a store that was left as a killed process leaves it, and what is in it.
async fn left_behind(rounds: u64) -> (TempDir, Vec<Contents>) {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    for number in 0..SESSIONS {
        store.create(creation(number)).await.unwrap();
    }
    live(&store, &mut Dice(7), rounds).await;
    drop(store);
    // What opening changes (deadlines) is no loss: what is expected is what a whole store shows.
    let copy = copy_of(directory.path());
    let expected = all_contents(&open_whole(copy.path())).await;
    (directory, expected)
}

pub(crate) fn copy_of(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn flip_bit(file: &Path, bit: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

/// The part of the write-ahead log that is in use: the rest is zeros.
pub(crate) fn used_bytes(wal: &Path) -> u64 {
    let bytes = fs::read(wal).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Whether something of what is expected is missing.
fn lacks(found: Option<&Contents>, expected: &Contents) -> bool {
    let Some(found) = found else { return true };
    let all = expected.events.iter().all(|event| found.events.contains(event));
    !(all && found.entries == expected.entries && found.snapshot == expected.snapshot)
}

/// The promise of this file. Says whether something was missing.
async fn check(directory: &Path, expected: &[Contents]) -> bool {
    let (store, report) = match try_open(directory) {
        Ok(opened) => opened,
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.contains("rejoin.db") && !sentence.contains('\n'), "{sentence}");
            return true;
        }
    };
    let found = all_contents(&store).await;
    let mut missing = false;
    for expected in expected {
        let found = found.iter().find(|found| found.record.id() == expected.record.id());
        if !lacks(found, expected) {
            continue;
        }
        missing = true;
        assert_ne!(report.damage, [], "something is missing without a word");
        if let Some(found) = found {
            assert_ne!(found.record.epoch, first_epoch(), "missing, and the epoch is the same");
            assert_ne!(found.record.log, expected.record.log);
            assert!(!found.record.first_epoch);
        }
    }
    goes_on(store, &report, directory).await;
    missing
}

/// After the damage was answered the store works, and opening it again finds nothing wrong.
async fn goes_on(store: EmbeddedStore, report: &OpenReport, directory: &Path) {
    if !report.damage.is_empty() {
        let kept = report.kept.as_ref().expect("the damaged file is kept");
        assert!(kept.exists());
    }
    live_on(&store).await;
    let before = all_contents(&store).await;
    drop(store);
    let store = open_whole(directory);
    let after = all_contents(&store).await;
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.events, &before.entries), (&after.events, &after.entries));
        assert_eq!(before.snapshot, after.snapshot);
        assert_eq!(before.record.epoch, after.record.epoch);
    }
}

async fn live_on(store: &EmbeddedStore) {
    for number in 0..SESSIONS {
        let id = session_id(number);
        if store.session(&id).await.unwrap().is_some() {
            append(store, &id, &[body("life goes on")]).await;
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_in_the_write_ahead_log_is_never_a_silent_loss() {
    let (directory, expected) = left_behind(300).await;
    let used = used_bytes(&directory.path().join("rejoin.db-wal"));
    assert!(used > 500_000, "the log is full of frames");
    let (mut dice, mut losses) = (Dice(1), 0);
    for _ in 0..FLIPS {
        let copy = copy_of(directory.path());
        flip_bit(&copy.path().join("rejoin.db-wal"), dice.below(used * 8));
        losses += u64::from(check(copy.path(), &expected).await);
    }
    assert!(losses > FLIPS / 2, "only {losses} flips did any harm");
}

#[tokio::test]
async fn a_log_that_was_copied_already_can_hide_newer_pages_and_that_is_noticed() {
    // SQLite believes the pages of a damaged log up to the damage, although the database has newer
    // ones: old and new pages mix.
    let (directory, expected) = left_behind(300).await;
    let db = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    db.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(())).unwrap();
    drop(db);
    let used = used_bytes(&directory.path().join("rejoin.db-wal"));
    let (mut dice, mut losses) = (Dice(4), 0);
    for _ in 0..FLIPS {
        let copy = copy_of(directory.path());
        flip_bit(&copy.path().join("rejoin.db-wal"), dice.below(used * 8));
        losses += u64::from(check(copy.path(), &expected).await);
    }
    assert!(losses > FLIPS / 2, "only {losses} flips did any harm");
}

#[tokio::test]
async fn a_flipped_bit_in_the_database_is_never_a_silent_loss() {
    let (directory, expected) = left_behind(300).await;
    open_whole(directory.path()).close().await.unwrap();
    let size = fs::metadata(directory.path().join("rejoin.db")).unwrap().len();
    let (mut dice, mut losses) = (Dice(2), 0);
    for _ in 0..FLIPS {
        let copy = copy_of(directory.path());
        flip_bit(&copy.path().join("rejoin.db"), dice.below(size * 8));
        losses += u64::from(check(copy.path(), &expected).await);
    }
    assert!(losses > FLIPS / 4, "only {losses} flips did any harm");
}

#[tokio::test]
async fn a_flipped_bit_in_the_first_pages_is_never_a_silent_loss() {
    // The header, the schema, and the roots of all tables.
    let (directory, expected) = left_behind(100).await;
    open_whole(directory.path()).close().await.unwrap();
    let mut dice = Dice(3);
    for _ in 0..FLIPS {
        let copy = copy_of(directory.path());
        flip_bit(&copy.path().join("rejoin.db"), dice.below(10 * 4096 * 8));
        check(copy.path(), &expected).await;
    }
}

/// The files of a store before and after one more commit, and where its frames begin in the log.
struct LastCommit {
    before: TempDir,
    after: TempDir,
    wal_offset: u64,
}

async fn last_commit() -> LastCommit {
    let (before, _) = left_behind(50).await;
    let before_bytes = fs::read(before.path().join("rejoin.db-wal")).unwrap();
    let after = copy_of(before.path());
    let store = open_whole(after.path());
    append(&store, &session_id(0), &[body([7; 9_000])]).await;
    drop(store);
    let after_bytes = fs::read(after.path().join("rejoin.db-wal")).unwrap();
    let differs = before_bytes.iter().zip(&after_bytes).position(|(a, b)| a != b);
    LastCommit { before, after, wal_offset: differs.unwrap() as u64 }
}

#[tokio::test]
async fn a_torn_commit_that_nobody_was_told_of_is_no_damage() {
    let LastCommit { before, after, wal_offset } = last_commit().await;
    let whole_length = used_bytes(&after.path().join("rejoin.db-wal"));
    let expected = all_contents(&open_whole(copy_of(before.path()).path())).await;
    for cut in [wal_offset + 10, wal_offset + 3_000, whole_length - 100] {
        let copy = copy_of(after.path());
        let wal = File::options().write(true).open(copy.path().join("rejoin.db-wal")).unwrap();
        wal.set_len(cut).unwrap();
        fs::copy(before.path().join("commits.mark"), copy.path().join("commits.mark")).unwrap();
        let store = open_whole(copy.path());
        let found = all_contents(&store).await;
        for (found, expected) in found.iter().zip(&expected) {
            assert!(!lacks(Some(found), expected));
            assert_eq!(found.record.head, expected.record.head);
        }
    }
}

#[tokio::test]
async fn a_torn_commit_that_was_acknowledged_is_a_loss_and_said() {
    let LastCommit { after, wal_offset, .. } = last_commit().await;
    let wal = File::options().write(true).open(after.path().join("rejoin.db-wal")).unwrap();
    wal.set_len(wal_offset + 3_000).unwrap();
    let (store, report) = open(after.path());
    assert!(matches!(report.damage[..], [Damage::CommitsLost { from, to }] if from == to));
    assert_eq!(report.new_epochs, SESSIONS as usize);
    let record = store.session(&session_id(0)).await.unwrap().unwrap();
    assert_ne!(record.epoch, first_epoch());
    goes_on(store, &report, after.path()).await;
}

#[tokio::test]
async fn a_backup_that_was_put_back_is_a_loss_and_said() {
    let (directory, _) = left_behind(50).await;
    let backup = copy_of(directory.path());
    let store = open_whole(directory.path());
    live_on(&store).await;
    drop(store);
    for file in ["rejoin.db", "rejoin.db-wal"] {
        fs::copy(backup.path().join(file), directory.path().join(file)).unwrap();
    }
    let (store, report) = open(directory.path());
    assert!(matches!(report.damage[..], [Damage::CommitsLost { .. }]), "{:?}", report.damage);
    goes_on(store, &report, directory.path()).await;
}

#[tokio::test]
async fn a_backup_of_the_whole_directory_that_was_put_back_is_a_loss_and_said() {
    let (directory, _) = left_behind(20).await;
    drop(opened_by_a_server(directory.path()));
    let (_, report) = opened_by_a_server(directory.path());
    assert_eq!(report.damage, [], "it is itself");
    let backup = copy_of(directory.path());
    let (store, report) = opened_by_a_server(backup.path());
    assert_eq!(report.damage, [Damage::PutBack]);
    assert_eq!(report.new_epochs, SESSIONS as usize);
    assert_ne!(store.session(&session_id(0)).await.unwrap().unwrap().epoch, first_epoch());
    drop(store);
    assert_eq!(opened_by_a_server(backup.path()).1.damage, [], "it is said once");
}

#[tokio::test]
async fn a_backup_that_was_copied_over_the_files_in_place_is_a_loss_and_said() {
    let (directory, _) = left_behind(20).await;
    drop(opened_by_a_server(directory.path()));
    let backup = copy_of(directory.path());
    let (store, report) = opened_by_a_server(directory.path());
    assert_eq!(report.damage, [], "it is itself");
    live_on(&store).await;
    drop(store);
    for file in fs::read_dir(backup.path()).unwrap() {
        let file = file.unwrap();
        let into = directory.path().join(file.file_name());
        // As `cp` does: what is there is written over.
        let mut into = File::options().write(true).create(true).truncate(true).open(into).unwrap();
        std::io::copy(&mut File::open(file.path()).unwrap(), &mut into).unwrap();
    }
    let (store, report) = opened_by_a_server(directory.path());
    assert_eq!(report.damage, [Damage::PutBack]);
    assert_eq!(report.new_epochs, SESSIONS as usize);
    drop(store);
    assert_eq!(opened_by_a_server(directory.path()).1.damage, [], "it is said once");
}

#[tokio::test]
async fn what_was_cut_short_when_it_began_or_moved_or_chmodded_is_no_copy() {
    let (directory, _) = left_behind(20).await;
    drop(opened_by_a_server(directory.path()));
    let (runs, next) = (directory.path().join("runs.mark"), directory.path().join("runs.mark.new"));
    fs::write(&next, "").unwrap();
    assert_eq!(opened_by_a_server(directory.path()).1.damage, [], "before it was noted");
    fs::rename(&runs, &next).unwrap();
    fs::write(&runs, "").unwrap();
    assert_eq!(opened_by_a_server(directory.path()).1.damage, [], "before it was in its place");
    fs::set_permissions(&runs, fs::Permissions::from_mode(0o640)).unwrap();
    let moved = directory.path().join("moved");
    fs::create_dir(&moved).unwrap();
    for file in ["rejoin.db", "rejoin.db-wal", "commits.mark", "runs.mark"] {
        fs::rename(directory.path().join(file), moved.join(file)).unwrap();
    }
    assert_eq!(opened_by_a_server(&moved).1.damage, []);
    fs::remove_file(moved.join("runs.mark")).unwrap();
    assert_eq!(opened_by_a_server(&moved).1.damage, [], "nobody knows");
}

/// Opened with an eye on copies.
fn opened_by_a_server(directory: &Path) -> (EmbeddedStore, OpenReport) {
    let mut options = crate::support::options(directory);
    options.notice_copies = true;
    EmbeddedStore::open(options).unwrap()
}

#[tokio::test]
async fn without_its_own_witness_a_database_is_not_taken_for_whole() {
    let (directory, _) = left_behind(20).await;
    let copy = copy_of(directory.path());
    fs::remove_file(copy.path().join("commits.mark")).unwrap();
    let (store, report) = open(copy.path());
    assert!(matches!(report.damage[..], [Damage::NoWitness { .. }]), "{:?}", report.damage);
    goes_on(store, &report, copy.path()).await;

    let (copy, other) = (copy_of(directory.path()), tempfile::tempdir().unwrap());
    let mut options = crate::support::options(other.path());
    options.random = Box::new(|bytes| bytes.fill(9));
    drop(EmbeddedStore::open(options).unwrap());
    fs::copy(other.path().join("commits.mark"), copy.path().join("commits.mark")).unwrap();
    let (store, report) = open(copy.path());
    assert!(matches!(report.damage[..], [Damage::NoWitness { .. }]), "{:?}", report.damage);
    goes_on(store, &report, copy.path()).await;
}

/// Changes the database behind the store's back.
pub(crate) fn tamper(directory: &Path, sql: &str) {
    let db = rusqlite::Connection::open(directory.join("rejoin.db")).unwrap();
    assert!(db.execute(sql, []).unwrap() > 0, "{sql} did nothing");
}

#[tokio::test]
async fn missing_and_changed_rows_are_noticed() {
    let (directory, expected) = left_behind(100).await;
    for sql in [
        "DELETE FROM journal WHERE id = (SELECT max(id) FROM journal) - 7",
        "DELETE FROM journal WHERE id = (SELECT max(id) FROM journal)",
        "DELETE FROM journal WHERE id = (SELECT min(id) FROM journal)",
        "DELETE FROM journal",
        "UPDATE journal SET id = id + 1000 WHERE id = (SELECT max(id) FROM journal)",
        "UPDATE journal SET body = zeroblob(100) WHERE id % 10 = 0",
        "DELETE FROM sessions WHERE key = 3",
        "DELETE FROM sessions",
        "UPDATE sessions SET key = key + 100 WHERE key = 2",
        "UPDATE sessions SET record = (SELECT record FROM sessions WHERE key = 1) WHERE key = 2",
        "DELETE FROM meta",
    ] {
        let copy = copy_of(directory.path());
        tamper(copy.path(), sql);
        let (store, report) = open(copy.path());
        assert_ne!(report.damage, [], "{sql}");
        drop(store);
        let again = copy_of(directory.path());
        tamper(again.path(), sql);
        check(again.path(), &expected).await;
    }
}

#[tokio::test]
async fn one_damaged_session_does_not_concern_the_others() {
    let (directory, expected) = left_behind(50).await;
    tamper(
        directory.path(),
        "UPDATE sessions SET record = CAST(substr(record, 1, 40) || X'00' || substr(record, 42) AS BLOB) WHERE key = 3",
    );
    let (store, report) = open(directory.path());
    let [Damage::Session { id: Some(lost) }] = &report.damage[..] else {
        panic!("{:?}", report.damage)
    };
    assert_eq!(report.new_epochs, 0);
    assert!(store.session(lost).await.unwrap().is_none());
    for expected in expected.iter().filter(|expected| expected.record.id() != lost) {
        let found = contents(&store, expected.record.id()).await;
        assert!(!lacks(found.as_ref(), expected));
        assert_eq!(found.unwrap().record.epoch, first_epoch());
    }
    goes_on(store, &report, directory.path()).await;
}

#[tokio::test]
async fn a_salvage_that_was_cut_short_is_finished() {
    let (directory, _) = left_behind(50).await;
    let store = open_whole(directory.path());
    live_on(&store).await;
    drop(store);
    let file = |name: &str| directory.path().join(name);
    fs::remove_file(file("rejoin.db-wal")).unwrap();
    let (store, report) = open(directory.path());
    assert_eq!(report.kept.as_deref(), Some(file("rejoin.db.damaged-1").as_path()));
    let salvaged = all_contents(&store).await;
    store.close().await.unwrap();
    drop(store);
    // As it was before the renames.
    fs::remove_file(file("rejoin.db-wal")).unwrap();
    fs::rename(file("rejoin.db"), file("rejoin.db.salvaged")).unwrap();
    fs::rename(file("rejoin.db.damaged-1"), file("rejoin.db")).unwrap();
    let (store, report) = open(directory.path());
    assert!(matches!(report.damage[..], [Damage::SalvagedBefore]), "{:?}", report.damage);
    assert_eq!(report.kept.as_deref(), Some(file("rejoin.db.damaged-1").as_path()));
    let found = all_contents(&store).await;
    for (found, salvaged) in found.iter().zip(&salvaged) {
        assert_eq!(found.events, salvaged.events);
        assert_eq!(found.record.epoch, salvaged.record.epoch);
    }
    goes_on(store, &report, directory.path()).await;
}

#[tokio::test]
async fn damage_that_shows_while_reading_stops_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    store.create(creation(0)).await.unwrap();
    append(&store, &session_id(0), &[body([1; 100]), body([2; 100])]).await;
    store.close().await.unwrap();
    drop(store);
    let store = open_whole(directory.path());
    tamper(directory.path(), "UPDATE journal SET body = zeroblob(length(body))");
    let read = store.read(&session_id(0), Seq::ZERO, Default::default()).await;
    let why = read.unwrap_err();
    assert!(why.0.contains("damaged"), "{}", why.0);
    assert_eq!(store.failure().await, why);
    drop(store);
    let (_, report) = open(directory.path());
    assert_ne!(report.damage, []);
}
