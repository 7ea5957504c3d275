//! The gateway before a server behind a URL, which misbehaves on purpose.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::time::Duration;

use crate::common::mcp_client::{Client, in_haste, kept_in, serve, serve_on};
use crate::common::upstream::{Manners, Upstream};
use crate::common::web::{Setup, Web};
use rejoin::ServerSettings;
use rejoin::mcp::Gateway;
use serde_json::json;

const OUTCOME_UNKNOWN: (i64, &str) = (-32050, "upstream_lost");
const UNAVAILABLE: (i64, &str) = (-32052, "upstream_unavailable");

/// So soon an idle gateway goes.
const IDLE: Duration = Duration::from_millis(50);

async fn before(upstream: &Upstream) -> (Web, Client) {
    let web = serve(Gateway::http(&upstream.url()).unwrap()).await;
    let client = Client::begin(&web).await;
    (web, client)
}

fn error((code, reason): &(i64, String)) -> (i64, &str) {
    (*code, reason)
}

#[tokio::test]
async fn an_answer_that_is_json_arrives() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    assert_eq!(client.call(1, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn messages_on_the_stream_of_a_request_arrive_on_the_stream_of_that_request() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let mut held = client.call(1, "write_held", json!({})).await;
    let mut other = client.call(2, "write_sse", json!({})).await;
    assert_eq!(other.next().await["params"]["data"], "write_sse");
    assert_eq!(other.text().await, "run 1");
    upstream.state.release.send_replace(true);
    assert!(held.next().await.get("result").is_some(), "nothing else came here");
}

#[tokio::test]
async fn session_and_revision_are_named_once_they_are_known_and_the_clients_own_headers_never() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    client.call(1, "write_json", json!({})).await.text().await;
    let first = &upstream.heard("initialize")[0];
    assert_eq!(
        (first.header("mcp-session-id"), first.header("mcp-protocol-version")),
        (None, None)
    );
    let call = &upstream.heard("tools/call")[0];
    assert_eq!(call.header("mcp-session-id"), Some("upstream-1"));
    assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(call.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(call.header("authorization"), None);
}

#[tokio::test]
async fn a_stream_that_broke_after_an_id_is_gone_on_with_and_the_tool_runs_once() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    assert_eq!(client.call(1, "write_resumable", json!({})).await.text().await, "at last");
    assert_eq!(upstream.runs("write_resumable"), 1);
}

#[tokio::test]
async fn of_a_call_whose_stream_broke_without_an_id_nobody_knows_what_it_did() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let told = client.call(1, "write_broken", json!({})).await.error().await;
    assert_eq!(error(&told), OUTCOME_UNKNOWN);
    assert_eq!(upstream.runs("write_broken"), 1, "it did not run again");
}

#[tokio::test]
async fn a_call_that_only_reads_runs_again_when_its_stream_broke_without_an_id() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    assert_eq!(client.call(1, "read_broken", json!({})).await.text().await, "run 2");
    assert_eq!(upstream.heard("initialize").len(), 1, "the session went on");
}

#[tokio::test]
async fn a_call_that_only_reads_runs_again_though_the_server_breaks_off_our_own_question() {
    let upstream = Upstream::with(Manners { breaks_off: 2, ..Manners::default() });
    let (_web, client) = before(&upstream).await;
    assert_eq!(client.call(1, "read_broken", json!({})).await.text().await, "run 2");
}

#[tokio::test]
async fn a_call_that_was_about_to_be_refused_when_the_session_was_forgotten_runs_once() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    upstream.announce("the general stream is heard").await;
    upstream.state.set(Manners { refuses_late: true, ..Manners::default() });
    upstream.forget();
    let mut call = client.call(1, "write_json", json!({})).await;
    upstream.has_heard("tools/call", 1).await;
    upstream.break_general(); // it is told 404 before the call is
    upstream.has_heard("GET", 2).await;
    upstream.state.release.send_replace(true);
    assert_eq!(call.text().await, "run 1");
}

