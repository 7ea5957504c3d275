//! What one principal can make a store hold is bounded, in both stores alike; what gives way does so in the
//! order that decision 0012 names, and nothing that was closed can be gone on from because of it.

use std::sync::Arc;

use rejoin_core::limits::{ENDED_SESSIONS, FORGOTTEN_SEALS, LogBounds};
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{
    AppendRefused, Create, End, EnterRefused, NewSnapshot, Origin, OverBound, Restore,
    RestoreRefused, Takeover,
};
use rejoin_core::{Epoch, InSeq, Principal, Seq, SessionId, Timestamp};
use rejoin_store::embedded::EmbeddedStore;
use rejoin_store::{Body, CreateRefused, Failure, MemoryStore, Store};
use tempfile::TempDir;

use crate::support::{
    HOUR, append, at, body, creation, events_from, message, options, record, session_id, with_state,
};

/// What all may hold in these tests, and one principal.
const ALL: u64 = 4 << 20;
const OF_ONE: u64 = 1 << 20;

fn embedded(directory: &TempDir) -> EmbeddedStore {
    let mut options = options(directory.path());
    (options.max_buffered_bytes, options.max_bytes_per_principal) = (ALL, OF_ONE);
    EmbeddedStore::open(options).unwrap().0
}

fn memory() -> MemoryStore {
    MemoryStore::new(LogBounds::default(), 100)
        .max_buffered_bytes(ALL)
        .max_bytes_per_principal(OF_ONE)
}

/// Both stores, each with a home that lasts as long as the test.
fn both() -> Vec<(Arc<dyn Store>, Option<TempDir>)> {
    let directory = tempfile::tempdir().unwrap();
    let store = embedded(&directory);
    vec![(Arc::new(memory()), None), (Arc::new(store), Some(directory))]
}

fn of(principal: &str, number: u64) -> Create {
    let mut create = creation(number);
    create.about.principal = Principal::new(principal);
    create
}

fn held(store: &dyn Store, principal: &str) -> u64 {
    store.held_by(&Principal::new(principal)).unwrap().total()
}

fn closing(now: Timestamp) -> End {
    End {
        ending: Ending::Closed,
        only_parked: None,
        only_by: None,
        only_due: false,
        remember_for: 24 * HOUR,
        now,
    }
}

fn restoring(principal: &str, from: SessionId, taken_at: Timestamp, number: u64) -> Restore<Body> {
    Restore {
        from,
        origin: Origin::Unsaid,
        create: of(principal, number),
        epoch: Epoch::from_text("first"),
        seq: Seq::ZERO,
        in_seq: InSeq::ZERO,
        taken_at,
        state: NewSnapshot { size: 2, body: body("{}") },
        last_seq: None,
        takeover: Takeover::Replace,
        remember_for: HOUR,
        only_at: None,
        attempt: None,
        now: at(100_000),
    }
}

