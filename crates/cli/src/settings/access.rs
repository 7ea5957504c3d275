//! Who may call: `[[api_keys]]` and `[jwt]`, which only a file can hold, together with the setting
//! `auth`. What was given is read into [`Access`], of which every value makes sense.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::choices::AuthMode;
use super::file::{Block, File};
use super::kind::{Kind as _, Raw};
use super::problem::{Origin, Problems, did_you_mean};
use super::scalars::Switch;
use super::secret::Secret;
use super::sources::Environment;
use crate::limits::{MIN_KEY_CHARS, WEAK_KEY_CHARS};

/// The longest name of a caller.
const MAX_PRINCIPAL_CHARS: usize = 255;

/// The fields of `[[api_keys]]`, with what users read about them.
pub(super) const API_KEY_FIELDS: [(&str, &str); 6] = [
    ("name", "What the key is called in logs. Required."),
    (
        "principal",
        "Who calls with it: the owner of the sessions it makes, in 1 to 255 characters. The name, if left out.",
    ),
    ("admin", "Whether it may see and end everybody's sessions. `false`, if left out."),
    ("publish", "Whether it may publish events into sessions. `false`, if left out."),
    (
        "key_sha256",
        "The SHA-256 of the key, in hex: `printf %s \"$KEY\" | sha256sum`. A key that has less than 8 characters lets nobody in.",
    ),
    (
        "key_env",
        "The environment variable that holds the key, in place of `key_sha256`. It has at least 8 characters, better 32.",
    ),
];

/// The fields of `[jwt]`, with what users read about them.
pub(super) const JWT_FIELDS: [(&str, &str); 4] = [
    ("issuer", "Who must have made the token (`iss`). Required."),
    ("audience", "For whom it must be made (`aud`). Required."),
    (
        "jwks_file",
        "A file with the issuer's public keys (JWKS). It is read again when it changes, and on SIGHUP.",
    ),
    (
        "secret_env",
        "The environment variable that holds the shared secret (HS256), in place of `jwks_file`.",
    ),
];

/// How callers prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// They need not: everybody is `anonymous`.
    Open,
    /// With one of these keys; there is at least one.
    ApiKeys(Vec<ApiKey>),
    /// With a JSON web token.
    Jwt(Jwt),
}

/// One of the `[[api_keys]]`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey {
    /// What it is called in logs.
    pub(crate) name: String,
    /// Who calls with it.
    pub(crate) principal: String,
    /// Whether it may see and end everybody's sessions.
    pub(crate) admin: bool,
    /// Whether it may publish events.
    pub(crate) publish: bool,
    /// The hash of the key.
    pub(crate) sha256: [u8; 32],
}

/// Without the hash: a short key could be found by trying.
impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, principal, admin, publish, sha256: _ } = self;
        let mut fields = f.debug_struct("ApiKey");
        fields.field("name", name).field("principal", principal);
        fields.field("admin", admin).field("publish", publish).finish_non_exhaustive()
    }
}

/// What a JSON web token has to look like; the principal is its `sub`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Jwt {
    /// Its `iss`.
    pub(crate) issuer: String,
    /// Its `aud`.
    pub(crate) audience: String,
    /// What verifies its signature.
    pub(crate) key: JwtKey,
}

/// What verifies a JSON web token's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JwtKey {
    /// The public keys in this file.
    JwksFile(PathBuf),
    /// This shared secret, with HS256.
    Secret(Secret),
}

