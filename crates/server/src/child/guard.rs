//! Nobody outlives us, also if we are killed with SIGKILL and can end nobody any more: a small process
//! is told which groups there are, and kills them when it sees the end of its input.
//!
//! The kernel would kill a child itself (see [`super::process`]), but not the children of that child, and
//! `sh -c 'python3 agent.py'` is two processes with many a shell.

use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};

/// It has a group of its own and heeds no signal meant for us: whatever ends us, it comes after.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r sign group; do
  rest=
  for known in $groups; do
    [ "$known" = "$group" ] || rest="$rest $known"
  done
  groups=$rest
  [ "$sign" = + ] && groups="$groups $group"
done
for group in $groups; do
  kill -s KILL -- "-$group"
done
"#;

/// The process that comes after us. It ends when this value goes.
#[derive(Debug, Default)]
pub(crate) struct Guard(ProcessState);

#[derive(Debug, Default)]
enum ProcessState {
    /// There was nobody to watch over yet.
    #[default]
    Unneeded,
    Watching(Child),
    /// It can't be started, or has been killed: we go on without.
    Gone,
}

impl Guard {
    /// The group is to go when we do.
    pub(crate) fn watch(&mut self, group: u32) {
        // Elsewhere there are no groups.
        if cfg!(unix) && matches!(self.0, ProcessState::Unneeded) {
            self.0 = match start() {
                Ok(guard) => ProcessState::Watching(guard),
                Err(error) => without(&error),
            };
        }
        self.say('+', group);
    }

    /// The group has gone.
    pub(crate) fn forget(&mut self, group: u32) {
        self.say('-', group);
    }

    fn say(&mut self, sign: char, group: u32) {
        let ProcessState::Watching(guard) = &mut self.0 else { return };
        let Some(stdin) = &mut guard.stdin else { return };
        if let Err(error) = stdin.write_all(format!("{sign} {group}\n").as_bytes()) {
            let _ = guard.kill();
            let _ = guard.wait();
            self.0 = without(&error);
        }
    }
}

fn start() -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).env_clear().current_dir("/");
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()
}

fn without(error: &io::Error) -> ProcessState {
    tracing::warn!(%error, "if this server is killed, children of its agents may outlive it");
    ProcessState::Gone
}
