//! What becomes of a session whose client has gone, and when: without a hook, and under each of the patterns in
//! examples/. Time is skipped, not waited for.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

mod common;
#[path = "../examples/metrics.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example, whose server is not needed here")]
mod metrics;
#[path = "../examples/ttl.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example, whose server is not needed here")]
mod ttl;
#[path = "../examples/while_pending.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example, whose server is not needed here")]
mod while_pending;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{World, pass, until};
use http::StatusCode;
use rejoin_rmcp::core::lifetime::OnDisconnect;
use rejoin_rmcp::core::record::{Ending, Status};
use rejoin_rmcp::{CleanedUp, Cleanup, ServerSettings};
use serde_json::json;
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// How long a session stays attached after its last stream, and a little more.
const A_MOMENT: Duration = Duration::from_millis(1_500);

/// A client has come, and gone.
async fn come_and_go(world: &World) -> String {
    let session = world.http.begin().await;
    drop(world.http.listen(&session).await);
    pass(A_MOMENT).await;
    session
}

async fn ending(world: &World, session: &str) -> Option<Ending> {
    match world.record(session).await?.status {
        Status::Active => None,
        Status::Ended { ending, .. } => Some(ending),
    }
}

/// What a client gets that comes back.
async fn comes_back(world: &World, session: &str) -> StatusCode {
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    world.http.post(session, list).await.status()
}

#[tokio::test(start_paused = true)]
async fn without_a_hook_a_session_is_kept_for_its_ttl() {
    let world = World::new(|builder| builder);
    let session = come_and_go(&world).await;
    assert!(!world.is_attached(&session).await);
    pass(23 * HOUR).await;
    assert_eq!(comes_back(&world, &session).await, StatusCode::OK);
    pass(24 * HOUR + MINUTE).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::Expired));
    assert_eq!(comes_back(&world, &session).await, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn without_a_hook_the_policy_of_the_settings_holds() {
    let mut settings = ServerSettings::default();
    settings.session.lifetime.on_disconnect = OnDisconnect::Immediate;
    let world = World::new(|builder| builder.settings(settings));
    let session = world.http.begin().await;
    let listening = world.http.listen(&session).await;
    pass(HOUR).await;
    assert!(world.is_attached(&session).await, "with a stream it is attached");
    drop(listening);
    pass(A_MOMENT).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::CleanedUp));
}

