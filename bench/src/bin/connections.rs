//! What an idle attached connection costs the server in memory. The clients are another process, so that
//! only the server is counted; its memory is what the operating system says.
//!
//! `cargo run --release -p rejoin-bench --bin connections`

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use rejoin::Sessions;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use rejoin_bench::report::{Report, Wanted};
use rejoin_bench::{serving, world};

/// The allocator that the binary has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: usize = 2_000;

/// Connections before the first look, so that what is there once for all is not counted.
const WARM_UP: usize = 50;

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(server), Some(count)) => clients(server.parse()?, count.parse()?),
        (_, _) => measure(),
    }
}

fn measure() -> Result<ExitCode> {
    let mut report = Report::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let directory = world::directory()?;
    let store = Arc::new(world::open(directory.path(), 1_000)?);
    let serving = runtime.block_on(serving::sessions(Sessions::builder(store)))?;
    let _first = Clients::start(serving.address, WARM_UP)?;
    let before = resident_bytes()?;
    let _clients = Clients::start(serving.address, CONNECTIONS)?;
    let each = (resident_bytes()? - before) / CONNECTIONS as f64;
    let detail = format!("{CONNECTIONS} connections, each attached to a session of its own");
    let name = "KiB for an idle attached connection";
    report.figure(name, each / 1024.0, Wanted::AtMost(10.0), &detail);
    Ok(report.finish())
}

/// Another process with so many clients, until it is dropped.
struct Clients(Child);

impl Clients {
    /// Returns when all of them are attached.
    fn start(server: SocketAddr, count: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([server.to_string(), count.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let clients = Self(child);
        lines.next().context("the clients ended")??;
        Ok(clients)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process: attaches, says so, and keeps still until it is told to go.
#[expect(clippy::print_stdout, reason = "it is how the other process hears of it")]
fn clients(server: SocketAddr, count: usize) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut sockets = Vec::new();
        for _ in 0..count {
            let (mut socket, _) = connect_async(format!("ws://{server}/ws")).await?;
            socket.send(Message::text(r#"{"event":"user.create_session"}"#)).await?;
            loop {
                let message = socket.next().await.context("the server has gone")??;
                if message.into_text()?.contains("agent.session_created") {
                    break;
                }
            }
            sockets.push(socket);
        }
        println!("attached");
        let _ = tokio::io::stdin().read_u8().await; // the end of the other process
        Ok(ExitCode::SUCCESS)
    })
}

fn resident_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("this runs on Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kibibytes.context("the kernel knows")? * 1024.0)
}
