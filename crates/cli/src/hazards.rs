//! What is dangerous about the settings and files that a server is started with, though it works: each is a
//! warning in the log at every start, and in `rejoin check-config`. What is never right is refused instead.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Result, bail};

use crate::limits::WEAK_KEY_CHARS;
use crate::settings::{Access, Config, JwtKey, Secret, Settings, StoreChoice};

/// Sentences about what should be changed.
pub(crate) fn hazards(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let settings = &config.settings;
    let secrets = config.secrets.current.iter().map(|secret| ("MCP_SESSION_SECRET", secret));
    let previous = config.secrets.previous.iter().map(|one| ("MCP_SESSION_SECRET_PREVIOUS", one));
    let hook = settings.hook_secret.iter().map(|secret| ("hook_secret", secret));
    let jwt = jwt_secret(&config.access).map(|secret| ("secret_env of [jwt]", secret));
    for (name, secret) in secrets.chain(previous).chain(hook).chain(jwt) {
        if is_guessable(secret.expose()) {
            found.push(format!(
                "{name} has a pattern that can be guessed; `openssl rand -hex 32` makes a good one"
            ));
        }
    }
    for name in &config.short_keys {
        found.push(format!(
            "API key {name:?} has less than {WEAK_KEY_CHARS} characters, which can be guessed in time"
        ));
    }
    let beyond = !settings.listen.ip().to_canonical().is_loopback();
    if beyond && config.is_protected() && settings.tls_cert.is_none() {
        found.push(format!(
            "credentials come in clear over {}: set tls_cert and tls_key, unless a proxy before this server \
             speaks TLS",
            settings.listen
        ));
    }
    if beyond && !config.is_protected() {
        found.push(format!("everybody who can reach {} may use this server", settings.listen));
    }
    if settings.accept_data_loss {
        found.push(
            "accept_data_loss is on: a damaged store is opened with what is left of it; it is meant for one start, \
             so take it off"
                .to_owned(),
        );
    }
    found.extend(settings.tls_key.as_deref().and_then(readable_by_all));
    found.extend(
        config.file.as_deref().filter(|_| settings.hook_secret.is_some()).and_then(readable_by_all),
    );
    found
}

fn jwt_secret(access: &Access) -> Option<&Secret> {
    match access {
        Access::Jwt(jwt) => match &jwt.key {
            JwtKey::Secret(secret) => Some(secret),
            JwtKey::JwksFile(_) => None,
        },
        Access::Open | Access::ApiKeys(_) => None,
    }
}

/// Whether so few different bytes are in it, or so short a piece of it repeats, that it was not made at
/// random.
fn is_guessable(secret: &[u8]) -> bool {
    let mut seen = [false; 256];
    secret.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count();
    let repeats = |period: usize| secret.iter().skip(period).zip(secret).all(|(a, b)| a == b);
    different < 8 || (1..=secret.len() / 2).any(repeats)
}

fn readable_by_all(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let open = mode & 0o004 != 0 || mode & 0o022 != 0;
    open.then(|| {
        let path = path.display();
        format!("{path} can be read or changed by others (mode {mode:03o}); run `chmod 600` on it")
    })
}

/// Refuses a data directory of ours in which everybody may put or replace files: they could put keys and
/// sessions of their own there. One that is not there yet is made for its owner alone; about one that is
/// another user's, such as a mounted volume, there is only a warning.
pub(crate) fn check_data_dir(settings: &Settings) -> Result<()> {
    match settings.store {
        StoreChoice::Memory => Ok(()),
        StoreChoice::Embedded | StoreChoice::Postgres(_) => check_directory(&settings.data_dir),
    }
}

fn check_directory(directory: &Path) -> Result<()> {
    let Ok(metadata) = std::fs::metadata(directory) else { return Ok(()) };
    let mode = metadata.permissions().mode() & 0o7777;
    let (path, owner) = (directory.display(), metadata.uid());
    let is_ours = owner == rustix::process::geteuid().as_raw();
    if is_ours && mode & 0o002 != 0 {
        bail!(
            "data_dir {path} can be changed by everybody (mode {mode:03o}); run `chmod 700` on it, or name a \
             directory in it, which will be made for this user alone"
        );
    }
    if mode & 0o022 != 0 {
        tracing::warn!(%path, mode = %format_args!("{mode:03o}"), "others may change what is in data_dir");
    }
    if !is_ours && owner != 0 {
        tracing::warn!(%path, owner, "data_dir belongs to another user, who may change what is in it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_from_random_secrets() {
        for weak in [
            &b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[..],
            b"abababababababababababababababab",
            b"secret-12secret-12secret-12secret-12",
            &[0; 32],
        ] {
            assert!(is_guessable(weak), "{weak:?}");
        }
        for strong in [
            &b"6b1f0c9be2a4d87735e1c0ff4a2b9d18"[..],
            b"a secret that two servers have in common",
            b"thirty-two bytes at the very least",
        ] {
            assert!(!is_guessable(strong), "{strong:?}");
        }
    }

    #[test]
    fn a_directory_that_everybody_may_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.path(), permissions).unwrap();
            check_directory(directory.path()).is_ok()
        };
        assert!(set(0o700) && set(0o755));
        assert!(!set(0o777) && !set(0o1777) && !set(0o702));
        assert!(check_directory(&directory.path().join("none")).is_ok());
    }
}
