//! The gateway before a server that is a child process, and dies as it is told.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::fs;

use crate::common::mcp_client::{Client, in_haste, kept_in, serve, serve_on};
use crate::common::until;
use crate::common::web::{Setup, Web};
use rejoin::ServerSettings;
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Notes every line it is told. `peek` only reads, `poke` says nothing of itself; both first do what their
/// arguments say.
const SERVER: &str = r#"
import json, os, signal, sys

home = sys.argv[1]

def note(name, line):
    with open(os.path.join(home, name), "a") as file:
        file.write(line + "\n")

def say(message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def tool(name, **annotations):
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": annotations}

note("starts", "1")
starts = len(open(os.path.join(home, "starts")).readlines())
tools = [tool("peek", readOnlyHint=True), tool("poke")]
if os.path.exists(os.path.join(home, "changed")):
    tools.append(tool("new"))
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    note("told", line.strip())
    method, params = message.get("method"), message.get("params", {})
    if method is None and "held" in globals():
        say({"id": held, "result": {"content": [{"type": "text", "text": json.dumps(message)}]}})
    if method is None or "id" not in message:
        continue
    result = {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "s", "version": "1"},
                  "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": True}}}
    if method == "tools/list":
        result = {"tools": tools}
    if method == "tools/call":
        wish = params.get("arguments", {})
        if wish.get("die_until", 0) > starts:
            print(wish.get("saying", "").replace("ID", str(message["id"])), end="", flush=True)
            die()
        if "ask" in wish:
            say({"id": "q", "method": wish["ask"]})
            held = message["id"]
            if wish.get("then") == "die":
                die()
            continue
        if wish.get("then") == "hold":
            continue
        if "long" in wish:
            print("x" * wish["long"], flush=True)
        result = {"content": [{"type": "text", "text": "server %d" % starts}]}
    say({"id": message["id"], "result": result})
"#;

const OUTCOME_UNKNOWN: (i64, &str) = (-32050, "upstream_lost");

struct Server {
    home: TempDir,
}

impl Server {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("server.py"), SERVER).unwrap();
        Self { home }
    }

    fn gateway(&self) -> Gateway {
        let home = self.home.path().display();
        Gateway::command(format!("exec python3 {home}/server.py {home}"))
    }

    async fn begin(&self) -> (Web, Client) {
        let web = serve(self.gateway()).await;
        let client = Client::begin(&web).await;
        (web, client)
    }

    /// What the servers were told under this method; an empty one stands for answers.
    fn told(&self, method: &str) -> Vec<Value> {
        let lines = fs::read_to_string(self.home.path().join("told")).unwrap_or_default();
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|told| told["method"].as_str().unwrap_or_default() == method).collect()
    }

    fn calls(&self) -> usize {
        self.told("tools/call").len()
    }
}

/// It dies over every call as long as fewer servers than this have been started.
fn die_until(starts: u32) -> Value {
    json!({ "die_until": starts })
}

#[tokio::test]
async fn a_call_that_only_reads_runs_again_when_its_server_died() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    assert_eq!(client.call(1, "peek", die_until(3)).await.text().await, "server 3");
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn a_call_runs_again_at_most_twice() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let (code, reason) = client.call(1, "peek", die_until(100)).await.error().await;
    assert_eq!((code, &*reason), OUTCOME_UNKNOWN);
    assert_eq!(server.calls(), 3);
}

#[tokio::test]
async fn a_call_that_may_have_done_something_never_runs_again() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let (code, reason) = client.call(1, "poke", die_until(2)).await.error().await;
    assert_eq!((code, &*reason), OUTCOME_UNKNOWN);
    assert_eq!(server.calls(), 1);
    assert_eq!(client.call(2, "poke", json!({})).await.text().await, "server 2");
}

