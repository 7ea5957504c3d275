//! A client, a network that can break, and a server that can be killed.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::clients::{Client, Kind, Pending};
use crate::common::free_address;
use crate::network::Network;
use crate::server::{Manager, SETTINGS, Settings};

/// However slow the machine, nothing that is waited for here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at that nobody reports.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What the client says of a call that was not answered in time.
const REQUEST_TIMED_OUT: i64 = -32001;

/// How long a client waits that will never get an answer: longer than two attempts to come back.
const HOPELESS_MS: u64 = 12_000;

/// Everything that a scenario needs, connected.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) network: Network,
    settings: Settings,
    server: Child,
    home: TempDir,
}

impl Rig {
    pub(crate) async fn start(manager: Manager) -> Self {
        Self::with(manager, |_| {}).await
    }

    pub(crate) async fn with(manager: Manager, change: impl FnOnce(&mut Settings)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            manager,
            address: free_address(),
            data: Some(home.path().join("data")),
            runs: home.path().join("runs"),
            idle: None,
            log_bytes: None,
        };
        change(&mut settings);
        let server = serve(&settings).await;
        let network = Network::to(settings.address).await;
        let url = format!("http://{}/mcp", network.address());
        let client = Client::connect(Kind::TypeScript1, &url).await;
        Self { client, network, settings, server, home }
    }

    /// `kill -9`, and another process on the same address and data.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.server.kill().await.unwrap();
        self.server = serve(&self.settings).await;
    }

    /// Begins a call; the client gives up soon.
    pub(crate) async fn begin_hopeless(&mut self, tool: &str, arguments: Value) -> Pending {
        let progress = arguments["n"].is_number();
        let call = json!({
            "op": "call", "name": tool, "arguments": arguments, "progress": progress,
            "timeout_ms": HOPELESS_MS,
        });
        self.client.begin(call).await
    }

    /// The client gave up waiting.
    pub(crate) async fn timed_out(&mut self, call: Pending) {
        let error = self.client.answer(call).await.expect_err("the result is lost");
        assert_eq!(error["code"], REQUEST_TIMED_OUT, "{error}");
    }

    /// Which steps of progress the client was told of.
    pub(crate) fn steps(&self) -> Vec<u64> {
        let told = self.client.events_of("progress");
        told.iter().filter_map(|line| line["params"]["progress"].as_u64()).collect()
    }

    /// Waits until a tool has come to a point.
    pub(crate) async fn ran(&self, line: &str) {
        let there = async {
            while self.count(line) == 0 {
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("never: {line}"));
    }

    /// How often a tool has come to a point.
    pub(crate) fn count(&self, line: &str) -> usize {
        let text = std::fs::read_to_string(self.home.path().join("runs")).unwrap_or_default();
        text.lines().filter(|ran| *ran == line).count()
    }
}

/// Starts a server and waits until it listens.
async fn serve(settings: &Settings) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "server::serve_when_asked", "--ignored", "--nocapture"]);
    command.env(SETTINGS, serde_json::to_string(settings).unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().unwrap();
    let listens = async {
        while TcpStream::connect(settings.address).await.is_err() {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(PATIENCE, listens).await.expect("the server does not listen");
    child
}
