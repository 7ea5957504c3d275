//! A child process and its group: started, told to end, and never left behind.
//!
//! The child leads a process group of its own, and the group is killed whenever this value goes. If
//! Rejoin itself is killed with SIGKILL, the kernel kills the child (on Linux), and the guard
//! ([`super::guard`]) the rest of its group. What remains out of reach is a descendant that leaves the
//! group (`setsid`).

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{environment, spawner};
use crate::metrics::Counted;

/// How long a child may take to end by itself when its standard input is closed, before SIGTERM.
const AFTER_CLOSING: Duration = Duration::from_secs(1);

/// How long it may take after SIGTERM, before SIGKILL.
const AFTER_TERM: Duration = Duration::from_secs(2);

/// How long all of that takes at most.
pub(crate) const LONGEST_END: Duration = AFTER_CLOSING.saturating_add(AFTER_TERM);

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// A running child. Dropping it kills its group; tokio's reaper sees to it that no zombie stays.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Group,
    counted: Counted,
}

/// The ends of its pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Process {
    /// Starts a program, which is counted while it runs.
    pub(crate) async fn spawn(
        program: &Program,
        mut counted: Counted,
    ) -> io::Result<(Self, Pipes)> {
        let mut command = Command::new(&program.name);
        command.args(&program.arguments);
        for name in environment::hidden_names() {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        group::lead(&mut command);
        let mut child = spawner::spawn(command).await?;
        let group = Group::of(&child);
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        counted.set(true);
        let process = Self { child, group, counted };
        let Some(((stdin, stdout), stderr)) = pipes else {
            return Err(io::Error::other("the child has no pipes"));
        };
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Waits until the child has ended, and ends what it left running. Nothing is lost if it is
    /// dropped.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // At once, while the number of the group can't have been given to another process yet.
        self.group.kill();
        self.group.forget();
        self.counted.set(false);
        status
    }

    /// Ends the child: `closing` closes its standard input; then it has a while to end by itself, a
    /// while after SIGTERM, and then no more. Returns how it ended if it did so by itself.
    pub(crate) async fn end(&mut self, closing: impl Future<Output = ()>) -> Option<ExitStatus> {
        let gently = async {
            closing.await;
            self.exited().await
        };
        if let Ok(status) = timeout(AFTER_CLOSING, gently).await {
            return status.ok();
        }
        self.group.terminate();
        if timeout(AFTER_TERM, self.exited()).await.is_ok() {
            return None;
        }
        self.group.kill();
        if let Err(error) = self.exited().await {
            tracing::warn!(%error, "a child was killed, and nobody can say whether it has ended");
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.group.kill();
        self.group.forget();
    }
}

use group::Group;

#[cfg(unix)]
mod group {
    use rustix::process::{Pid, Signal, kill_process_group};
    use tokio::process::{Child, Command};

    use super::spawner;

    /// The child's process group, until the child has been waited for.
    #[derive(Debug)]
    pub(crate) struct Group(Option<Pid>);

    impl Group {
        pub(crate) fn of(child: &Child) -> Self {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            Self(id.and_then(Pid::from_raw))
        }

        pub(crate) fn terminate(&self) {
            self.signal(Signal::TERM);
        }

        pub(crate) fn kill(&self) {
            self.signal(Signal::KILL);
        }

        /// The number may be another's from now on.
        pub(crate) fn forget(&mut self) {
            if let Some(group) = self.0.take() {
                spawner::gone(group.as_raw_nonzero().get().unsigned_abs());
            }
        }

        fn signal(&self, signal: Signal) {
            if let Some(group) = self.0 {
                // It fails if nobody is left, which is what is wanted.
                let _ = kill_process_group(group, signal);
            }
        }
    }

    /// The child leads a group of its own, and dies if we do.
    pub(crate) fn lead(command: &mut Command) {
        command.process_group(0);
        #[cfg(target_os = "linux")]
        die_with_us(command);
    }

    /// The signal comes when the thread that started the child ends, which is why that is done on one
    /// that never does.
    #[cfg(target_os = "linux")]
    #[allow(
        unsafe_code,
        reason = "there is no safe way to make a system call between fork and exec"
    )]
    fn die_with_us(command: &mut Command) {
        use crate::child::file_limit;

        let (parent, files) = (rustix::process::getpid(), file_limit::of_children());
        let in_child = move || {
            if let Some(files) = &files {
                rustix::process::setrlimit(rustix::process::Resource::Nofile, *files)?;
            }
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // Whoever lost us before that call would wait for the signal for ever.
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                false => Err(rustix::io::Errno::SRCH.into()),
            }
        };
        // SAFETY: between fork and exec only calls that are safe in a signal handler may be made. These
        // are three plain system calls; nothing is allocated and no lock is taken.
        unsafe { command.pre_exec(in_child) };
    }
}

#[cfg(not(unix))]
mod group {
    use tokio::process::{Child, Command};

    /// There are no groups here: only the child itself is ended, by `kill_on_drop`.
    #[derive(Debug)]
    pub(crate) struct Group;

    impl Group {
        pub(crate) fn of(_: &Child) -> Self {
            Self
        }
        pub(crate) fn terminate(&self) {}
        pub(crate) fn kill(&self) {}
        pub(crate) fn forget(&mut self) {}
    }

    pub(crate) fn lead(_: &mut Command) {}
}
