//! Readers of a session that loses events between two looks of theirs: each event comes, or is said to be missing.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::failing::FailingStore;
use crate::common::going_over::{NEWEST, call_and_leave, reconnect, token};
use crate::common::mcp::Peer;
use crate::common::web::{Setup, Web};
use crate::common::{event, said};
use rejoin::core::limits::LogBounds;
use rejoin::core::record::Transport;
use rejoin::core::resume::Gap;
use rejoin::core::worker::Publication;
use rejoin::core::{Seq, SessionId};
use rejoin::mcp::Gateway;
use rejoin::service::{Observed, Place, Visitor};
use rejoin::store::MemoryStore;
use rejoin::web::{McpSettings, WebSettings};
use rejoin::{Authenticate as _, Open, Sessions};
use serde_json::json;

/// A session holds so many events.
const HELD: u64 = 3;

fn store() -> Arc<FailingStore> {
    let bounds = LogBounds { events: HELD as usize, ..LogBounds::default() };
    FailingStore::on(MemoryStore::new(bounds, 100))
}

/// So many events are published one by one.
async fn publish(sessions: Sessions, id: SessionId, count: u64) {
    for number in 0..count {
        let events = vec![event(number.to_string())];
        sessions.publish(&id, Publication { events, ..said() }).await.unwrap();
    }
}

/// A session with five events, of which the last three are held.
async fn five_events(store: &Arc<FailingStore>) -> (Web, SessionId) {
    let web = Setup { store: store.clone(), ..Setup::open() }.start().await;
    let id = SessionId::parse(&web.create().await.0).unwrap();
    publish(web.service.sessions().clone(), id.clone(), 5).await;
    (web, id)
}

/// What somebody sees who has the first two, while so many more are published between two looks.
async fn observed(store: &Arc<FailingStore>, web: &Web, id: &SessionId, more: u64) -> Observed {
    let sessions = web.service.sessions();
    let epoch = sessions.store().session(id).await.unwrap().unwrap().epoch.clone();
    store.before_next_read(id, publish(sessions.clone(), id.clone(), more));
    let visitor = Visitor::over(Transport::Local, Open.without_credential().unwrap(), None);
    let place = Place { after: Some(Seq::new(2)), epoch: Some(epoch) };
    web.service.await_events(&visitor, id, &place, Duration::ZERO).await.unwrap()
}

#[tokio::test]
async fn an_observer_is_told_of_events_that_were_evicted_before_its_page_was_read() {
    for (more, missing) in [(0, None), (1, Some((3, 3))), (3, Some((3, 5))), (9, Some((3, 11)))] {
        let store = store();
        let (web, id) = five_events(&store).await;
        let Observed { events, gap, .. } = observed(&store, &web, &id, more).await;
        let gap = gap.map(|gap| match gap {
            Gap::Evicted { missing, .. } => (missing.from.get(), missing.to.get()),
            Gap::PositionUnknown => panic!("its position is known"),
        });
        assert_eq!(gap, missing, "{more} more");
        let seqs: Vec<_> = events.iter().map(|event| event.seq.get()).collect();
        let head = 5 + more;
        assert_eq!(seqs, (head - HELD + 1..=head).collect::<Vec<_>>(), "{more} more");
    }
}

/// The position is of a future that a restored backup does not have. It may come to be while the page is read.
#[tokio::test]
async fn an_observer_from_the_future_is_not_left_behind() {
    let store = store();
    let (web, id) = five_events(&store).await;
    let sessions = web.service.sessions();
    let epoch = sessions.store().session(&id).await.unwrap().unwrap().epoch.clone();
    let visitor = Visitor::over(Transport::Local, Open.without_credential().unwrap(), None);
    store.before_next_read(&id, publish(sessions.clone(), id.clone(), 4));
    let place = Place { after: Some(Seq::new(7)), epoch: Some(epoch) };
    let observed = web.service.observe(&visitor, &id, &place).await.unwrap();
    let seqs: Vec<_> = observed.events.iter().map(|event| event.seq.get()).collect();
    assert_eq!((seqs, observed.gap), (vec![8, 9], None));
}

/// A result that no client has fetched steps aside for newer events. It waits for its client all the same.
#[tokio::test]
async fn a_result_that_steps_aside_while_what_waits_is_read_is_among_it() {
    let bounds = LogBounds { events: 4, ..LogBounds::default() };
    let store = FailingStore::on(MemoryStore::new(bounds, 100));
    let keyed = Setup { store: store.clone(), ..Setup::keyed() };
    let mcp = McpSettings { session_tools: true, ..McpSettings::default() };
    let web = WebSettings { mcp, ..keyed.web };
    let gateway = Gateway::built_in().session_tools(true);
    let web = Setup { web, mcp: Some(gateway), ..keyed }.start().await;

    let lost = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let token = token(&lost).await;
    call_and_leave(&web, &lost, 7).await;
    let id = SessionId::parse(&lost.session).unwrap();
    let result = web.store.session(&id).await.unwrap().unwrap().head;
    store.before_next_read(&id, publish(web.service.sessions().clone(), id.clone(), 4));

    let peer = Peer::begin_as(&web, NEWEST, Some("alice")).await;
    let answer = reconnect(&peer, 1, &lost.session, &token).await;
    let record = web.store.session(&id).await.unwrap().unwrap();
    assert!(record.oldest > result, "the result is where it was");
    assert_eq!(answer["waiting"][0]["request"]["id"], json!(7), "{answer}");
}