impl Access {
    /// What comes of `auth` and the file's tables. Tables are checked even if `auth` leaves them aside.
    pub(super) fn read(
        auth: Option<AuthMode>,
        auth_origin: &Origin,
        file: &File,
        environment: &Environment,
        problems: &mut Problems,
    ) -> Self {
        let mut keys: Vec<ApiKey> = Vec::new();
        for block in &file.api_keys {
            let key = Fields::new("[[api_keys]]", block, environment, problems).api_key();
            let Some(key) = key else { continue };
            let is_same = |other: &&ApiKey| other.name == key.name || other.sha256 == key.sha256;
            if let Some(other) = keys.iter().find(is_same) {
                let (name, other) = (&key.name, &other.name);
                let text = format!("API key {name:?} has the name or the key of {other:?}");
                problems.add(block.origin.clone(), text);
            }
            keys.push(key);
        }
        let jwt = file
            .jwt
            .as_ref()
            .and_then(|block| Fields::new("[jwt]", block, environment, problems).jwt());
        match (auth, jwt) {
            (Some(AuthMode::Jwt), Some(jwt)) => return Self::Jwt(jwt),
            (Some(AuthMode::Jwt), None) if file.jwt.is_none() => {
                problems.add(
                    auth_origin.clone(),
                    "auth is \"jwt\", which needs a table [jwt] in the file",
                );
            }
            (Some(AuthMode::ApiKeys), _) if file.api_keys.is_empty() => {
                problems.add(
                    auth_origin.clone(),
                    "auth is \"api_keys\", which needs [[api_keys]] in the file",
                );
            }
            (None, _) => {
                if let Some(block) = &file.jwt {
                    problems.add(block.origin.clone(), "[jwt] does nothing without auth = \"jwt\"");
                }
            }
            (Some(_), _) => {}
        }
        if auth == Some(AuthMode::None) || keys.is_empty() {
            Self::Open
        } else {
            Self::ApiKeys(keys)
        }
    }
}

/// Reads the fields of one table of the file.
struct Fields<'a> {
    table: &'static str,
    block: &'a Block,
    environment: &'a Environment,
    problems: &'a mut Problems,
}

impl<'a> Fields<'a> {
    fn new(
        table: &'static str,
        block: &'a Block,
        environment: &'a Environment,
        problems: &'a mut Problems,
    ) -> Self {
        Self { table, block, environment, problems }
    }

    fn api_key(&mut self) -> Option<ApiKey> {
        self.refuse_unknown(&API_KEY_FIELDS);
        let (name, sha256) = (self.required("name"), self.key_hash());
        let principal = self.principal(name.as_deref());
        let (admin, publish) = (self.switch("admin"), self.switch("publish"));
        Some(ApiKey { name: name?, principal: principal?, admin, publish, sha256: sha256? })
    }

    fn jwt(&mut self) -> Option<Jwt> {
        self.refuse_unknown(&JWT_FIELDS);
        let (issuer, audience) = (self.required("issuer"), self.required("audience"));
        let key = match self.one_of("jwks_file", "secret_env")? {
            ("jwks_file", path) => JwtKey::JwksFile(path.into()),
            (_, variable) => {
                let secret = self.secret(&variable)?;
                if let Err(text) = secret.check_length() {
                    self.problems.add(Origin::Variable(variable), text);
                }
                JwtKey::Secret(secret)
            }
        };
        Some(Jwt { issuer: issuer?, audience: audience?, key })
    }

    /// Who calls with a key of that name.
    fn principal(&mut self, name: Option<&str>) -> Option<String> {
        let (field, text) = match self.text("principal") {
            Some(text) => ("principal", text),
            None => ("name", name?.to_owned()),
        };
        if !is_principal(&text) {
            let text = format!(
                "{field}: a principal has 1 to {MAX_PRINCIPAL_CHARS} characters, \
                                none of them a control character"
            );
            self.problems.add(self.origin(field), text);
        }
        Some(text)
    }

    /// The hash that `key_sha256` holds, or that of the key that `key_env` names. A wrong hash is not
    /// repeated: it may be the key itself.
    fn key_hash(&mut self) -> Option<[u8; 32]> {
        match self.one_of("key_sha256", "key_env")? {
            ("key_sha256", hex) => {
                let hash = parse_hash(&hex);
                let text = match hash {
                    None => format!(
                        "key_sha256 is not 64 hex digits; it has {} characters",
                        hex.chars().count()
                    ),
                    Some(hash) if hash == *Sha256::digest("") => {
                        "key_sha256 is that of an empty key: the variable that it was made from was not set".to_owned()
                    }
                    Some(hash) => return Some(hash),
                };
                self.problems.add(self.origin("key_sha256"), text);
                None
            }
            (_, variable) => {
                let key = self.secret(&variable)?;
                let length = key.chars();
                if length < MIN_KEY_CHARS {
                    let text = format!(
                        "has {length} characters; an API key needs at least {MIN_KEY_CHARS}, and \
                         `openssl rand -hex 32` makes a good one"
                    );
                    self.problems.add(Origin::Variable(variable), text);
                }
                Some(Sha256::digest(key.expose()).into())
            }
        }
    }

