//! What WebSocket frames ask of the service, and embedders of the sessions.

use std::time::Duration;

use rejoin::Cleanup;
use rejoin::core::SessionId;
use rejoin::core::codes::Reason;
use rejoin::core::record::{Kind, Record, Transport};
use rejoin::core::worker::Publication;
use rejoin::service::{Admission, Include, RestoreRequest};
use rejoin::store::Store as _;
use rejoin::{CleanedUp, Sessions};

use crate::abandonment::world::{TURNS, World, at_each_await, me, polled};
use crate::common::failing::FailingStore;
use crate::common::hooks::GiveAway;
use crate::common::{body, settle, until};

#[tokio::test(start_paused = true)]
pub(crate) async fn a_client_that_comes_back_and_goes_leaves_its_session_parked() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        drop(world.join(&record).await);
        world.is_left(&id).await;
        let admission =
            Admission { token: Some(issued.token.as_str().to_owned()), ..Admission::default() };
        let visitor = world.visitor();
        let joining = world.service.join(&visitor, &id, Transport::WebSocket, admission);
        let answered = polled(joining, polls).await.map(|joined| drop(joined.unwrap()));
        world.settles().await;
        nobody_is_there(&world, &id).await;
        let record = world.record(&id).await;
        let came_back = record.generation.get() - 1;
        assert_eq!(world.audited(&id).await, vec![Reason::Reconnected; came_back as usize]);
        assert_eq!(world.hook.times("attached", &id) as u64, record.generation.get());
        assert_eq!(world.hook.times("disconnected", &id) as u64, record.generation.get());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_restored_ends_the_old_one_for_everybody() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let joined = world.join(&record).await;
        let state = Some(body(r#"{"stage":"half","current_step":1}"#));
        let checkpoint = Publication { state, ..Publication::default() };
        world.service.sessions().publish(&id, checkpoint).await.unwrap();
        let (visitor, include) = (world.visitor(), Include::default());
        let exported = world.service.export(&visitor, &id, include).await.unwrap();
        let request =
            RestoreRequest { signed_state: exported.signed_state, admission: Admission::default() };
        let restoring = world.service.restore(&visitor, request, Transport::WebSocket);
        let answered = polled(restoring, polls).await.map(|restored| drop(restored.unwrap()));
        world.settles().await;
        drop(joined);
        let old = world.record(&id).await;
        let restored = usize::from(!old.is_active());
        assert_eq!(world.hook.times("closed", &id), restored);
        assert_eq!(world.audited(&id).await, vec![Reason::Reconnected; restored]);
        assert_eq!(world.sessions().await.len(), 1 + restored);
        world.hook_knows_all().await;
        for record in world.sessions().await {
            nobody_is_there(&world, record.id()).await;
        }
        assert!(restored == 1 || answered.is_none());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn who_attaches_and_goes_is_not_attached_for_ever() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let client = rejoin::Client {
            principal: me(),
            transport: Transport::Local,
            asked: None,
            token: None,
        };
        let sessions = world.service.sessions().clone();
        let attaching = async {
            let mut attachment = sessions.attach(&id, client).await.unwrap();
            attachment.next().await
        };
        let answered = polled(attaching, polls).await;
        world.settles().await;
        nobody_is_there(&world, &id).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_clean_up_is_done_to_its_end_whoever_waits_for_it() {
    for polls in 0..40 {
        let (hook, mut cleanups) = GiveAway::new();
        let store = FailingStore::new();
        store.take_turns(TURNS);
        let sessions = Sessions::builder(store.clone()).hook(hook).start().unwrap();
        let id = sessions.create(&me(), Kind::Agent, "{}").await.unwrap().id().clone();
        let client = rejoin::Client {
            principal: me(),
            transport: Transport::Local,
            asked: None,
            token: None,
        };
        drop(sessions.attach(&id, client).await.unwrap());
        let asked = tokio::time::timeout(Duration::from_secs(20), cleanups.recv()).await;
        let cleanup: Cleanup = asked.expect("the hook is asked").unwrap();
        let done = polled(cleanup.run(), polls).await;
        for _ in 0..40 * (TURNS + 1) {
            tokio::task::yield_now().await;
        }
        settle().await;
        let ended = store.session(&id).await.unwrap().is_some_and(|record| !record.is_active());
        assert!(ended == (polls > 0), "after {polls} polls");
        if let Some(done) = done {
            assert_eq!(done, Ok(CleanedUp::Ended));
            return;
        }
    }
    panic!("it was never done");
}

/// Nobody is attached, and no driver waits for somebody.
async fn nobody_is_there(world: &World, id: &SessionId) {
    let left = async |record: &Record| record.attached.is_none() || !record.is_active();
    until(async || left(&world.record(id).await).await).await;
    until(async || world.service.sessions().live() == 0).await;
}
