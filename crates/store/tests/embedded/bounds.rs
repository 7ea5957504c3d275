//! Files and memory stay within their bounds, whatever one session does while others run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rejoin_core::limits::LogBounds;
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{Ack, End};
use rejoin_core::{InSeq, Seq, SessionId};
use rejoin_store::embedded::EmbeddedStore;
use rejoin_store::{Body, Measurements, PageLimit, Store};

use crate::support::{
    Dice, HOUR, append, at, attachment, body, creation, events_from, file_bytes, message,
    open_whole, options, read_all, record, session_id, with_state,
};

const MIB: u64 = 1024 * 1024;

fn some_bytes(dice: &mut Dice, length: usize) -> Body {
    (0..length / 8).flat_map(|_| dice.roll().to_le_bytes()).collect::<Vec<u8>>().into()
}

/// A thousand producers have a thousand of these, each made anew for each event: what is rare in an
/// append, and large, must not be part of it.
#[tokio::test]
async fn a_waiting_append_takes_little_memory_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_whole(directory.path());
    let id = session_id(1);
    let appending = store.append(&id, events_from(Seq::new(1), &[body("event")]));
    let bytes = size_of_val(&*appending);
    assert!(bytes <= 512, "{bytes} bytes");
}

/// Bytes that are held in all sessions.
async fn live_bytes(store: &EmbeddedStore, sessions: u64) -> u64 {
    let mut live = 0;
    for number in 0..sessions {
        live += record(store, &session_id(number)).await.held_bytes as u64;
    }
    live
}

/// Appends `count` events of 64 KiB to a session and acks them at once.
async fn churn(store: &EmbeddedStore, id: &SessionId, bytes: &Body, count: u64) {
    for _ in 0..count {
        let bodies = vec![Arc::clone(bytes); 8];
        let appended = append(store, id, &bodies).await;
        let generation = record(store, id).await.generation;
        store.ack(id, Ack { generation, seq: appended.head }).await.unwrap();
    }
}

fn open_with(directory: &Path, bounds: LogBounds, memory_bytes: u64) -> EmbeddedStore {
    let mut options = options(directory);
    (options.bounds, options.memory_bytes) = (bounds, memory_bytes);
    let (store, report) = EmbeddedStore::open(options).unwrap();
    assert_eq!(report.damage, []);
    store
}

#[tokio::test]
async fn one_session_parked_for_ever_does_not_pin_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = LogBounds { events: 16, bytes: usize::MAX, ..LogBounds::default() };
    let store = open_with(directory.path(), bounds, 16 * MIB);
    let mut dice = Dice(1);
    for number in 0..4 {
        store.create(creation(number)).await.unwrap();
    }
    let parked = session_id(0);
    let left: Vec<Body> = (0..10).map(|_| some_bytes(&mut dice, 20_000)).collect();
    append(&store, &parked, &left).await;
    let waiting = some_bytes(&mut dice, 5_000);
    store.enter(&parked, message("waits", Arc::clone(&waiting))).await.unwrap();
    store.enter(&parked, message("covered", body("done"))).await.unwrap();
    let mut answering = events_from(record(&store, &parked).await.head.next(), &[]);
    answering.answered = vec![InSeq::new(2)];
    store.append(&parked, answering).await.unwrap();
    let head = record(&store, &parked).await.head;
    let state = some_bytes(&mut dice, 7_000);
    let covering = with_state(events_from(head.next(), &[]), Arc::clone(&state), InSeq::ZERO);
    store.append(&parked, covering).await.unwrap();

    let bytes = some_bytes(&mut dice, 64 * 1024);
    let mut largest = 0;
    for _ in 0..100 {
        for busy in 1..4 {
            churn(&store, &session_id(busy), &bytes, 2).await;
        }
        let allowed = 2 * live_bytes(&store, 4).await + 64 * MIB;
        let taken = file_bytes(directory.path());
        assert!(taken <= allowed, "{} MiB of {} MiB", taken / MIB, allowed / MIB);
        largest = largest.max(taken);
    }
    println!("300 MiB written, {} MiB on disk at most", largest / MIB);

    let check = async |store: &EmbeddedStore| {
        let events = read_all(store, &parked).await;
        assert_eq!(events.into_iter().map(|event| event.body).collect::<Vec<_>>(), left);
        let entries = store.entries(&parked, InSeq::ZERO, 9).await.unwrap();
        assert_eq!(entries.iter().map(|entry| &entry.body).collect::<Vec<_>>(), [&waiting]);
        assert_eq!(store.snapshot(&parked).await.unwrap().unwrap().body, state);
        let again = store.enter(&parked, message("covered", body("done"))).await.unwrap();
        assert!(again.duplicate);
    };
    check(&store).await;
    drop(store);
    let store = open_with(directory.path(), bounds, 16 * MIB);
    check(&store).await;
}

