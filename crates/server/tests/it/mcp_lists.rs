//! What clients are told of lists that changed while nobody said so.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::fs;

use crate::common::mcp_client::{Calling, Client, kept_in, serve, serve_on};
use crate::common::upstream::{Manners, Upstream};
use crate::common::web::Web;
use rejoin::mcp::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Its tools stand in a file, a page a line; its cursors are good for one process only. The tool `die` kills it.
const SERVER: &str = r#"
import json, os, sys

home = sys.argv[1]

def list_tools(cursor):
    pages = open(os.path.join(home, "pages")).read().split("\n")
    at = int(cursor.split("-")[1]) if cursor else 0
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in pages[at].split()]
    if at + 1 < len(pages):
        return {"tools": tools, "nextCursor": "%d-%d" % (os.getpid(), at + 1)}
    return {"tools": tools}

for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method is None or "id" not in message:
        continue
    result = {"content": [{"type": "text", "text": "done"}]}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "s", "version": "1"},
                  "capabilities": {"tools": {}}}
    if method == "tools/list":
        result = list_tools(params.get("cursor"))
    if method == "tools/call" and params["name"] == "die":
        os._exit(1)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

struct Server {
    home: TempDir,
    web: Web,
    client: Client,
    general: Calling,
    asked: u64,
}

impl Server {
    async fn with(pages: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("server.py"), SERVER).unwrap();
        fs::write(home.path().join("pages"), pages).unwrap();
        let path = home.path().display();
        let web = serve(Gateway::command(format!("exec python3 {path}/server.py {path}"))).await;
        let client = Client::begin(&web).await;
        let general = client.listen().await;
        Self { home, web, client, general, asked: 0 }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        self.client.ask(self.asked, method, params).await.answer().await
    }

    /// The client reads so many pages.
    async fn read(&mut self, pages: usize) {
        let mut params = json!({});
        for _ in 0..pages {
            let page = self.ask("tools/list", params).await;
            params = json!({ "cursor": page["result"]["nextCursor"] });
        }
    }

    /// The server dies and another one is started, with these tools.
    async fn restart_with(&mut self, pages: &str) {
        fs::write(self.home.path().join("pages"), pages).unwrap();
        assert!(self.ask("tools/call", json!({ "name": "die" })).await["error"].is_object());
        assert!(self.ask("tools/call", json!({ "name": "t" })).await["result"].is_object());
    }

    /// What was said since the last restart was told.
    async fn told(&mut self, methods: &[&str]) {
        for method in methods {
            assert_eq!(self.general.next().await["method"], *method);
        }
    }
}

const RESTARTED: &str = "notifications/message";
const CHANGED: &str = "notifications/tools/list_changed";

#[tokio::test]
async fn a_change_on_a_later_page_is_told_once() {
    let mut server = Server::with("a b\nc\nd").await;
    server.read(3).await;
    server.restart_with("a b\nc\nd").await;
    server.told(&[RESTARTED]).await;
    server.restart_with("a b\nc\nd e").await;
    server.told(&[RESTARTED, CHANGED]).await;
    server.restart_with("a b\nc\nd e").await;
    server.told(&[RESTARTED]).await;
    server.read(3).await;
    server.restart_with("a b\nc\nd e\nf").await;
    server.told(&[RESTARTED, CHANGED]).await;
    server.web.service.close().await.unwrap();
}

#[tokio::test]
async fn a_client_is_not_told_of_pages_that_it_never_read() {
    let mut server = Server::with("a b\nc\nd").await;
    server.read(2).await;
    server.restart_with("a b\nc\nother").await;
    server.told(&[RESTARTED]).await;
    server.restart_with("a b\nother\nother").await;
    server.told(&[RESTARTED, CHANGED]).await;
    server.web.service.close().await.unwrap();
}

/// A gateway before a server that goes on while the gateway is started again, and has other tools then.
async fn started_again(upstream: &Upstream, home: &TempDir, manners: Manners) -> (Web, Client) {
    let gateway = || Gateway::http(&upstream.url()).unwrap();
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = Client::begin(&web).await;
    client.ask(1, "tools/list", json!({})).await.answer().await;
    web.service.close().await.unwrap();
    upstream.state.set(manners);
    let web = serve_on(kept_in(home.path()), gateway()).await;
    let client = client.at(&web);
    (web, client)
}

#[tokio::test]
async fn lists_are_compared_also_if_only_the_gateway_was_started_again() {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let manners = Manners { more_tools: true, ..Manners::default() };
    let (_web, client) = started_again(&upstream, &home, manners).await;
    let mut general = client.listen().await;
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 1");
    assert_eq!(general.next().await["method"], CHANGED);
    assert_eq!(upstream.heard("initialize").len(), 1, "the server's session went on");
}

#[tokio::test]
async fn a_server_that_takes_its_time_with_its_lists_delays_no_call_and_the_change_is_told_with_a_later_one()
 {
    let (upstream, home) = (Upstream::start(), tempfile::tempdir().unwrap());
    let manners = Manners { more_tools: true, holds_lists: true, ..Manners::default() };
    let (_web, client) = started_again(&upstream, &home, manners).await;
    assert_eq!(client.call(2, "write_json", json!({})).await.text().await, "run 1");
    upstream.has_heard("tools/list", 2).await;
    assert_eq!(client.call(3, "write_json", json!({})).await.text().await, "run 2");
    upstream.state.release.send_replace(true);
    let mut id = 3;
    let told = loop {
        id += 1;
        let first = client.call(id, "write_json", json!({})).await.next().await;
        if first.get("method").is_some() {
            break first;
        }
    };
    assert_eq!(told["method"], CHANGED);
}
