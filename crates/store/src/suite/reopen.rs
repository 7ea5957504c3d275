//! What is left when the process dies: all that was acknowledged, and nobody at work on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rejoin_core::lifetime::Lifetime;
use rejoin_core::limits::{GRACE_AFTER_START, TOKEN_GRACE};
use rejoin_core::log::MessageDigest;
use rejoin_core::record::{Ending, Record};
use rejoin_core::state::{
    Ack, AckRefused, Append, AppendRefused, AttachRefused, Create, Detach, Entered, NewEvent,
    Restore, RestoreRefused, Stale, TokenFault,
};
use rejoin_core::{Generation, InSeq, Seq, SessionId, Term};
use tokio::task::{JoinSet, yield_now};

use super::results::{answer, kept};
use super::world::{A_MOMENT, KEEP, REMEMBER, event, refusal, state};
use super::{AUDIT_MAX, BOUNDS, World, audit};
use crate::audit::AuditQuery;
use crate::{Body, MemoryStore, PageLimit, Parked, Query, Store as _};

const ALL: PageLimit = PageLimit { events: usize::MAX, bytes: usize::MAX };

pub async fn acknowledged_events_are_there_and_are_numbered_on_from(mut world: World) {
    let id = world.session().await;
    world.publish(&id, 2).await;
    world.wait(A_MOMENT);
    world.publish(&id, 1).await;
    let before = world.store.read(&id, Seq::ZERO, ALL).await.unwrap().unwrap();
    for _ in 0..2 {
        world.crash().await;
        let after = world.store.read(&id, Seq::ZERO, ALL).await.unwrap().unwrap();
        assert_eq!(after.events, before.events);
        assert_eq!((after.record.head, after.record.oldest), (Seq::new(3), Seq::new(1)));
        assert_eq!(
            (after.record.log, &after.record.epoch),
            (before.record.log, &before.record.epoch)
        );
        assert!(after.record.first_epoch, "nothing was lost");
    }
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [1, 2, 3, 4]);
}

/// Also those that were answered before an older one, however often the journal is written anew.
pub async fn messages_that_are_dealt_with_can_still_be_read(mut world: World) {
    let id = world.session().await;
    for text in ["a", "b", "c", "d"] {
        world.say(&id, text).await;
    }
    let covers = Append { covers: Some(InSeq::new(1)), ..world.appending(&id).await };
    world.store.append(&id, covers).await.unwrap();
    let answers = Append { answered: vec![InSeq::new(3)], ..world.appending(&id).await };
    world.store.append(&id, answers).await.unwrap();
    let before = world.store.messages(&id, InSeq::ZERO, ALL).await.unwrap().unwrap().messages;
    let covered: Vec<bool> = before.iter().map(|message| message.covered).collect();
    assert_eq!(covered, [true, false, true, false]);
    for _ in 0..3 {
        world.crash().await;
        let after = world.store.messages(&id, InSeq::ZERO, ALL).await.unwrap().unwrap().messages;
        assert_eq!(after, before);
        assert_eq!(world.waiting(&id).await, [2, 4]);
    }
    let new =
        world.store.restore(world.restoring(&id, 0, 1)).await.unwrap().into_record().id().clone();
    let after = world.store.messages(&new, InSeq::ZERO, ALL).await.unwrap().unwrap().messages;
    assert_eq!(after, before);
}