/// Makes the pages of a database that is closed larger.
fn make_pages_larger(database: &Path) {
    let db = rusqlite::Connection::open(database).unwrap();
    let to_rollback = "PRAGMA journal_mode = DELETE";
    let mode: String = db.query_row(to_rollback, [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    db.execute_batch("PRAGMA page_size = 16384; VACUUM;").unwrap();
    let bytes: u32 = db.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    assert_eq!(bytes, 16384);
}

#[tokio::test]
async fn a_database_with_larger_pages_opens_and_stays_within_the_same_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = LogBounds { events: 16, bytes: usize::MAX, ..LogBounds::default() };
    let store = open_with(directory.path(), bounds, 16 * MIB);
    let id = session_id(0);
    store.create(creation(0)).await.unwrap();
    append(&store, &id, &[body("before")]).await;
    store.close().await.unwrap();
    drop(store);
    make_pages_larger(&directory.path().join("rejoin.db"));

    let store = open_with(directory.path(), bounds, 16 * MIB);
    assert_eq!(read_all(&store, &id).await[0].body, body("before"));
    let bytes = some_bytes(&mut Dice(4), 64 * 1024);
    for _ in 0..100 {
        churn(&store, &id, &bytes, 2).await;
        let allowed = 2 * live_bytes(&store, 1).await + 64 * MIB;
        let taken = file_bytes(directory.path());
        assert!(taken <= allowed, "{} MiB of {} MiB", taken / MIB, allowed / MIB);
    }
}

/// A store with 150 MiB of events in forty sessions.
async fn full_store(directory: &Path) -> EmbeddedStore {
    let store = open_with(directory, LogBounds::default(), 16 * MIB);
    let bytes = some_bytes(&mut Dice(2), 256 * 1024);
    for number in 0..40 {
        store.create(creation(number)).await.unwrap();
        append(&store, &session_id(number), &vec![Arc::clone(&bytes); 15]).await;
    }
    let full = file_bytes(directory);
    assert!(full > 150 * MIB, "{} MiB", full / MIB);
    store
}

/// It tidies up by itself, in portions.
async fn files_shrink(directory: &Path) {
    for _ in 0..200 {
        if file_bytes(directory) <= 64 * MIB {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} MiB are left", file_bytes(directory) / MIB);
}

fn counted(store: &EmbeddedStore, what: impl Fn(&Measurements) -> &AtomicU64) -> u64 {
    what(store.measurements().unwrap()).load(Ordering::Relaxed)
}

async fn ack_all(store: &EmbeddedStore, number: u64) {
    let Record { generation, head: seq, .. } = record(store, &session_id(number)).await;
    store.ack(&session_id(number), Ack { generation, seq }).await.unwrap();
}

#[tokio::test]
async fn the_files_shrink_when_acked_events_of_quiet_sessions_have_outlived_their_retention() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = full_store(directory.path()).await;
    for number in 0..39 {
        ack_all(&store, number).await;
    }
    store.close().await.unwrap();
    drop(store);
    store = open_whole(directory.path()); // as it is found then
    let next = store.settle(at(1_000) + HOUR / 2).await.unwrap().unwrap();
    assert!(next > at(1_000) + HOUR / 2);
    assert_eq!(live_bytes(&store, 40).await, 150 * MIB, "it is not time yet");
    store.settle(at(1_000) + HOUR).await.unwrap();
    assert_eq!(live_bytes(&store, 39).await, 0);
    let unacked = record(&store, &session_id(39)).await;
    assert_eq!((unacked.held(), unacked.held_bytes as u64), (15, 15 * MIB / 4));
    assert_eq!(counted(&store, |m| &m.buffered_bytes), 15 * MIB / 4);
    assert_eq!(counted(&store, |m| &m.overflowed_events), 0);
    files_shrink(directory.path()).await;
}

#[tokio::test]
async fn all_sessions_together_keep_to_their_bound_and_what_is_needed_least_goes_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.max_buffered_bytes = 4 * MIB;
    let (store, _) = EmbeddedStore::open(options).unwrap();
    let bytes = some_bytes(&mut Dice(4), 64 * 1024);
    for number in 0..4 {
        store.create(creation(number)).await.unwrap();
        append(&store, &session_id(number), &vec![Arc::clone(&bytes); 15]).await;
    }
    ack_all(&store, 2).await;
    store.enter(&session_id(3), message("it is the last", body("of these"))).await.unwrap();
    store.attach(&session_id(0), attachment()).await.unwrap();
    assert_eq!(counted(&store, |m| &m.shed_events), 0);
    let held = async |number| record(&store, &session_id(number)).await.held();

    append(&store, &session_id(3), &vec![Arc::clone(&bytes); 8]).await;
    assert_eq!((held(0).await, held(1).await, held(3).await), (15, 15, 23));
    assert!(held(2).await < 15, "what was acked goes first");
    assert_eq!(counted(&store, |m| &m.overflowed_events), 0);

    for _ in 0..40 {
        append(&store, &session_id(3), std::slice::from_ref(&bytes)).await;
        assert!(live_bytes(&store, 4).await <= 4 * MIB);
    }
    assert_eq!((held(0).await, held(1).await, held(2).await), (15, 0, 0), "then what is parked");
    assert!(counted(&store, |m| &m.overflowed_events) > 0);
    assert_eq!(counted(&store, |m| &m.buffered_bytes), live_bytes(&store, 4).await);
    let page = store.read(&session_id(1), Seq::ZERO, PageLimit::default()).await.unwrap().unwrap();
    assert!(page.events.is_empty() && page.record.oldest == page.record.head.next());
}

