//! The hook behind a URL, with a real server that listens.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use rejoin::core::record::{Ending, Kind, Status, Transport};
use rejoin::core::resume::Asked;
use rejoin::core::{Principal, SessionId};
use rejoin::store::MemoryStore;
use rejoin::{Client, Clock, Sessions, WebHook};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A server that answers `disconnected` as told and shows what it got.
async fn listener(answer: Value) -> (String, mpsc::UnboundedReceiver<(HeaderMap, Value)>) {
    let (got, received) = mpsc::unbounded_channel();
    let failures = Arc::new(Mutex::new(1)); // the first post of all is not taken
    let route = post(move |headers: HeaderMap, Json(body): Json<Value>| async move {
        let fails = std::mem::take(&mut *failures.lock().unwrap()) > 0;
        if fails {
            return Err(axum::http::StatusCode::BAD_GATEWAY);
        }
        let asks = body["type"] == "disconnected";
        got.send((headers, body)).unwrap();
        Ok(Json(if asks { answer.clone() } else { json!({}) }))
    });
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?key=hunter2", socket.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(socket, Router::new().route("/hook", route)).await });
    (url, received)
}

async fn attach_and_leave(url: &str) -> (Sessions, SessionId) {
    let clock = Clock::start();
    let hook = WebHook::start(url, Some(b"s3cret"), clock).unwrap();
    let builder = Sessions::builder(Arc::new(MemoryStore::default())).hook(hook).clock(clock);
    let sessions = builder.start().unwrap();
    let me = Principal::new("ada");
    let id = sessions.create(&me, Kind::Agent, "{}").await.unwrap().id().clone();
    let (transport, asked) = (Transport::Local, Some(Asked::default()));
    let client = Client { principal: me, transport, asked, token: None };
    let mut attachment = sessions.attach(&id, client).await.unwrap();
    attachment.next().await.unwrap();
    drop(attachment);
    (sessions, id)
}

#[tokio::test]
async fn every_step_is_posted_in_order_and_signed_and_a_failed_post_is_made_again() {
    let (url, mut received) = listener(json!({ "cleanup": true })).await;
    let (_sessions, id) = attach_and_leave(&url).await;
    for kind in ["created", "attached", "disconnected", "closed"] {
        let (headers, body) = received.recv().await.unwrap();
        assert_eq!(body["type"], kind);
        assert_eq!(body["session"]["session_id"], id.as_str());
        assert_eq!(body["session"]["principal"], "ada");
        assert!(body["id"].as_str().unwrap().starts_with("hook_"));
        let signature = headers["rejoin-signature"].to_str().unwrap();
        let (time, sum) = signature.split_once(",v1=").unwrap();
        assert!(time.starts_with("t=") && sum.len() == 64, "{signature}");
    }
}

#[tokio::test]
async fn the_answer_decides_how_long_a_session_is_kept() {
    let (url, mut received) = listener(json!({ "keep_for": "50ms" })).await;
    let (sessions, id) = attach_and_leave(&url).await;
    while received.recv().await.unwrap().1["type"] != "expired" {}
    let record = sessions.store().session(&id).await.unwrap().unwrap();
    assert!(matches!(record.status, Status::Ended { ending: Ending::Expired, .. }));
}

#[tokio::test]
async fn an_answer_that_says_nothing_leaves_it_to_the_settings() {
    let (url, mut received) = listener(json!("thanks")).await;
    let (sessions, id) = attach_and_leave(&url).await;
    while received.recv().await.unwrap().1["type"] != "disconnected" {}
    let record = sessions.store().session(&id).await.unwrap().unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert!(record.is_active() && record.expires_at >= record.last_activity + day);
}
