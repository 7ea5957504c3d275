//! What a child is told, and which of it it never read: a request that was still in the pipe when the child
//! died certainly did not run, so it may be handed to the next one.

use std::collections::VecDeque;
use std::io;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

/// A pipe holds no more than this, unless somebody with special rights made it larger.
const PIPE_HOLDS: u64 = 1024 * 1024;

/// A child's standard input.
pub(super) struct Input {
    stdin: ChildStdin,
    /// Bytes that were written so far.
    written: u64,
    /// Messages that may still be in the pipe, and where they begin.
    recent: VecDeque<(u64, String)>,
}

impl Input {
    pub(super) fn new(stdin: ChildStdin) -> Self {
        Self { stdin, written: 0, recent: VecDeque::new() }
    }

    /// Writes what comes, until nothing more does or nobody reads; says whether it was the former.
    pub(super) async fn feed(&mut self, outgoing: &mut mpsc::Receiver<String>) -> bool {
        while let Some(mut text) = outgoing.recv().await {
            text.push('\n');
            self.recent.push_back((self.written, text));
            if self.write_last().await.is_err() {
                return false;
            }
            let oldest = self.written.saturating_sub(PIPE_HOLDS);
            let in_pipe = |(from, text): &(u64, String)| from + text.len() as u64 > oldest;
            while self.recent.front().is_some_and(|message| !in_pipe(message)) {
                self.recent.pop_front();
            }
        }
        true
    }

    async fn write_last(&mut self) -> io::Result<()> {
        let Some((_, text)) = self.recent.back() else { return Ok(()) };
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let bytes = self.stdin.write(rest).await?;
            if bytes == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += bytes as u64;
            rest = &rest[bytes..];
        }
        self.stdin.flush().await
    }

    /// Messages of which the child has not read a byte, or not the end. To be asked once it is gone.
    pub(super) fn never_read(&mut self) -> Vec<String> {
        let read = self.written - self.unread().min(self.written);
        let (written, recent) = (self.written, std::mem::take(&mut self.recent));
        let whole = |from: u64, text: &str| from + text.len() as u64 <= written;
        let untouched =
            recent.into_iter().filter(|(from, text)| *from >= read || !whole(*from, text));
        untouched.map(|(_, text)| text).collect()
    }

    #[cfg(unix)]
    fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.stdin).unwrap_or(0)
    }

    /// Nobody knows: then it counts as read.
    #[cfg(not(unix))]
    fn unread(&self) -> u64 {
        0
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// A child that reads one line, and dies when it has.
    #[tokio::test]
    async fn what_a_child_left_in_the_pipe_was_never_read() {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "read line; kill -9 $$"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = Input::new(child.stdin.take().unwrap());
        let (to, mut outgoing) = mpsc::channel(8);
        for text in ["one", "two", "three"] {
            to.send(text.to_owned()).await.unwrap();
        }
        drop(to);
        input.feed(&mut outgoing).await;
        child.wait().await.unwrap();
        assert_eq!(input.never_read(), ["two\n", "three\n"]);
    }
}
