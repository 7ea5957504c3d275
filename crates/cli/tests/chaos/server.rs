//! The real binary on its data, killed without warning and started again at the same address.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{free_address, rejoin};

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: PathBuf,
}

impl Server {
    /// Starts it with its data and its log in `directory`.
    pub(crate) fn start(directory: &Path) -> Self {
        let address = free_address();
        let child = spawn(address, directory);
        let mut server = Self { child, address, directory: directory.to_owned() };
        server.wait_until_it_listens();
        server
    }

    /// `kill -9`, and a new process on what the old one left.
    pub(crate) fn kill_and_restart(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
        self.child = spawn(self.address, &self.directory);
        self.wait_until_it_listens();
    }

    /// Its memory, in MiB.
    pub(crate) fn resident_mebibytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kibibytes.expect("the kernel knows") / 1024
    }

    /// What it has logged since it was first started.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "it ended ({ended:?}): {}", self.log());
            assert!(Instant::now() < deadline, "it does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(address: SocketAddr, directory: &Path) -> Child {
    let log = File::options().create(true).append(true).open(directory.join("log"));
    let agent = concat!("exec sh '", env!("CARGO_MANIFEST_DIR"), "/tests/chaos/agent.sh'");
    let mut command = rejoin();
    command.arg("serve");
    command.args(["--agent", agent, "--max-children=300", "--log-level=warn,rejoin::agent=off"]);
    command.args(["--heartbeat-interval=2s", "--heartbeat-timeout=6s"]);
    command.args(["--reconnect-backoff=200ms,500ms,1s", "--max-reconnect-attempts=1000"]);
    command.arg(format!("--listen={address}")).arg("--data-dir").arg(directory.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("it can be written"));
    command.spawn().expect("the binary starts")
}
