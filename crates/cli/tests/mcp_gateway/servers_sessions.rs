//! The session that an HTTP server has for one of ours outlives Rejoin, and what it remembers with it.

use std::process::Command;

use crate::caller::Caller;
use crate::common::server_process::ServerProcess;
use crate::gateway;
use crate::upstream::Upstream;

async fn begin() -> (Upstream, ServerProcess, Caller) {
    let upstream = Upstream::start().await;
    let rejoin = gateway(&upstream, &[]).await;
    let caller = Caller::begin(rejoin.address(), 1, 1).await;
    (upstream, rejoin, caller)
}

#[tokio::test]
async fn a_server_remembers_its_session_when_rejoin_was_killed() {
    let (upstream, mut rejoin, caller) = begin().await;
    assert_eq!(caller.ask(1, "count").await, "1");
    for count in 2..=3 {
        rejoin.kill_nine().await;
        rejoin.restart().await;
        assert_eq!(caller.ask(count, "count").await, count.to_string());
    }
    assert_eq!(upstream.made(), 1);
    caller.end().await;
    while upstream.sessions() > 0 {
        tokio::task::yield_now().await; // the server is told when the session is over
    }
}

#[tokio::test]
async fn a_server_remembers_its_session_when_rejoin_was_stopped_in_an_orderly_way() {
    let (upstream, mut rejoin, caller) = begin().await;
    assert_eq!(caller.ask(1, "count").await, "1");
    let id = rejoin.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(rejoin.ended().await.success());
    rejoin.restart().await;
    assert_eq!(caller.ask(2, "count").await, "2");
    assert_eq!(upstream.made(), 1);
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_meanwhile_is_made_again() {
    let (upstream, mut rejoin, caller) = begin().await;
    assert_eq!(caller.ask(1, "count").await, "1");
    rejoin.kill_nine().await;
    upstream.forget();
    rejoin.restart().await;
    assert_eq!(caller.ask(2, "count").await, "1");
    assert_eq!(caller.ask(3, "count").await, "2");
    assert_eq!(upstream.made(), 2);
}
