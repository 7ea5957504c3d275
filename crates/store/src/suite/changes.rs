//! Readers are told when a session has changed.

use std::future::Future;
use std::time::Duration;

use rejoin_core::SessionId;
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::Append;
use tokio::time::timeout;

use super::world::{World, event};
use crate::{Changes, PageLimit};

/// However slow the machine, a change that is told is told within this.
const SOON: Duration = Duration::from_secs(20);

/// Waits until the record is as wanted, looking only when told to.
async fn sees(
    world: &World,
    changes: &mut Changes,
    id: &SessionId,
    wanted: impl Fn(&Record) -> bool,
) {
    let seen = async {
        while !wanted(&world.record(id).await) {
            changes.changed().await;
        }
    };
    timeout(SOON, seen).await.expect("who waits is told");
}

/// Does something while somebody waits for it.
async fn meanwhile<T>(waiting: impl Future<Output = ()>, doing: impl Future<Output = T>) {
    tokio::join!(waiting, async {
        tokio::task::yield_now().await; // the other one has looked
        doing.await
    });
}

pub async fn each_change_that_readers_see_is_told(world: World) {
    let id = world.session().await;
    let mut changes = world.store.changes(&id).and_messages();
    let attach = world.attach(&id);
    meanwhile(sees(&world, &mut changes, &id, |record| record.attached.is_some()), attach).await;
    let enter = world.say(&id, "question");
    meanwhile(sees(&world, &mut changes, &id, |record| record.in_head.get() == 1), enter).await;
    let append = world.publish(&id, 1);
    meanwhile(sees(&world, &mut changes, &id, |record| record.head.get() == 1), append).await;
    let detach = world.detaching(world.record(&id).await.generation);
    let detach = world.store.detach(&id, detach);
    meanwhile(sees(&world, &mut changes, &id, |record| record.attached.is_none()), detach).await;
    let end = world.store.end(&id, world.ending(Ending::Closed));
    meanwhile(sees(&world, &mut changes, &id, |record| !record.is_active()), end).await;
}

/// A caller that is gone does not keep readers from hearing of what it did.
pub async fn a_change_whose_caller_has_gone_is_told(world: World) {
    let id = world.session().await;
    let mut changes = world.store.changes(&id);
    let said = Append { events: vec![event("said")], ..world.appending(&id).await };
    let mut append = world.store.append(&id, said);
    let polled = std::future::poll_fn(|context| {
        let _ = append.as_mut().poll(context);
        std::task::Poll::Ready(())
    });
    polled.await;
    drop(append);
    sees(&world, &mut changes, &id, |record| record.head.get() == 1).await;
    let page = world.store.read(&id, rejoin_core::Seq::ZERO, PageLimit::default()).await;
    assert_eq!(page.unwrap().unwrap().events.len(), 1);
}

pub async fn what_happened_before_one_waits_is_not_missed(world: World) {
    let (id, other) = (world.session().await, world.session().await);
    let mut changes = world.store.changes(&id);
    let mut others = world.store.changes(&other);
    world.publish(&id, 1).await;
    timeout(SOON, changes.changed()).await.expect("it changed since the subscription");
    let quiet = timeout(Duration::from_millis(20), others.changed()).await;
    assert!(quiet.is_err(), "nothing happened to the other one");
}

pub async fn messages_are_told_to_those_who_ask_for_them(world: World) {
    let id = world.session().await;
    let mut changes = world.store.changes(&id);
    let mut also_messages = world.store.changes(&id).and_messages();
    world.say(&id, "question").await;
    timeout(SOON, also_messages.changed()).await.expect("it asked for messages");
    let quiet = timeout(Duration::from_millis(20), changes.changed()).await;
    assert!(quiet.is_err(), "nothing happened that it waits for");
    world.publish(&id, 1).await;
    timeout(SOON, changes.changed()).await.expect("an event is more than a message");
}

pub async fn who_waits_learns_that_the_store_was_closed(world: World) {
    let id = world.session().await;
    let mut changes = world.store.changes(&id);
    world.store.close().await.unwrap();
    let closed = async {
        while !changes.are_over() {
            changes.changed().await;
        }
    };
    timeout(SOON, closed).await.expect("who waits is told");
}
