//! The short mode, as a program: it checks itself, and says so.
#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::process::Command;

#[test]
fn every_result_arrives_once_through_cuts_and_restarts() {
    let home = tempfile::tempdir().unwrap();
    let picture = home.path().join("timeline.svg");
    let mut ensemble = Command::new(env!("CARGO_BIN_EXE_ensemble"));
    let ensemble = ensemble.args(["--short", "--seed", "7", "--svg"]).arg(&picture);
    let output = ensemble.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("30 results, each once") && said.contains("2 restarts"), "{said}");
    let cuts = said.split(" cuts").next().unwrap().rsplit(' ').next().unwrap();
    assert!(cuts.parse::<u32>().unwrap() >= 10, "{said}");
    let picture = std::fs::read_to_string(picture).unwrap();
    assert_eq!(picture.matches("<circle").count(), 30, "each result is in the picture");
}
