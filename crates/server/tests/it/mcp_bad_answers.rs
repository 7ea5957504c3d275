//! Servers whose answers are not quite JSON-RPC: what they mean is understood where that is clear, and no call
//! waits for ever.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::fs;

use crate::common::mcp_client::{Client, serve};
use crate::common::upstream::Upstream;
use crate::common::web::Web;
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Answers a call with the lines in its arguments, in which `ID` stands for its id. What it is told without a
/// method answers the last call.
const SERVER: &str = r#"
import json, sys

sys.stdout.reconfigure(encoding="utf-8")
held = None
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method is None:
        text = {"content": [{"type": "text", "text": json.dumps(message)}]}
        print(json.dumps({"jsonrpc": "2.0", "id": held, "result": text}), flush=True)
    elif method == "tools/call":
        held = message["id"]
        for raw in params["arguments"]["lines"]:
            print(raw.replace("ID", str(held)), flush=True)
    elif "id" in message:
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"}, "capabilities": {}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const NOT_UNDERSTOOD: (i64, &str) = (-32603, "answer_invalid");

struct Server {
    _home: TempDir,
    _web: Web,
    client: Client,
}

impl Server {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("server.py");
        fs::write(&path, SERVER).unwrap();
        let web = serve(Gateway::command(format!("exec python3 {}", path.display()))).await;
        let client = Client::begin(&web).await;
        Self { _home: home, _web: web, client }
    }

    /// What the client is told when the server says these lines.
    async fn answer(&self, lines: &[&str]) -> Value {
        self.client.call(7, "t", json!({ "lines": lines })).await.answer().await
    }

    async fn is_not_understood(&self, line: &str) {
        let answer = self.answer(&[line]).await;
        let error = &answer["error"];
        let told = (error["code"].as_i64().unwrap(), error["data"]["reason"].as_str().unwrap());
        assert_eq!(told, NOT_UNDERSTOOD, "{line}");
        assert_eq!(answer["id"], 7);
    }
}

#[tokio::test]
async fn a_null_beside_a_result_or_an_error_says_nothing() {
    let server = Server::start().await;
    let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "a": 1 } });
    let error = json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": 3, "message": "no" } });
    for (line, answer) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"a":1},"error":null}"#, &result),
        (r#"{"jsonrpc":"2.0","error":null,"result":{"a":1},"id":ID}"#, &result),
        (r#"{"jsonrpc":"2.0","id":ID,"result":null,"error":{"code":3,"message":"no"}}"#, &error),
    ] {
        assert_eq!(server.answer(&[line]).await, *answer, "{line}");
    }
}

#[tokio::test]
async fn a_version_that_is_none_is_taken_for_the_one_that_there_is() {
    let server = Server::start().await;
    let answer = json!({ "jsonrpc": "2.0", "id": 7, "result": { "a": 1 } });
    for version in ["2.0", "\"1.0\"", "null"] {
        let line = &format!(r#"{{"jsonrpc":{version},"id":ID,"result":{{"a":1}}}}"#);
        assert_eq!(server.answer(&[line]).await, answer, "{line}");
    }
}

#[tokio::test]
async fn an_id_may_be_written_otherwise() {
    let server = Server::start().await;
    for id in ["ID.0", "\"ID\"", "ID.00"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1.50}}}}"#);
        let answer = server.answer(&[&line]).await;
        assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "result": { "a": 1.50 } }), "{line}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_understood_ends_its_call_with_an_error() {
    let server = Server::start().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for line in [
        r#"{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}"#,
        r#"{"jsonrpc":"2.0","result":{"a":"}\"{","b":Infinity},"id":"ID"}"#,
        r#"{"jsonrpc":"2.0","id":ID.0,"result":{"a":"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"both"}}"#,
        r#"{"jsonrpc":"2.0","id":ID}"#,
        &format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"deep":{deep}}}}}"#),
    ] {
        server.is_not_understood(line).await;
    }
}