#[tokio::test(start_paused = true)]
async fn an_idle_handler_is_let_go_and_made_again_for_its_client() {
    let world = World::new(|builder| builder);
    let session = come_and_go(&world).await;
    assert_eq!(world.manager.handlers(), 1);
    pass(11 * MINUTE).await;
    assert_eq!(world.manager.handlers(), 0);
    assert_eq!(comes_back(&world, &session).await, StatusCode::OK);
    assert_eq!(world.manager.handlers(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_at_work_is_never_idle() {
    let world = World::new(|builder| builder);
    let session = world.http.begin().await;
    let mut events = world.http.call(&session, 1, "work", json!({ "seconds": 7_200 })).await;
    let place = events.next().await.unwrap().id.unwrap();
    drop(events);
    pass(HOUR).await;
    assert_eq!(world.manager.handlers(), 1, "it works, though nobody is there");
    assert!(world.is_attached(&session).await, "a request under way counts as somebody");
    pass(HOUR + MINUTE).await; // the result is there, and kept for an hour
    let mut again = common::Events::of(world.http.resume(&session, &place).await);
    assert_eq!(again.result().await["result"]["content"][0]["text"], "run 1");
}

#[tokio::test(start_paused = true)]
async fn ttl_keeps_a_session_for_five_minutes() {
    let world = World::new(|builder| builder.on_session_disconnect(ttl::ttl));
    let session = come_and_go(&world).await;
    pass(ttl::TTL - 5 * SECOND).await;
    assert!(world.is_alive(&session).await);
    pass(5 * SECOND).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::Expired));
    assert_eq!(comes_back(&world, &session).await, StatusCode::NOT_FOUND);
    until("the handler has ended", async || world.manager.handlers() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn ttl_begins_anew_with_each_disconnect() {
    let world = World::new(|builder| builder.on_session_disconnect(ttl::ttl));
    let session = come_and_go(&world).await;
    pass(ttl::TTL - 5 * SECOND).await;
    drop(world.http.listen(&session).await);
    pass(ttl::TTL - 5 * SECOND).await;
    assert!(world.is_alive(&session).await, "the clean-up of the first disconnect does nothing");
    pass(10 * SECOND).await;
    assert!(!world.is_alive(&session).await);
}

#[tokio::test(start_paused = true)]
async fn metrics_counts_each_disconnect_and_ends_the_session_at_once() {
    let counted = Arc::new(metrics::Metrics::default());
    let counting = Arc::clone(&counted);
    let world = World::new(|builder| {
        builder.on_session_disconnect(move |session, cleanup| {
            Arc::clone(&counting).count(session, cleanup)
        })
    });
    for expected in 1..=3 {
        let session = come_and_go(&world).await;
        assert_eq!(ending(&world, &session).await, Some(Ending::CleanedUp));
        assert_eq!(counted.disconnected.load(Ordering::Relaxed), expected);
        assert_eq!(counted.cleaned_up.load(Ordering::Relaxed), expected);
    }
}

fn world_with_jobs() -> (World, while_pending::Jobs) {
    let jobs = while_pending::Jobs::default();
    let asked = jobs.clone();
    let world = World::new(|builder| {
        builder.on_session_disconnect(move |session, cleanup| {
            asked.clone().keep_while_pending(session, cleanup)
        })
    });
    (world, jobs)
}

#[tokio::test(start_paused = true)]
async fn while_pending_keeps_a_session_until_its_last_job_is_done() {
    let (world, jobs) = world_with_jobs();
    let session = world.http.begin().await;
    let (first, second) = (jobs.begin(&session), jobs.begin(&session));
    let _of_another = jobs.begin("sess_of_somebody_else");
    drop(world.http.listen(&session).await);
    pass(10 * MINUTE).await;
    drop(first);
    pass(10 * MINUTE).await;
    assert!(world.is_alive(&session).await, "one is pending");
    drop(second);
    pass(SECOND).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::CleanedUp));
}

#[tokio::test(start_paused = true)]
async fn while_pending_ends_a_session_without_jobs_at_once() {
    let (world, _jobs) = world_with_jobs();
    let session = come_and_go(&world).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::CleanedUp));
}

#[tokio::test(start_paused = true)]
async fn while_pending_does_nothing_to_a_session_whose_client_has_come_back() {
    let (world, jobs) = world_with_jobs();
    let session = world.http.begin().await;
    let job = jobs.begin(&session);
    drop(world.http.listen(&session).await);
    pass(MINUTE).await;
    let _listening = world.http.listen(&session).await;
    drop(job);
    pass(HOUR).await;
    assert!(world.is_attached(&session).await);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_forgets_its_clean_up_leaks_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&asked);
    let mut settings = ServerSettings::default();
    settings.session.lifetime.disconnect_ttl = Some(HOUR);
    let world = World::new(|builder| {
        builder.settings(settings).on_session_disconnect(move |_, cleanup| {
            counting.fetch_add(1, Ordering::Relaxed);
            drop(cleanup);
            std::future::ready(())
        })
    });
    let session = come_and_go(&world).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    pass(HOUR - MINUTE).await;
    assert!(world.is_alive(&session).await);
    pass(2 * MINUTE).await;
    assert_eq!(ending(&world, &session).await, Some(Ending::Expired));
    assert_eq!(world.manager.handlers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stale_clean_up_does_nothing_to_a_client_that_is_back() {
    let (give, mut given) = mpsc::unbounded_channel::<Cleanup>();
    let world = World::new(|builder| {
        builder.on_session_disconnect(move |_, cleanup| {
            let _ = give.send(cleanup);
            std::future::ready(())
        })
    });
    let session = come_and_go(&world).await;
    let stale = given.recv().await.unwrap();
    let mut listening = world.http.listen(&session).await;
    listening.next().await.unwrap();
    assert_eq!(stale.run().await.unwrap(), CleanedUp::Stale);
    assert!(world.is_attached(&session).await);
    let mut events = world.http.call(&session, 1, "work", json!({})).await;
    assert_eq!(events.result().await["result"]["content"][0]["text"], "run 1");
}
