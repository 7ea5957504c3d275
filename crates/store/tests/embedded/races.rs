//! Callers apply what they ask for by themselves, all at once and while commits are under way: what
//! they and readers may see of each other.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use rejoin_core::{InSeq, Seq};
use rejoin_store::embedded::EmbeddedStore;
use rejoin_store::{PageLimit, Store as _};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{
    append, body, creation, events_from, open_whole, options, record, session_id, with_state,
};

/// Long enough for anything that happens at all.
const A_WHILE: Duration = Duration::from_secs(60);

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn commits(store: &EmbeddedStore) -> u64 {
    store.measurements().unwrap().commit_seconds.cumulated().1
}

/// Others that append without end, so that commits are always under way.
fn others(store: &Arc<EmbeddedStore>, stop: &Arc<AtomicBool>, from: u64) -> JoinSet<()> {
    let mut others = JoinSet::new();
    for number in from..from + 20 {
        let (store, stop) = (Arc::clone(store), Arc::clone(stop));
        others.spawn(async move {
            store.create(creation(number)).await.unwrap();
            while !stop.load(Ordering::Relaxed) {
                append(&*store, &session_id(number), &[body("other")]).await;
            }
        });
    }
    others
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_is_seen_no_sooner_than_its_commit_has_returned_and_no_later_than_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.bounds.events = 4; // so that every append takes an older event away
    let store = EmbeddedStore::open(options).unwrap().0;
    let id = session_id(1);
    store.create(creation(1)).await.unwrap();
    let mut before = 0;
    for seq in 1..400 {
        let (head, count) = (Seq::new(seq), commits(&store));
        let mut appending = pin!(store.append(&id, events_from(head, &[body("event")])));
        let done = poll_once(appending.as_mut()).await;
        let page = store.read(&id, Seq::ZERO, PageLimit::default()).await.unwrap().unwrap();
        if done.is_none() && commits(&store) == count {
            before += 1;
            assert_eq!(page.record.head, head.previous());
            assert!(page.events.iter().all(|event| event.seq < head), "{seq} is not durable yet");
            assert!(page.events.iter().map(|event| event.seq).is_sorted());
        }
        if done.is_none() {
            appending.await.unwrap();
        }
        let page = store.read(&id, Seq::ZERO, PageLimit::default()).await.unwrap().unwrap();
        assert_eq!(page.events.last().unwrap().seq, head);
        assert_eq!(page.events.len() as u64, seq.min(4));
        assert_eq!(page.record.oldest, page.events[0].seq);
    }
    assert!(before > 0, "it was never looked before a commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_that_one_caller_makes_at_once_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open_whole(directory.path()));
    let stop = Arc::new(AtomicBool::new(false));
    let others = others(&store, &stop, 100);
    let id = session_id(1);
    store.create(creation(1)).await.unwrap();
    let mut next = Seq::new(1);
    for _ in 0..100 {
        let mut all = Vec::new();
        for number in 0..8 {
            let plain = events_from(next, &[body("event")]);
            let with = |plain| with_state(plain, body("state"), InSeq::ZERO);
            let wanted = if number % 3 == 1 { with(plain) } else { plain };
            let mut appending = Box::pin(store.append(&id, wanted));
            match poll_once(appending.as_mut()).await {
                Some(done) => assert_eq!(done.unwrap().head, next),
                None => all.push((next, appending)),
            }
            next = next.next();
        }
        for (seq, appending) in all {
            assert_eq!(appending.await.unwrap().head, seq);
        }
        assert_eq!(record(&*store, &id).await.head.next(), next);
    }
    stop.store(true, Ordering::Relaxed);
    others.join_all().await;
}

/// The first of those that wait for a commit wakes the others. One that has its answer and does not
/// come for it must not keep them waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_caller_that_does_not_come_for_its_answer_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open_whole(directory.path()));
    for number in 0..12 {
        store.create(creation(number)).await.unwrap();
    }
    for round in 1..50 {
        let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let idle = tokio::spawn({
            let (store, asked, go_on) = (store.clone(), asked.clone(), go_on.clone());
            async move {
                let id = session_id(0);
                let appending = store.append(&id, events_from(Seq::new(round), &[body("idle")]));
                let mut appending = pin!(appending);
                let done = poll_once(appending.as_mut()).await;
                asked.notify_one();
                go_on.notified().await;
                match done {
                    Some(done) => done,
                    None => appending.await,
                }
            }
        });
        let mut busy = JoinSet::new();
        for number in 1..12 {
            let store = Arc::clone(&store);
            busy.spawn(async move { append(&*store, &session_id(number), &[body("busy")]).await });
        }
        asked.notified().await;
        assert!(timeout(A_WHILE, busy.join_all()).await.is_ok(), "in round {round}");
        go_on.notify_one();
        assert_eq!(idle.await.unwrap().unwrap().head, Seq::new(round));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_wait_when_the_store_is_closed_are_told_and_what_was_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open_whole(directory.path()));
    let mut callers = JoinSet::new();
    for number in 0..40 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let mut head = Seq::ZERO;
            if store.create(creation(number)).await.is_err() {
                return None;
            }
            let id = session_id(number);
            while let Ok(done) = store.append(&id, events_from(head.next(), &[body("it")])).await {
                head = done.head;
            }
            Some((id, head))
        });
    }
    while commits(&store) < 100 {
        tokio::task::yield_now().await;
    }
    store.close().await.unwrap();
    let heads = timeout(A_WHILE, callers.join_all()).await.expect("all are told");
    drop(store);
    let store = open_whole(directory.path());
    for (id, head) in heads.into_iter().flatten() {
        assert!(record(&store, &id).await.head >= head);
    }
}
