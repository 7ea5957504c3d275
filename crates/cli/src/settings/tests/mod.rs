//! The settings as a whole: from file, environment and flags to what the server is told.

mod access;
mod precedence;
mod problems;
mod shown;

use clap::Command;

use super::table::TABLE;
use super::*;

/// Loads what these three say, with the file called `rejoin.toml`.
fn load(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Config, Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rejoin.toml");
    std::fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();

    let line = ["rejoin", "--config", path].into_iter().chain(flags.iter().copied());
    let matches = Flags::add_to(Command::new("rejoin")).try_get_matches_from(line).unwrap();
    let environment = variables.iter().copied().collect();
    Config::load(&Flags::from_matches(&matches), &environment).map_err(|problems| {
        problems.to_string().replace(path, "rejoin.toml").lines().map(String::from).collect()
    })
}

fn problems(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> Vec<String> {
    load(file, variables, flags).unwrap_err()
}
