//! Results, which go last where an out log is over its bounds, and how long MCP sessions keep anything.

use rejoin_core::log::Weight;
use rejoin_core::record::Kind;
use rejoin_core::state::{Append, Create, NewEvent};
use rejoin_core::{Seq, SessionId};

use super::world::event;
use super::{BOUNDS, World};
use crate::{Body, PageLimit};

const ALL: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

pub async fn a_result_outlives_what_passes_by(world: World) {
    let id = world.session().await;
    answer(&world, &id, "first").await;
    world.publish(&id, 10).await;
    answer(&world, &id, "second").await;
    world.publish(&id, 10).await;
    assert_eq!(kept(&world, &id, 0).await, [(1, "first".into()), (12, "second".into())]);
    assert_eq!(kept(&world, &id, 1).await, [(12, "second".into())]);
    assert_eq!(world.seqs(&id).await, [17, 18, 19, 20, 21, 22]);
    assert_eq!(world.record(&id).await.oldest, Seq::new(17), "from there on there is no hole");
}

pub async fn kept_results_count_against_the_bounds_and_are_counted_as_held(world: World) {
    let id = world.session().await;
    answer(&world, &id, &"x".repeat(BOUNDS.bytes / 2)).await;
    world.publish(&id, BOUNDS.events as u64 + 5).await;
    let record = world.record(&id).await;
    let window = world.store.read(&id, Seq::ZERO, ALL).await.unwrap().unwrap();
    let shown: usize = window.events.iter().map(|event| event.body.len()).sum();
    assert_eq!(record.held_bytes, BOUNDS.bytes / 2 + shown);
    assert_eq!(window.events.len(), BOUNDS.events - 1);
}

pub async fn a_page_of_results_ends_at_its_limits(world: World) {
    let id = world.session().await;
    for text in ["one", "two", "three"] {
        answer(&world, &id, text).await;
    }
    world.publish(&id, 10).await;
    let page = |limit| world.store.read_kept(&id, Seq::ZERO, limit);
    assert_eq!(page(ALL).await.unwrap().len(), 3);
    assert_eq!(page(PageLimit { events: 2, ..ALL }).await.unwrap().len(), 2);
    assert_eq!(page(PageLimit { bytes: 1, ..ALL }).await.unwrap().len(), 1);
}

pub async fn events_of_an_mcp_session_grow_old_though_nobody_acks_them(mut world: World) {
    let create = world.creating();
    let id = create.about.id.clone();
    let mut about = create.about.clone();
    about.kind = Kind::Mcp;
    world.store.create(Create { about, ..create }).await.unwrap();
    answer(&world, &id, "old").await;
    world.publish(&id, 2).await;
    world.wait(BOUNDS.result_retention / 2);
    answer(&world, &id, "young").await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3, 4]);
    world.wait(BOUNDS.result_retention / 2);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [4, 5]);
}

/// Appends a result.
pub(super) async fn answer(world: &World, id: &SessionId, text: &str) {
    let NewEvent::<Body> { body, .. } = event(text);
    let events = vec![NewEvent { weight: Weight::result(body.len()), body }];
    let append = Append { events, ..world.appending(id).await };
    world.store.append(id, append).await.unwrap();
}

/// The results that are kept from before the oldest event.
pub(super) async fn kept(world: &World, id: &SessionId, after: u64) -> Vec<(u64, String)> {
    let kept = world.store.read_kept(id, Seq::new(after), ALL).await.unwrap();
    let text = |body: &Body| String::from_utf8(body.to_vec()).unwrap();
    kept.iter().map(|event| (event.seq.get(), text(&event.body))).collect()
}
