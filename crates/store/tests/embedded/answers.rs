//! Whoever asks is answered, also where nobody asks after them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rejoin_core::Seq;
use rejoin_store::Store as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{body, creation, events_from, open_whole, record, session_id};

/// Enough for commits that wait for nobody, while others are applied.
const CALLERS: u64 = 600;

/// Callers that all stop at once: what was applied while the last large commit was under way is
/// waited for by those who asked, and nobody comes after them.
#[tokio::test]
async fn the_last_ones_to_ask_are_answered_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open_whole(directory.path()));
    for number in 0..CALLERS {
        store.create(creation(number)).await.unwrap();
    }
    for round in 0..25 {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            callers.spawn(async move {
                let id = session_id(number);
                let mut next: Seq = record(&*store, &id).await.head.next();
                while !stop.load(Ordering::Relaxed) {
                    let append = events_from(next, &[body("event")]);
                    next = store.append(&id, append).await.unwrap().head.next();
                }
            });
        }
        sleep(Duration::from_millis(20 + round)).await;
        stop.store(true, Ordering::Relaxed);
        let all = timeout(Duration::from_secs(30), callers.join_all());
        assert!(all.await.is_ok(), "in round {round} somebody was never answered");
    }
}
