//! The binary as a person or a supervisor meets it: what it says, what it answers, how it ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server that was started, and ends with the test.
struct Server {
    child: Child,
    address: String,
    greeting: String,
}

/// What a command said and how it ended.
struct Said {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

fn rejoin(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REJOIN_")) {
        command.env_remove(name);
    }
    command.env_remove("MCP_SESSION_SECRET");
    command.arg("--listen=127.0.0.1:0").arg("--data-dir").arg(data_dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(mut command: Command) -> Server {
    let mut child = command.spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is piped"));
    let (mut greeting, mut address) = (String::new(), String::new());
    while !greeting.contains("stop with") {
        let mut line = String::new();
        let read = lines.read_line(&mut line).expect("it speaks UTF-8");
        assert!(read > 0, "it ended before it greeted: {greeting}");
        if let Some((_, rest)) = line.split_once("http://")
            && address.is_empty()
        {
            address = rest.trim().to_owned();
        }
        greeting.push_str(&line);
    }
    Server { child, address, greeting }
}

fn run(mut command: Command) -> Said {
    let output = command.output().expect("the binary starts");
    Said {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Server {
    fn post(&self, path: &str, json: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = json.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().expect("kill is there");
        assert!(status.success());
    }

    /// Waits for its end, and says how it ended and what it had logged.
    fn end(mut self) -> Said {
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("its errors are piped");
        pipe.read_to_string(&mut stderr).expect("it speaks UTF-8");
        Said { status, stdout: self.greeting.clone(), stderr }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

#[test]
fn without_an_mcp_server_the_built_in_one_answers_and_the_greeting_says_so() {
    let data = directory();
    let server = start(rejoin(data.path()));
    assert!(
        server.greeting.contains("mcp           the built-in example tools"),
        "{}",
        server.greeting
    );
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let answer = server.post("/mcp", hello);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("Rejoin's example tools"), "{answer}");
}

#[test]
fn the_url_of_an_mcp_server_is_shown_without_its_query() {
    let data = directory();
    let mut command = rejoin(data.path());
    command.arg("--mcp=http://127.0.0.1:9/mcp?key=hunter2");
    let server = start(command);
    assert!(
        server.greeting.contains("mcp           http://127.0.0.1:9/mcp?…"),
        "{}",
        server.greeting
    );
    assert!(!server.greeting.contains("hunter2"), "{}", server.greeting);
}

#[test]
fn it_says_where_it_listens_and_where_its_data_is() {
    let data = directory();
    let server = start(rejoin(data.path()));
    assert!(server.greeting.contains(&data.path().display().to_string()), "{}", server.greeting);
    assert!(server.greeting.contains("try "), "{}", server.greeting);
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(server.get("/readyz").ends_with("ready\n"));
    assert!(server.get("/nowhere").starts_with("HTTP/1.1 404"));
}

#[test]
fn measurements_can_be_left_to_administrators() {
    let data = directory();
    let keys = data.path().join("rejoin.toml");
    let file =
        "metrics_access = 'admin'\n[[api_keys]]\nname = 'a'\nprincipal = 'a'\nkey_env = 'KEY'\n";
    std::fs::write(&keys, file).expect("the file is written");
    let mut command = rejoin(&data.path().join("data"));
    command.arg("--config").arg(&keys).env("KEY", "k".repeat(32));
    let closed = start(command);
    assert!(closed.get("/metrics").starts_with("HTTP/1.1 401"));
    assert!(closed.get("/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn it_stops_in_order_on_sigterm_and_starts_again_on_its_data() {
    let data = directory();
    for signal in ["-TERM", "-INT"] {
        let server = start(rejoin(data.path()));
        server.signal(signal);
        let said = server.end();
        assert_eq!(said.status.code(), Some(0), "{}", said.stderr);
        assert!(said.stderr.contains("every session is kept"), "{}", said.stderr);
    }
}

#[test]
fn it_starts_again_after_kill_9() {
    let data = directory();
    let server = start(rejoin(data.path()));
    server.signal("-KILL");
    assert_eq!(server.end().status.code(), None);
    assert!(start(rejoin(data.path())).get("/readyz").ends_with("ready\n"));
}

#[test]
fn a_second_process_on_the_same_data_is_refused_in_one_sentence() {
    let data = directory();
    let _first = start(rejoin(data.path()));
    let said = run(rejoin(data.path()));
    assert_eq!(said.status.code(), Some(1));
    let complaint: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(complaint.len(), 1, "{}", said.stderr);
    assert!(complaint[0].contains("in use by another process"), "{}", said.stderr);
}

#[test]
fn an_address_in_use_is_said_in_one_sentence() {
    let (data, other) = (directory(), directory());
    let first = start(rejoin(data.path()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    command.args(["--listen", &first.address, "--data-dir"]).arg(other.path());
    let said = run(command);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        said.stderr.contains(&format!("cannot listen on {}", first.address)),
        "{}",
        said.stderr
    );
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let data = directory();
    let file = data.path().join("rejoin.db");
    std::fs::write(&file, "my shopping list, which is rather long ".repeat(200)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let said = run(rejoin(data.path()));
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_typo_in_the_settings_is_told_with_the_right_spelling_and_exit_code_2() {
    let data = directory();
    let file = data.path().join("rejoin.toml");
    std::fs::write(&file, "session_ttl = \"1h\"\nheartbeat_intervall = \"5s\"\n").unwrap();
    let mut command = rejoin(data.path());
    command.arg("--config").arg(&file).arg("--buffer-bytes=lots");
    let said = run(command);
    assert_eq!(said.status.code(), Some(2));
    assert!(said.stderr.contains("rejoin.toml:2"), "{}", said.stderr);
    assert!(said.stderr.contains("did you mean \"heartbeat_interval\""), "{}", said.stderr);
    assert!(said.stderr.contains("--buffer-bytes"), "{}", said.stderr);
}

#[test]
fn check_config_prints_the_settings_in_force_and_where_they_came_from() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    command.args(["check-config", "--session-ttl=2h"]).env("REJOIN_BUFFER_SIZE", "77");
    let said = run(command);
    assert_eq!(said.status.code(), Some(0), "{}", said.stderr);
    let line = |key: &str| said.stdout.lines().find(|line| line.starts_with(key)).unwrap_or("");
    assert!(line("session_ttl").contains("2h") && line("session_ttl").contains("--session-ttl"));
    assert!(
        line("buffer_size").contains("77") && line("buffer_size").contains("REJOIN_BUFFER_SIZE")
    );
}

#[test]
fn json_logs_are_json_and_no_log_shows_a_secret() {
    let data = directory();
    let mut command = rejoin(data.path());
    let secret = "a-secret-of-more-than-thirty-two-bytes-indeed";
    command.args(["--log=json", "--log-level=trace"]).env("MCP_SESSION_SECRET", secret);
    let server = start(command);
    server.get("/readyz");
    server.signal("-TERM");
    let said = server.end();
    assert!(said.stderr.lines().count() > 2, "{}", said.stderr);
    for line in said.stderr.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
    }
    assert!(!said.stderr.contains(secret) && !said.stdout.contains(secret));
}
