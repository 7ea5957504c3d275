//! The binary with an agent, and the ways to talk to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Client, Cut, PATIENCE, Puppet};
use crate::common::server_process::ServerProcess;

/// A server, its data and its agent. It ends with the test.
pub(crate) struct Server {
    pub(crate) puppet: Puppet,
    process: ServerProcess,
}

impl Server {
    /// With these flags, and a puppet for an agent unless they name another.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, "", &[]).await
    }

    /// With an API key `key-of-NAME` for each of these, who may publish.
    pub(crate) async fn start_with_keys(flags: &[&str], names: &[&str]) -> Self {
        Self::start_with(flags, &Self::api_keys(names), &[]).await
    }

    /// The settings that give these their API keys.
    pub(crate) fn api_keys(names: &[&str]) -> String {
        let block = |name: &&str| {
            let hash = Self::key_hash(name);
            format!("[[api_keys]]\nname = \"{name}\"\npublish = true\nkey_sha256 = \"{hash}\"\n")
        };
        names.iter().map(block).collect()
    }

    /// The hash of the API key `key-of-NAME`.
    pub(crate) fn key_hash(name: &str) -> String {
        Sha256::digest(format!("key-of-{name}")).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.process.data()
    }

    /// With a settings file and an environment besides.
    pub(crate) async fn start_with(
        flags: &[&str],
        config: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let puppet = Puppet::new();
        let mut arguments: Vec<String> =
            flags.iter().filter(|flag| **flag != BUILT_IN_AGENT).map(ToString::to_string).collect();
        if !flags.iter().any(|flag| flag.starts_with("--agent")) {
            arguments.push(format!("--agent={}", puppet.command()));
        }
        let process = ServerProcess::start(arguments, config, environment).await;
        Self { puppet, process }
    }

    /// Ends the process as a power cut would.
    pub(crate) async fn kill_nine(&mut self) {
        self.process.kill_nine().await;
    }

    /// Starts it again on the same data and port.
    pub(crate) async fn restart(&mut self) {
        self.process.restart().await;
    }

    /// The same with these flags besides.
    pub(crate) async fn restart_with(&mut self, flags: &[&str]) {
        self.process.add_flags(flags);
        self.process.restart().await;
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = std::process::Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        self.process.ended().await
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
        self.connect_with(&[("x-api-key", &format!("key-of-{name}"))]).await
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
        let mut request = format!("ws://{}/ws", self.address()).into_client_request().unwrap();
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
        self.ask(method, path, "").await
    }

    /// The answer to a POST of JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> String {
        self.ask("POST", path, &body.to_string()).await
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> String {
        self.ask_with("", method, path, body).await
    }

    /// What a path shows to somebody with an API key.
    pub(crate) async fn get_as(&self, name: &str, path: String) -> Value {
        let header = format!("X-API-Key: key-of-{name}\r\n");
        let answer = self.ask_with(&header, "GET", &path, "").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    pub(crate) async fn ask_with(
        &self,
        header: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> String {
        let asking = async {
            let mut stream = TcpStream::connect(self.address()).await.unwrap();
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        timeout(PATIENCE, asking).await.expect("no answer")
    }

    /// What a metric counts.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.http("GET", "/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Runs `rejoin keys` on the same data, and has the server read the keys again.
    pub(crate) async fn keys(&self, line: &[&str]) {
        let read = || self.log().matches("signing keys read").count();
        let before = read();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.env_clear().arg("keys").args(line);
        command.arg("--data-dir").arg(self.process.data());
        assert!(command.status().unwrap().success());
        self.signal("-HUP");
        super::until("the server has read its keys", async || read() > before).await;
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
        self.process.address()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// In place of a flag: the server has its own agent, not a puppet.
pub(crate) const BUILT_IN_AGENT: &str = "--agent-built-in";

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agents were told ---\n{:#?}", self.puppet.heard());
        }
    }
}
