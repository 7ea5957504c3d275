//! The demo's server: this same program as a child process, with files of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::super::failure::Failure;

/// How long it may take to start.
const START: Duration = Duration::from_secs(20);

/// A server that can be killed and started again, on the same files and the same port.
pub(super) struct Server {
    data: TempDir,
    /// Port zero until it was started for the first time.
    address: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// Its files, before it runs. They go with it.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let data = tempfile::Builder::new().prefix("rejoin-demo-").tempdir();
        let data = data.map_err(|error| failed("has no place for its files", &error))?;
        Ok(Self { data, address: SocketAddr::from(([127, 0, 0, 1], 0)), child: None })
    }

    /// Starts it, and waits until it listens.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        let program = std::env::current_exe();
        let program = program.map_err(|error| failed("can't be started", &error))?;
        let log = File::create(self.data.path().join("log"));
        let log = log.map_err(|error| failed("has no place for its log", &error))?;
        let mut command = Command::new(program);
        // Settings of the person's own server are none of this one's.
        let is_setting = |name: &str| name.starts_with("REJOIN_") || name.starts_with("MCP_");
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|name| is_setting(name)).for_each(|name| {
            command.env_remove(name);
        });
        command
            .arg("serve")
            .arg(format!("--listen={}", self.address))
            .arg("--data-dir")
            .arg(self.data.path().join("data"))
            .args(["--log-level=warn", "--reconnect-backoff=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0) // Ctrl-C is for us, who then stop it
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed("can't be started", &error))?;
        let address = tokio::time::timeout(START, greeting(&mut child)).await;
        self.child = Some(child);
        let Ok(Some(address)) = address else { return Err(self.did_not_start()) };
        self.address = address;
        Ok(())
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, for people.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process.
    pub(super) fn process(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Kills it with SIGKILL: it has no time for anything.
    pub(super) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().await; // it may have gone by itself
        }
    }

    fn did_not_start(&self) -> Failure {
        let log = std::fs::read_to_string(self.data.path().join("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it said nothing");
        Failure::Other(format!("the demo's server did not start: {last}"))
    }
}

fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::Other(format!("the demo's server {what}: {error}"))
}

/// The address in what it says when it listens.
async fn greeting(child: &mut Child) -> Option<SocketAddr> {
    let mut lines = BufReader::new(child.stdout.take()?).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let rest = line.split_once("listening on").map_or("", |(_, rest)| rest);
        if let Some((_, address)) = rest.split_once("//") {
            return address.trim().parse().ok();
        }
    }
    None
}
