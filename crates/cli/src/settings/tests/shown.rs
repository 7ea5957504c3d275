//! What `check-config` shows, and what nothing shows.

use std::path::PathBuf;

use super::*;

#[test]
fn secrets_show_neither_in_debug_nor_in_check_config() {
    let file = "store = 'postgres://me:hunter2hunter2hunter2hunter2hunter2@db/x'
hook_url = 'https://h.example/?token=hunter2'
hook_secret = 'hunter2'
auth = 'jwt'
[jwt]
issuer = 'i'
audience = 'a'
secret_env = 'JWT_SECRET'";
    let secret = "hunter2".repeat(5);
    let variables = [
        ("MCP_SESSION_SECRET", secret.as_str()),
        ("MCP_SESSION_SECRET_PREVIOUS", &secret),
        ("JWT_SECRET", &secret),
    ];
    let config = load(file, &variables, &[]).unwrap();
    let text = check_config(&config);
    assert!(!text.contains("hunter2"), "{text}");
    assert!(
        text.contains("# hook_secret = (set)") && text.contains("# MCP_SESSION_SECRET: (set)"),
        "{text}"
    );
    let debug = format!("{config:?}");
    assert!(!debug.contains("hunter2"), "{debug}");
}

#[test]
fn what_check_config_prints_is_a_file_that_says_the_same() {
    let file = "inactivity_timeout = '5m'\nallowed_hosts = ['a.example', 'b.example']\nagent = 'node \"x\".js'
reconnect_backoff = [1, '500ms']\nmax_frame_bytes = 2000000";
    let first = load(
        file,
        &[("HOME", "/home/ada")],
        &["--stale-session-status", "404", "--disconnect-ttl", "90m"],
    );
    let first = first.unwrap();
    let again = load(&check_config(&first), &[], &[]).unwrap();
    assert_eq!(again.settings, first.settings);
    assert_eq!(first.settings.data_dir, PathBuf::from("/home/ada/.local/share/rejoin"));
}

#[test]
fn check_config_says_where_values_come_from() {
    let config = load("", &[("REJOIN_TASK_AFTER", "9s")], &["--session-ttl", "1h"]).unwrap();
    let text = check_config(&config);
    let line = |key: &str| {
        let line = text.lines().find(|line| line.contains(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("session_ttl ="), "session_ttl = \"1h\" # --session-ttl");
    assert_eq!(line("buffer_size ="), "buffer_size = 50000 # default");
    assert_eq!(line("disconnect_ttl:"), "# disconnect_ttl: as session_ttl # default");
    assert_eq!(line("task_after ="), "task_after = \"9s\" # REJOIN_TASK_AFTER");
}

#[test]
fn every_setting_has_one_name_and_is_shown() {
    let mut keys: Vec<_> = TABLE.iter().map(|setting| setting.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), TABLE.len());
    let text = check_config(&load("", &[], &[]).unwrap());
    for setting in TABLE {
        assert!(
            text.contains(&format!("{} = ", setting.key))
                || text.contains(&format!("# {}: ", setting.key))
        );
    }
}
