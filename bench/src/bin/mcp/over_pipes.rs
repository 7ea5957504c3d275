//! The server called directly, over the pipes of its process.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::calling::{INITIALIZED, Latencies, initialize, one_by_one, tool_call};

/// Who waits for which answer, which is a line and the time of its arrival.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<(Instant, String)>>>>;

/// A session with a server on pipes. It ends with this.
pub(crate) struct Pipes {
    _child: Child,
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    _reader: JoinSet<()>,
}

impl Pipes {
    pub(crate) async fn open(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("it is piped")?;
        let output = child.stdout.take().context("it is piped")?;
        let waiting = Waiting::default();
        let mut reader = JoinSet::new();
        reader.spawn(read(BufReader::new(output).lines(), Arc::clone(&waiting)));
        let input = tokio::sync::Mutex::new(input);
        let pipes = Self { _child: child, input, waiting, _reader: reader };
        pipes.ask(initialize()).await?;
        pipes.write(INITIALIZED).await?;
        Ok(pipes)
    }

    pub(crate) async fn call_for(&self, time: Duration, in_flight: usize) -> Result<Latencies> {
        let callers =
            (0..in_flight).map(|_| one_by_one(time, async || self.ask(tool_call()).await));
        Ok(Latencies::of(try_join_all(callers).await?.concat()))
    }

    async fn ask(&self, (id, line): (u64, String)) -> Result<Instant> {
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        self.write(&line).await?;
        let (arrived, line) = answer.await.context("the server has gone")?;
        ensure!(line.contains("\"result\""), "no result: {line}");
        Ok(arrived)
    }

    async fn write(&self, line: &str) -> Result<()> {
        Ok(self.input.lock().await.write_all(format!("{line}\n").as_bytes()).await?)
    }
}

async fn read(mut lines: Lines<BufReader<ChildStdout>>, waiting: Waiting) {
    #[derive(Deserialize)]
    struct Answer {
        id: u64,
    }
    while let Ok(Some(line)) = lines.next_line().await {
        let now = Instant::now();
        let Ok(Answer { id }) = serde_json::from_str(&line) else { continue };
        let caller = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(caller) = caller {
            let _ = caller.send((now, line)); // it may have given up
        }
    }
}