#[tokio::test]
async fn the_files_shrink_when_much_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = full_store(directory.path()).await;
    for number in 0..40 {
        let (ending, remember_for) = (Ending::Closed, HOUR);
        let end = End {
            ending,
            only_parked: None,
            only_by: None,
            only_due: false,
            remember_for,
            now: at(9),
        };
        store.end(&session_id(number), end).await.unwrap();
    }
    files_shrink(directory.path()).await;
}

#[tokio::test]
async fn what_has_left_memory_reads_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_with(directory.path(), LogBounds::default(), MIB);
    let mut dice = Dice(3);
    let mut expected = Vec::new();
    for number in 0..20 {
        let id = session_id(number);
        store.create(creation(number)).await.unwrap();
        let mut some_event = || {
            let length = dice.below(8_000) as usize;
            some_bytes(&mut dice, length)
        };
        let bodies: Vec<Body> = (0..50).map(|_| some_event()).collect();
        for some in bodies.chunks(7) {
            append(&store, &id, some).await;
        }
        expected.push(bodies);
    }
    let check = async |store: &EmbeddedStore| {
        for (number, expected) in expected.iter().enumerate() {
            let events = read_all(store, &session_id(number as u64)).await;
            assert!(events.iter().map(|event| &event.body).eq(expected));
        }
    };
    check(&store).await;
    store.close().await.unwrap();
    drop(store);
    check(&open_whole(directory.path())).await;
}