#[tokio::test]
async fn a_server_that_died_while_it_answered_has_not_answered() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let cut = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te"#;
    let dies = |starts: u32| json!({ "die_until": starts, "saying": cut });
    assert_eq!(client.call(1, "peek", dies(2)).await.text().await, "server 2");
    let (code, reason) = client.call(2, "poke", dies(3)).await.error().await;
    assert_eq!((code, &*reason), OUTCOME_UNKNOWN);
    let whole = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"last"}]}}"#;
    let dies = json!({ "die_until": 4, "saying": whole });
    assert_eq!(client.call(3, "poke", dies).await.text().await, "last");
}

#[tokio::test]
async fn annotations_that_are_not_trusted_let_nothing_run_again() {
    let server = Server::new();
    let web = serve(server.gateway().trust_annotations(false)).await;
    let client = Client::begin(&web).await;
    let (code, _) = client.call(1, "peek", die_until(2)).await.error().await;
    assert_eq!((code, server.calls()), (-32050, 1));
}

#[tokio::test]
async fn a_new_server_is_introduced_and_set_up_as_the_one_before() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    client.ask(1, "logging/setLevel", json!({ "level": "error" })).await.answer().await;
    client.ask(2, "resources/subscribe", json!({ "uri": "a:1" })).await.answer().await;
    client.ask(3, "resources/subscribe", json!({ "uri": "a:2" })).await.answer().await;
    client.ask(4, "resources/unsubscribe", json!({ "uri": "a:1" })).await.answer().await;
    client.call(5, "peek", die_until(2)).await.text().await;
    let hello = server.told("initialize");
    assert_eq!(hello[0]["params"], hello[1]["params"]);
    assert_eq!(server.told("notifications/initialized").len(), 2);
    let again = |method: &str| server.told(method).last().unwrap()["params"].clone();
    assert_eq!(again("logging/setLevel"), json!({ "level": "error" }));
    assert_eq!(again("resources/subscribe"), json!({ "uri": "a:2" }));
    let counts = ["logging/setLevel", "resources/subscribe"].map(|m| server.told(m).len());
    assert_eq!(counts, [2, 3]);
}

#[tokio::test]
async fn a_client_is_told_that_a_server_was_started_again_and_which_lists_differ() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let mut general = client.listen().await;
    client.ask(1, "tools/list", json!({})).await.answer().await;
    client.call(2, "peek", die_until(2)).await.text().await;
    assert_eq!(general.next().await["method"], "notifications/message");
    fs::write(server.home.path().join("changed"), "").unwrap();
    client.call(3, "peek", die_until(3)).await.text().await;
    assert_eq!(general.next().await["method"], "notifications/message", "nothing differed before");
    assert_eq!(general.next().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_client_without_a_general_stream_is_told_so_on_the_stream_of_its_call() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    client.ask(1, "tools/list", json!({})).await.answer().await;
    fs::write(server.home.path().join("changed"), "").unwrap();
    let mut call = client.call(2, "peek", die_until(2)).await;
    assert_eq!(call.next().await["params"]["logger"], "rejoin");
    assert_eq!(call.next().await["method"], "notifications/tools/list_changed");
    assert_eq!(call.text().await, "server 2");
}

#[tokio::test]
async fn an_answer_of_the_client_reaches_the_server_under_its_own_id() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let mut call = client.call(1, "poke", json!({ "ask": "roots/list" })).await;
    let question = call.notification("roots/list").await;
    assert_ne!(question["id"], "q", "a server that follows may use that again");
    client
        .send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } }))
        .await;
    let heard: Value = serde_json::from_str(&call.text().await).unwrap();
    assert_eq!(heard, json!({ "jsonrpc": "2.0", "id": "q", "result": { "roots": [] } }));
}

#[tokio::test]
async fn questions_of_a_server_that_died_are_withdrawn() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let wish = json!({ "ask": "roots/list", "then": "die" });
    let mut call = client.call(1, "poke", wish).await;
    let question = call.notification("roots/list").await;
    let withdrawn = call.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(call.error().await.0, -32050);
}

