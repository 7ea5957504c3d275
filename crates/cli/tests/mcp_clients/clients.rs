//! A driver of an official client, as a process. Its line protocol is in mcp-tests/clients/line.mjs.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{mcp_tests, node};

/// The most that a client may wait for an answer, whatever broke.
pub(crate) const NO_HANG: Duration = Duration::from_secs(30);

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TypeScript1,
    TypeScript2,
    Python,
    /// TypeScript 1 over `/sse` and `/message`.
    TypeScript1Sse,
    /// Python over `/sse` and `/message`.
    PythonSse,
    /// TypeScript 2 that takes the newest revision there is.
    TypeScript2Auto,
    /// Python that takes the newest revision there is.
    PythonAuto,
    /// No SDK's client, for what none of them does.
    Stateless,
}

impl Kind {
    fn command(self) -> Command {
        let clients = mcp_tests().join("clients");
        let (program, script) = match self {
            Self::TypeScript1 | Self::TypeScript1Sse => (node(), clients.join("ts-v1.mjs")),
            Self::TypeScript2 | Self::TypeScript2Auto => (node(), clients.join("ts-v2.mjs")),
            Self::Python | Self::PythonSse | Self::PythonAuto => {
                (mcp_tests().join("venv/bin/python"), clients.join("python.py"))
            }
            Self::Stateless => (node(), clients.join("stateless.mjs")),
        };
        let mut command = Command::new(program);
        command.arg(script).arg(self.mode());
        command
    }

    /// Which revisions it takes, where it knows those with and those without sessions.
    fn mode(self) -> &'static str {
        match self {
            Self::TypeScript2Auto | Self::PythonAuto | Self::Stateless => "auto",
            Self::TypeScript1
            | Self::TypeScript1Sse
            | Self::TypeScript2
            | Self::Python
            | Self::PythonSse => "legacy",
        }
    }

    fn transport(self) -> &'static str {
        match self {
            Self::TypeScript1Sse | Self::PythonSse => "sse",
            Self::TypeScript1
            | Self::TypeScript2
            | Self::Python
            | Self::TypeScript2Auto
            | Self::PythonAuto
            | Self::Stateless => "http",
        }
    }

    /// Where a server has what this client speaks.
    pub(crate) fn path(self) -> &'static str {
        match self.transport() {
            "sse" => "/sse",
            _ => "/mcp",
        }
    }
}

/// A connected client. It ends with the test.
pub(crate) struct Client {
    _child: Child,
    input: ChildStdin,
    said: watch::Receiver<Vec<Value>>,
    _reader: JoinSet<()>,
    last_id: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending(u64);

impl Client {
    /// A client that has shaken hands with the server at `url`.
    pub(crate) async fn connect(kind: Kind, url: &str) -> Self {
        Self::connect_as("rejoin-test-client", kind, url).await
    }

    /// The same for one that calls itself `name`.
    pub(crate) async fn connect_as(name: &str, kind: Kind, url: &str) -> Self {
        let mut command = kind.command();
        command.env("CLIENT_NAME", name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the client starts");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, said) = watch::channel(vec![]);
        let mut reader = JoinSet::new();
        reader.spawn(read(BufReader::new(output).lines(), sender));
        let mut client = Self { _child: child, input, said, _reader: reader, last_id: 0 };
        client.send(json!({ "op": "connect", "url": url, "transport": kind.transport() })).await;
        let is_about_connecting =
            |line: &Value| matches!(line["event"].as_str(), Some("connected" | "failed"));
        let said = client.heard("the end of connecting", is_about_connecting).await;
        assert_eq!(said["event"], "connected", "{kind:?} does not connect: {said}");
        client
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn begin(&mut self, mut request: Value) -> Pending {
        self.last_id += 1;
        request["id"] = self.last_id.into();
        self.send(request).await;
        Pending(self.last_id)
    }

    /// Begins a call of a tool.
    pub(crate) async fn begin_call(&mut self, tool: &str, arguments: Value) -> Pending {
        self.begin(json!({
            "op": "call", "name": tool, "arguments": arguments, "progress": tool == "progress",
        }))
        .await
    }

    /// The answer to a request: its result, or its error.
    pub(crate) async fn answer(&mut self, pending: Pending) -> Result<Value, Value> {
        let line =
            self.heard("an answer", |line| line["id"] == pending.0 && line["event"].is_null());
        let mut line = line.await;
        if line["error"].is_null() { Ok(line["result"].take()) } else { Err(line["error"].take()) }
    }

    /// A request that succeeds.
    pub(crate) async fn request(&mut self, request: Value) -> Value {
        let pending = self.begin(request.clone()).await;
        let answer = self.answer(pending).await;
        answer.unwrap_or_else(|error| panic!("{request} failed: {error}"))
    }

    /// A call that succeeds: its text.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> String {
        let pending = self.begin_call(tool, arguments).await;
        match self.answer(pending).await {
            Ok(result) => text_of(&result),
            Err(error) => panic!("{tool} failed: {error}; the client said {:#?}", self.events()),
        }
    }

    /// Everything besides answers, so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.said.borrow().iter().filter(|line| !line["event"].is_null()).cloned().collect()
    }

    /// The events of one kind, so far.
    pub(crate) fn events_of(&self, event: &str) -> Vec<Value> {
        self.events().into_iter().filter(|line| line["event"] == event).collect()
    }

    /// Waits for a line, also one that has come already.
    pub(crate) async fn heard(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let waiting = self.said.wait_for(|lines| lines.iter().any(&wanted));
        if let Ok(Ok(lines)) = timeout(NO_HANG, waiting).await {
            return lines.iter().find(|line| wanted(line)).unwrap().clone();
        }
        panic!("never: {what}; the client said {:#?}", self.said.borrow());
    }

    async fn send(&mut self, line: Value) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("the client listens");
    }
}

/// The text in a tool's result.
pub(crate) fn text_of(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("a text was expected: {result}")).to_owned()
}

async fn read(mut lines: Lines<BufReader<ChildStdout>>, said: watch::Sender<Vec<Value>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let line = serde_json::from_str(&line).expect("drivers speak JSON lines");
        said.send_modify(|lines| lines.push(line));
    }
}
