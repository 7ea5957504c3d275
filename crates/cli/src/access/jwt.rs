//! JSON web tokens. Every check is here, and one that fails says nothing: why a token was refused is
//! nobody's business.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rejoin::core::{Principal, Timestamp};
use rejoin::{Authenticate, Caller, Unauthorized};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::jwks::{JwksFile, VerifyingKey};
use crate::settings::{self, JwtKey, is_principal};

/// Clocks of issuer and server may differ by this much.
const LEEWAY: Duration = Duration::from_secs(60);

/// The longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Knows callers by tokens that somebody they trust has signed.
#[derive(Debug)]
pub(super) struct WebTokens {
    issuer: String,
    audience: String,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Shared(Arc<[VerifyingKey]>),
    Public(JwksFile),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood; we understand none.
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    #[serde(default)]
    rejoin_admin: bool,
    #[serde(default)]
    rejoin_publish: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn includes(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Many(many) => many.iter().any(|one| one == name),
        }
    }
}

impl WebTokens {
    /// What `[jwt]` asks for.
    pub(super) fn open(jwt: &settings::Jwt) -> Result<Self> {
        let keys = match &jwt.key {
            JwtKey::Secret(secret) => Keys::Shared([VerifyingKey::shared(secret.expose())].into()),
            JwtKey::JwksFile(path) => Keys::Public(JwksFile::open(path)?),
        };
        Ok(Self { issuer: jwt.issuer.clone(), audience: jwt.audience.clone(), keys })
    }

    /// The claims of a token, if its signature is good.
    fn verified(&self, token: &str, now: Timestamp) -> Option<Claims> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = decode(header)?;
        if header.crit.is_some() {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        let keys = match &self.keys {
            Keys::Shared(keys) => Arc::clone(keys),
            Keys::Public(file) => file.keys(now),
        };
        let id = header.kid.as_deref();
        let mut candidates = keys.iter().filter(|key| key.suits(&header.alg, id));
        candidates.any(|key| key.has_signed(signed.as_bytes(), &signature)).then_some(())?;
        decode(claims)
    }

    /// The caller that the claims speak of, if they are for us and for now.
    fn caller(&self, claims: &Claims, now: Timestamp) -> Option<Caller> {
        let expires = moment(claims.exp)?;
        let starts = claims.nbf.map_or(Some(Timestamp::default()), moment)?;
        let is_now = now < expires + LEEWAY && now + LEEWAY >= starts;
        let is_for_us = claims.iss == self.issuer && claims.aud.includes(&self.audience);
        (is_now && is_for_us && is_principal(&claims.sub)).then(|| Caller {
            principal: Principal::new(&claims.sub),
            admin: claims.rejoin_admin,
            publish: claims.rejoin_publish,
            // One that only the leeway lets in would be put out at once.
            until: Some(if now < expires { expires } else { expires + LEEWAY }),
        })
    }
}

impl Authenticate for WebTokens {
    fn authenticate(&self, credential: &str, now: Timestamp) -> Result<Caller, Unauthorized> {
        let claims = self.verified(credential, now).ok_or(Unauthorized)?;
        self.caller(&claims, now).ok_or(Unauthorized)
    }
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A moment in seconds since 1970, which need not be whole.
fn moment(seconds: f64) -> Option<Timestamp> {
    let valid = seconds.is_finite() && seconds >= 0.0;
    valid.then(|| Timestamp::from_millis((seconds * 1000.0) as u64)) // past the end, the end
}

#[cfg(test)]
mod tests;
