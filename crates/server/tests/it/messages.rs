//! What clients send reaches the agent once and in order, also while nobody is there and across the
//! agent's deaths.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use rejoin::core::state::{EnterRefused, TakeLease};
use rejoin::core::worker::{Publication, PublishRefused};
use rejoin::core::{InSeq, ProcessId};
use rejoin::store::Failure;
use tokio::sync::mpsc;

#[tokio::test(start_paused = true)]
async fn the_agent_goes_on_working_while_the_client_is_away() {
    let world = world_with(settings(), |b| b.agent(agents::Echo)).await;
    let reader = world.attach().await;
    reader.send("m1", "hello").await.unwrap();
    drop(reader);
    world.quiet().await;
    assert!(!world.record().await.has_work());
    let mut reader = world.attach_after(0).await;
    assert_eq!(reader.until("complete").await[1..], ["replayed 1=echo hello", "complete 1-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_sent_again_is_entered_once() {
    let world = world_with(settings(), |b| b.agent(agents::Echo)).await;
    let mut reader = world.attach().await;
    let first = reader.send("m1", "hello").await.unwrap();
    let again = reader.send("m1", "hello").await.unwrap();
    assert_eq!((first.in_seq, first.duplicate), (again.in_seq, false));
    assert!(again.duplicate);
    let other = reader.send("m1", "something else").await.unwrap_err();
    assert!(matches!(other, Failure::Refused(EnterRefused::OtherContent { .. })), "{other}");
    reader.send("m2", "bye").await.unwrap();
    until(async || world.record().await.head.get() == 2).await;
    let mut told = String::new();
    while !told.contains("2=echo bye") {
        told += &reader.until("live").await.join(" ");
    }
    assert_eq!(told.matches('=').count(), 2, "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sent_before_it_went_is_entered() {
    let store = failing::FailingStore::new();
    let world = world_on(store.clone(), settings(), |builder| builder).await;
    let reader = world.attach().await;
    store.hold_writes();
    let (one, two) = (reader.send("m1", "one"), reader.send("m2", "two"));
    tokio::select! {
        biased;
        _ = one => unreachable!("the store had no turn"),
        _ = two => unreachable!("the store had no turn"),
        () = std::future::ready(()) => {}
    }
    drop(reader);
    store.go_on();
    world.parked().await;
    world.quiet().await;
    assert_eq!(world.record().await.in_head, InSeq::new(2));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_is_started_from_its_state_with_what_that_does_not_cover() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let agent = agents::PanicsOnce { tell, poison: "two", panicked: AtomicUsize::new(0) };
    let world = world_with(settings(), |b| b.agent(agent)).await;
    let reader = world.attach().await; // who keeps the agent in its seat between the messages
    for message in ["one", "two", "three"] {
        world.send(message).await;
    }
    let expected = [
        "from nothing",
        "given one",
        "given two", // and panics
        "from one",
        "given two",
        "given three",
    ];
    for expected in expected {
        assert_eq!(soon(told.recv()).await.unwrap(), expected);
    }
    drop(reader);
    world.quiet().await;
    let mut reader = world.attach_after(0).await;
    let events = "replayed 1=echo one 2=echo two 3=echo three";
    assert_eq!(reader.until("complete").await[1], events);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_returns_without_doing_its_work_five_times_is_given_up_until_somebody_comes()
{
    let agent = agents::Returns::default();
    let starts = Arc::clone(&agent.0);
    let starts = || starts.load(Ordering::SeqCst);
    let world = world_with(settings(), |b| b.agent(agent)).await;
    world.send("work").await;
    pass(MINUTE).await;
    assert_eq!((starts(), world.record().await.head.get()), (5, 1));
    world.say(&["a backend is nobody new"]).await;
    pass(MINUTE).await;
    assert_eq!((starts(), world.record().await.head.get()), (5, 2));
    world.send("more").await;
    pass(MINUTE).await;
    assert_eq!((starts(), world.record().await.head.get()), (10, 3));
    let mut reader = world.attach_after(2).await;
    let failed = reader.until("replayed").await.pop().unwrap();
    assert!(failed.contains("agent.failed") && failed.contains("AGENT_FAILED"), "{failed}");
    pass(MINUTE).await;
    assert_eq!((starts(), world.record().await.head.get()), (15, 4), "a client attached");
    let counts = world.sessions.agent_counts();
    assert_eq!(counts.given_up.load(Ordering::Relaxed), 3);
    assert_eq!(counts.restarts.load(Ordering::Relaxed), 4 * 3 + 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_returns_with_nothing_to_do_is_left_alone() {
    let agent = agents::Returns::default();
    let starts = Arc::clone(&agent.0);
    let world = world_with(settings(), |b| b.agent(agent)).await;
    let _reader = world.attach().await;
    pass(20 * SECOND).await;
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stop_when_it_is_needed_no_more_is_stopped() {
    let world = world_with(settings(), |b| b.agent(agents::NeverStops)).await;
    world.send("work").await;
    until(async || !world.record().await.has_work()).await;
    assert_eq!(world.sessions.live(), 1);
    pass(11 * SECOND).await;
    assert_eq!(world.sessions.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_reads_its_queue_holds_nobody_up() {
    let (agent, mut seats) = agents::GiveSeats::panicking_once();
    let world = world_with(settings(), |b| b.agent(agent)).await;
    let mut reader = world.attach().await;
    drop(soon(seats.recv()).await.unwrap()); // the next one gets all there is at once
    for number in 1..=1_000 {
        reader.send(&number.to_string(), &number.to_string()).await.unwrap();
    }
    let full = reader.send("more", "more").await.unwrap_err();
    assert!(matches!(full, Failure::Refused(EnterRefused::Full { waiting: 1_000 })), "{full}");
    let mut seat = soon(seats.recv()).await.unwrap();
    settle().await;
    world.say(&["still here"]).await;
    reader.until("live 1=still here").await;
    for number in 1..=1_000 {
        assert_eq!(soon(seat.next()).await.unwrap().in_seq, InSeq::new(number));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_says_after_its_death_is_not_published() {
    let (agent, mut seats) = agents::GiveSeats::panicking_once();
    let world = world_with(settings(), |b| b.agent(agent)).await;
    let reader = world.attach().await;
    reader.send("m1", "work").await.unwrap();
    let old = soon(seats.recv()).await.unwrap();
    let zombie =
        || Publication { events: vec![event("zombie")], in_seq: Some(InSeq::new(1)), ..said() };
    settle().await;
    assert!(old.publish(zombie()).await.is_err(), "nobody sits there");
    let mut new = soon(seats.recv()).await.unwrap();
    assert!(old.publish(zombie()).await.is_err(), "somebody else sits there");
    assert_eq!(soon(new.next()).await.unwrap().in_seq, InSeq::new(1));
    new.publish(Publication { events: vec![event("alive")], ..said() }).await.unwrap();
    assert_eq!(world.record().await.head.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_lease_was_taken_publishes_nothing_and_is_started_again_later() {
    let store = failing::FailingStore::new();
    let (agent, mut seats) = agents::GiveSeats::new();
    let world = world_on(store.clone(), settings(), |b| b.agent(agent)).await;
    let _reader = world.attach().await;
    let old = soon(seats.recv()).await.unwrap();
    let later = rejoin::Clock::start().now() + HOUR;
    let other = ProcessId::from_random([7; 9]);
    let take = TakeLease { holder: other, lasts: MINUTE, now: later };
    store_of(&world).take_lease(&world.id, take).await.unwrap();
    let asked = store.leases_asked.load(Ordering::SeqCst);
    let fenced = old.publish(Publication { events: vec![event("late")], ..said() }).await;
    assert!(matches!(fenced, Err(Failure::Refused(PublishRefused::Refused(_)))), "{fenced:?}");
    let again = old.publish(Publication { events: vec![event("late")], ..said() }).await;
    assert!(matches!(again, Err(Failure::Refused(PublishRefused::NoLease))), "{again:?}");
    pass(10 * SECOND).await;
    let asked = store.leases_asked.load(Ordering::SeqCst) - asked;
    assert!((5..=12).contains(&asked), "asked for the lease {asked} times in ten seconds");
    assert_eq!(world.record().await.head.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_takes_its_agent_and_what_was_on_its_way_with_it() {
    let store = failing::FailingStore::new();
    let (agent, mut seats) = agents::GiveSeats::new();
    let world = world_on(store.clone(), settings(), |b| b.agent(agent)).await;
    world.send("work").await;
    let seat = soon(seats.recv()).await.unwrap();
    store.hold_writes();
    let publishing = tokio::spawn(async move {
        let events = vec![event("late")];
        (seat.publish(Publication { events, ..said() }).await, seat)
    });
    until(async || store.waiting() == 1).await;
    let (sessions, id) = (world.sessions.clone(), world.id.clone());
    let ending = tokio::spawn(async move { sessions.end(&id).await });
    until(async || store.waiting() == 2).await;
    store.go_on();
    soon(ending).await.unwrap().unwrap();
    let (_either_way, mut seat) = soon(publishing).await.unwrap();
    world.quiet().await;
    while soon(seat.next()).await.is_some() {}
    assert!(seat.publish(said()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn work_is_taken_up_again_after_a_restart() {
    let world = world().await;
    world.send("before the restart").await;
    let again = rejoin::Sessions::builder(Arc::clone(&world.store)).agent(agents::Echo);
    let again = again.start().unwrap();
    assert_eq!(again.resume_work().await.unwrap(), 1);
    until(async || again.live() == 0).await;
    assert_eq!(world.record().await.head.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_gives_its_leases_back_so_that_the_next_need_not_wait() {
    let (agent, mut seats) = agents::GiveSeats::new();
    let clock = rejoin::Clock::start();
    let world = world_with(settings(), |b| b.agent(agent).clock(clock)).await;
    world.send("work").await;
    soon(seats.recv()).await.unwrap();
    let World { sessions, store, id } = world;
    drop(sessions);
    settle().await;
    let again = rejoin::Sessions::builder(Arc::clone(&store)).agent(agents::Echo).clock(clock);
    let again = again.start().unwrap();
    again.resume_work().await.unwrap();
    settle().await;
    assert_eq!(store.session(&id).await.unwrap().unwrap().head.get(), 1);
}

#[tokio::test]
async fn many_backends_that_publish_at_once_all_succeed() {
    let world = Arc::new(world().await);
    let publish = |n: usize| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.say(&[&n.to_string()]).await })
    };
    for round in 0..50 {
        let all: Vec<_> = (0..20).map(|n| publish(round * 20 + n)).collect();
        for one in all {
            one.await.unwrap();
        }
    }
    assert_eq!(world.record().await.head.get(), 1_000);
}

fn store_of(world: &World) -> &dyn rejoin::store::Store {
    &*world.store
}
