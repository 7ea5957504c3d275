//! A server process, and commands that ask it.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// An agent that answers at once.
pub(crate) const QUICK_AGENT: &str = r#"--agent=while read -r line; do case "$line" in *user.message*)
echo '{"event":"agent.thinking","content":"hm"}'; echo '{"event":"agent.final_answer","content":"done"}';;
esac; done"#;

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    data: TempDir,
    address: String,
    arguments: Vec<String>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command that goes on until it is stopped, and ends with the test.
pub(crate) struct Running {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    notes: BufReader<ChildStderr>,
}

/// The binary, without the settings of whoever runs the tests.
pub(crate) fn rejoin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    let is_ours = |name: &str| name.starts_with("REJOIN_") || name.starts_with("MCP_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(mut command: Command) -> Said {
    let output = command.output().expect("the binary starts");
    Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("it speaks UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("it speaks UTF-8"),
    }
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let data = tempfile::tempdir().expect("a directory can be made");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (child, address) = spawn(&data, "127.0.0.1:0", &arguments);
        Self { child, data, address, arguments }
    }

    /// Starts it again after it was killed, on the same files and port.
    pub(crate) fn start_again(&mut self) {
        let (child, address) = spawn(&self.data, &self.address, &self.arguments);
        (self.child, self.address) = (child, address);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn websocket(&self) -> String {
        format!("ws://{}/ws", self.address)
    }

    /// A command that asks this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = rejoin();
        command.args(arguments).env("REJOIN_URL", self.url());
        command
    }

    /// What a command says of this server.
    pub(crate) fn says(&self, arguments: &[&str]) -> Said {
        run(self.command(arguments))
    }

    /// What a command says that must work.
    pub(crate) fn answers(&self, arguments: &[&str]) -> String {
        let said = self.says(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.stdout
    }

    /// A session that nobody is attached to.
    pub(crate) fn create(&self) -> String {
        let made = self.post("/api/sessions", r#"{"client_id":"test","app_version":"7"}"#);
        made["session_id"].as_str().expect("it has an id").to_owned()
    }

    /// Publishes events with these contents.
    pub(crate) fn publish(&self, id: &str, contents: &[&str]) {
        for content in contents {
            let event = serde_json::json!({ "event": "agent.note", "content": content });
            let answer = self.post(&format!("/api/sessions/{id}/events"), &event.to_string());
            assert!(answer["last_seq"].is_u64(), "{answer}");
        }
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("there is a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server and waits until it says where it listens.
fn spawn(data: &TempDir, listen: &str, arguments: &[String]) -> (Child, String) {
    let mut command = rejoin();
    command.args(["serve", "--listen", listen, "--data-dir"]).arg(data.path().join("data"));
    command.args(arguments).env("TEST_KEY", "the-key-of-alice").stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let mut addresses = lines.map_while(Result::ok).filter_map(|line| {
        let (_, rest) = line.split_once("listening on")?;
        rest.split_once("//").map(|(_, address)| address.trim().to_owned())
    });
    let address = addresses.next();
    if address.is_none() {
        let _ = child.wait();
    }
    (child, address.expect("it says where it listens"))
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        let notes = BufReader::new(child.stderr.take().expect("its errors are piped"));
        Self { child, lines: Some(lines), notes }
    }

    /// The next line, for which it waits.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.as_mut().and_then(Iterator::next);
        line.expect("there is another line").expect("it speaks UTF-8")
    }

    /// Lines up to one that contains `text`.
    pub(crate) fn until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains(text)) {
            lines.push(self.line());
        }
        lines
    }

    /// Waits until it says something like this about itself.
    pub(crate) fn notes(&mut self, text: &str) {
        let mut note = String::new();
        while !note.contains(text) {
            note.clear();
            let read = self.notes.read_line(&mut note).expect("it speaks UTF-8");
            assert!(read > 0, "it ended and did not say {text:?}");
        }
    }

    /// Nobody reads on.
    pub(crate) fn close_output(&mut self) {
        self.lines = None;
    }

    pub(crate) fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill").args(["-INT", &id]).status().expect("kill is there").success()
        );
    }

    /// Waits for its end, and says how it ended, and what it said that was not yet read.
    pub(crate) fn end(mut self) -> Said {
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let rest: Vec<String> =
            self.lines.take().into_iter().flatten().map_while(Result::ok).collect();
        let mut stderr = String::new();
        self.notes.read_to_string(&mut stderr).expect("it speaks UTF-8");
        Said { code: status.code(), stdout: rest.join("\n"), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
