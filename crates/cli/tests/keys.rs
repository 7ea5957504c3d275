//! `rejoin keys` beside a server that runs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `rejoin` with its data in `data`, and nothing from this process's environment.
fn rejoin(data: &Path, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    command.env_clear().args(line).arg("--data-dir").arg(data).stdin(Stdio::null());
    command
}

/// The exit code, what it said and what it complained of.
fn run(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn keys(data: &Path, line: &[&str]) -> String {
    let (code, said, complaint) = run(rejoin(data, &[&["keys"], line].concat()));
    assert_eq!(code, Some(0), "{complaint}");
    said
}

/// A server's log, read line by line; the server ends with the test.
struct Server {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(data: &Path) -> Self {
        let mut command = rejoin(data, &["serve", "--listen=127.0.0.1:0"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut server = Self { child, log };
        server.wait_for("listening");
        server
    }

    /// The next line of the log with `text` in it.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).expect("it speaks UTF-8");
            assert!(read > 0, "it ended without {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_running_server_takes_a_rotated_key_without_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let old = keys(data.path(), &["list"]);
    let old = old.split_whitespace().next().unwrap();
    let said = keys(data.path(), &["rotate"]);
    let new = said.split_whitespace().next().unwrap();
    // By itself, without a signal.
    let line = server.wait_for("signing keys read");
    assert!(line.contains(&format!("signs=\"{new}\"")), "{line}");
    assert!(line.contains(&format!("verify=\"{old}\"")), "{line}");

    keys(data.path(), &["retire", old]);
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    let line = server.wait_for("signing keys read");
    assert!(line.contains("verify=\"\""), "{line}");
    assert_eq!(keys(data.path(), &["list"]).lines().count(), 1);
}

#[test]
fn what_can_not_be_done_is_said_in_one_sentence_with_exit_code_1() {
    let data = tempfile::tempdir().unwrap();
    assert!(keys(data.path(), &["list"]).contains("the first start makes one"));
    keys(data.path(), &["rotate"]);
    let (code, _, complaint) = run(rejoin(data.path(), &["keys", "retire", "nobody"]));
    assert_eq!((code, complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(complaint.starts_with("rejoin: there is no key nobody"), "{complaint}");
    let (code, _, complaint) = run(rejoin(data.path(), &["keys", "retire", "-dash"]));
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("no key -dash"), "{complaint}");
    let (code, _, complaint) = run(rejoin(data.path(), &["keys", "rotate", "--keep=some"]));
    assert_eq!(code, Some(2), "{complaint}");
    let (code, _, complaint) = run(rejoin(data.path(), &["keys", "list", "--key-fil=x"]));
    assert_eq!(code, Some(2), "{complaint}");
}

#[test]
fn a_server_whose_keys_others_can_read_does_not_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir().unwrap();
    keys(data.path(), &["rotate"]);
    let everybody = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(data.path().join("keys"), everybody).unwrap();
    let (code, _, complaint) = run(rejoin(data.path(), &["serve", "--listen=127.0.0.1:0"]));
    assert_eq!((code, complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(complaint.contains("run `chmod 600` on it"), "{complaint}");
}
