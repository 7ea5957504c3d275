//! Reading the out log: pages, bounds, retention, and bytes that come back as they were given.

use rejoin_core::state::{Ack, Append};
use rejoin_core::{Seq, SessionId};

use super::world::{event, session_id, state};
use super::{BOUNDS, World};
use crate::PageLimit;

const ALL: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

pub async fn reading_starts_after_the_position_and_ends_at_the_head(world: World) {
    let id = world.session().await;
    world.publish(&id, 5).await;
    assert_eq!(world.seqs_after(&id, 0, ALL).await, [1, 2, 3, 4, 5]);
    assert_eq!(world.seqs_after(&id, 3, ALL).await, [4, 5]);
    for at_or_beyond_the_head in [5, 6, 99] {
        assert!(world.seqs_after(&id, at_or_beyond_the_head, ALL).await.is_empty());
    }
}

pub async fn an_unknown_session_has_nothing_to_read(world: World) {
    let other = world.session().await;
    world.checkpoint(&other, "state").await;
    world.say(&other, "hello").await;
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.read(&unknown, Seq::ZERO, ALL).await, Ok(None));
    assert_eq!(world.store.snapshot(&unknown).await, Ok(None));
    assert!(world.waiting(&unknown).await.is_empty());
}

pub async fn a_page_ends_at_its_count(world: World) {
    let id = world.session().await;
    world.publish(&id, 7).await;
    let three = PageLimit { events: 3, ..ALL };
    assert_eq!(world.seqs_after(&id, 0, three).await, [1, 2, 3]);
    assert_eq!(world.seqs_after(&id, 3, three).await, [4, 5, 6]);
    assert_eq!(world.seqs_after(&id, 6, three).await, [7]);
}

pub async fn a_page_ends_before_it_is_over_its_bytes(world: World) {
    let id = world.session().await;
    append(&world, &id, &[100, 100, 100, 100]).await;
    let page = |bytes| PageLimit { bytes, ..ALL };
    assert_eq!(world.seqs_after(&id, 0, page(300)).await, [1, 2, 3]);
    assert_eq!(world.seqs_after(&id, 0, page(299)).await, [1, 2]);
    assert_eq!(world.seqs_after(&id, 2, page(299)).await, [3, 4]);
}

/// A reader that got an empty page would take it for the head and wait for ever.
pub async fn a_large_event_is_read_alone_whatever_the_limit(world: World) {
    let id = world.session().await;
    append(&world, &id, &[10, 2000, 10]).await;
    let small = PageLimit { bytes: 100, ..ALL };
    assert_eq!(world.seqs_after(&id, 0, small).await, [1]);
    assert_eq!(world.seqs_after(&id, 1, small).await, [2]);
    assert_eq!(world.seqs_after(&id, 2, small).await, [3]);
    assert_eq!(world.seqs_after(&id, 0, PageLimit { events: 0, bytes: 0 }).await, [1]);
}

pub async fn a_page_comes_with_the_record_it_belongs_to(world: World) {
    let id = world.session().await;
    world.publish(&id, 3).await;
    let one = PageLimit { events: 1, ..ALL };
    let page = world.store.read(&id, Seq::new(1), one).await.unwrap().unwrap();
    assert_eq!(page.record, world.record(&id).await);
    assert_eq!(page.record.head, Seq::new(3));
}