/// The message waited for the agent when the session expired. Its client sends it again, and it must be
/// entered, not answered as a duplicate that no agent will ever see.
pub async fn message_ids_forgotten_at_expiry_stay_forgotten_after_a_crash(mut world: World) {
    let id = world.session().await;
    world.store.enter(&id, world.entering(Some("done"), "done")).await.unwrap();
    world.checkpoint(&id, "covers the first").await;
    world.store.enter(&id, world.entering(Some("waits"), "waits")).await.unwrap();
    world.store.end(&id, world.ending(Ending::Expired)).await.unwrap();
    world.crash().await;
    let restore = world.restoring(&id, 1, 1);
    let new = restore.create.about.id.clone();
    world.store.restore(restore).await.unwrap();
    world.crash().await;
    let again = world.store.enter(&new, world.entering(Some("waits"), "waits")).await.unwrap();
    assert_eq!(again, Entered { in_seq: InSeq::new(3), duplicate: false });
    assert_eq!(world.waiting(&new).await, [3]);
    let known = world.store.enter(&new, world.entering(Some("done"), "done")).await.unwrap();
    assert_eq!(known, Entered { in_seq: InSeq::new(1), duplicate: true });
    world.crash().await;
    let known = world.store.enter(&new, world.entering(Some("waits"), "waits")).await.unwrap();
    assert_eq!(known, again_as_duplicate(again));
}

fn again_as_duplicate(entered: Entered) -> Entered {
    Entered { duplicate: true, ..entered }
}

/// The log is gone with the session, so a publication under the same key must be appended.
pub async fn idempotency_keys_forgotten_at_expiry_stay_forgotten_after_a_crash(mut world: World) {
    let id = world.session().await;
    let key = Some(MessageDigest::of("key", b"content"));
    let (events, appending) = (vec![event("first")], world.appending(&id).await);
    world.store.append(&id, Append { events, key, ..appending }).await.unwrap();
    world.store.end(&id, world.ending(Ending::Expired)).await.unwrap();
    let restore = world.restoring(&id, 1, 0);
    let new = restore.create.about.id.clone();
    world.store.restore(restore).await.unwrap();
    world.crash().await;
    let (events, appending) = (vec![event("second")], world.appending(&new).await);
    let appended = world.store.append(&new, Append { events, key, ..appending }).await.unwrap();
    assert_eq!((appended.before, appended.head), (None, Seq::new(2)));
    assert_eq!(world.seqs(&new).await, [2]);
}

/// They would take the room of events that were held.
pub async fn results_that_were_let_go_stay_gone_after_a_crash(mut world: World) {
    let id = world.session().await;
    for number in 0..9 {
        answer(&world, &id, &format!("result {number}")).await;
    }
    world.publish(&id, 9).await;
    let before = (kept(&world, &id, 0).await, world.seqs(&id).await);
    world.crash().await;
    assert_eq!((kept(&world, &id, 0).await, world.seqs(&id).await), before);
}

pub async fn kept_results_are_there_after_a_crash(mut world: World) {
    let id = world.session().await;
    answer(&world, &id, "first").await;
    world.publish(&id, 10).await;
    answer(&world, &id, "second").await;
    world.publish(&id, 10).await;
    for _ in 0..2 {
        world.crash().await;
        assert_eq!(kept(&world, &id, 0).await, [(1, "first".into()), (12, "second".into())]);
        assert_eq!(world.seqs(&id).await, [17, 18, 19, 20, 21, 22]);
    }
    world.publish(&id, 1).await;
    assert_eq!(kept(&world, &id, 0).await.len(), 2);
}

/// In the midst of work, not between two calls: whatever had been answered by then must be there,
/// what had not may be.
pub async fn what_was_acknowledged_before_the_work_was_cut_off_is_there(mut world: World) {
    let acknowledged = Arc::new(Mutex::new(BTreeMap::<SessionId, Seq>::new()));
    let mut writers = JoinSet::new();
    for _ in 0..16 {
        let id = world.session().await;
        let append = world.appending(&id).await;
        let (store, acknowledged) = (Arc::clone(&world.store), Arc::clone(&acknowledged));
        writers.spawn(async move {
            for first in (1..).map(Seq::new) {
                let append = Append { first, events: vec![text_of(first)], ..append.clone() };
                store.append(&id, append).await.unwrap();
                acknowledged.lock().unwrap().insert(id.clone(), first);
                yield_now().await;
            }
        });
    }
    while acknowledged.lock().unwrap().values().map(|seq| seq.get()).sum::<u64>() < 100 {
        if let Some(ended) = writers.try_join_next() {
            ended.expect("writers go on until they are cut off");
        }
        yield_now().await;
    }
    writers.shutdown().await;
    world.crash().await;

    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    for (id, last) in acknowledged {
        let page = world.store.read(&id, Seq::ZERO, ALL).await.unwrap().unwrap();
        assert!(page.record.head >= last, "{id} had {last}, has {}", page.record.head);
        assert!(page.record.head <= last.next(), "{id} was never asked for so many");
        assert_eq!(
            page.record.head.next().steps_from(page.record.oldest),
            page.events.len() as u64
        );
        assert!(page.events.len() >= BOUNDS.events.min(last.get() as usize));
        for event in page.events {
            assert_eq!(event.body, text_of(event.seq).body);
        }
    }
}

