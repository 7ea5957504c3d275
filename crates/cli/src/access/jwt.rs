//! JSON web tokens. Every check is here. Which one failed is told to the operator, not to the caller.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rejoin::core::Principal;
use rejoin::{Authenticate, Caller, CredentialFault, CredentialId, Unauthorized, WallTime};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::watch;

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

    /// Reads the file with public keys again, if there is one.
    pub(super) fn reload(&self) -> Result<()> {
        match &self.keys {
            Keys::Shared(_) => Ok(()),
            Keys::Public(file) => file.reload(),
        }
    }

    fn keys(&self) -> Arc<[VerifyingKey]> {
        match &self.keys {
            Keys::Shared(keys) => Arc::clone(keys),
            Keys::Public(file) => file.keys(),
        }
    }

    /// The claims of a token, if its signature is good, and the key that made it.
    fn verified(&self, token: &str) -> Result<(Claims, CredentialId), CredentialFault> {
        let malformed = CredentialFault::Malformed;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let header: Header = decode(header).ok_or(malformed)?;
        if header.crit.is_some() {
            return Err(malformed);
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed)?;
        let (keys, id) = (self.keys(), header.kid.as_deref());
        let mut candidates = keys.iter().filter(|key| key.suits(&header.alg, id));
        let signer = candidates.find(|key| key.has_signed(signed.as_bytes(), &signature));
        let signer = signer.ok_or(CredentialFault::UnknownKey)?.credential_id();
        Ok((decode(claims).ok_or(malformed)?, signer))
    }

    /// The caller that the claims speak of, if they are for us and for now.
    fn caller(
        &self,
        claims: &Claims,
        signer: CredentialId,
        now: WallTime,
    ) -> Result<Caller, CredentialFault> {
        let malformed = CredentialFault::Malformed;
        let expires = moment(claims.exp).ok_or(malformed)?;
        let starts = claims.nbf.map_or(Some(WallTime::default()), moment).ok_or(malformed)?;
        let require = |holds: bool, fault| if holds { Ok(()) } else { Err(fault) };
        require(claims.iss == self.issuer, CredentialFault::Issuer)?;
        require(claims.aud.includes(&self.audience), CredentialFault::Audience)?;
        require(now < expires + LEEWAY, CredentialFault::Expired)?;
        require(now + LEEWAY >= starts, CredentialFault::NotYetValid)?;
        require(is_principal(&claims.sub), CredentialFault::Subject)?;
        Ok(Caller {
            principal: Principal::new(&claims.sub),
            admin: claims.rejoin_admin,
            publish: claims.rejoin_publish,
            // One that only the leeway lets in would be put out at once.
            until: Some(if now < expires { expires } else { expires + LEEWAY }),
            credential: Some(signer),
        })
    }
}

impl Authenticate for WebTokens {
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        let (claims, signer) = self.verified(credential)?;
        Ok(self.caller(&claims, signer, now)?)
    }

    /// A token lasts no longer than the key that signed it.
    fn is_current(&self, caller: &Caller) -> bool {
        self.keys().iter().any(|key| caller.credential == Some(key.credential_id()))
    }

    fn revocations(&self) -> watch::Receiver<u64> {
        match &self.keys {
            Keys::Shared(_) => watch::channel(0).1,
            Keys::Public(file) => file.changes(),
        }
    }
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// A moment in seconds since 1970, which need not be whole.
fn moment(seconds: f64) -> Option<WallTime> {
    let valid = seconds.is_finite() && seconds >= 0.0;
    valid.then(|| WallTime::from_millis((seconds * 1000.0) as u64)) // past the end, the end
}

#[cfg(test)]
mod tests;
