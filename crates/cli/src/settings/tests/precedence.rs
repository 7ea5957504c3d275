//! Which source wins, and what holds when none says anything.

use std::path::PathBuf;
use std::time::Duration;

use super::super::kind::Shown;
use super::*;

/// Section 11 of the protocol, copied by hand; values it leaves to us are marked.
const PROTOCOL_DEFAULTS: &[(&str, &str)] = &[
    ("listen", r#""127.0.0.1:8181""#),
    ("store", r#""embedded""#),
    ("heartbeat_interval", r#""30s""#),
    ("heartbeat_timeout", r#""1m""#),
    ("max_heartbeat_misses", "2"),
    ("session_ttl", r#""24h""#),
    ("buffer_size", "50000"),
    ("buffer_bytes", r#""8MiB""#),
    ("buffer_retention", r#""1h""#),
    ("max_buffered_bytes", r#""1GiB""#), // ours
    ("disk_reserve", r#""64MiB""#),      // ours
    ("audit_max", "100000"),             // ours
    ("drain_timeout", r#""30s""#),
    ("reconnect_backoff", "[1, 2, 4, 8, 16, 30, 60]"),
    ("max_reconnect_attempts", "5"),
    ("token_ttl", r#""15m""#),
    ("state_ttl", r#""24h""#),
    ("auto_export_interval", r#""1m""#),
    ("takeover", r#""replace""#),
    ("on_disconnect", r#""ttl""#),
    ("disconnect_ttl", "-"), // that is: session_ttl
    ("max_frame_bytes", r#""1MiB""#),
    ("max_state_bytes", r#""512KiB""#),
    ("max_mcp_bytes", r#""16MiB""#),
    ("inactivity_timeout", r#""off""#),
    ("sse_keep_alive", r#""15s""#),
    ("max_sessions", "100000"),              // ours
    ("max_sessions_per_principal", "10000"), // ours
    ("allowed_origins", "-"),
    ("allowed_hosts", "-"),
    ("auth", "-"),           // api_keys once there are any
    ("metrics_access", "-"), // open on loopback, admin beyond
    ("hook_url", "-"),
    ("hook_secret", "-"),
    ("client_session_ids", "false"),
    ("adopt_unknown_sessions", "false"),
    ("stale_session_status", r#""410""#),
    ("sse_retry", r#""3s""#),
    ("result_retention", r#""1h""#),
    ("child_idle_ttl", r#""1h""#),
    ("child_detached_ttl", r#""5m""#),
    ("tell_restarts", "true"),
    ("max_children", "64"), // ours
    ("reissue_window", r#""15s""#),
    ("task_after", r#""5s""#),
    ("modern_upstream", r#""per_principal""#),
    ("mcp_revisions", "-"), // all
    ("trust_annotations", "true"),
];

#[test]
fn every_default_is_the_protocols() {
    let config = load("", &[], &[]).unwrap();
    let shown: BTreeMap<_, _> =
        TABLE.iter().map(|setting| setting.key).zip(config.settings.shown()).collect();
    for (key, expected) in PROTOCOL_DEFAULTS {
        let found = match shown.get(key).unwrap_or_else(|| panic!("no setting {key}")) {
            Shown::Toml(text) => text.as_str(),
            Shown::Absent => "-",
            Shown::Hidden(words) => words,
        };
        assert_eq!(found, *expected, "{key}");
    }
    assert_eq!(config.access, Access::Open);
    assert_eq!(config.secrets, SessionSecrets::default());
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let ttl = |file, variables: &[_], flags: &[_]| {
        let config = load(file, variables, flags).unwrap();
        (config.settings.session_ttl.as_secs() / 3600, config.origin("session_ttl").to_string())
    };
    let (file, variables) = ("\nsession_ttl = '2h'", [("REJOIN_SESSION_TTL", "3h")]);
    assert_eq!(ttl("", &[], &[]), (24, "default".into()));
    let (hours, origin) = ttl(file, &[], &[]);
    assert!(hours == 2 && origin.ends_with("rejoin.toml:2"), "{hours} {origin}");
    assert_eq!(ttl(file, &variables, &[]), (3, "REJOIN_SESSION_TTL".into()));
    assert_eq!(ttl(file, &variables, &["--session-ttl", "4h"]), (4, "--session-ttl".into()));
}

#[test]
fn the_older_name_of_token_ttl_counts_minutes_and_gives_way() {
    let ttl =
        |variables: &[_]| load("token_ttl = '1h'", variables, &[]).unwrap().settings.token_ttl;
    assert_eq!(ttl(&[("MCP_RECONNECT_TOKEN_EXPIRY", "20")]), Duration::from_secs(20 * 60));
    let both = [("MCP_RECONNECT_TOKEN_EXPIRY", "20"), ("REJOIN_TOKEN_TTL", "30s")];
    assert_eq!(ttl(&both), Duration::from_secs(30));
    assert_eq!(
        problems("", &[("MCP_RECONNECT_TOKEN_EXPIRY", "15m")], &[]),
        ["MCP_RECONNECT_TOKEN_EXPIRY: \"15m\" is not a whole number of minutes"]
    );
}

#[test]
fn the_data_directory_is_the_one_that_systemd_made_unless_somebody_says_otherwise() {
    let home = ("XDG_DATA_HOME", "/data");
    let made = |path| [("STATE_DIRECTORY", path), home];
    let config = load("", &made("/var/lib/rejoin:/var/lib/other"), &[]).unwrap();
    assert_eq!(config.settings.data_dir, PathBuf::from("/var/lib/rejoin"));
    assert!(check_config(&config).lines().any(|line| {
        line.starts_with("data_dir = \"/var/lib/rejoin\"") && line.ends_with("STATE_DIRECTORY")
    }));
    let dir = |file: &str, variables: &[_]| load(file, variables, &[]).unwrap().settings.data_dir;
    assert_eq!(dir("data_dir = '/own'", &made("/var/lib/rejoin")), PathBuf::from("/own"));
    let variable = [("REJOIN_DATA_DIR", "/own"), made("/var/lib/rejoin")[0]];
    assert_eq!(dir("", &variable), PathBuf::from("/own"));
    for nothing in ["", "relative", ":/second"] {
        assert_eq!(dir("", &made(nothing)), PathBuf::from("/data/rejoin"), "{nothing:?}");
    }
}

#[test]
fn the_data_directory_follows_the_xdg_convention() {
    let dir = |variables: &[_]| load("", variables, &[]).unwrap().settings.data_dir;
    assert_eq!(
        dir(&[("XDG_DATA_HOME", "/data"), ("HOME", "/root")]),
        PathBuf::from("/data/rejoin")
    );
    assert_eq!(
        dir(&[("XDG_DATA_HOME", "relative"), ("HOME", "/")]),
        PathBuf::from("/.local/share/rejoin")
    );
    assert_eq!(dir(&[("HOME", "")]), PathBuf::from("rejoin-data"));
}