    fn secret(&mut self, variable: &str) -> Option<Secret> {
        match self.environment.get(variable) {
            Some(value) if !value.is_empty() => Some(Secret::from_os(value)),
            _ => {
                let text = format!(
                    "the environment variable {variable:?} is named here, but it is not set"
                );
                self.problems.add(self.block.origin.clone(), text);
                None
            }
        }
    }

    /// The one of two fields that is given, with its name.
    fn one_of(
        &mut self,
        first: &'static str,
        second: &'static str,
    ) -> Option<(&'static str, String)> {
        match (self.text(first), self.text(second)) {
            (Some(text), None) => Some((first, text)),
            (None, Some(text)) => Some((second, text)),
            (Some(_), Some(_)) | (None, None) => {
                let text = format!("{} needs exactly one of {first} and {second}", self.table);
                self.problems.add(self.block.origin.clone(), text);
                None
            }
        }
    }

    fn required(&mut self, key: &str) -> Option<String> {
        let text = self.text(key).filter(|text| !text.is_empty());
        if text.is_none() {
            self.problems.add(self.block.origin.clone(), format!("{} needs {key}", self.table));
        }
        text
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let field = self.block.fields.iter().find(|field| field.key == key)?;
        match &field.raw {
            Raw::One(text) => Some(text.clone()),
            Raw::Many(_) => {
                self.problems
                    .add(field.origin.clone(), format!("{key}: takes one value, not a list"));
                None
            }
        }
    }

    fn switch(&mut self, key: &str) -> bool {
        let read = self.text(key).map_or(Ok(false), |text| Switch::parse(&text));
        read.unwrap_or_else(|text| {
            self.problems.add(self.origin(key), format!("{key}: {text}"));
            false
        })
    }

    fn origin(&self, key: &str) -> Origin {
        let field = self.block.fields.iter().find(|field| field.key == key);
        field.map_or_else(|| self.block.origin.clone(), |field| field.origin.clone())
    }

    fn refuse_unknown(&mut self, known: &[(&str, &str)]) {
        for field in &self.block.fields {
            if known.iter().all(|(key, _)| *key != field.key) {
                let near = did_you_mean(&field.key, known.iter().map(|(key, _)| *key));
                let text = format!("unknown setting {:?} in {}{near}", field.key, self.table);
                self.problems.add(field.origin.clone(), text);
            }
        }
    }
}

/// The names of those keys whose length is known and small, for a warning.
pub(super) fn short_keys(file: &File, environment: &Environment) -> Vec<String> {
    let short = |block: &Block| {
        let text = |key: &str| {
            let field = block.fields.iter().find(|field| field.key == key)?;
            if let Raw::One(text) = &field.raw { Some(text.as_str()) } else { None }
        };
        let key = Secret::from_os(environment.get(text("key_env")?)?);
        (key.chars() < WEAK_KEY_CHARS).then(|| text("name").unwrap_or_default().to_owned())
    };
    file.api_keys.iter().filter_map(short).collect()
}

/// Whether `text` can name a caller: people read it in logs and lists, and it is stored with each
/// session.
pub(crate) fn is_principal(text: &str) -> bool {
    let length = text.chars().take(MAX_PRINCIPAL_CHARS + 1).count();
    (1..=MAX_PRINCIPAL_CHARS).contains(&length) && !text.chars().any(char::is_control)
}

fn parse_hash(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.bytes().map(|b| char::from(b).to_digit(16));
    let digits: Vec<u32> = digits.collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|two| (two[0] * 16 + two[1]) as u8).collect();
    if hex.len() == 64 { bytes.try_into().ok() } else { None }
}
