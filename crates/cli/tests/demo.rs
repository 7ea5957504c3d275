//! `rejoin demo`, as it is in a pipe: what it claims, and what it leaves behind.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    command.arg("demo").env("TMPDIR", temporary);
    command.env("REJOIN_AGENT", "false").env("REJOIN_URL", "http://192.0.2.1"); // none of its business
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What is between `before` and the next blank or bracket.
fn number_after(text: &str, before: &str) -> Option<u32> {
    let (_, rest) = text.split_once(before)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn is_running(process: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-0", &process.to_string()]).stderr(Stdio::null());
    kill.status().expect("kill is there").success()
}

#[test]
fn every_event_arrives_once_through_a_broken_network_and_a_killed_server() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(temporary.path()).output().expect("the binary starts");
    let said = String::from_utf8(output.stdout).expect("it speaks UTF-8");
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));

    let seqs: Vec<u64> = said
        .lines()
        .filter(|line| line.contains("  live  ") || line.contains("  replayed  "))
        .filter_map(|line| line.split_whitespace().nth(2)?.parse().ok())
        .collect();
    assert!(seqs.len() > 20, "{said}");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{said}");
    let summary = format!("{} events, each exactly once", seqs.len());
    let line = said.lines().find(|line| line.contains(&summary)).expect("there is a summary");
    assert!(line.ends_with("no hole, no duplicate"), "{line}");
    assert!(said.contains("  replayed  ") && said.contains("kill -9"), "{said}");
    assert_eq!(said.matches("until the client was back").count(), 2, "{said}");
    assert!(said.contains("try next:"), "{said}");

    assert!(!said.contains('\x1b'), "a pipe gets no colour: {said}");
    let process = number_after(&said, "same files (process ").expect("it names the process");
    assert!(!is_running(process), "its server is still there");
    assert_eq!(
        std::fs::read_dir(temporary.path()).unwrap().count(),
        0,
        "its files are still there"
    );
}

#[test]
fn interrupted_it_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(temporary.path()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().expect("it says that a server runs");
    let process = number_after(&first, "(process ").expect("it names the process");
    assert!(is_running(process));
    lines.find(|line| line.contains("  live  ")).expect("an event arrives");

    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "rejoin: stopped; its server and its files are gone\n");
    assert!(!is_running(process), "its server is still there");
    assert_eq!(
        std::fs::read_dir(temporary.path()).unwrap().count(),
        0,
        "its files are still there"
    );
}
