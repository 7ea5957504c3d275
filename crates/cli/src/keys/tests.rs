//! Keys as a server and the person who runs it meet them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;

use tempfile::TempDir;

use super::*;
use crate::settings::Flags;

const SECRET: &str = "a secret of more than thirty-two bytes";
const OTHER: &str = "another one of more than thirty-two bytes";

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn config(flags: &[&str], variables: &[(&str, &str)]) -> Config {
    let line = ["rejoin"].into_iter().chain(flags.iter().copied());
    let command = Flags::add_to(clap::Command::new("rejoin"));
    let flags = Flags::from_matches(&command.try_get_matches_from(line).unwrap());
    Config::load(&flags, &variables.iter().copied().collect()).unwrap()
}

fn config_in(directory: &Path) -> Config {
    config(&["--data-dir", directory.to_str().unwrap()], &[])
}

/// What `rejoin keys …` prints or complains of.
fn keys(config: &Config, line: &[&str]) -> Result<String, String> {
    let line = ["keys"].iter().chain(line);
    let matches = command().try_get_matches_from(line).unwrap();
    let (name, matches) = matches.subcommand().unwrap();
    run(name, matches, config).map_err(|error| format!("{error:#}"))
}

fn ids(keys: &SharedKeys) -> Vec<String> {
    keys.current().iter().map(|key| key.id().to_owned()).collect()
}

fn id_of(secret: &str) -> String {
    SecretKey::new(secret.as_bytes()).unwrap().id().to_owned()
}

fn refused(config: &Config) -> String {
    format!("{:#}", open(config).unwrap_err())
}

#[test]
fn the_first_start_makes_a_key_that_only_its_owner_can_read_and_the_next_one_finds() {
    let data = directory();
    let config = config_in(&data.path().join("new/place"));
    let first = ids(&open(&config).unwrap());
    let file = config.settings.data_dir.join("keys");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(ids(&open(&config).unwrap()), first);
}

#[test]
fn processes_that_start_at_once_end_with_the_same_key() {
    let data = directory();
    let (config, barrier) = (config_in(data.path()), Barrier::new(8));
    let all: Vec<_> = std::thread::scope(|scope| {
        let start = || {
            barrier.wait();
            ids(&open(&config).unwrap())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|ids| *ids == all[0]), "{all:?}");
    let left: Vec<_> = fs::read_dir(data.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_secret_of_the_environment_signs_and_previous_ones_verify() {
    let data = directory();
    let variables = [("MCP_SESSION_SECRET", SECRET), ("MCP_SESSION_SECRET_PREVIOUS", OTHER)];
    let config = config(&["--data-dir", data.path().to_str().unwrap()], &variables);
    assert_eq!(ids(&open(&config).unwrap()), [id_of(SECRET), id_of(OTHER)]);
    assert!(keys(&config, &["rotate"]).unwrap_err().contains("MCP_SESSION_SECRET_PREVIOUS"));
    let listed = keys(&config, &["list"]).unwrap();
    assert!(listed.starts_with(&format!("{}  signs     MCP_SESSION_SECRET\n", id_of(SECRET))));
    assert!(!listed.contains("secret of") && !listed.contains("another one"), "{listed}");
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0, "no file is made beside it");
}

#[test]
fn a_server_that_moves_from_the_environment_to_a_file_still_verifies_what_it_signed() {
    let data = directory();
    let flags = ["--data-dir", data.path().to_str().unwrap()];
    let config = config(&flags, &[("MCP_SESSION_SECRET_PREVIOUS", OTHER)]);
    assert_eq!(ids(&open(&config).unwrap())[1..], [id_of(OTHER)]);
}

#[test]
fn sessions_in_memory_have_a_key_of_their_own_and_leave_no_file() {
    let data = directory();
    let config = config(&["--store=memory", "--data-dir", data.path().to_str().unwrap()], &[]);
    assert_ne!(ids(&open(&config).unwrap()), ids(&open(&config).unwrap()));
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    assert!(keys(&config, &["rotate"]).unwrap_err().contains("ends with the process"));
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let data = directory();
    let config = config_in(data.path());
    open(&config).unwrap();
    let file = data.path().join("keys");
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let sentence = refused(&config);
        assert!(sentence.contains(&format!("(mode {mode:o}); run `chmod 600`")), "{sentence}");
        assert!(keys(&config, &["list"]).is_err() && keys(&config, &["rotate"]).is_err());
    }
}

#[test]
fn a_key_file_that_is_named_has_to_be_there_and_rotate_makes_it() {
    let data = directory();
    let file = data.path().join("mine");
    let config = config(&["--key-file", file.to_str().unwrap()], &[]);
    assert!(refused(&config).ends_with("`rejoin keys rotate` with the same settings makes it"));
    let said = keys(&config, &["rotate"]).unwrap();
    assert_eq!(said.split(' ').next().unwrap(), ids(&open(&config).unwrap())[0]);
}

#[test]
fn a_running_server_signs_with_a_rotated_key_and_refuses_a_retired_one() {
    let data = directory();
    let config = config_in(data.path());
    let server = open(&config).unwrap();
    let first = ids(&server)[0].clone();
    keys(&config, &["rotate"]).unwrap();
    assert_eq!(ids(&server), [&*first], "until it looks");
    server.look();
    let second = ids(&server)[0].clone();
    assert_eq!(ids(&server), [&*second, &*first]);
    let listed = keys(&config, &["list"]).unwrap();
    let rows: Vec<Vec<_>> = listed.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!((rows[0][0], rows[0][1]), (&*second, "signs"));
    assert_eq!((rows[1][0], rows[1][1]), (&*first, "verifies"));

    keys(&config, &["retire", &first]).unwrap();
    server.look();
    assert_eq!(ids(&server), [&*second]);
    let said = keys(&config, &["rotate", "--keep=0"]).unwrap();
    assert!(said.contains(&format!("{second} is retired")), "{said}");
}

#[test]
fn a_broken_file_leaves_a_running_server_its_keys() {
    let data = directory();
    let config = config_in(data.path());
    let server = open(&config).unwrap();
    let before = ids(&server);
    let whole = fs::read(data.path().join("keys")).unwrap();
    fs::write(data.path().join("keys"), "what is this").unwrap();
    assert!(server.reload().is_err());
    server.look();
    assert_eq!(ids(&server), before);
    fs::remove_file(data.path().join("keys")).unwrap();
    server.look();
    assert_eq!(ids(&server), before);
    fs::write(data.path().join("new"), whole).unwrap();
    fs::set_permissions(data.path().join("new"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(data.path().join("new"), data.path().join("keys")).unwrap();
    server.look();
    assert_eq!(ids(&server), before);
    assert!(server.reload().is_ok());
}
