//! API keys. Only their hashes are here, and each of them is looked at for every call.

use rejoin::core::{Principal, Timestamp};
use rejoin::{Authenticate, Caller, Unauthorized};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::settings::ApiKey;

/// Knows callers by their keys.
#[derive(Debug)]
pub(super) struct ApiKeys(Vec<(ApiKey, Caller)>);

impl ApiKeys {
    pub(super) fn new(keys: &[ApiKey]) -> Self {
        let caller = |key: &ApiKey| Caller {
            principal: Principal::new(&key.principal),
            admin: key.admin,
            publish: key.publish,
            until: None,
        };
        Self(keys.iter().map(|key| (key.clone(), caller(key))).collect())
    }
}

impl Authenticate for ApiKeys {
    /// How long it takes tells neither how much of a key was right nor whose it was.
    fn authenticate(&self, credential: &str, _: Timestamp) -> Result<Caller, Unauthorized> {
        let hash: [u8; 32] = Sha256::digest(credential).into();
        let mut found = None;
        for (key, caller) in &self.0 {
            if bool::from(key.sha256.ct_eq(&hash)) {
                found = Some(caller);
            }
        }
        found.cloned().ok_or(Unauthorized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, principal: &str, admin: bool, publish: bool) -> ApiKey {
        let sha256 = Sha256::digest(text).into();
        ApiKey { name: text.into(), principal: principal.into(), admin, publish, sha256 }
    }

    #[test]
    fn a_key_gives_its_principal_and_rights_and_nothing_else_does() {
        let keys = ApiKeys::new(&[
            key("one", "ann", false, true),
            key("two", "bob", true, false),
            key("three", "bob", false, false),
        ]);
        let now = Timestamp::from_millis(1);
        let who = |credential| {
            let caller = keys.authenticate(credential, now).ok()?;
            assert_eq!(caller.until, None);
            Some((caller.principal.to_string(), caller.admin, caller.publish))
        };
        assert_eq!(who("one"), Some(("ann".into(), false, true)));
        assert_eq!(who("two"), Some(("bob".into(), true, false)));
        assert_eq!(who("three"), Some(("bob".into(), false, false)));
        for wrong in ["", "One", "one ", "ann", &"one".repeat(10_000)] {
            assert_eq!(who(wrong), None);
        }
        assert!(keys.without_credential().is_err());
    }

    #[test]
    fn debug_shows_no_hash() {
        let hash = Sha256::digest("one");
        let shown = format!("{:?}", ApiKeys::new(&[key("one", "ann", false, true)]));
        assert!(!shown.contains(&format!("{:?}", &hash[..4])) && shown.contains("ann"), "{shown}");
    }
}
