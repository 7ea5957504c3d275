//! Many at once: changes to one session are in one order, and readers see only what has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use rejoin_core::state::{Append, AppendRefused, LeaseHeld};
use rejoin_core::{Seq, SessionId, Term};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};

use super::World;
use super::world::{event, session_id, state};
use crate::{Body, CreateRefused, Failure, PageLimit};

/// A client that has seen an event which is never acknowledged would, after a crash, take the next
/// one with its seq for a repetition and drop it.
pub async fn readers_see_no_holes_and_only_what_is_acknowledged(world: World) {
    const EVENTS: u64 = 20;
    let world = Arc::new(world);
    let all_written = Arc::new(AtomicBool::new(false));
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..64 {
        let id = world.session().await;
        writers.spawn(write_all(Arc::clone(&world), id.clone(), EVENTS));
        readers.spawn(read_all(Arc::clone(&world), id, EVENTS, Arc::clone(&all_written)));
    }
    let acknowledged: BTreeMap<_, _> = writers.join_all().await.into_iter().collect();
    all_written.store(true, Ordering::Release);
    for (id, seen) in readers.join_all().await {
        for (seq, body) in seen {
            assert_eq!(acknowledged[&id].get(&seq), Some(&body), "event {seq} of {id}");
        }
    }
}

/// Appends one event after the other; what was acknowledged.
async fn write_all(
    world: Arc<World>,
    id: SessionId,
    events: u64,
) -> (SessionId, BTreeMap<Seq, Body>) {
    let mut acknowledged = BTreeMap::new();
    let append = world.appending(&id).await;
    for seq in (1..=events).map(Seq::new) {
        let event = event(format!("{id} {seq}"));
        let body = Arc::clone(&event.body);
        let append = Append { first: seq, events: vec![event], ..append.clone() };
        let appended = world.store.append(&id, append).await.unwrap();
        assert_eq!(appended.head, seq);
        acknowledged.insert(seq, body);
        yield_now().await;
    }
    (id, acknowledged)
}

/// Reads until the last event is there; what was seen.
async fn read_all(
    world: Arc<World>,
    id: SessionId,
    events: u64,
    all_written: Arc<AtomicBool>,
) -> (SessionId, Vec<(Seq, Body)>) {
    let mut seen = Vec::new();
    let mut at = Seq::ZERO;
    while at < Seq::new(events) {
        let is_last_chance = all_written.load(Ordering::Acquire);
        let page = world.store.read(&id, at, PageLimit::default()).await.unwrap().unwrap();
        assert!(page.record.head >= at, "the head never goes back");
        let mut next = at.next().max(page.record.oldest);
        for event in page.events {
            assert_eq!(event.seq, next, "no hole but the one that the record shows");
            next = next.next();
            at = event.seq;
            seen.push((event.seq, event.body));
        }
        assert_eq!(page.record.head.next(), next, "a page that is not full ends at the head");
        assert!(!is_last_chance || at == Seq::new(events), "what is acknowledged can be read");
        yield_now().await;
    }
    (id, seen)
}

pub async fn of_two_appends_at_the_same_seq_one_wins(world: World) {
    let id = world.session().await;
    let append = world.appending(&id).await;
    let world = Arc::new(world);
    for seq in (1..=20).map(Seq::new) {
        let mut writers = JoinSet::new();
        for name in ["a", "b"] {
            let (world, id) = (Arc::clone(&world), id.clone());
            let append = Append { first: seq, events: vec![event(name)], ..append.clone() };
            writers.spawn(async move { (name, world.store.append(&id, append).await) });
        }
        let results = writers.join_all().await;
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(|(_, r)| r.is_ok());
        let expected = seq.next();
        let not_at_head = AppendRefused::NotAtHead { named: seq, expected };
        assert_eq!(lost[0].1, Err(Failure::Refused(not_at_head)));
        let page = world.store.read(&id, seq.previous(), PageLimit::default()).await.unwrap();
        let events = page.unwrap().events;
        assert_eq!((events.len(), &*events[0].body), (1, won[0].0.as_bytes()));
    }
}

/// An event and the state that goes with it become visible in one step.
pub async fn readers_never_see_an_event_without_its_state(world: World) {
    let id = world.session().await;
    let world = Arc::new(world);
    let writer = tokio::spawn({
        let (world, id) = (Arc::clone(&world), id.clone());
        async move {
            let append = world.appending(&id).await;
            for first in (1..=50).map(Seq::new) {
                let (events, snapshot) = (vec![event("x")], Some(state("y")));
                let append = Append { first, events, snapshot, ..append.clone() };
                world.store.append(&id, append).await.unwrap();
                yield_now().await;
            }
        }
    });
    while !writer.is_finished() {
        let record = world.record(&id).await;
        let state_at = record.snapshot.map_or(Seq::ZERO, |mark| mark.seq);
        assert_eq!(record.head, state_at);
        yield_now().await;
    }
    writer.await.unwrap();
}

