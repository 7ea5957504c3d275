//! A server that speaks without listening and a client that does the same: nobody waits for ever, and one of them
//! is told to wait.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::fs;

use crate::common::mcp::{Peer, call};
use crate::common::web::{Setup, Web};
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

const NEWEST: &str = "2025-11-25";

/// Reads one message after the other. A call waits for its gate, says a lot, and is answered with the number of
/// notifications that came before it.
const SERVER: &str = r#"
import json, os, sys, time

def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()

heard = 0
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    result = None
    if message.get("method") == "initialize":
        info = {"name": "flood", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
    elif message.get("method") == "tools/call":
        wish = message["params"]["arguments"]
        while "gate" in wish and not os.path.exists(wish["gate"]):
            time.sleep(0.002)
        for _ in range(wish.get("says", 0)):
            params = {"level": "info", "data": "x" * 1000}
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        result = {"content": [{"type": "text", "text": str(heard)}]}
    elif message.get("method") == "notifications/flood":
        heard += 1
    if "id" in message and result is not None:
        say({"jsonrpc": "2.0", "id": message["id"], "result": result})
"#;

struct Flood {
    home: TempDir,
    web: Web,
}

impl Flood {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("server.py"), SERVER).unwrap();
        let command = format!("exec python3 {}/server.py", home.path().display());
        let web = Setup { mcp: Some(Gateway::command(command)), ..Setup::open() }.start().await;
        Self { home, web }
    }

    fn gate(&self) -> String {
        self.home.path().join("gate").display().to_string()
    }

    fn open(&self) {
        fs::write(self.gate(), "").unwrap();
    }
}

fn noise(bytes: usize) -> Value {
    let params = json!({ "data": "y".repeat(bytes) });
    json!({ "jsonrpc": "2.0", "method": "notifications/flood", "params": params })
}

#[tokio::test]
async fn a_server_that_speaks_without_listening_is_heard_out_and_gets_everything() {
    let flood = Flood::start().await;
    let peer = Peer::begin(&flood.web, NEWEST).await;
    let mut deaf = peer.call(1, json!({ "gate": flood.gate(), "says": 2_000 })).await;
    deaf.next().await.unwrap();
    // More than its pipe and everything before that holds.
    for _ in 0..300 {
        assert_eq!(peer.post(&noise(2_000)).send().await.status, 202);
    }
    flood.open();
    assert!(deaf.answer(1).await["result"].is_object());
    let answer = peer.call(2, json!({})).await.answer(2).await;
    assert_eq!(answer["result"]["content"][0]["text"], "300", "nothing of it was lost");
}

#[tokio::test]
async fn a_client_of_a_server_that_does_not_listen_is_told_to_wait() {
    let flood = Flood::start().await;
    let peer = Peer::begin(&flood.web, NEWEST).await;
    let mut deaf = peer.call(1, json!({ "gate": flood.gate() })).await;
    deaf.next().await.unwrap();
    let mut taken = 0_u64;
    let refused = loop {
        let answer = peer.post(&noise(10_000)).send().await;
        match answer.status {
            202 => taken += 1,
            _ => break answer,
        }
        assert!(taken < 1_500, "there is a bound");
    };
    assert!(refused.header("retry-after").is_some());
    let told = refused.expect(503);
    assert_eq!(told["error"]["code"], -32002, "{told}");
    flood.open();
    assert!(deaf.answer(1).await["result"].is_object());
    let answer = peer.call(2, json!({})).await.answer(2).await;
    assert_eq!(answer["result"]["content"][0]["text"], taken.to_string());
}

#[tokio::test]
async fn of_large_messages_few_wait_and_the_client_is_told() {
    const MIB: usize = 1 << 20;
    let flood = Flood::start().await;
    let peer = Peer::begin(&flood.web, NEWEST).await;
    let mut deaf = peer.call(1, json!({ "gate": flood.gate() })).await;
    deaf.next().await.unwrap();
    let mut taken = 0;
    let refused = loop {
        let answer = peer.post(&noise(3 * MIB)).send().await;
        match answer.status {
            202 => taken += 1,
            _ => break answer,
        }
        assert!(taken < 40, "there is a bound in bytes");
    };
    assert_eq!(refused.expect(503)["error"]["code"], -32002);
    flood.open();
    assert!(deaf.answer(1).await["result"].is_object());
    let answer = peer.post(&call(2, json!({}))).stream().await.answer(2).await;
    assert_eq!(answer["result"]["content"][0]["text"], taken.to_string());
}
