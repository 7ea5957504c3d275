//! A client asks for a stream whose result is not kept any more.

use serde_json::json;

use crate::clients::{Pending, text_of};
use crate::rig::Rig;
use crate::server::Manager;

/// JSON-RPC: the result was there, and is no more.
const RESULT_EVICTED: i64 = -32051;

/// Two results get ready while the client is away, and the session has room for the second only.
async fn room_for_one_result(manager: Manager) -> (Rig, Pending, Pending) {
    let change = |settings: &mut crate::server::Settings| {
        (settings.data, settings.log_bytes) = (None, Some(4_000));
    };
    let mut rig = Rig::with(manager, change).await;
    let first = json!({ "ms": 1_000, "key": "first", "bytes": 3_000 });
    let first = rig.begin_hopeless("slow", first).await;
    rig.ran("start slow first").await;
    rig.network.can_resume("first").await;
    let second = json!({ "ms": 1_500, "key": "second", "bytes": 3_000 });
    let second = rig.begin_hopeless("slow", second).await;
    rig.ran("start slow second").await;
    rig.network.can_resume("second").await;
    rig.network.go_down();
    rig.ran("end slow second").await;
    rig.network.come_up();
    (rig, first, second)
}

#[tokio::test]
async fn a_call_whose_result_is_no_longer_kept_ends_with_an_error_that_says_so() {
    let (mut rig, first, second) = room_for_one_result(Manager::Rejoin).await;
    let error = rig.client.answer(first).await.expect_err("there was no room for it");
    assert_eq!(error["code"], RESULT_EVICTED, "{error}");
    let result = rig.client.answer(second).await.expect("the second is there");
    assert!(text_of(&result).starts_with("slept 1500 ms for second"));
}

#[tokio::test]
async fn rmcps_own_manager_answers_a_resume_that_fails_with_an_empty_stream() {
    let (mut rig, first, second) = room_for_one_result(Manager::Rmcp).await;
    rig.timed_out(first).await;
    rig.timed_out(second).await;
}
