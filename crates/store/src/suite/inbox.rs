//! The in log: each message once, in order, until the agent's state covers it.

use std::sync::Arc;

use rejoin_core::limits::WAITING_ENTRIES;
use rejoin_core::log::EntryKind;
use rejoin_core::record::{Ending, Kind};
use rejoin_core::state::{Append, Enter, EnterRefused, Entered, Stale};
use rejoin_core::{InSeq, SessionId};
use tokio::task::JoinSet;

use super::world::{A_MOMENT, KEEP, body, refusal, session_id};
use super::{BOUNDS, World};
use crate::{Failure, PageLimit, StoredEntry};

pub async fn messages_are_numbered_from_one_and_come_back_in_order(mut world: World) {
    let id = world.session().await;
    let start = world.now;
    assert_eq!(world.say(&id, "hello").await, InSeq::new(1));
    world.wait(A_MOMENT);
    let cancel = Enter { kind: EntryKind::Cancel, ..world.entering(None, "") };
    let entered = world.store.enter(&id, cancel).await;
    assert_eq!(entered, Ok(Entered { in_seq: InSeq::new(2), duplicate: false }));
    let entry = |number, kind, at, text| StoredEntry {
        in_seq: InSeq::new(number),
        kind,
        at,
        body: body(text),
    };
    let hello = entry(1, EntryKind::Message, start, "hello");
    let cancel = entry(2, EntryKind::Cancel, world.now, "");
    assert_eq!(world.store.entries(&id, InSeq::ZERO, 9).await, Ok(vec![hello, cancel]));
    let record = world.record(&id).await;
    assert_eq!((record.in_head, record.covered), (InSeq::new(2), InSeq::ZERO));
}

pub async fn entries_are_read_after_a_position_and_up_to_a_limit(world: World) {
    let id = world.session().await;
    for text in ["a", "b", "c", "d"] {
        world.say(&id, text).await;
    }
    let read = async |after, limit| {
        let entries = world.store.entries(&id, InSeq::new(after), limit).await.unwrap();
        entries.iter().map(|entry| entry.in_seq.get()).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 2).await, [1, 2]);
    assert_eq!(read(2, 9).await, [3, 4]);
    assert!(read(4, 9).await.is_empty() && read(99, 9).await.is_empty());
}

/// A client that does not know whether its message arrived sends it again without fear.
pub async fn the_same_message_sent_again_is_entered_once(world: World) {
    let id = world.session().await;
    let send = || world.store.enter(&id, world.entering(Some("m1"), "hello"));
    let first = Entered { in_seq: InSeq::new(1), duplicate: false };
    let again = Entered { duplicate: true, ..first };
    assert_eq!(send().await, Ok(first));
    let before = world.record(&id).await;
    assert_eq!(send().await, Ok(again));
    assert_eq!(world.record(&id).await, before);
    assert_eq!(world.waiting(&id).await, [1]);

    world.checkpoint(&id, "dealt with").await;
    assert_eq!(send().await, Ok(again), "also when the agent has dealt with it");
    assert!(world.waiting(&id).await.is_empty());
}

pub async fn the_same_id_with_other_content_is_refused(world: World) {
    let id = world.session().await;
    world.say(&id, "before").await;
    world.store.enter(&id, world.entering(Some("m1"), "hello")).await.unwrap();
    let before = world.record(&id).await;
    let other = world.entering(Some("m1"), "goodbye");
    let refused = refusal(world.store.enter(&id, other).await);
    assert_eq!(refused, EnterRefused::OtherContent { in_seq: InSeq::new(2) });
    assert_eq!(world.record(&id).await, before);
}

pub async fn messages_without_an_id_are_always_new(world: World) {
    let id = world.session().await;
    for number in 1..=3 {
        assert_eq!(world.say(&id, "same").await, InSeq::new(number));
    }
    assert_eq!(world.waiting(&id).await, [1, 2, 3]);
}

pub async fn message_ids_belong_to_their_session(world: World) {
    for id in [world.session().await, world.session().await] {
        let entered = world.store.enter(&id, world.entering(Some("m1"), "hello")).await;
        assert_eq!(entered, Ok(Entered { in_seq: InSeq::new(1), duplicate: false }));
    }
}

pub async fn a_message_of_a_client_that_was_replaced_is_refused(world: World) {
    let id = world.session().await;
    let named = world.attach(&id).await;
    let current = world.attach(&id).await;
    let late = Enter { generation: Some(named), ..world.entering(Some("m1"), "late") };
    let refused = refusal(world.store.enter(&id, late).await);
    assert_eq!(refused, EnterRefused::Stale(Stale { named, current }));
    assert!(world.waiting(&id).await.is_empty());

    let resent = Enter { generation: Some(current), ..world.entering(Some("m1"), "late") };
    let entered = world.store.enter(&id, resent).await;
    assert_eq!(entered, Ok(Entered { in_seq: InSeq::new(1), duplicate: false }));
}

