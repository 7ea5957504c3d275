//! Signing keys: where they come from, and the handle through which the server has the ones of this
//! moment.
//!
//! | there is | the keys are |
//! |---|---|
//! | `MCP_SESSION_SECRET` | that one; it never changes while the process lives |
//! | `key_file` | those in the file, which has to be there |
//! | neither, and sessions that outlive the process | those in the file `keys` in `data_dir`, made on first start |
//! | neither, and sessions in memory | a random one that ends with the process, as the sessions do |
//!
//! The secrets in `MCP_SESSION_SECRET_PREVIOUS` verify in every case, so that a server can move from
//! the environment to a file.

mod command;
mod disk;
mod file;
mod shared;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use rejoin_core::Timestamp;
use rejoin_core::keys::{KeyRing, SecretKey};

pub(crate) use self::command::{command, run};
pub(crate) use self::shared::SharedKeys;

use self::file::{KeyFile, StoredKey};
use crate::settings::{Config, Secret, StoreChoice};

/// The key file's name in the data directory.
const FILE_NAME: &str = "keys";

/// Where the key that signs comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// The environment.
    Secret(Secret),
    /// A file that somebody else takes care of.
    File(PathBuf),
    /// A file that is made when it is first needed.
    Made(PathBuf),
    /// Nowhere: a key as long as the process.
    Process,
}

impl Source {
    fn of(config: &Config) -> Self {
        let settings = &config.settings;
        match (&config.secrets.current, &settings.key_file, &settings.store) {
            (Some(secret), _, _) => Self::Secret(secret.clone()),
            (None, Some(path), _) => Self::File(path.clone()),
            (None, None, StoreChoice::Memory) => Self::Process,
            (None, None, StoreChoice::Embedded | StoreChoice::Postgres(_)) => {
                Self::Made(settings.data_dir.join(FILE_NAME))
            }
        }
    }
}

/// The keys of this server, made now if it has none. To be called after the store is open, so that two
/// servers on one directory are told of the store, which is what matters.
pub(crate) fn open(config: &Config) -> Result<SharedKeys> {
    let previous = || older(&config.secrets.previous);
    match Source::of(config) {
        Source::Secret(secret) => {
            let newest = SecretKey::new(secret.expose())?;
            Ok(SharedKeys::fixed(KeyRing::new(newest, previous()?)))
        }
        Source::Process => {
            let newest = SecretKey::new(&random_secret()?)?;
            Ok(SharedKeys::fixed(KeyRing::new(newest, previous()?)))
        }
        Source::File(path) => SharedKeys::open(path, config.secrets.previous.clone()),
        Source::Made(path) => {
            make_if_missing(&path)?;
            SharedKeys::open(path, config.secrets.previous.clone())
        }
    }
}

/// How many keys are in the data directory `directory`; nothing if none are kept there.
pub(crate) fn count_in(directory: &Path) -> Result<Option<usize>> {
    let found = disk::read(&directory.join(FILE_NAME))?;
    Ok(found.map(|(keys, _)| keys.keys().count()))
}

/// Where the keys are, in words, if they are not in the data directory.
pub(crate) fn kept_elsewhere(config: &Config) -> Option<String> {
    match Source::of(config) {
        Source::Secret(_) => Some("MCP_SESSION_SECRET".to_owned()),
        Source::File(path) => Some(path.display().to_string()),
        Source::Made(_) | Source::Process => None,
    }
}

/// Makes the file with its first key. Of several processes that do so at once one makes it, and the
/// others find it.
fn make_if_missing(path: &Path) -> Result<()> {
    if let Some(directory) = path.parent() {
        disk::make_directory(directory)?;
    }
    disk::change(path, |found| match found {
        Some(_) => Ok((None, ())),
        None => Ok((Some(KeyFile::with(new_key()?)), ())),
    })
}

/// The ring of the keys in a file and those that verify besides.
fn ring_of(file: &KeyFile, previous: &[Secret]) -> Result<KeyRing> {
    let mut keys = file.keys().map(StoredKey::to_secret_key);
    let newest = keys.next().context("there is no key in it")??;
    let mut older_keys: Vec<SecretKey> = keys.collect::<Result<_>>()?;
    older_keys.extend(older(previous)?);
    Ok(KeyRing::new(newest, older_keys))
}

fn older(previous: &[Secret]) -> Result<Vec<SecretKey>> {
    previous.iter().map(|secret| Ok(SecretKey::new(secret.expose())?)).collect()
}

fn new_key() -> Result<StoredKey> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_millis(0) + since_1970;
    StoredKey::new(now.to_string(), random_secret()?)
}

fn random_secret() -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("the operating system gives no random bytes")?;
    Ok(secret)
}

#[cfg(test)]
mod tests;