#[tokio::test]
async fn questions_that_were_open_when_rejoin_ended_are_withdrawn_and_no_others() {
    let (server, home) = (Server::new(), tempfile::tempdir().unwrap());
    let web = serve_on(kept_in(home.path()), server.gateway()).await;
    let client = Client::begin(&web).await;
    let mut answered = client.call(1, "poke", json!({ "ask": "roots/list" })).await;
    let question = answered.notification("roots/list").await;
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": {} })).await;
    answered.text().await;
    let mut call = client.call(2, "poke", json!({ "ask": "roots/list" })).await;
    let question = call.notification("roots/list").await;
    web.service.close().await.unwrap();
    let web = serve_on(kept_in(home.path()), server.gateway()).await;
    let client = client.at(&web);
    let mut call = client.go_on(&call).await;
    let withdrawn = call.next().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(call.next().await["method"], "notifications/message", "it was started again");
    assert_eq!(call.next().await["error"]["code"], -32050);
    let mut general = client.listen().await;
    client.call(3, "peek", json!({})).await.text().await;
    client.call(4, "peek", die_until(3)).await.text().await;
    assert_eq!(general.next().await["method"], "notifications/message", "and no more");
}

#[tokio::test]
async fn a_question_is_withdrawn_on_the_stream_on_which_it_was_asked() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let mut first = client.call(1, "poke", json!({ "ask": "roots/list" })).await;
    let question = first.notification("roots/list").await;
    let mut second = client.call(2, "poke", die_until(2)).await;
    let withdrawn = first.next().await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(second.next().await["method"], "notifications/message", "it was started again");
    assert_eq!(second.next().await["error"]["code"], -32050, "nothing was asked here");
}

#[tokio::test]
async fn a_cancelled_call_ends_and_the_server_is_told_under_the_id_it_knows() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let mut call = client.call(7, "poke", json!({ "then": "hold" })).await;
    until(async || server.calls() == 1).await;
    client.tell("notifications/cancelled", json!({ "requestId": 7 })).await;
    assert_eq!(call.next_or_end().await, None);
    until(async || !server.told("notifications/cancelled").is_empty()).await;
    let cancelled = &server.told("notifications/cancelled")[0]["params"]["requestId"];
    assert_eq!(*cancelled, server.told("tools/call")[0]["id"]);
}

#[tokio::test]
async fn a_second_request_under_the_id_of_one_under_way_is_refused() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    let _first = client.call(7, "poke", json!({ "then": "hold" })).await;
    until(async || server.calls() == 1).await;
    let (code, _) = client.call(7, "poke", json!({})).await.error().await;
    assert_eq!((code, server.calls()), (-32600, 1));
}

#[tokio::test]
async fn a_line_over_the_limit_ends_the_server_and_hangs_nothing() {
    let server = Server::new();
    let web = serve(server.gateway().max_bytes(10_000)).await;
    let client = Client::begin(&web).await;
    let (code, _) = client.call(1, "poke", json!({ "long": 20_000 })).await.error().await;
    assert_eq!(code, -32050);
    assert_eq!(client.call(2, "poke", json!({ "long": 5_000 })).await.text().await, "server 2");
}

#[tokio::test]
async fn a_command_that_does_not_run_is_an_error_of_the_first_request() {
    let web = serve(Gateway::command("exit 3")).await;
    let mut hello = Client::hello(&web).await;
    let (code, reason) = in_haste(hello.error()).await;
    assert_eq!((code, &*reason), (-32052, "upstream_unavailable"));
}