pub async fn an_ended_session_takes_no_messages(world: World) {
    let id = world.session().await;
    world.close(&id).await;
    let message = world.entering(None, "hello");
    let refused = refusal(world.store.enter(&id, message.clone()).await);
    assert_eq!(refused, EnterRefused::Ended(Ending::Closed));
    let unknown = session_id("sess_unknown");
    assert_eq!(world.store.enter(&unknown, message).await, Err(Failure::NotFound));
}

pub async fn a_message_gives_a_parked_session_more_time_and_never_less(mut world: World) {
    let id = world.session().await;
    let expires_at = world.record(&id).await.expires_at;
    world.wait(A_MOMENT);
    let brief = Enter { keep_for: A_MOMENT, ..world.entering(None, "hello") };
    world.store.enter(&id, brief).await.unwrap();
    let record = world.record(&id).await;
    assert_eq!((record.expires_at, record.last_activity), (expires_at, world.now));
    let long = Enter { keep_for: KEEP * 2, ..world.entering(None, "hello") };
    world.store.enter(&id, long).await.unwrap();
    assert_eq!(world.record(&id).await.expires_at, world.now + KEEP * 2);
}

pub async fn a_thousand_messages_may_wait_and_the_next_is_refused(world: World) {
    let id = world.session().await;
    let world = Arc::new(world);
    let mut senders = JoinSet::new();
    for number in 0..WAITING_ENTRIES {
        let (world, id) = (Arc::clone(&world), id.clone());
        senders.spawn(async move {
            let message = world.entering(Some(&format!("m{number}")), "x");
            world.store.enter(&id, message).await.unwrap().in_seq.get()
        });
    }
    let mut numbers = senders.join_all().await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=WAITING_ENTRIES as u64).collect::<Vec<_>>());

    let one_more = world.entering(Some("one more"), "x");
    let refused = refusal(world.store.enter(&id, one_more.clone()).await);
    assert_eq!(refused, EnterRefused::Full { waiting: WAITING_ENTRIES });
    let known = world.store.enter(&id, world.entering(Some("m7"), "x")).await.unwrap();
    assert!(known.duplicate, "what is there already needs no room");

    cover(&world, &id, 1).await;
    let entered = world.store.enter(&id, one_more).await.unwrap();
    let last = InSeq::new(WAITING_ENTRIES as u64 + 1);
    assert_eq!(entered, Entered { in_seq: last, duplicate: false });
}

pub async fn messages_wait_up_to_a_number_of_bytes(world: World) {
    let id = world.session().await;
    let bounded = |text| Enter { max_waiting_bytes: 10, ..world.entering(None, text) };
    let send = |text| world.store.enter(&id, bounded(text));
    send("123456").await.unwrap();
    assert_eq!(refusal(send("12345").await), EnterRefused::Full { waiting: 1 });
    send("1234").await.unwrap();
    assert_eq!(refusal(send("1").await), EnterRefused::Full { waiting: 2 });
    cover(&world, &id, 1).await;
    send("123456").await.unwrap();
}

/// The edge has let it in; refused here, it could never get through.
pub async fn a_single_message_over_the_bytes_is_taken_when_none_waits(world: World) {
    let id = world.session().await;
    let large = Enter { max_waiting_bytes: 3, ..world.entering(None, "large") };
    world.store.enter(&id, large.clone()).await.unwrap();
    assert_eq!(refusal(world.store.enter(&id, large).await), EnterRefused::Full { waiting: 1 });
}

pub async fn covered_entries_are_gone_and_covering_only_grows(world: World) {
    let id = world.session().await;
    for text in ["a", "b", "c"] {
        world.say(&id, text).await;
    }
    for (covers, waiting) in [(2, vec![3]), (1, vec![3]), (0, vec![3]), (3, vec![])] {
        cover(&world, &id, covers).await;
        assert_eq!(world.waiting(&id).await, waiting);
    }
    let record = world.record(&id).await;
    assert_eq!((record.in_head, record.covered), (InSeq::new(3), InSeq::new(3)));
}

/// Both logs can be read: a page that was loaded again shows the questions too.
pub async fn messages_that_are_dealt_with_can_be_read_within_the_bounds(mut world: World) {
    let id = world.session().await;
    for text in ["a", "b", "c"] {
        world.say(&id, text).await;
    }
    cover(&world, &id, 2).await;
    let read = async |world: &World| {
        let page = world.store.messages(&id, InSeq::ZERO, PageLimit::default()).await;
        let messages = page.unwrap().unwrap().messages.into_iter();
        messages.map(|message| (message.entry.in_seq.get(), message.covered)).collect::<Vec<_>>()
    };
    assert_eq!(read(&world).await, [(1, true), (2, true), (3, false)]);
    for number in 4..=20 {
        world.say(&id, "more").await;
        cover(&world, &id, number).await;
    }
    let last: Vec<_> = (21 - BOUNDS.events as u64..=20).map(|number| (number, true)).collect();
    assert_eq!(read(&world).await, last);
    world.wait(BOUNDS.retention);
    world.say(&id, "later").await;
    cover(&world, &id, 20).await;
    assert_eq!(read(&world).await, [(21, false)]);
}

