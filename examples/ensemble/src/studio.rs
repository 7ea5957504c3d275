//! What the musicians share: jobs, the artifacts that come of them, and a conversation. Kept in a journal, one
//! line for each thing that happened, so that a job goes on after the server was killed. This is the server's own
//! business: Rejoin keeps sessions, not what tools do.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// A job was begun; it is ready at that time.
    Began { job: String, ready_at_ms: u64 },
    /// It is ready, and this came of it.
    Ready { job: String, artifact: String },
    /// Somebody said something, under a key that makes saying it again harmless.
    Said { key: String, who: String, text: String },
}

/// What the journal says.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Jobs under way, and when they are ready.
    pub(crate) jobs: BTreeMap<String, u64>,
    pub(crate) artifacts: BTreeMap<String, String>,
    /// Keys, and what was said under them.
    pub(crate) said: Vec<(String, String)>,
}

/// The studio.
pub(crate) struct Studio {
    state: watch::Sender<State>,
    journal: Mutex<File>,
}

impl State {
    /// What a journal says.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut state = Self::default();
        // A last line that was cut off by the end of its process never happened.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .for_each(|line| state.apply(line));
        state
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Began { job, ready_at_ms } => {
                self.jobs.insert(job, ready_at_ms);
            }
            Line::Ready { job, artifact } => {
                self.jobs.remove(&job);
                self.artifacts.insert(job, artifact);
            }
            Line::Said { key, who, text } => self.said.push((key, format!("{who}: {text}"))),
        }
    }
}

impl Studio {
    /// Opens the studio, and goes on with the jobs that were under way.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>> {
        let state = State::read(path);
        let journal = OpenOptions::new().create(true).append(true).open(path);
        let journal =
            Mutex::new(journal.with_context(|| format!("can't open {}", path.display()))?);
        let unfinished: Vec<_> = state.jobs.clone().into_iter().collect();
        let studio = Arc::new(Self { state: watch::Sender::new(state), journal });
        for (job, ready_at_ms) in unfinished {
            tokio::spawn(Arc::clone(&studio).work(job, ready_at_ms));
        }
        Ok(studio)
    }

    /// Begins a job, unless it is known.
    pub(crate) fn begin(self: &Arc<Self>, job: &str, takes: Duration) -> Result<()> {
        let known =
            |state: &State| state.jobs.contains_key(job) || state.artifacts.contains_key(job);
        let ready_at_ms = now_ms() + takes.as_millis() as u64;
        let line = Line::Began { job: job.to_owned(), ready_at_ms };
        if self.note(line, |state| !known(state))? {
            tokio::spawn(Arc::clone(self).work(job.to_owned(), ready_at_ms));
        }
        Ok(())
    }

    /// Waits for what comes of a job.
    pub(crate) async fn artifact(&self, job: &str) -> Option<String> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| state.artifacts.contains_key(job)).await;
        state.ok()?.artifacts.get(job).cloned()
    }

    /// Says something once, however often it is asked to.
    pub(crate) fn say(&self, key: &str, who: &str, text: &str) -> Result<()> {
        let line = Line::Said { key: key.to_owned(), who: who.to_owned(), text: text.to_owned() };
        let unsaid = |state: &State| state.said.iter().all(|(said, _)| said != key);
        self.note(line, unsaid).map(drop)
    }

    /// What was said so far.
    pub(crate) fn conversation(&self) -> Vec<String> {
        self.state.borrow().said.iter().map(|(_, text)| text.clone()).collect()
    }

    /// The model at work: time passes, and there is music.
    async fn work(self: Arc<Self>, job: String, ready_at_ms: u64) {
        tokio::time::sleep(Duration::from_millis(ready_at_ms.saturating_sub(now_ms()))).await;
        let line = Line::Ready { artifact: melody(&job), job: job.clone() };
        let _ = self.note(line, |state| !state.artifacts.contains_key(&job));
    }

    /// Notes something if `wanted`; it is in the journal before anybody knows of it.
    fn note(&self, line: Line, wanted: impl Fn(&State) -> bool) -> Result<bool> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if !wanted(&self.state.borrow()) {
            return Ok(false);
        }
        journal.write_all(format!("{}\n", serde_json::to_string(&line)?).as_bytes())?;
        self.state.send_modify(|state| state.apply(line));
        Ok(true)
    }
}

/// Eight notes that only this job has.
fn melody(job: &str) -> String {
    let mut random =
        crate::random::Random::from(job.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)));
    let mut note = || ["C", "D", "E", "F", "G", "A", "B"][random.below(7) as usize];
    (0..8).map(|_| note()).collect::<Vec<_>>().join(" ")
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