pub async fn clients_that_attach_at_once_get_different_generations(world: World) {
    let id = world.session().await;
    let world = Arc::new(world);
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let (world, id) = (Arc::clone(&world), id.clone());
        clients.spawn(async move { world.attach(&id).await.get() });
    }
    let generations: BTreeSet<u64> = clients.join_all().await.into_iter().collect();
    assert_eq!(generations, (1..=20).collect());
}

pub async fn of_many_that_make_one_session_one_does(world: World) {
    let create = world.creating();
    let world = Arc::new(world);
    let mut makers = JoinSet::new();
    for _ in 0..20 {
        let (world, create) = (Arc::clone(&world), create.clone());
        makers.spawn(async move { world.store.create(create).await });
    }
    let results = makers.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let exists = Err(Failure::Refused(CreateRefused::Exists));
    assert_eq!(results.iter().filter(|result| **result == exists).count(), 19);
}

pub async fn of_many_that_send_one_message_one_enters_it(world: World) {
    let id = world.session().await;
    let world = Arc::new(world);
    let mut senders = JoinSet::new();
    for _ in 0..20 {
        let (world, id) = (Arc::clone(&world), id.clone());
        senders.spawn(async move {
            let message = world.entering(Some("m1"), "hello");
            world.store.enter(&id, message).await.unwrap().duplicate
        });
    }
    let duplicates = senders.join_all().await;
    assert_eq!(duplicates.iter().filter(|duplicate| !**duplicate).count(), 1);
    assert_eq!(world.waiting(&id).await, [1]);
}

/// A caller need not wait for each of its messages: they keep the order in which it began with them.
pub async fn messages_that_one_caller_sends_at_once_keep_their_order(world: World) {
    let id = world.session().await;
    let mut sent = Vec::new();
    for number in 0..100 {
        let message = world.entering(None, &number.to_string());
        let mut sending = Box::pin(world.store.enter(&id, message));
        match poll_once(&mut sending).await {
            Some(entered) => sent.push(Err(entered)),
            None => sent.push(Ok(sending)),
        }
    }
    for (number, sending) in sent.into_iter().enumerate() {
        let entered = match sending {
            Ok(sending) => sending.await,
            Err(entered) => entered,
        };
        assert_eq!(entered.unwrap().in_seq.get(), number as u64 + 1);
    }
}

/// Whoever is told a message's number early can rely on it.
pub async fn a_number_that_is_told_early_is_the_one_that_is_answered(world: World) {
    let id = world.session().await;
    for (message_id, is_new) in [("m1", true), ("m2", true), ("m1", false)] {
        let (early, told) = oneshot::channel();
        let message = world.entering(Some(message_id), "hello");
        let entered = world.store.enter_early(&id, message, early).await.unwrap();
        assert_eq!(entered.duplicate, !is_new);
        if let Ok(in_seq) = told.await {
            assert_eq!((in_seq, is_new), (entered.in_seq, true));
        }
    }
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub async fn of_many_processes_one_gets_the_lease(world: World) {
    let id = world.session().await;
    let world = Arc::new(world);
    let mut processes = JoinSet::new();
    for number in 1..=20 {
        let (world, id) = (Arc::clone(&world), id.clone());
        processes.spawn(async move { world.store.take_lease(&id, world.taking(number)).await });
    }
    let results = processes.join_all().await;
    let lease = world.record(&id).await.lease.unwrap();
    let held = Err(Failure::Refused(LeaseHeld::ByOther(lease)));
    assert_eq!(results.iter().filter(|result| **result == Ok(Term::new(1))).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == held).count(), 19);
}

pub async fn snapshots_restored_at_once_meet_in_one_session(world: World) {
    let living = world.session().await;
    world.publish(&living, 2).await;
    let world = Arc::new(world);
    for from in [living, session_id("sess_forgotten")] {
        let mut devices = JoinSet::new();
        for _ in 0..20 {
            let (world, from) = (Arc::clone(&world), from.clone());
            devices.spawn(async move {
                let restoring = world.restoring(&from, 2, 0);
                world.store.restore(restoring).await.unwrap().into_record().id().clone()
            });
        }
        let met: BTreeSet<SessionId> = devices.join_all().await.into_iter().collect();
        assert_eq!(met.len(), 1, "restoring {from}");
    }
}