/// They are requests of programs, and large: nobody reads them as a conversation.
pub async fn messages_of_an_mcp_session_are_not_kept(world: World) {
    let mut create = world.creating();
    create.about.kind = Kind::Mcp;
    let id = world.store.create(create).await.unwrap().id().clone();
    world.say(&id, "a").await;
    world.say(&id, "b").await;
    answer(&world, &id, 2).await;
    cover(&world, &id, 1).await;
    let page = world.store.messages(&id, InSeq::ZERO, PageLimit::default()).await;
    assert_eq!(page.unwrap().unwrap().messages, []);
}

pub async fn messages_come_in_pages(world: World) {
    let id = world.session().await;
    for text in ["a", "bb", "ccc", "dddd"] {
        world.say(&id, text).await;
    }
    cover(&world, &id, 2).await;
    let read = async |after, events, bytes| {
        let page = world.store.messages(&id, InSeq::new(after), PageLimit { events, bytes }).await;
        let page = page.unwrap().unwrap();
        assert_eq!(page.record.in_head, InSeq::new(4));
        page.messages.iter().map(|message| message.entry.in_seq.get()).collect::<Vec<_>>()
    };
    assert_eq!(read(0, 9, 99).await, [1, 2, 3, 4]);
    assert_eq!(read(1, 2, 99).await, [2, 3]);
    assert_eq!(read(0, 9, 3).await, [1, 2]);
    assert_eq!(read(3, 9, 1).await, [4], "a single one may be larger");
    assert!(read(4, 9, 9).await.is_empty());
    let unknown = session_id("unknown");
    let page = world.store.messages(&unknown, InSeq::ZERO, PageLimit::default()).await;
    assert_eq!(page, Ok(None));
}

pub async fn an_entry_that_is_answered_before_an_older_one_is_gone(world: World) {
    let id = world.session().await;
    for text in ["long", "b", "c", "d"] {
        world.say(&id, text).await;
    }
    for (number, waiting, covered) in
        [(3, vec![1, 2, 4], 0), (3, vec![1, 2, 4], 0), (4, vec![1, 2], 0), (1, vec![2], 1)]
    {
        assert_eq!(answer(&world, &id, number).await, InSeq::new(covered));
        assert_eq!(world.waiting(&id).await, waiting);
    }
    assert_eq!(answer(&world, &id, 2).await, InSeq::new(4));
    assert_eq!(world.say(&id, "e").await, InSeq::new(5));
    assert_eq!(world.waiting(&id).await, [5]);
}

pub async fn entries_behind_one_that_waits_for_long_do_not_fill_the_log(world: World) {
    let id = world.session().await;
    let bounded = |text| Enter { max_waiting_bytes: 10, ..world.entering(None, text) };
    world.store.enter(&id, bounded("1234")).await.unwrap();
    for number in 2..WAITING_ENTRIES as u64 + 100 {
        world.store.enter(&id, bounded("123456")).await.unwrap();
        assert_eq!(answer(&world, &id, number).await, InSeq::ZERO);
    }
    assert_eq!(world.waiting(&id).await, [1]);
}

pub async fn covering_beyond_the_last_entry_stops_there(world: World) {
    let id = world.session().await;
    world.say(&id, "a").await;
    assert_eq!(cover(&world, &id, 99).await, InSeq::new(1));
    assert_eq!(world.say(&id, "b").await, InSeq::new(2));
    assert_eq!(world.waiting(&id).await, [2]);
}

pub async fn messages_come_back_as_they_were_given(world: World) {
    let large: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
    let id = world.session().await;
    let bodies = [&b""[..], b"\0\xff", &large];
    for bytes in bodies {
        let (size, body) = (bytes.len() as u32, body(bytes));
        let message = Enter { size, body, ..world.entering(None, "") };
        world.store.enter(&id, message).await.unwrap();
    }
    let entries = world.store.entries(&id, InSeq::ZERO, 9).await.unwrap();
    assert!(entries.iter().map(|entry| &*entry.body).eq(bodies));
}

/// The agent has dealt with this one alone; what is covered then.
async fn answer(world: &World, id: &SessionId, in_seq: u64) -> InSeq {
    let append = Append { answered: vec![InSeq::new(in_seq)], ..world.appending(id).await };
    world.store.append(id, append).await.unwrap().covered
}

/// The agent says what it has dealt with; what is covered then.
async fn cover(world: &World, id: &SessionId, in_seq: u64) -> InSeq {
    let append = Append { covers: Some(InSeq::new(in_seq)), ..world.appending(id).await };
    world.store.append(id, append).await.unwrap().covered
}
