//! Agents that are child processes, and do as the messages they get tell them.

use std::fs;
use std::path::PathBuf;

use rejoin::agents::Command;
use rejoin::core::Seq;
use rejoin::core::log::EntryKind;
use rejoin::store::PageLimit;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{World, body, until};

/// Notes every line it is told, prints what a message wants it to, and then does what the message
/// wants it to.
const PUPPET: &str = r#"
import json, os, signal, subprocess, sys, time

home = sys.argv[1]

def note(name, text):
    with open(os.path.join(home, name), "a") as file:
        file.write(text)

note("pids", "%d\n" % os.getpid())
for line in iter(sys.stdin.readline, ""):
    note("told", line)
    message = json.loads(line)
    wish = message.get("content")
    if message["event"] != "user.message" or not isinstance(wish, dict):
        continue
    for said in wish.get("print", []):
        print(said if isinstance(said, str) else json.dumps(said))
    for number in range(wish.get("count", 0)):
        print(json.dumps({"event": "agent.count", "content": number}))
    if "long" in wish:
        print("{" + " " * wish["long"] + "}")
    sys.stdout.flush()
    if wish.get("spawn"):
        note("grandchildren", "%d\n" % subprocess.Popen(["sleep", "1000"]).pid)
    if wish.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if wish.get("then") == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if wish.get("then") == "sleep":
        time.sleep(1000)
note("told", '{"event": "end of input"}\n')
"#;

/// Where a puppet, and those that follow it in its session, note what they are told.
pub struct Puppet {
    home: TempDir,
}

impl Puppet {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("puppet.py"), PUPPET).unwrap();
        Self { home }
    }

    pub fn command(&self) -> Command {
        let home = self.home.path().to_owned();
        Command::new("python3", [home.join("puppet.py"), home])
    }

    /// Every line that children were told so far.
    pub fn told(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file("told")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines, in a few words: their names, and their `in_seq` if they have one.
    pub fn heard(&self) -> Vec<String> {
        self.told().iter().map(words).collect()
    }

    pub async fn until_heard(&self, expected: &[&str]) {
        let mut heard = Vec::new();
        for _ in 0..5_000 {
            heard = self.heard();
            if heard == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        assert_eq!(heard, expected);
    }

    /// The children so far.
    pub fn pids(&self) -> Vec<u32> {
        self.numbers("pids")
    }

    pub fn grandchildren(&self) -> Vec<u32> {
        self.numbers("grandchildren")
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

fn words(line: &Value) -> String {
    let event = line["event"].as_str().unwrap();
    match line.get("in_seq") {
        Some(in_seq) => format!("{event} {in_seq}"),
        None => event.into(),
    }
}

/// Whether a process is there; a zombie whose parent is not us is not.
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

/// Whether there is any trace of a process, be it as a zombie.
pub fn is_known(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}

pub fn kill(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

impl World {
    /// A client's message with this content.
    pub async fn tell(&self, content: Value) {
        self.send(&json!({ "content": content }).to_string()).await;
    }

    pub async fn cancel(&self) {
        let sent = self.sessions.send(&self.id, EntryKind::Cancel, None, body("{}")).await;
        sent.unwrap();
    }

    /// Every event that is held.
    pub async fn events(&self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        let mut after = Seq::ZERO;
        loop {
            let page = self.store.read(&self.id, after, PageLimit::default()).await.unwrap();
            let page = page.unwrap();
            let Some(last) = page.events.last() else { return all };
            after = last.seq;
            all.extend(
                page.events.iter().map(|event| serde_json::from_slice(&event.body).unwrap()),
            );
        }
    }

    pub async fn event_names(&self) -> Vec<String> {
        let events = self.events().await;
        events.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn until_head(&self, head: u64) {
        until(async || self.record().await.head.get() >= head).await;
        assert_eq!(self.record().await.head.get(), head);
    }
}
