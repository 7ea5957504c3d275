//! An MCP server that is a child process: a message a line on its standard input and output.

mod input;

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use rejoin_core::SessionId;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::input::Input;
use super::{Heard, Link, Theirs, Unreachable, WAITING};
use crate::child::lines::{Bounds, Line, Lines};
use crate::child::process::{Pipes, Process, Program};
use crate::child::stderr::LastLines;
use crate::mcp::garbled::unmarked;
use crate::mcp::message::{Kind, Message};
use crate::metrics::Counted;
use crate::timeline::Death;

/// A command that is an MCP server.
#[derive(Debug)]
pub(crate) struct Child {
    program: Program,
}

impl Child {
    /// A command line, read as `sh -c` does.
    pub(crate) fn shell(line: impl Into<OsString>) -> Self {
        let arguments = vec![OsString::from("-c"), line.into()];
        Self { program: Program { name: "sh".into(), arguments } }
    }

    /// Starts it.
    pub(super) async fn start(
        &self,
        session: &SessionId,
        max_bytes: usize,
        counted: Counted,
    ) -> Result<Link, Unreachable> {
        let (process, pipes) =
            Process::spawn(&self.program, counted).await.map_err(Unreachable::NotStarted)?;
        let (to, outgoing) = mpsc::channel(WAITING);
        let (incoming, from) = mpsc::channel(WAITING);
        let keeper = keep(process, pipes, outgoing, incoming, max_bytes, session.clone());
        Ok(Link::kept_by(keeper, to, from, Theirs::default()))
    }
}

/// Goes between the pipes and the link until either side ends; then the process ends too. Returns how it died, unless it was
/// told to end.
async fn keep(
    mut process: Process,
    pipes: Pipes,
    mut outgoing: mpsc::Receiver<String>,
    incoming: mpsc::Sender<Heard>,
    max_bytes: usize,
    session: SessionId,
) -> Option<Death> {
    let mut logging = tokio::task::JoinSet::new(); // ends with this function
    let (last_lines, speaker) = (LastLines::default(), session.clone());
    logging.spawn(last_lines.clone().follow(pipes.stderr, move |line| {
        tracing::info!(target: "rejoin::mcp", session = %speaker, "{line}");
    }));
    let mut input = Input::new(pipes.stdin);
    let mut hearing = pin!(hear(pipes.stdout, &incoming, max_bytes, &session));
    let mut says_more = true;
    let told_to_end = tokio::select! {
        told_to_end = input.feed(&mut outgoing) => told_to_end,
        () = &mut hearing => {
            says_more = false;
            false
        }
        _ = process.exited() => false,
    };
    let gone = match told_to_end {
        true => None,
        false => timeout(DYING, process.exited()).await.ok(),
    };
    let (status, never_read) = match gone {
        Some(status) => (status.ok(), input.never_read()),
        // It may have read everything at last.
        None => (process.end(async move { drop(input) }).await, Vec::new()),
    };
    // What it said before it ended is in the pipe; somebody it has started may hold that open.
    if says_more {
        let _ = timeout(LAST_LINES, hearing).await;
    }
    outgoing.close();
    for text in never_read.into_iter().chain(std::iter::from_fn(|| outgoing.try_recv().ok())) {
        if let Ok(Kind::Request { id, .. }) = Message::parse(&text).map(|text| text.kind().clone())
        {
            let _ = incoming.send(Heard::DidNotRun { id }).await; // nobody may listen any more
        }
    }
    if told_to_end {
        return None;
    }
    let _ = timeout(LAST_ERRORS, logging.join_next()).await;
    Some(Death::of_child(status, last_lines.take()))
}

/// How long a child that speaks or reads no more may take to be seen dead.
const DYING: Duration = Duration::from_millis(100);

/// How long what a child said before it ended may take to be read.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How long its last words on standard error may take to be read.
const LAST_ERRORS: Duration = Duration::from_millis(500);

async fn hear(
    stdout: impl AsyncRead + Unpin,
    incoming: &mpsc::Sender<Heard>,
    max_bytes: usize,
    session: &SessionId,
) {
    let mut lines = Lines::new(stdout, Bounds { whole: max_bytes, of_longer: 0 });
    while let Ok(Some(line)) = lines.next().await {
        let text = match line {
            Line::Whole(text) => String::from_utf8_lossy(text.trim_ascii()).into_owned(),
            Line::TooLong(_) => {
                // Whatever it answered would be waited for without end, so this server is given up.
                tracing::error!(%session, max_bytes, "an MCP server sent a message over max_mcp_bytes");
                return;
            }
        };
        // It died over this line. What it was about to say is as lost as if it had not begun.
        if lines.has_ended() && Message::parse(unmarked(&text)).is_err() {
            return;
        }
        if !text.is_empty() && incoming.send(Heard::said(text)).await.is_err() {
            return;
        }
    }
}
