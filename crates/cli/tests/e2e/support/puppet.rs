//! An agent that does as the messages it gets tell it. What it understands stands in `puppet.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::until;

const SCRIPT: &str = include_str!("puppet.py");

/// Where the agents of a server note what they are told.
pub(crate) struct Puppet {
    home: TempDir,
}

impl Puppet {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("puppet.py"), SCRIPT).unwrap();
        Self { home }
    }

    /// The command line that runs it. The system's own Python starts much faster than a version
    /// manager's.
    pub(crate) fn command(&self) -> String {
        let python = ["/usr/bin/python3", "/bin/python3"].into_iter();
        let python = python.into_iter().find(|path| fs::exists(path).unwrap()).unwrap_or("python3");
        let home = self.home.path().display();
        format!("exec {python} -S -E {home}/puppet.py {home}")
    }

    /// A file that a message can tell it to wait for.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        Gate { path: self.home.path().join(name) }
    }

    /// Every line that agents were told so far.
    pub(crate) fn told(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.home.path().join("told")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines in a few words: their names, and their `in_seq` if they have one.
    pub(crate) fn heard(&self) -> Vec<String> {
        let words = |line: &Value| match line.get("in_seq") {
            Some(in_seq) => format!("{} {in_seq}", line["event"].as_str().unwrap()),
            None => line["event"].as_str().unwrap().to_owned(),
        };
        self.told().iter().map(words).collect()
    }

    /// Waits until agents were told this, and nothing else.
    pub(crate) async fn until_heard(&self, expected: &[&str]) {
        let what = format!("the agent is told {expected:?}");
        until(&what, async || {
            let heard = self.heard();
            assert!(heard.len() <= expected.len(), "{heard:?}, where {expected:?} was expected");
            heard == expected
        })
        .await;
    }

    /// The processes so far, in the order in which they were started.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.home.path().join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Something an agent waits for.
pub(crate) struct Gate {
    path: PathBuf,
}

impl Gate {
    pub(crate) fn path(&self) -> Value {
        json!(self.path)
    }

    pub(crate) fn open(&self) {
        fs::write(&self.path, "").unwrap();
    }
}
