//! `rejoin serve`, running in a directory of its own, killed and started again there.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{free_address, rejoin};

/// However slow the machine, it does not take this long to start or to die.
const PATIENCE: Duration = Duration::from_secs(20);

/// The process, its data and its log. It ends with the test.
pub(crate) struct ServerProcess {
    home: TempDir,
    address: SocketAddr,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl ServerProcess {
    /// With these flags, a settings file and an environment.
    pub(crate) async fn start(
        arguments: Vec<String>,
        config: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("rejoin.toml"), config).unwrap();
        let environment = environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let address = free_address();
        let mut process = Self { home, address, arguments, environment, child: None };
        process.restart().await;
        process
    }

    fn command(&self) -> Command {
        let mut command = Command::from(rejoin());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("serve").arg("--listen").arg(self.address.to_string());
        command.arg("--data-dir").arg(self.data());
        command.arg("--config").arg(self.home.path().join("rejoin.toml"));
        command.args(&self.arguments);
        let log = fs::File::options().create(true).append(true).open(self.log_file()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command
    }

    /// Starts it again on the same data and port, and waits until it takes connections.
    pub(crate) async fn restart(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        let mut child = self.command().spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let greeting = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("stop with") {
                    return;
                }
            }
            panic!("it ended before it greeted:\n{}", self.log());
        };
        timeout(PATIENCE, greeting).await.expect("it does not greet");
        self.child = Some(child);
    }

    /// Starts it with these, too, from now on, in place of those of the same name.
    pub(crate) fn add_flags(&mut self, flags: &[&str]) {
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        self.arguments.retain(|known| !flags.iter().any(|flag| name(flag) == name(known)));
        self.arguments.extend(flags.iter().map(ToString::to_string));
    }

    /// Ends the process as a power cut would.
    pub(crate) async fn kill_nine(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.start_kill().unwrap();
        timeout(PATIENCE, child.wait()).await.expect("it dies").unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).expect("it runs")
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it ran");
        timeout(PATIENCE, child.wait()).await.expect("it does not end").unwrap()
    }

    /// Its settings file.
    pub(crate) fn config(&self) -> PathBuf {
        self.home.path().join("rejoin.toml")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("log")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
    }
}