#[tokio::test]
async fn a_principal_at_its_bound_is_refused_and_another_is_not() {
    for (store, _home) in both() {
        let mut large = of("ann", 1);
        large.about.client = "x".repeat(16 * 1024).into();
        let mut made = 0;
        let refused = loop {
            let mut create = large.clone();
            create.about.id = session_id(made);
            match store.create(create).await {
                Ok(_) => made += 1,
                Err(refused) => break refused,
            }
            assert!(made < 1_000);
        };
        let over = CreateRefused::OverBound(OverBound::Principal);
        assert_eq!(refused, Failure::Refused(over));
        let entered = store.enter(&session_id(0), message("m", body("x".repeat(18_000)))).await;
        assert_eq!(entered, Err(Failure::Refused(EnterRefused::OverBound(OverBound::Principal))));
        assert!(held(&*store, "ann") <= OF_ONE);

        store.create(of("bob", 5_000)).await.unwrap();
        let bobs = session_id(5_000);
        store.enter(&bobs, message("m", body("for the agent"))).await.unwrap();
        append(&*store, &bobs, &[body("event")]).await;

        store.end(&session_id(0), closing(at(9))).await.unwrap();
        let mut again = large.clone();
        again.about.id = session_id(9_000);
        store.create(again).await.expect("what had ended has made room");
        assert!(store.session(&session_id(0)).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn messages_that_wait_are_within_the_bound_and_a_resent_one_is_known_although_it_is_reached()
{
    for (store, _home) in both() {
        for number in 0..20 {
            store.create(of("ann", number)).await.unwrap();
        }
        let text = body("x".repeat(30_000));
        let mut refused = 0;
        for number in 0..100_u64 {
            let entered = store
                .enter(&session_id(number % 20), message(&format!("m{number}"), text.clone()))
                .await;
            match entered {
                Ok(_) => {}
                Err(Failure::Refused(EnterRefused::OverBound(OverBound::Principal))) => {
                    refused += 1
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!((50..95).contains(&refused), "{refused}");
        assert!(held(&*store, "ann") <= OF_ONE);
        let again = store.enter(&session_id(0), message("m0", text.clone())).await.unwrap();
        assert!(again.duplicate);
    }
}

#[tokio::test]
async fn events_of_a_principal_give_way_to_its_newer_ones_and_to_nobody_elses() {
    for (store, _home) in both() {
        for (principal, number) in [("ann", 0), ("ann", 1), ("bob", 2)] {
            store.create(of(principal, number)).await.unwrap();
        }
        let event = body("x".repeat(10_000));
        let some = vec![Arc::clone(&event); 20];
        append(&*store, &session_id(2), &some).await;
        for _ in 0..20 {
            append(&*store, &session_id(0), &some).await;
            append(&*store, &session_id(1), &some).await;
            assert!(held(&*store, "ann") <= OF_ONE + 20 * 10_100, "{}", held(&*store, "ann"));
        }
        assert_eq!(record(&*store, &session_id(2)).await.held(), 20, "bob's are all there");
        let (one, other) =
            (record(&*store, &session_id(0)).await, record(&*store, &session_id(1)).await);
        assert!(one.held() + other.held() > 0, "no more goes than must");
        assert!(one.oldest.max(other.oldest) > Seq::new(1));
    }
}

#[tokio::test]
async fn a_state_beyond_the_bound_is_refused_and_events_are_taken_all_the_same() {
    for (store, _home) in both() {
        let state = body("x".repeat(200_000));
        let mut refused = 0;
        for number in 0..8 {
            store.create(of("ann", number)).await.unwrap();
            let speaks = with_state(events_from(Seq::new(1), &[]), state.clone(), InSeq::ZERO);
            match store.append(&session_id(number), speaks).await {
                Ok(_) => {}
                Err(Failure::Refused(AppendRefused::OverBound(OverBound::Principal))) => {
                    refused += 1
                }
                Err(other) => panic!("{other:?}"),
            }
            append(&*store, &session_id(number), &[body("event")]).await;
        }
        assert!((4..=5).contains(&refused), "{refused}");
        assert!(held(&*store, "ann") <= OF_ONE);
    }
}

async fn create_and_close(store: &dyn Store, principal: &str, number: u64) -> Record {
    let made = store.create(of(principal, number)).await.unwrap();
    store.end(made.id(), closing(at(1_000 * (number + 1)))).await.unwrap();
    made
}

#[tokio::test]
async fn who_makes_and_ends_sessions_for_ever_is_never_refused_and_never_holds_more() {
    let home = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(memory()), Box::new(embedded(&home))];
    for store in &stores {
        for number in 0..2_000 {
            create_and_close(&**store, "ann", number).await;
        }
        assert!(held(&**store, "ann") <= OF_ONE);
        assert!(store.session(&session_id(1_999)).await.unwrap().is_some());
        assert!(store.session(&session_id(0)).await.unwrap().is_none(), "the oldest is forgotten");
        let old = restoring("ann", session_id(0), at(500), 3_000);
        let refused = store.restore(old).await.unwrap_err();
        assert_eq!(refused, Failure::Refused(RestoreRefused::Superseded), "closed is closed");
        store.restore(restoring("bob", session_id(7_000), at(500), 3_001)).await.unwrap();
        store.restore(restoring("ann", session_id(7_001), at(90_000_000), 3_002)).await.unwrap();
    }
    drop(stores);
    let again = embedded(&home);
    let old = restoring("ann", session_id(1), at(500), 3_003);
    let refused = again.restore(old).await.unwrap_err();
    assert_eq!(refused, Failure::Refused(RestoreRefused::Superseded), "also after a restart");
}

#[tokio::test]
async fn closed_stays_closed_though_the_database_is_damaged_and_salvaged() {
    let home = tempfile::tempdir().unwrap();
    let store = embedded(&home);
    for number in 0..2_000 {
        create_and_close(&store, "ann", number).await;
    }
    drop(store);
    let db = rusqlite::Connection::open(home.path().join("rejoin.db")).unwrap();
    let damaged = "UPDATE sessions SET record = x'00' WHERE key = (SELECT max(key) FROM sessions)";
    assert_eq!(db.execute(damaged, []).unwrap(), 1);
    drop(db);
    let mut options = options(home.path());
    (options.max_buffered_bytes, options.max_bytes_per_principal) = (ALL, OF_ONE);
    options.accept_data_loss = true;
    let (store, report) = EmbeddedStore::open(options).unwrap();
    assert!(report.kept.is_some(), "{report:?}");
    let refused = store.restore(restoring("ann", session_id(0), at(500), 3_000)).await;
    assert_eq!(refused.unwrap_err(), Failure::Refused(RestoreRefused::Superseded));
}

/// The notes of more principals than are told apart become one for all others, in the file as well.
#[tokio::test]
async fn notes_of_which_seals_are_refused_are_bounded_and_refuse_what_they_did() {
    let home = tempfile::tempdir().unwrap();
    drop(embedded(&home));
    let db = rusqlite::Connection::open(home.path().join("rejoin.db")).unwrap();
    db.execute_batch("BEGIN").unwrap();
    for number in 0..FORGOTTEN_SEALS as u64 + 5 {
        let note = (format!("forgotten seals of p{number}"), (1_000 + number).to_be_bytes());
        db.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", note).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    let notes = || -> i64 {
        let count = "SELECT count(*) FROM meta WHERE name LIKE 'forgotten seals%'";
        db.query_row(count, [], |row| row.get(0)).unwrap()
    };
    for round in 0..2 {
        let store = embedded(&home);
        assert_eq!(
            notes(),
            FORGOTTEN_SEALS as i64 + 1,
            "those of principals, and one for all others"
        );
        let number = 10 * round;
        let restore = async |principal: &str, taken_at: u64, number: u64| {
            let from = session_id(50_000 + number);
            store.restore(restoring(principal, from, at(taken_at), 60_000 + number)).await.is_ok()
        };
        assert!(!restore("p2", 1_002, number).await, "folded, and refused as before");
        assert!(!restore("p9", 1_009, number + 1).await, "of its own");
        assert!(restore("p9", 1_010, number + 2).await);
        assert!(restore("new", 1_005, number + 3).await, "younger than all that was folded");
    }
}

#[tokio::test]
async fn only_so_many_ended_sessions_of_a_principal_are_remembered() {
    let store = MemoryStore::default();
    let more = 50;
    for number in 0..ENDED_SESSIONS as u64 + more {
        create_and_close(&store, "ann", number).await;
    }
    for (number, known) in [(0, false), (more - 2, false), (more, true)] {
        let session = store.session(&session_id(number)).await.unwrap();
        assert_eq!(session.is_some(), known, "{number}");
    }
}

#[tokio::test]
async fn when_the_server_is_full_a_small_principal_gets_the_place_of_others_ended_sessions() {
    for (store, _home) in both() {
        for (index, principal) in ["a", "b", "c", "d", "e", "f", "g"].iter().enumerate() {
            for number in 0..500 {
                let number = index as u64 * 1_000 + number;
                create_and_close(&*store, principal, number).await;
            }
        }
        store.create(of("new", 900_000)).await.unwrap();
    }
}