#[tokio::test]
async fn an_id_at_which_a_line_is_cut_off_may_be_the_beginning_of_another() {
    let server = Server::start().await;
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"a":1}}"#;
    for cut in [r#"{"jsonrpc":"2.0","id":ID"#, r#"{"jsonrpc":"2.0","result":{"a":0},"id":ID"#] {
        assert_eq!(server.answer(&[cut, answer]).await["result"], json!({ "a": 1 }), "{cut}");
    }
    server.is_not_understood(r#"{"jsonrpc":"2.0","id":ID,"result":1"#).await;
}

#[tokio::test]
async fn several_messages_on_a_line_are_all_heard() {
    let server = Server::start().await;
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"a":1}}"#;
    let both = [
        format!("{notice}{answer}"),
        format!("{notice} {answer} and more"),
        format!("[{notice}]{answer}"),
        format!("{notice}[{answer}]"),
    ];
    for line in both {
        assert_eq!(server.answer(&[&line]).await["result"], json!({ "a": 1 }), "{line}");
    }
    server.is_not_understood(&format!(r#"{notice}{{"jsonrpc":"2.0","id":ID,"result":NaN}}"#)).await;
}

#[tokio::test]
async fn a_byte_order_mark_before_a_message_says_nothing() {
    let server = Server::start().await;
    let line = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"a\":1}}";
    assert_eq!(server.answer(&[line]).await["result"], json!({ "a": 1 }));
}

#[tokio::test]
async fn what_is_bad_in_a_batch_spoils_nothing_else() {
    let server = Server::start().await;
    let batch = r#"[{"jsonrpc":"2.0","method":"notifications/message","params":NaN}, {"jsonrpc":"2.0","id":ID,"result":{}}]"#;
    assert!(server.answer(&[batch]).await["result"].is_object());
    server.is_not_understood(r#"[{"jsonrpc":"2.0","id":ID,"result":{"a":[NaN,"]"]}},3]"#).await;
}

#[tokio::test]
async fn what_names_no_request_answers_none() {
    let server = Server::start().await;
    let answer = r#"{"jsonrpc":"2.0","id":ID,"result":{"a":1}}"#;
    let refusal =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no notifications"}}"#;
    let nested = r#"{"level":"info","data":{"id":ID,"result":1}}"#;
    let log = r#"{"level":"info","id":ID,"result":"ok"}"#;
    for noise in [log, "ready", "id: ID", "{ID}", r#"x {"id":ID}"#, "[", "{\"id\"", nested, refusal]
    {
        let answer = server.answer(&[noise, answer]).await;
        assert_eq!(answer["result"], json!({ "a": 1 }), "{noise}");
    }
}

#[tokio::test]
async fn a_server_that_could_not_read_the_only_request_under_way_answers_that() {
    let server = Server::start().await;
    let line = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    let answer = server.answer(&[line]).await;
    let expected = json!({ "code": -32700, "message": "Parse error" });
    assert_eq!((&answer["id"], &answer["error"]), (&json!(7), &expected));
}

#[tokio::test]
async fn a_question_that_is_not_understood_is_answered_to_the_server() {
    let server = Server::start().await;
    let line = r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"temperature":NaN}}"#;
    let answer = server.answer(&[line]).await;
    let told = answer["result"]["content"][0]["text"].as_str().unwrap();
    let told: Value = serde_json::from_str(told).unwrap();
    assert_eq!((&told["id"], &told["error"]["code"]), (&json!("q"), &json!(-32700)));
}

#[tokio::test]
async fn over_http_such_answers_end_their_calls_too() {
    let upstream = Upstream::start();
    let web = serve(Gateway::http(&upstream.url()).unwrap()).await;
    let client = Client::begin(&web).await;
    for (id, tool) in [(1, "write_garbled"), (2, "read_garbled")] {
        let (code, reason) = client.call(id, tool, json!({})).await.error().await;
        assert_eq!((code, &*reason), NOT_UNDERSTOOD);
        assert_eq!(upstream.runs(tool), 1, "it would say the same again");
    }
    assert_eq!(client.call(3, "write_numbered", json!({})).await.text().await, "run 1");
    assert_eq!(client.call(4, "write_marked", json!({})).await.text().await, "run 1");
    assert_eq!(client.call(5, "write_doubled", json!({})).await.text().await, "run 1");
}