#[tokio::test]
async fn a_failure_without_a_word_leaves_the_outcome_unknown() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let told = client.call(1, "write_failing", json!({})).await.error().await;
    assert_eq!(error(&told), OUTCOME_UNKNOWN);
    assert_eq!(client.call(2, "read_failing", json!({})).await.text().await, "run 2");
}

#[tokio::test]
async fn a_503_that_names_no_time_to_come_back_leaves_the_outcome_unknown() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let told = client.call(1, "write_gone", json!({})).await.error().await;
    assert_eq!(error(&told), OUTCOME_UNKNOWN);
    assert_eq!(upstream.runs("write_gone"), 1, "it did not run again");
    assert_eq!(client.call(2, "read_gone", json!({})).await.text().await, "run 2");
}

#[tokio::test]
async fn a_failure_with_a_json_rpc_error_passes_as_it_came() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let answer = client.call(1, "write_erring", json!({})).await.answer().await;
    let expected = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -7, "message": "no" } });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let answer = client.call(1, "write_refused", json!({})).await.answer().await;
    assert_eq!(answer["error"]["message"], "the MCP server answered 401");
    assert_eq!(answer["error"]["data"]["reason"], "upstream_refused");
}

#[tokio::test]
async fn a_server_that_forgot_its_session_gets_a_new_one_and_the_call_runs_once() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    client.ask(1, "logging/setLevel", json!({ "level": "error" })).await.answer().await;
    upstream.forget();
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 1");
    let level = upstream.heard("logging/setLevel");
    assert_eq!(level.len(), 2, "set-up calls are made again");
    assert_eq!(level[1].header("mcp-session-id"), Some("upstream-2"));
    assert_eq!(level[1].message["params"], json!({ "level": "error" }));
}

