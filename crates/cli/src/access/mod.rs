//! Authentication: who is calling, found out from an API key or a JSON web token. What callers may do
//! is decided by those who know the sessions.

mod api_keys;
mod jwks;
mod jwt;

use std::sync::Arc;

use anyhow::Result;
use rejoin::{Authenticate, Open};

use self::api_keys::ApiKeys;
use self::jwt::WebTokens;
use crate::settings::Access;

/// What the settings ask for. Errors are whole sentences about the files that are needed for it.
pub(crate) fn authenticator(access: &Access) -> Result<Arc<dyn Authenticate>> {
    Ok(match access {
        Access::Open => Arc::new(Open),
        Access::ApiKeys(keys) => Arc::new(ApiKeys::new(keys)),
        Access::Jwt(jwt) => Arc::new(WebTokens::open(jwt)?),
    })
}
