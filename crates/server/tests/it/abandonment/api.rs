//! Routes under `/api`.

use rejoin::Told;
use rejoin::core::codes::{CloseCode, Reason};
use rejoin::core::limits::TOKEN_GRACE;
use rejoin::core::reader::LeaveReason;
use rejoin::core::worker::Publication;
use rejoin::store::Store as _;
use serde_json::json;

use crate::abandonment::world::{World, at_each_await, request};
use crate::common::{body, pass, until};

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_is_made_with_its_token_or_not_at_all() {
    at_each_await(async |world, polls| {
        let answered = world.request(request("POST", "/api/sessions", "{}"), polls).await;
        world.settles().await;
        let sessions = world.sessions().await;
        assert!(sessions.len() == 1 || (sessions.is_empty() && answered.is_none()));
        world.hook_knows_all().await;
        for record in sessions {
            let tokens = world.store.tokens(record.id()).await.unwrap().unwrap();
            assert_eq!(tokens.live().len(), 1);
        }
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_ended_is_ended_for_everybody() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let mut joined = world.join(&record).await;
        world.work(&id).await;
        let path = format!("/api/sessions/{id}");
        let answered = world.request(request("DELETE", &path, ""), polls).await;
        world.settles().await;
        let record = world.record(&id).await;
        if record.is_active() {
            assert_eq!((answered, world.hook.times("closed", &id)), (None, 0));
            assert_eq!(world.running.count(), 1);
            return false;
        }
        assert_eq!(world.hook.times("closed", &id), 1);
        let told = loop {
            match joined.attachment.next().await {
                Some(Told::Tell(_)) => {}
                told => break told,
            }
        };
        let ended = LeaveReason::Closed(CloseCode::SessionEnded);
        assert!(matches!(told, Some(Told::Leave(reason)) if reason == ended), "{told:?}");
        until(async || world.running.count() == 0 && world.service.sessions().live() == 0).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_token_that_is_used_is_in_the_audit_trail() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        let answered = world.request(presenting(&id, issued.token.as_str()), polls).await;
        world.settles().await;
        let used = world.record(&id).await.reconnect_count;
        let expected = vec![Reason::Reconnected; usize::try_from(used).unwrap()];
        assert_eq!(world.audited(&id).await, expected);
        let tokens = world.store.tokens(&id).await.unwrap().unwrap();
        assert_eq!(tokens.live().len(), 1);
        assert!(used == 1 || answered.is_none());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn tokens_that_a_thief_revokes_are_in_the_audit_trail() {
    at_each_await(async |world, polls| {
        let (record, issued) = world.session().await;
        let id = record.id().clone();
        let token = issued.token.as_str();
        assert_eq!(world.call(presenting(&id, token)).await.status(), 200);
        pass(TOKEN_GRACE * 2).await;
        let answered = world.request(presenting(&id, token), polls).await;
        world.settles().await;
        let revoked = world.store.tokens(&id).await.unwrap().unwrap().live().is_empty();
        let noticed = world.audited(&id).await.contains(&Reason::TokenReused);
        assert_eq!(revoked, noticed);
        assert!(revoked || answered.is_none());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_message_that_is_entered_reaches_the_agent() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let path = format!("/api/sessions/{id}/messages");
        let message = json!({ "content": "hello", "message_id": "m1" }).to_string();
        let answered = world.request(request("POST", &path, message), polls).await;
        world.settles().await;
        let entered = world.record(&id).await.in_head.get();
        until(async || world.running.count() as u64 == entered).await;
        assert!(entered == 1 || answered.is_none());
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn what_is_published_is_told_to_who_is_attached() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let mut joined = world.join(&record).await;
        let path = format!("/api/sessions/{id}/events");
        let event = json!({ "event": "agent.says", "content": 1 }).to_string();
        let answered = world.request(request("POST", &path, event), polls).await;
        world.settles().await;
        let published = world.record(&id).await.head.get();
        assert!(published == 1 || answered.is_none());
        if published == 1 {
            let told = joined.attachment.next().await;
            assert!(matches!(told, Some(Told::Tell(_))), "{told:?}");
        }
        drop(joined);
        world.is_left(&id).await;
        until(async || world.service.sessions().live() == 0).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_session_that_is_cut_is_parked_and_the_hook_is_asked() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let joined = world.join(&record).await;
        let path = format!("/api/sessions/{id}/disconnect");
        let answered = world.request(request("POST", &path, ""), polls).await;
        world.settles().await;
        let parked = world.record(&id).await.attached.is_none();
        until(async || world.hook.times("disconnected", &id) == usize::from(parked)).await;
        assert!(parked || answered.is_none());
        drop(joined);
        world.is_left(&id).await;
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_token_that_is_issued_is_known_and_nothing_else_changes() {
    for method in ["GET", "POST"] {
        at_each_await(async |world, polls| {
            let (record, _) = world.session().await;
            let id = record.id().clone();
            let path = format!("/api/sessions/{id}/token");
            let answered = world.request(request(method, &path, ""), polls).await;
            world.settles().await;
            let live = world.store.tokens(&id).await.unwrap().unwrap().live().len();
            assert!(live == 2 || (live == 1 && answered.is_none()));
            assert_eq!(world.service.sessions().live(), 0);
            answered.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
pub(crate) async fn an_agent_that_is_restarted_is_replaced_by_one() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        world.work(&id).await;
        let path = format!("/api/sessions/{id}/restart");
        let answered = world.request(request("POST", &path, ""), polls).await;
        world.settles().await;
        until(async || world.running.count() == 1).await;
        // Each is given the message: the one that was ended had not covered it.
        until(async || world.running.given() == world.running.begun()).await;
        let restarted = world.running.begun() - 1;
        assert!(restarted == 1 || (restarted == 0 && answered.is_none()), "{restarted}");
        answered.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
pub(crate) async fn a_state_that_is_exported_changes_nothing() {
    at_each_await(async |world, polls| {
        let (record, _) = world.session().await;
        let id = record.id().clone();
        let state = Some(body(r#"{"stage":"half","current_step":1}"#));
        let checkpoint = Publication { state, ..Publication::default() };
        world.service.sessions().publish(&id, checkpoint).await.unwrap();
        until(async || world.service.sessions().live() == 0).await;
        let before = world.record(&id).await;
        let path = format!("/api/sessions/{id}/state");
        let answered = world.request(request("POST", &path, ""), polls).await;
        assert!(answered.is_none_or(|status| status == 200), "{answered:?}");
        world.settles().await;
        assert_eq!(world.record(&id).await, before);
        assert_eq!(world.service.sessions().live(), 0);
        answered.is_some()
    })
    .await;
}

fn presenting(id: &rejoin::core::SessionId, token: &str) -> axum::http::Request<axum::body::Body> {
    let path = format!("/api/sessions/{id}/reconnect");
    request("POST", &path, json!({ "token": token }).to_string())
}

/// The tests would pass if nothing ever happened: a request that is let go on does what it says.
#[tokio::test(start_paused = true)]
pub(crate) async fn a_request_that_is_not_abandoned_is_answered() {
    let world = World::new();
    let answered = world.request(request("POST", "/api/sessions", "{}"), 10_000).await;
    assert_eq!(answered.map(|status| status.as_u16()), Some(201));
}