/// The texts of a tool's result.
async fn texts(client: &Client, id: u64, tool: &str, arguments: Value) -> Vec<String> {
    let answer = client.call(id, tool, arguments).await.answer().await;
    let content = answer["result"]["content"].as_array().unwrap();
    content.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_first_result_after_a_restart_says_so_where_a_model_reads_and_the_next_does_not() {
    let server = Server::new();
    let (_web, client) = server.begin().await;
    assert_eq!(texts(&client, 1, "poke", json!({})).await, ["server 1"], "nothing was lost");
    client.call(2, "poke", die_until(2)).await.error().await; // an error has no content
    let told = texts(&client, 3, "poke", json!({})).await;
    assert_eq!(told[0], "server 2", "programs read the first block");
    assert!(told.len() == 2 && told[1].contains("was restarted"), "{told:?}");
    assert_eq!(texts(&client, 4, "poke", json!({})).await, ["server 2"], "once");
    client.call(5, "poke", die_until(3)).await.error().await;
    assert_eq!(texts(&client, 6, "poke", json!({})).await.len(), 2, "and after each restart");
}

#[tokio::test]
async fn whoever_does_not_want_it_is_not_told_of_restarts() {
    let server = Server::new();
    let web = serve(server.gateway().tell_restarts(false)).await;
    let client = Client::begin(&web).await;
    client.call(1, "poke", die_until(2)).await.error().await;
    assert_eq!(texts(&client, 2, "poke", json!({})).await, ["server 2"]);
}

/// One-shot clients leave their servers behind: these go soon, and those of clients that are there stay.
#[tokio::test]
async fn a_server_whose_client_has_left_goes_sooner_than_one_whose_client_is_there() {
    let server = Server::new();
    let sessions = ServerSettings {
        mcp_detached_ttl: std::time::Duration::from_millis(50),
        ..ServerSettings::default()
    };
    let web = Setup { sessions, mcp: Some(server.gateway()), ..Setup::open() }.start().await;
    let stays = Client::begin(&web).await;
    let _listening = stays.listen().await;
    let one_shot = Client::begin(&web).await;
    let first = texts(&one_shot, 1, "poke", json!({})).await.remove(0);
    let kept = texts(&stays, 1, "poke", json!({})).await.remove(0);
    let id = rejoin::core::SessionId::parse(&one_shot.session).unwrap();
    let attached = async || web.store.session(&id).await.unwrap().unwrap().attached.is_some();
    until(async || !attached().await).await;
    until(async || {
        let lease = web.store.session(&id).await.unwrap().unwrap().lease;
        lease.is_none() // its server has gone, so nobody works for it
    })
    .await;
    let again = texts(&one_shot, 2, "poke", json!({})).await;
    assert!(again[0] != first && again.len() == 2, "{again:?}");
    assert_eq!(texts(&stays, 2, "poke", json!({})).await, [kept]);
}

/// What the server has measured under this name and these labels.
async fn measured(web: &Web, sample: &str) -> u64 {
    let text = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("{sample} ")));
    value.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn how_calls_end_is_counted_and_so_are_the_processes_that_run() {
    let server = Server::new();
    let (web, client) = server.begin().await;
    assert_eq!(measured(&web, r#"rejoin_children{kind="mcp"}"#).await, 1);
    client.call(1, "poke", json!({})).await.text().await;
    client.call(2, "poke", die_until(2)).await.error().await;
    client.call(3, "peek", die_until(3)).await.text().await;
    let held = client.call(4, "poke", json!({ "then": "hold" })).await;
    until(async || server.calls() == 5).await;
    client.tell("notifications/cancelled", json!({ "requestId": 4 })).await;
    let counted = |tool: &str, outcome: &str| {
        let labels = format!(r#"tool="{tool}",outcome="{outcome}""#);
        let sample = format!("rejoin_mcp_tool_calls_total{{{labels}}}");
        let web = &web;
        async move { measured(web, &sample).await }
    };
    until(async || counted("poke", "cancelled").await == 1).await;
    drop(held);
    assert_eq!(counted("poke", "success").await, 1);
    assert_eq!(counted("poke", "unknown").await, 1);
    assert_eq!(counted("peek", "success").await, 1, "once, though it ran twice");
    assert_eq!(measured(&web, r#"rejoin_children{kind="mcp"}"#).await, 1, "two have died");
    assert!(measured(&web, r#"rejoin_http_requests_total{route="mcp",status="200"}"#).await >= 4);
}
