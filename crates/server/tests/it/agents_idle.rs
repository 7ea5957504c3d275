//! Agents that have nothing to do, in the time of the tests.

use crate::common::*;
use async_trait::async_trait;
use rejoin::core::worker::{Covering, Publication};
use rejoin::{Agent, Seat, ServerSettings};

/// Says something for each entry, and never which one it has dealt with.
struct NeverNames;

#[async_trait]
impl Agent for NeverNames {
    async fn run(&self, mut seat: Seat) {
        while let Some(entry) = seat.next().await {
            let events = vec![event(text(&entry.body))];
            if seat.publish(Publication { events, ..said() }).await.is_err() {
                return;
            }
        }
    }

    fn covering(&self) -> Covering {
        Covering::Unknown
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_took_that_names_nothing_is_dealt_with_when_it_has_been_silent_for_long() {
    let world = world_with(settings(), |b| b.agent(NeverNames)).await;
    world.send("one").await;
    world.send("two").await;
    pass(30 * SECOND).await;
    assert_eq!(world.record().await.covered.get(), 1, "it may be at work on the second");
    assert_eq!(world.sessions.live(), 1);
    pass(31 * SECOND).await;
    assert_eq!(world.record().await.covered.get(), 2);
    assert_eq!((world.sessions.live(), world.record().await.head.get()), (0, 2));
    world.send("three").await;
    world.send("four").await;
    settle().await;
    assert_eq!(world.record().await.covered.get(), 3, "it still names nothing");
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_kept_for_as_long_as_the_settings_say() {
    let settings = ServerSettings { agent_idle_ttl: HOUR, ..settings() };
    let world = world_with(settings, |b| b.agent(agents::Echo)).await;
    world.send("one").await;
    pass(HOUR - SECOND).await;
    assert_eq!(world.sessions.live(), 1);
    world.send("two").await;
    pass(HOUR - SECOND).await;
    assert_eq!(world.sessions.live(), 1, "it had something to do meanwhile");
    pass(2 * SECOND).await;
    assert_eq!(world.sessions.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_kept_stays_when_a_client_comes_and_goes_and_goes_later() {
    let settings = ServerSettings { agent_idle_ttl: MINUTE, ..settings() };
    let (agent, mut seats) = agents::GiveSeats::new();
    let world = world_with(settings, |b| b.agent(agent)).await;
    for _ in 0..3 {
        drop(world.attach().await);
        world.parked().await;
        pass(SECOND).await;
    }
    let seat = seats.try_recv().unwrap();
    assert!(seats.try_recv().is_err(), "it is one agent all the time");
    pass(MINUTE).await;
    seat.stopped().await;
}