pub async fn what_was_evicted_leaves_no_hole(mut world: World) {
    let id = world.session().await;
    world.publish(&id, 20).await;
    world.crash().await;
    let seqs = world.seqs(&id).await;
    assert!(seqs.ends_with(&[13, 14, 15, 16, 17, 18, 19, 20]));
    assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert_eq!(world.record(&id).await.oldest.get(), seqs[0]);
    world.publish(&id, 1).await;
    assert_eq!(world.seqs(&id).await, [14, 15, 16, 17, 18, 19, 20, 21]);
}

/// Acks may be lost, which offers events again; they are never invented.
pub async fn acks_may_be_lost_but_not_the_events_behind_them(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 4).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    world.crash().await;
    let record = world.record(&id).await;
    assert!(record.acked <= Seq::new(2) && record.head == Seq::new(4));
    assert!(world.seqs(&id).await.ends_with(&[3, 4]));
}

pub async fn closing_keeps_acks(mut world: World) {
    let id = world.session().await;
    let generation = world.attach(&id).await;
    world.publish(&id, 4).await;
    world.store.ack(&id, Ack { generation, seq: Seq::new(2) }).await.unwrap();
    world.store.close().await.unwrap();
    world.crash().await;
    assert_eq!(world.record(&id).await.acked, Seq::new(2));
    assert_eq!(world.seqs(&id).await, [1, 2, 3, 4]);
}

pub async fn event_state_and_cover_come_back_together(mut world: World) {
    let id = world.session().await;
    for text in ["one", "two", "three"] {
        world.say(&id, text).await;
    }
    let large: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let append = Append {
        events: vec![event("answer")],
        snapshot: Some(state(&large)),
        covers: Some(InSeq::new(2)),
        ..world.appending(&id).await
    };
    world.store.append(&id, append).await.unwrap();
    let (record, stored) = (world.record(&id).await, world.store.snapshot(&id).await);
    let waiting = world.store.entries(&id, InSeq::ZERO, 9).await;
    world.crash().await;
    let after = world.record(&id).await;
    assert_eq!(
        (after.head, after.covered, after.snapshot),
        (record.head, record.covered, record.snapshot)
    );
    assert_eq!(world.store.snapshot(&id).await, stored);
    assert_eq!(world.store.entries(&id, InSeq::ZERO, 9).await, waiting);
    assert_eq!(waiting.unwrap().len(), 1);
    assert_eq!(world.say(&id, "four").await, InSeq::new(4));
}

pub async fn what_was_answered_out_of_order_does_not_come_back(mut world: World) {
    let id = world.session().await;
    for text in ["long", "two", "three", "four"] {
        world.say(&id, text).await;
    }
    let answered = vec![InSeq::new(2), InSeq::new(4)];
    let append = Append { answered, events: vec![event("said")], ..world.appending(&id).await };
    world.store.append(&id, append).await.unwrap();
    world.crash().await;
    assert_eq!(world.waiting(&id).await, [1, 3]);
    assert_eq!(world.say(&id, "five").await, InSeq::new(5));
    let append = Append { answered: vec![InSeq::new(1)], ..world.appending(&id).await };
    assert_eq!(world.store.append(&id, append).await.unwrap().covered, InSeq::new(2));
    world.crash().await;
    assert_eq!(world.waiting(&id).await, [3, 5]);
}