/// "Without holes" and "no silent gap": what was evicted is known by comparing with the record.
pub async fn reading_behind_the_oldest_event_starts_there_and_shows_the_gap(world: World) {
    let id = world.session().await;
    world.publish(&id, 11).await;
    let page = world.store.read(&id, Seq::new(1), ALL).await.unwrap().unwrap();
    let seqs: Vec<u64> = page.events.iter().map(|event| event.seq.get()).collect();
    assert_eq!(seqs, [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((page.record.oldest, page.record.head), (Seq::new(4), Seq::new(11)));
    assert_eq!((page.record.acked, page.record.held()), (Seq::ZERO, 8));
}

pub async fn the_log_keeps_to_its_count(world: World) {
    let id = world.session().await;
    world.publish(&id, BOUNDS.events as u64).await;
    assert_eq!(world.record(&id).await.oldest, Seq::new(1));
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [2, 3, 4, 5, 6, 7, 8, 9]);
    append(&world, &id, &[1; 20]).await;
    assert_eq!(world.seqs(&id).await, [22, 23, 24, 25, 26, 27, 28, 29]);
}

pub async fn the_log_keeps_to_its_bytes(world: World) {
    let id = world.session().await;
    append(&world, &id, &[1024; 4]).await;
    let record = world.record(&id).await;
    assert_eq!((record.oldest, record.held_bytes), (Seq::new(1), 4096));
    append(&world, &id, &[1]).await;
    let record = world.record(&id).await;
    assert_eq!((record.oldest, record.held_bytes), (Seq::new(2), 3 * 1024 + 1));
    assert_eq!(world.seqs(&id).await, [2, 3, 4, 5]);
}

pub async fn an_event_over_the_bound_is_kept_alone(world: World) {
    let id = world.session().await;
    world.publish(&id, 3).await;
    append(&world, &id, &[BOUNDS.bytes + 1]).await;
    assert_eq!(world.seqs(&id).await, [4]);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [5]);
}

pub async fn acked_events_go_when_their_retention_has_passed(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 3).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    world.wait(BOUNDS.retention / 2);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3, 4]);
    world.wait(BOUNDS.retention / 2);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [3, 4, 5]);
}

pub async fn covered_events_go_when_their_retention_has_passed(mut world: World) {
    let id = world.session().await;
    world.publish(&id, 1).await;
    world.checkpoint(&id, "state at 2").await;
    world.publish(&id, 1).await;
    world.wait(BOUNDS.retention / 2);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3, 4]);
    world.wait(BOUNDS.retention / 2);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [3, 4, 5]);
    assert_eq!(world.record(&id).await.acked, Seq::ZERO);
}

pub async fn events_that_nobody_acked_or_covered_do_not_grow_old(mut world: World) {
    let id = world.session().await;
    world.publish(&id, 2).await;
    world.wait(BOUNDS.retention * 10);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3]);
}

pub async fn numbering_goes_on_when_every_event_is_gone(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 2).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    world.wait(BOUNDS.retention);
    let append = Append { snapshot: Some(state("done")), ..world.appending(&id).await };
    world.store.append(&id, append).await.unwrap();
    let record = world.record(&id).await;
    assert_eq!((record.head, record.oldest, record.held_bytes), (Seq::new(2), Seq::new(3), 0));
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [3]);
}

pub async fn bodies_come_back_as_they_were_given(world: World) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let bodies =
        [&b""[..], b"\0", b"'; --", &every_byte, "\u{1f980}".as_bytes(), b"\xff\xfe", &large];
    let id = world.session().await;
    for (number, bytes) in bodies.into_iter().enumerate() {
        let append = Append { events: vec![event(bytes)], ..world.appending(&id).await };
        let append = Append { snapshot: Some(state(bytes)), ..append };
        world.store.append(&id, append).await.unwrap();
        let page = world.store.read(&id, Seq::new(number as u64), ALL).await.unwrap().unwrap();
        assert!(*page.events[0].body == *bytes, "event {number} came back changed");
        let snapshot = world.store.snapshot(&id).await.unwrap().unwrap();
        assert!(*snapshot.body == *bytes, "state {number} came back changed");
    }
}

/// Appends events of these sizes in one go.
async fn append(world: &World, id: &SessionId, sizes: &[usize]) {
    let events = sizes.iter().map(|size| event(vec![b'x'; *size])).collect();
    let append = Append { events, ..world.appending(id).await };
    world.store.append(id, append).await.unwrap();
}
