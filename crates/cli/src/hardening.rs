//! What the process does so that its children, which run with its own rights, don't learn its secrets: it
//! hides them from the environment of children, overwrites them where `/proc` shows them, lets nobody of the
//! same user read its memory, and passes on no file that it did not open itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rejoin::ChildEnvironment;

use crate::settings::Config;

/// Flags whose values are secret.
const SECRET_FLAGS: [&str; 2] = ["secret", "headers"];

/// Protects the secrets of this process. To be called while it has one thread and no child.
/// Says what could not be done.
pub(crate) fn apply(config: &Config) -> Vec<String> {
    let children_see = children_see(config);
    let overwritten = overwrite_secrets(&children_see);
    rejoin::set_child_environment(children_see);
    keep_files_from_children();
    let overwritten = overwritten.map_err(|error| {
        format!("secrets in the environment can't be overwritten where /proc shows them: {error}")
    });
    let closed = forbid_dumps().map_err(|error| {
        format!("other processes of this user may read the server's memory: {error}")
    });
    [overwritten.err(), closed.err()].into_iter().flatten().collect()
}

/// What children see of the environment.
pub(crate) fn children_see(config: &Config) -> ChildEnvironment {
    ChildEnvironment {
        hidden: config.hidden_variables.clone(),
        kept: config.settings.child_env_keep.clone(),
    }
}

/// No core dump, and no `/proc/<pid>/environ`, `mem` or ptrace for processes of the same user. A child loses
/// this with `exec`: it may be debugged as always.
#[cfg(target_os = "linux")]
fn forbid_dumps() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(not(target_os = "linux"))]
fn forbid_dumps() -> io::Result<()> {
    Ok(())
}

/// Overwrites values of secret variables and flags where the kernel has put them for this process, which is
/// what `/proc/<pid>/environ` and `cmdline` show. They were read before.
fn overwrite_secrets(children_see: &ChildEnvironment) -> io::Result<()> {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Ok(()) }; // so nobody sees it
    let Some(Regions { arguments, variables }) = regions(&stat) else { return Ok(()) };
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let read = |(start, end): (u64, u64)| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
        memory.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    };
    // Telemetry reads its own variables itself, and later.
    let hidden = |name: &str| children_see.hides(name) && !name.starts_with("OTEL_");
    for (offset, length) in secret_values(&read(variables)?, hidden) {
        memory.write_all_at(&vec![0; length], variables.0 + offset)?;
    }
    for (offset, length) in secret_arguments(&read(arguments)?) {
        memory.write_all_at(&vec![b'x'; length], arguments.0 + offset)?;
    }
    Ok(())
}

/// Where the kernel keeps what a process was started with.
#[derive(Debug, PartialEq, Eq)]
struct Regions {
    arguments: (u64, u64),
    variables: (u64, u64),
}

/// Fields 48 to 51 of `/proc/self/stat`. The second one, a name in parentheses, may hold anything.
fn regions(stat: &str) -> Option<Regions> {
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse().ok();
    let known = |(start, end): (u64, u64)| (start > 0 && start <= end).then_some((start, end));
    Some(Regions {
        arguments: known((field(48)?, field(49)?))?,
        variables: known((field(50)?, field(51)?))?,
    })
}

/// Where the values of hidden variables are.
fn secret_values(bytes: &[u8], hidden: impl Fn(&str) -> bool) -> Vec<(u64, usize)> {
    let secret = |(offset, entry): (usize, &[u8])| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        let name = std::str::from_utf8(&entry[..equals]).ok()?;
        let value = entry.len() - equals - 1;
        hidden(name).then_some(((offset + equals + 1) as u64, value))
    };
    entries(bytes).filter_map(secret).collect()
}

/// Where the values of secret flags are: `--hook-secret=VALUE` or `--hook-secret VALUE`, and passwords in
/// URLs.
fn secret_arguments(bytes: &[u8]) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    let mut value_follows = false;
    for (offset, entry) in entries(bytes) {
        let text = String::from_utf8_lossy(entry);
        let flag = text.split('=').next().unwrap_or_default();
        let is_secret =
            flag.starts_with("--") && SECRET_FLAGS.iter().any(|end| flag.ends_with(end));
        let has_value = flag.len() < text.len();
        let is_value = std::mem::replace(&mut value_follows, is_secret && !has_value);
        if is_value || is_url_with_password(&text) {
            found.push((offset as u64, entry.len()));
        } else if is_secret && has_value {
            found.push(((offset + flag.len() + 1) as u64, entry.len() - flag.len() - 1));
        }
    }
    found
}

fn is_url_with_password(text: &str) -> bool {
    text.contains("postgres") && text.contains("://") && text.contains('@')
}

/// The entries of a block of texts that end with zero, each with its place.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut offset = 0;
    bytes.split(|byte| *byte == 0).map(move |entry| {
        let place = offset;
        offset += entry.len() + 1;
        (place, entry)
    })
}

/// Files that were open when this process was started go to no child: whoever started it may have left
/// some open by mistake. Those that it opens itself are never passed on.
#[cfg(target_os = "linux")]
fn keep_files_from_children() {
    use std::os::fd::BorrowedFd;

    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.collect::<Vec<_>>().into_iter().filter(|number| *number > 2) {
        #[allow(unsafe_code, reason = "a number of an open file is all that there is of it")]
        // SAFETY: the borrowed file is used for one call and not closed. If it has been closed meanwhile,
        // the call fails.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC);
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_files_from_children() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regions_are_found_behind_any_name() {
        let mut fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        fields[0] = "S".into();
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        let expected = Regions { arguments: (48, 49), variables: (50, 51) };
        assert_eq!(regions(&stat), Some(expected));
        assert_eq!(regions("7 (x) S 1"), None);
    }

    #[test]
    fn values_of_hidden_variables_are_found_and_no_others() {
        let found = secret_values(b"A=1\0KEY=abc\0B=\0KEY2=d\0", |name| name == "KEY");
        assert_eq!(found, [(8, 3)]);
    }

    #[test]
    fn values_of_secret_flags_are_found_in_both_forms() {
        let line = b"rejoin\0--hook-secret\0abc\0--otlp-headers=k=v\0--agent\0x\0";
        let values: Vec<&[u8]> = secret_arguments(line)
            .into_iter()
            .map(|(offset, length)| &line[offset as usize..offset as usize + length])
            .collect();
        assert_eq!(values, [&b"abc"[..], b"k=v"]);
    }
}