/// With or without a state: were it forgotten, entries would count as covered that nobody dealt with.
pub async fn an_agent_that_named_an_entry_is_known_to_name_them(mut world: World) {
    let id = world.session().await;
    world.say(&id, "one").await;
    let covers = Some(InSeq::new(1));
    let append = Append { covers, named: true, ..world.appending(&id).await };
    assert!(world.store.append(&id, append).await.unwrap().named);
    world.crash().await;
    assert!(world.record(&id).await.named);
}

pub async fn idempotency_keys_are_still_known(mut world: World) {
    let id = world.session().await;
    let digest = |key: &str, content: &str| Some(MessageDigest::of(key, content.as_bytes()));
    for key in ["k1", "k2"] {
        let append = world.appending(&id).await;
        let append = Append { events: vec![event(key)], key: digest(key, "x"), ..append };
        world.store.append(&id, append).await.unwrap();
    }
    for _ in 0..2 {
        world.crash().await;
        let append = world.appending(&id).await;
        let again = Append { events: vec![event("k1")], key: digest("k1", "x"), ..append.clone() };
        let before = world.store.append(&id, again).await.unwrap().before.unwrap();
        assert_eq!((before.first, before.last), (Seq::new(1), Seq::new(1)));
        let other = Append { events: vec![event("y")], key: digest("k2", "y"), ..append };
        refusal(world.store.append(&id, other).await);
        assert_eq!(world.seqs(&id).await, [1, 2]);
    }
}

pub async fn messages_are_still_known(mut world: World) {
    let id = world.session().await;
    world.store.enter(&id, world.entering(Some("m1"), "hello")).await.unwrap();
    world.checkpoint(&id, "dealt with").await;
    world.store.enter(&id, world.entering(Some("m2"), "hello")).await.unwrap();
    world.crash().await;
    for (message_id, number) in [("m1", 1), ("m2", 2)] {
        let again = world.store.enter(&id, world.entering(Some(message_id), "hello")).await;
        assert_eq!(again, Ok(Entered { in_seq: InSeq::new(number), duplicate: true }));
    }
    refusal(world.store.enter(&id, world.entering(Some("m1"), "other")).await);
    assert_eq!(world.waiting(&id).await, [2]);
}

pub async fn an_attached_session_comes_back_parked_under_its_generation(mut world: World) {
    let id = world.session().await;
    world.attach(&id).await;
    let named = world.attach(&id).await;
    world.publish(&id, 1).await;
    world.wait(KEEP * 3);
    world.crash().await;
    let record = world.record(&id).await;
    assert_eq!((record.attached, record.generation), (None, Generation::new(2)));
    assert_eq!((record.last_activity, record.expires_at), (world.now, world.now + KEEP));
    assert_eq!(record.reconnect_count, 1);

    let attached = world.store.attach(&id, world.attaching()).await.unwrap();
    assert_eq!(attached.record.generation, Generation::new(3));
    assert!(!attached.superseded);
    let current = attached.record.generation;
    let late = refusal(world.store.ack(&id, Ack { generation: named, seq: Seq::new(1) }).await);
    assert_eq!(late, AckRefused::Stale(Stale { named, current }));
}

/// Whoever had the lease is dead or will be fenced; nobody waits for it to run out.
pub async fn leases_are_void_and_the_next_holder_gets_the_next_term(mut world: World) {
    let id = world.session().await;
    let late = Append { events: vec![event("late")], ..world.appending(&id).await };
    world.crash().await;
    let record = world.record(&id).await;
    assert_eq!((record.lease, record.term), (None, Term::new(1)));
    assert_eq!(world.store.take_lease(&id, world.taking(2)).await, Ok(Term::new(2)));
    world.crash().await;
    assert_eq!(world.store.take_lease(&id, world.taking(2)).await, Ok(Term::new(3)));
    let refused = refusal(world.store.append(&id, late).await);
    assert_eq!(refused, AppendRefused::Fenced { named: Term::new(1), current: Term::new(3) });
}

