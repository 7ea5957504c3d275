//! What is wrong is told, all of it, with its place.

use super::*;

#[test]
fn all_problems_are_told_at_once_each_with_its_place() {
    let file = "
session_ttl = '24 hourz'
heartbeat_intervall = '30s'
buffer_size = 0
listen = ['a', 'b']
[server]
port = 1
";
    let variables = [
        ("REJOIN_BUFER_BYTES", "4MiB"),
        ("REJOIN_TOKEN_TTL", "soon"),
        ("REJOIN_SERVICE_HOST", "10.0.0.1"),
    ];
    assert_eq!(
        problems(file, &variables, &["--buffer-bytes", "12", "--log-level", "inof"]),
        [
            "rejoin.toml:2: session_ttl: \"24 hourz\" is not a duration; write 30s, 15m or 24h",
            "rejoin.toml:3: unknown setting \"heartbeat_intervall\"; did you mean \"heartbeat_interval\"?",
            "rejoin.toml:4: buffer_size: must be at least 1",
            "rejoin.toml:5: listen: takes one value, not a list",
            "rejoin.toml:6: unknown setting \"server\"",
            "REJOIN_BUFER_BYTES: unknown setting; did you mean \"REJOIN_BUFFER_BYTES\"?",
            "REJOIN_TOKEN_TTL: \"soon\" is not a duration; write 30s, 15m or 24h",
            "--buffer-bytes: must be at least 1KiB",
            "--log-level: \"inof\" is not a filter; write one of off, error, warn, info, debug, trace, or target=level",
        ]
    );
}

#[test]
fn a_wrong_value_is_told_even_if_a_later_one_covers_it() {
    let found = problems("session_ttl = 5", &[], &["--session-ttl", "1h"]);
    assert_eq!(
        found,
        ["rejoin.toml:1: session_ttl: \"5\" is not a duration; write 30s, 15m or 24h"]
    );
}

#[test]
fn syntax_errors_name_their_line_and_hide_what_stands_there() {
    let found = problems("session_ttl = '1h'\nhook_secret = \"hunter2\nlog = 'json'", &[], &[]);
    assert!(found[0].starts_with("rejoin.toml:2: "), "{found:?}");
    assert!(!found.join("\n").contains("hunter2"), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_told_by_who_named_it() {
    let environment = [("REJOIN_CONFIG", "/nowhere/rejoin.toml")].into_iter().collect();
    let problems = Config::load(&Flags::default(), &environment).unwrap_err().to_string();
    assert!(
        problems.starts_with("REJOIN_CONFIG: cannot read \"/nowhere/rejoin.toml\": "),
        "{problems}"
    );
}

#[test]
fn settings_that_contradict_each_other_are_refused_where_they_can_be_put_right() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "heartbeat_timeout = '10s'",
            &[],
            "rejoin.toml:1: heartbeat_timeout (10s) must not be below heartbeat_interval (30s)",
        ),
        (
            "heartbeat_timeout = '10s'",
            &["--heartbeat-interval", "20s"],
            "--heartbeat-interval: heartbeat_timeout (10s) must not be below heartbeat_interval (20s)",
        ),
        (
            "max_buffered_bytes = '1MiB'",
            &[],
            "rejoin.toml:1: max_buffered_bytes (1MiB) must not be below buffer_bytes (8MiB)",
        ),
        (
            "max_frame_bytes = '512KiB'",
            &[],
            "rejoin.toml:1: max_state_bytes (512KiB) must be below max_frame_bytes (512KiB), or no \
             client could send a state back",
        ),
        (
            "tls_key = 'key.pem'",
            &[],
            "rejoin.toml:1: tls_cert and tls_key go together; give both or neither",
        ),
        (
            "",
            &["--listen", "0.0.0.0:80"],
            "--listen: listening on 0.0.0.0:80 without authentication would let anybody in; \
             set auth, listen on 127.0.0.1, or say --insecure-no-auth",
        ),
    ];
    for (file, flags, expected) in cases {
        assert_eq!(problems(file, &[], flags), [*expected]);
    }
}

#[test]
fn a_setting_that_is_wrong_by_itself_is_not_compared_with_others() {
    let found = problems("heartbeat_interval = 'x'\nheartbeat_timeout = '10s'", &[], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}
