//! What must hold between settings. A setting that is wrong by itself was told of already and takes no
//! part here.

use super::Config;
use super::problem::{Origin, Problems};
use super::secret::SESSION_SECRET;
use super::size::show_size;
use super::time::show_duration;

/// Checks `config` as a whole. `broken` tells which settings are wrong by themselves.
pub(super) fn check(config: &Config, broken: impl Fn(&str) -> bool, problems: &mut Problems) {
    let settings = &config.settings;
    // Blames whichever of them has the last word, as that is where it can be put right.
    let mut require = |holds: bool, keys: &[&str], text: String| {
        if !holds && !keys.iter().any(|key| broken(key)) {
            let last = keys.iter().map(|key| config.origin(key)).max().unwrap_or(&Origin::Default);
            problems.add(last.clone(), text);
        }
    };

    require(
        settings.heartbeat_timeout >= settings.heartbeat_interval,
        &["heartbeat_timeout", "heartbeat_interval"],
        format!(
            "heartbeat_timeout ({}) must not be below heartbeat_interval ({})",
            show_duration(settings.heartbeat_timeout),
            show_duration(settings.heartbeat_interval)
        ),
    );
    require(
        settings.max_buffered_bytes >= settings.buffer_bytes,
        &["max_buffered_bytes", "buffer_bytes"],
        format!(
            "max_buffered_bytes ({}) must not be below buffer_bytes ({})",
            show_size(settings.max_buffered_bytes),
            show_size(settings.buffer_bytes)
        ),
    );
    require(
        settings.max_state_bytes < settings.max_frame_bytes,
        &["max_state_bytes", "max_frame_bytes"],
        format!(
            "max_state_bytes ({}) must be below max_frame_bytes ({}), or no client could send a state back",
            show_size(settings.max_state_bytes),
            show_size(settings.max_frame_bytes)
        ),
    );
    require(
        settings.tls_cert.is_some() == settings.tls_key.is_some(),
        &["tls_cert", "tls_key"],
        "tls_cert and tls_key go together; give both or neither".into(),
    );
    require(
        config.is_protected()
            || settings.insecure_no_auth
            || settings.listen.ip().to_canonical().is_loopback(),
        &["listen", "auth", "insecure_no_auth"],
        format!(
            "listening on {} without authentication would let anybody in; set auth, listen on \
             127.0.0.1, or say --insecure-no-auth",
            settings.listen
        ),
    );
    require(
        settings.key_file.is_none() || config.secrets.current.is_none(),
        &["key_file"],
        format!(
            "key_file and {SESSION_SECRET} are both set, and only one of them can sign; unset one"
        ),
    );
}