pub async fn whoever_asks_first_learns_whose_clients_were_attached(mut world: World) {
    let (id, parked) = (world.session().await, world.session().await);
    world.attach(&id).await;
    let generation = world.attach(&id).await;
    let gone = world.attach(&parked).await;
    world.store.detach(&parked, world.detaching(gone)).await.unwrap();
    assert!(world.store.parked_at_start().is_empty());
    world.crash().await;
    assert_eq!(world.store.parked_at_start(), [Parked { id, generation }]);
    assert!(world.store.parked_at_start().is_empty());
}

/// Its clients could not come while the server was down: they get a minute.
pub async fn nothing_expires_in_the_first_minute(mut world: World) {
    let (due, later) = (world.session().await, world.session().await);
    let generation = world.attach(&later).await;
    let detach = Detach { lifetime: Lifetime::keeping(KEEP * 3), ..world.detaching(generation) };
    world.store.detach(&later, detach).await.unwrap();
    let deadline = world.now + KEEP * 3;
    world.wait(KEEP * 2);
    world.crash().await;
    assert_eq!(world.record(&due).await.expires_at, world.now + GRACE_AFTER_START);
    assert_eq!(world.record(&later).await.expires_at, deadline);
    world.wait(GRACE_AFTER_START - A_MOMENT);
    assert!(world.store.due(world.now, 9).await.unwrap().records.is_empty());
    world.wait(A_MOMENT);
    let listed = world.store.due(world.now, 9).await.unwrap();
    let ids: Vec<_> = listed.records.iter().map(Record::id).collect();
    assert_eq!((ids, listed.next), (vec![&due], Some(deadline)));
    let refused = refusal(world.store.attach(&due, world.attaching()).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Expired));
    world.attach(&later).await;
}

pub async fn a_deadline_of_a_clock_that_ran_ahead_is_brought_back(mut world: World) {
    let create = Create { keep_for: Duration::MAX, ..world.creating() };
    let id = world.store.create(create).await.unwrap().id().clone();
    world.crash().await;
    assert_eq!(world.record(&id).await.expires_at, world.now + KEEP * 24);
}

pub async fn a_token_is_still_good_once(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.crash().await;
    let first = world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    assert!(first.token.unwrap().first_use);
    world.crash().await;
    let again = world.store.attach(&id, world.attaching_with("one", "other")).await.unwrap();
    let (first, again) = (first.token.unwrap(), again.token.unwrap());
    assert_eq!((again.first_use, again.successor), (false, first.successor));
    assert_eq!((again.used_at, again.generation), (first.used_at, first.generation));
}

/// Also the refusal of a thief is a change, and outlives the process that refused.
pub async fn the_reuse_of_a_token_stays_noticed(mut world: World) {
    let id = world.session().await;
    world.put_token(&id, "one").await;
    world.store.attach(&id, world.attaching_with("one", "two")).await.unwrap();
    world.wait(TOKEN_GRACE + A_MOMENT);
    world.crash().await;
    let attach = world.attaching_with("one", "three");
    let refused = refusal(world.store.attach(&id, attach).await);
    assert_eq!(refused, AttachRefused::Token(TokenFault::Reused));
    world.crash().await;
    let refused = refusal(world.store.attach(&id, world.attaching_with("two", "three")).await);
    assert_eq!(refused, AttachRefused::Token(TokenFault::Unknown));
}

