//! Authentication: who is calling, found out from an API key or a JSON web token. What callers may do
//! is decided by those who know the sessions.

mod api_keys;
mod jwks;
mod jwt;

use std::sync::Arc;

use anyhow::{Result, bail};
use rejoin::{Authenticate, Open};

use self::api_keys::ApiKeys;
use self::jwt::WebTokens;
use crate::settings::Access;

/// How callers are known. The keys it knows them by can be replaced while the server runs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator(Means);

#[derive(Clone, Debug)]
enum Means {
    Open,
    ApiKeys(Arc<ApiKeys>),
    Jwt(Arc<WebTokens>),
}

impl Authenticator {
    /// What the settings ask for. Errors are whole sentences about the files that are needed for it.
    pub(crate) fn open(access: &Access) -> Result<Self> {
        Ok(Self(match access {
            Access::Open => Means::Open,
            Access::ApiKeys(keys) => Means::ApiKeys(Arc::new(ApiKeys::new(keys))),
            Access::Jwt(jwt) => Means::Jwt(Arc::new(WebTokens::open(jwt)?)),
        }))
    }

    /// For the web side.
    pub(crate) fn shared(&self) -> Arc<dyn Authenticate> {
        match &self.0 {
            Means::Open => Arc::new(Open),
            Means::ApiKeys(keys) => Arc::clone(keys) as Arc<dyn Authenticate>,
            Means::Jwt(tokens) => Arc::clone(tokens) as Arc<dyn Authenticate>,
        }
    }

    /// Takes the keys that the settings name now. Says what was read, if there was anything to read.
    pub(crate) fn reload(&self, access: &Access) -> Result<Option<&'static str>> {
        match (&self.0, access) {
            (Means::Open, Access::Open) => Ok(None),
            (Means::ApiKeys(known), Access::ApiKeys(keys)) => {
                known.replace(keys);
                Ok(Some("api_keys"))
            }
            (Means::ApiKeys(known), Access::Open) => {
                known.replace(&[]); // the last key was removed: that must not leave it good
                bail!(
                    "no API key is left, so every caller is rejected; going without auth needs a restart"
                )
            }
            (Means::Jwt(tokens), Access::Jwt(_)) => tokens.reload().map(|()| Some("jwks_file")),
            (Means::Open | Means::ApiKeys(_) | Means::Jwt(_), _) => {
                bail!("callers are known as before: another kind of auth needs a restart")
            }
        }
    }
}
