//! What must never be printed: the type that hides it, and the secrets that only come by environment.

use std::ffi::OsStr;
use std::fmt;

use super::kind::{Kind, Shown};
use super::problem::{Origin, Problems};
use super::sources::Environment;

/// The variable with the secret that signs.
pub(crate) const SESSION_SECRET: &str = "MCP_SESSION_SECRET";
/// The variable with the secrets that signed before, separated by commas.
pub(crate) const SESSION_SECRET_PREVIOUS: &str = "MCP_SESSION_SECRET_PREVIOUS";

/// The shortest secret that is accepted for signing, as in `rejoin_core::limits`.
pub(crate) const MIN_SECRET_BYTES: usize = 32;

/// Bytes that are used and never shown: neither `Debug` nor `check-config` gives them away.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Box<[u8]>);

impl Secret {
    /// The secret in an environment variable, byte for byte.
    pub(crate) fn from_os(text: &OsStr) -> Self {
        Self(text.as_encoded_bytes().into())
    }

    /// The bytes themselves, for whoever signs or compares.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many characters it has.
    pub(super) fn chars(&self) -> usize {
        String::from_utf8_lossy(&self.0).chars().count()
    }

    /// Nothing if it is long enough to sign with, else what to do about it.
    pub(super) fn check_length(&self) -> Result<(), String> {
        match self.0.len() {
            length if length >= MIN_SECRET_BYTES => Ok(()),
            length => Err(format!(
                "has {length} bytes; a secret needs at least {MIN_SECRET_BYTES}, and \
                 `openssl rand -hex 32` makes a good one"
            )),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(set)")
    }
}

/// A secret is its own kind of setting.
impl Kind for Secret {
    type Value = Self;
    const PLACEHOLDER: &'static str = "SECRET";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".into()) } else { Ok(Self(text.as_bytes().into())) }
    }

    fn show(_: &Self) -> Shown {
        Shown::Hidden("(set)")
    }
}

/// The secrets that sign reconnect tokens and states, as far as the environment has them. Without any,
/// keys come from `key_file` or are made in the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionSecrets {
    /// The one that signs.
    pub(crate) current: Option<Secret>,
    /// Those that only verify what they signed earlier.
    pub(crate) previous: Vec<Secret>,
}

impl SessionSecrets {
    pub(super) fn read(environment: &Environment, problems: &mut Problems) -> Self {
        let mut checked = |name: &'static str, bytes: &[u8]| {
            let secret = Secret(bytes.into());
            if let Err(text) = secret.check_length() {
                problems.add(Origin::Variable(name.into()), text);
            }
            secret
        };
        let bytes = |name| environment.get(name).map(OsStr::as_encoded_bytes);
        let current = bytes(SESSION_SECRET).map(|bytes| checked(SESSION_SECRET, bytes));
        let previous = bytes(SESSION_SECRET_PREVIOUS).map_or_else(Vec::new, |bytes| {
            bytes.split(|b| *b == b',').map(|one| checked(SESSION_SECRET_PREVIOUS, one)).collect()
        });
        Self { current, previous }
    }
}