pub async fn ended_sessions_stay_ended_and_forgotten_ones_forgotten(mut world: World) {
    let (ended, forgotten) = (world.session().await, world.session().await);
    world.checkpoint(&ended, "state").await;
    world.put_token(&ended, "one").await;
    world.close(&ended).await;
    world.store.end(&forgotten, world.ending(Ending::Expired)).await.unwrap();
    world.store.forget(&forgotten, world.now + REMEMBER).await.unwrap();
    let before = world.record(&ended).await;
    world.crash().await;
    let after = world.record(&ended).await;
    assert_eq!((&after.status, after.head, after.held()), (&before.status, before.head, 0));
    assert_eq!(world.state(&ended).await, None);
    let refused = refusal(world.store.attach(&ended, world.attaching_with("one", "two")).await);
    assert_eq!(refused, AttachRefused::Ended(Ending::Closed));
    let listed = world.store.sessions(&Query { limit: 9, ..Query::default() }).await.unwrap();
    assert_eq!(listed.iter().map(Record::id).collect::<Vec<_>>(), [&ended]);
}

pub async fn a_closed_session_that_was_forgotten_is_not_brought_back_after_a_crash(
    mut world: World,
) {
    let id = world.session().await;
    let sealed = world.restoring(&id, 0, 0);
    world.close(&id).await;
    world.store.forget(&id, world.now + REMEMBER).await.unwrap();
    world.crash().await;
    assert_eq!(refusal(world.store.restore(sealed).await), RestoreRefused::Superseded);
}

pub async fn a_restored_line_stays_one(mut world: World) {
    let old = world.session().await;
    world.checkpoint(&old, "held").await;
    world.store.enter(&old, world.entering(Some("m1"), "hello")).await.unwrap();
    let restoring = Restore { last_seq: Some(Seq::new(1)), ..world.restoring(&old, 0, 0) };
    let new = world.store.restore(restoring).await.unwrap().into_record();
    world.publish(new.id(), 1).await;
    let before = world.store.read(new.id(), Seq::ZERO, ALL).await.unwrap().unwrap();
    world.crash().await;
    let again = world.store.restore(world.restoring(&old, 1, 1)).await.unwrap().into_record();
    assert_eq!((again.id(), &again.epoch, again.log), (new.id(), &new.epoch, new.log));
    let after = world.store.read(new.id(), Seq::ZERO, ALL).await.unwrap().unwrap();
    assert_eq!((after.events.len(), &after.events), (2, &before.events));
    assert_eq!(world.state(new.id()).await.as_deref(), Some("held"));
    let resent = world.entering(Some("m1"), "hello");
    assert!(world.store.enter(new.id(), resent).await.unwrap().duplicate);
    assert!(world.seqs(&old).await.is_empty());
}

/// Seals and derived ids name the store: after a restart they must still mean this one.
pub async fn a_store_is_the_same_one_when_it_is_opened_again(mut world: World) {
    let (before, another) = (world.store.identity().clone(), MemoryStore::default());
    world.session().await;
    world.crash().await;
    assert_eq!(*world.store.identity(), before);
    assert_ne!(*another.identity(), before);
}

pub async fn the_audit_trail_is_there(mut world: World) {
    for number in 0..AUDIT_MAX + 2 {
        world.store.audit(audit::record(&world, None, number)).await.unwrap();
    }
    let query = AuditQuery { limit: 4, ..AuditQuery::default() };
    let before = world.store.audit_trail(&query).await.unwrap();
    world.crash().await;
    let after = world.store.audit_trail(&query).await.unwrap();
    assert_eq!(after, before);
    let further = AuditQuery { before: after.next, limit: 99, ..query };
    let rest = world.store.audit_trail(&further).await.unwrap();
    assert_eq!(rest.records.len(), AUDIT_MAX - 4);
    world.store.audit(audit::record(&world, None, 99)).await.unwrap();
    let newest = world.store.audit_trail(&AuditQuery { before: None, ..further }).await.unwrap();
    assert_eq!((&*newest.records[0].attempt.action, newest.records.len()), ("99", AUDIT_MAX));
}

fn text_of(seq: Seq) -> NewEvent<Body> {
    event(format!("event {seq}"))
}
