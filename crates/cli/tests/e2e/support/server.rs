//! The binary, running in a directory of its own.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Client, Cut, PATIENCE, Puppet};

/// A server, its data and its agent. It ends with the test.
pub(crate) struct Server {
    pub(crate) puppet: Puppet,
    home: TempDir,
    address: SocketAddr,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Server {
    /// With these flags, and a puppet for an agent unless they name another.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, "", &[]).await
    }

    /// With an API key `key-NAME` for each of these, who may publish.
    pub(crate) async fn start_with_keys(flags: &[&str], names: &[&str]) -> Self {
        let block = |name: &&str| {
            let hash: String = Sha256::digest(format!("key-{name}"))
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("[[api_keys]]\nname = \"{name}\"\npublish = true\nkey_sha256 = \"{hash}\"\n")
        };
        Self::start_with(flags, &names.iter().map(block).collect::<String>(), &[]).await
    }

    /// With a settings file and an environment besides.
    pub(crate) async fn start_with(
        flags: &[&str],
        config: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("rejoin.toml"), config).unwrap();
        let mut server = Self {
            puppet: Puppet::new(),
            home,
            address: free_address(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            child: None,
        };
        server.launch().await;
        server
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REJOIN_")) {
            command.env_remove(name);
        }
        command.env_remove("MCP_SESSION_SECRET").env_remove("MCP_SESSION_SECRET_PREVIOUS");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("serve").arg("--listen").arg(self.address.to_string());
        command.arg("--data-dir").arg(self.home.path().join("data"));
        command.arg("--config").arg(self.home.path().join("rejoin.toml"));
        if !self.flags.iter().any(|flag| flag.starts_with("--agent")) {
            command.arg("--agent").arg(self.puppet.command());
        }
        command.args(self.flags.iter().filter(|flag| *flag != BUILT_IN_AGENT));
        let log = fs::File::options().create(true).append(true).open(self.log_file()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command
    }

    /// Starts the process and waits until it takes connections.
    async fn launch(&mut self) {
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

    /// Ends the process as a power cut would.
    pub(crate) async fn kill_nine(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.start_kill().unwrap();
        timeout(PATIENCE, child.wait()).await.expect("it dies").unwrap();
    }

    /// Starts it again on the same data and port.
    pub(crate) async fn restart(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        self.launch().await;
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        let id = self.child.as_ref().and_then(Child::id).expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it ran");
        timeout(PATIENCE, child.wait()).await.expect("it does not end").unwrap()
    }

    /// Lets a client lose its connection, one way or the other. Afterwards the server can be connected
    /// to.
    pub(crate) async fn cut(&mut self, client: Client, cut: Cut) {
        drop(client);
        if cut == Cut::Server {
            self.kill_nine().await;
            self.restart().await;
        }
    }

    /// A client that has been greeted.
    pub(crate) async fn connect(&self) -> Client {
        self.connect_with(&[]).await
    }

    /// The same, with an API key.
    pub(crate) async fn connect_as(&self, name: &str) -> Client {
        self.connect_with(&[("x-api-key", &format!("key-{name}"))]).await
    }

    pub(crate) async fn connect_with(&self, headers: &[(&str, &str)]) -> Client {
        let mut client = self.try_connect(headers).await.unwrap();
        client.greeting = client.next().await;
        assert_eq!(client.greeting["event"], "system.connected");
        client
    }

    /// A client that has not been greeted yet, or the status with which it was refused.
    pub(crate) async fn try_connect(&self, headers: &[(&str, &str)]) -> Result<Client, u16> {
        use tokio_tungstenite::tungstenite::{Error, http::HeaderName};
        let mut request = format!("ws://{}/ws", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        match timeout(PATIENCE, tokio_tungstenite::connect_async(request)).await.unwrap() {
            Ok((socket, _)) => Ok(Client::new(socket)),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("no connection: {error}\n{}", self.log()),
        }
    }

    /// The answer to a request over HTTP, from its status line to its end.
    pub(crate) async fn http(&self, method: &str, path: &str) -> String {
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        timeout(PATIENCE, asking).await.expect("no answer")
    }

    /// What a path shows over HTTP.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.http("GET", path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// The record of a session.
    pub(crate) async fn record(&self, id: &str) -> Value {
        self.get(&format!("/api/sessions/{id}")).await
    }

    /// Waits until a session is over, and shows its record.
    pub(crate) async fn over(&self, id: &str) -> Value {
        let mut record = Value::Null;
        super::until("the session is over", async || {
            record = self.record(id).await;
            record["status"] != "active"
        })
        .await;
        record
    }

    /// Waits until a session has expired and its logs were cleared away, which happens a little later.
    pub(crate) async fn expired(&self, id: &str) {
        super::until("the session has expired and is empty", async || {
            let record = self.http("GET", &format!("/api/sessions/{id}")).await;
            record.contains(r#""status":"expired""#) && record.contains(r#""buffered":0"#)
        })
        .await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("log")
    }
}

/// In place of a flag: the server has its own agent, not a puppet.
pub(crate) const BUILT_IN_AGENT: &str = "--agent-built-in";

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
            eprintln!("--- the agents were told ---\n{:#?}", self.puppet.heard());
        }
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