#[tokio::test]
async fn a_server_that_says_400_of_a_session_it_forgot_is_understood() {
    let stale = (400, "Bad Request: No valid session ID provided");
    let upstream = Upstream::with(Manners { stale, ..Manners::default() });
    let (_web, client) = before(&upstream).await;
    upstream.forget();
    assert_eq!(client.call(1, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn what_else_was_under_way_when_a_session_was_forgotten_follows_the_rule() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let mut written = client.call(1, "write_held", json!({})).await;
    let mut read = client.call(2, "read_held", json!({})).await;
    upstream.has_run("write_held", 1).await;
    upstream.has_run("read_held", 1).await;
    upstream.forget();
    assert_eq!(client.call(3, "write_json", json!({})).await.text().await, "run 1");
    assert_eq!(error(&written.error().await), OUTCOME_UNKNOWN);
    upstream.state.release.send_replace(true);
    assert_eq!(read.text().await, "run 2");
    assert_eq!(upstream.runs("write_held"), 1);
}

#[tokio::test]
async fn a_server_that_forgets_every_session_at_once_is_not_asked_for_ever() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    upstream.state.set(Manners { forgetful: true, ..Manners::default() });
    upstream.forget();
    let told = client.call(1, "write_json", json!({})).await.error().await;
    assert_eq!(error(&told), UNAVAILABLE);
    assert_eq!(upstream.runs("write_json"), 0);
    assert!(upstream.heard("tools/call").len() <= 2, "it may be lying");
}

#[tokio::test]
async fn a_call_runs_once_where_its_server_may_have_run_it_and_never_more_than_twice() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    for (id, tool, runs) in [(1, "write_listed", 1), (2, "write_worded", 1), (3, "write_denied", 2)]
    {
        let answer = client.call(id, tool, json!({})).await.answer().await;
        assert!(answer["error"].is_object(), "{answer}");
        assert_eq!(upstream.runs(tool), runs, "{tool}: {answer}");
    }
    assert_eq!(client.call(4, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn a_server_that_died_in_mid_call_and_comes_back_leaves_the_outcome_unknown() {
    let mut upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let mut call = client.call(1, "write_held", json!({})).await;
    upstream.has_run("write_held", 1).await;
    upstream.kill();
    upstream.revive().await;
    assert_eq!(error(&call.error().await), OUTCOME_UNKNOWN);
    assert_eq!(upstream.runs("write_held"), 1);
    upstream.state.release.send_replace(true);
    let next = client.call(2, "write_held", json!({})).await.text().await;
    assert_eq!(next, "run 2", "the session goes on");
}

#[tokio::test]
async fn a_call_that_only_reads_survives_the_death_of_its_server() {
    let mut upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let mut call = client.call(1, "read_held", json!({})).await;
    upstream.has_run("read_held", 1).await;
    upstream.kill();
    upstream.state.release.send_replace(true);
    upstream.revive().await;
    assert_eq!(call.text().await, "run 2");
}

#[tokio::test]
async fn a_call_made_while_the_server_is_away_waits_for_it() {
    let mut upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    upstream.kill();
    let mut call = client.call(1, "write_json", json!({})).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // it is away for a while
    upstream.revive().await;
    assert_eq!(call.text().await, "run 1");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_client_is_told_what_to_do() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let answer = client.call(1, "read_moved", json!({})).await.answer().await;
    let error = json!({
        "code": -32052,
        "message": "the MCP server answered 307; name the URL that it leads to",
        "data": { "reason": "upstream_refused" },
    });
    assert_eq!(answer["error"], error);
    assert_eq!(upstream.runs("read_moved"), 1, "it is not asked again");
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn a_server_that_has_no_room_is_asked_again() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    upstream.state.set(Manners { busy: 2, ..Manners::default() });
    assert_eq!(client.call(1, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn what_begins_a_session_and_what_we_ask_ourselves_is_said_again_after_any_503() {
    let upstream = Upstream::with(Manners { away: 2, ..Manners::default() });
    let (_web, client) = before(&upstream).await;
    assert_eq!(upstream.heard("initialize").len(), 3);
    upstream.announce("the general stream is heard").await;
    upstream.state.set(Manners { away: 4, ..Manners::default() });
    assert_eq!(client.call(1, "read_json", json!({})).await.text().await, "run 1");
    assert_eq!(upstream.heard("tools/list").len(), 4, "whether it only reads");
}

#[tokio::test]
async fn a_server_that_stays_away_is_given_up() {
    let mut upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    upstream.kill();
    let mut call = client.call(1, "write_json", json!({})).await;
    let told = in_haste(call.error()).await;
    assert_eq!(error(&told), UNAVAILABLE);
}

#[tokio::test]
async fn a_server_that_never_was_there_is_an_error_of_initialize() {
    let mut upstream = Upstream::start();
    upstream.kill();
    let web = serve(Gateway::http(&upstream.url()).unwrap()).await;
    let mut hello = Client::hello(&web).await;
    let told = in_haste(hello.error()).await;
    assert_eq!(error(&told), UNAVAILABLE);
}

#[tokio::test]
async fn what_belongs_to_no_request_arrives_on_the_general_stream_also_after_it_broke() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let mut general = client.listen().await;
    upstream.announce("one").await;
    assert_eq!(general.next().await["params"]["data"], "one");
    upstream.break_general();
    upstream.has_heard("GET", 2).await;
    assert_eq!(upstream.heard("GET")[1].header("last-event-id"), Some("one"));
    upstream.announce("two").await;
    assert_eq!(general.next().await["params"]["data"], "two");
}

#[tokio::test]
async fn a_server_without_a_general_stream_is_not_asked_for_it_again() {
    let upstream = Upstream::with(Manners { general: false, ..Manners::default() });
    let (_web, client) = before(&upstream).await;
    upstream.has_heard("GET", 1).await;
    assert_eq!(client.call(1, "write_resumable", json!({})).await.text().await, "at last");
    let asked = upstream.heard("GET");
    assert_eq!(asked.iter().filter(|get| get.header("last-event-id").is_none()).count(), 1);
}

#[tokio::test]
async fn an_answer_over_the_limit_is_an_error_and_not_a_hang() {
    let upstream = Upstream::start();
    let gateway = Gateway::http(&upstream.url()).unwrap().max_bytes(100_000);
    let web = serve(gateway).await;
    let client = Client::begin(&web).await;
    let told = client.call(1, "write_huge", json!({})).await.error().await;
    assert_eq!(error(&told), (-32051, "result_too_large"));
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn a_large_answer_within_the_limit_arrives_whole() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    assert_eq!(client.call(1, "write_huge", json!({})).await.text().await.len(), 1 << 20);
}

#[tokio::test]
async fn a_cancellation_names_the_request_as_the_server_knows_it() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    let _call = client.call(7, "write_held", json!({})).await;
    upstream.has_run("write_held", 1).await;
    client.tell("notifications/cancelled", json!({ "requestId": 7 })).await;
    upstream.has_heard("notifications/cancelled", 1).await;
    let cancelled = &upstream.heard("notifications/cancelled")[0].message["params"]["requestId"];
    assert_eq!(*cancelled, upstream.heard("tools/call")[0].message["id"]);
}

#[tokio::test]
async fn a_server_is_told_when_a_session_ends() {
    let upstream = Upstream::start();
    let (_web, client) = before(&upstream).await;
    client.end().await;
    upstream.has_heard("DELETE", 1).await;
    assert_eq!(upstream.heard("DELETE")[0].header("mcp-session-id"), Some("upstream-1"));
}

#[tokio::test]
async fn a_session_from_before_that_is_refused_in_other_words_is_made_again() {
    let upstream = Upstream::with(Manners { stale: (401, "go away"), ..Manners::default() });
    let home = tempfile::tempdir().unwrap();
    let gateway = || Gateway::http(&upstream.url()).unwrap();
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = Client::begin(&web).await;
    assert_eq!(client.call(1, "write_json", json!({})).await.text().await, "run 1");
    web.service.close().await.unwrap();
    assert_eq!(upstream.heard("DELETE").len(), 0, "it is left for whoever comes next");

    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = client.at(&web);
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 2");
    assert_eq!(upstream.heard("initialize").len(), 1);
    web.service.close().await.unwrap();

    upstream.forget();
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = client.at(&web);
    let mut write = client.call(3, "write_json", json!({})).await;
    assert_eq!(error(&write.error().await), OUTCOME_UNKNOWN, "those words prove nothing");
    assert_eq!(client.call(4, "write_json", json!({})).await.text().await, "run 3");
    assert_eq!(upstream.heard("initialize").len(), 2);
    web.service.close().await.unwrap();

    upstream.forget();
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = client.at(&web);
    assert_eq!(client.call(5, "read_json", json!({})).await.text().await, "run 1");
}

#[tokio::test]
async fn a_call_that_is_answered_under_its_own_id_after_a_restart_runs_once_whatever_the_status() {
    let upstream = Upstream::start();
    let home = tempfile::tempdir().unwrap();
    let gateway = || Gateway::http(&upstream.url()).unwrap();
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = Client::begin(&web).await;
    client.call(1, "write_json", json!({})).await.text().await;
    web.service.close().await.unwrap();
    for (id, tool) in [
        (2, "write_invalid"),
        (3, "write_unfound"),
        (4, "write_refused"),
        (5, "write_listed"),
        (6, "write_worded"),
    ] {
        let web = serve_on(kept_in(home.path()), gateway()).await;
        let answer = client.at(&web).call(id, tool, json!({})).await.answer().await;
        assert!(answer["error"].is_object(), "{answer}");
        assert_eq!(upstream.runs(tool), 1, "{tool}: {answer}");
        web.service.close().await.unwrap();
    }
    assert_eq!(upstream.heard("initialize").len(), 1, "the session went on");
}

#[tokio::test]
async fn an_idle_gateway_gives_the_servers_session_up_and_the_next_begins_another() {
    let upstream = Upstream::start();
    let sessions = ServerSettings { mcp_idle_ttl: IDLE, ..ServerSettings::default() };
    let mcp = Some(Gateway::http(&upstream.url()).unwrap());
    let web = Setup { sessions, mcp, ..Setup::open() }.start().await;
    let client = Client::begin(&web).await;
    upstream.has_heard("DELETE", 1).await;
    assert_eq!(client.call(1, "write_json", json!({})).await.text().await, "run 1");
    let calls = upstream.heard("tools/call");
    assert_eq!(calls[0].header("mcp-session-id"), Some("upstream-2"), "and not in vain before");
}
