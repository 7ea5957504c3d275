//! API keys. Only their hashes are here, and each of them is looked at for every call. They can be
//! replaced while the server runs.

use std::sync::{Arc, PoisonError, RwLock};

use rejoin::core::Principal;
use rejoin::{Authenticate, Caller, CredentialFault, CredentialId, Unauthorized, WallTime};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::settings::ApiKey;

/// Knows callers by their keys.
#[derive(Debug)]
pub(super) struct ApiKeys {
    keys: RwLock<Arc<[(ApiKey, Caller)]>>,
    changed: watch::Sender<u64>,
}

impl ApiKeys {
    pub(super) fn new(keys: &[ApiKey]) -> Self {
        Self { keys: RwLock::new(callers(keys)), changed: watch::Sender::new(0) }
    }

    /// Puts these keys in the place of the old ones.
    pub(super) fn replace(&self, keys: &[ApiKey]) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = callers(keys);
        self.changed.send_modify(|changes| *changes += 1);
    }

    fn current(&self) -> Arc<[(ApiKey, Caller)]> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn callers(keys: &[ApiKey]) -> Arc<[(ApiKey, Caller)]> {
    let caller = |key: &ApiKey| Caller {
        principal: Principal::new(&key.principal),
        admin: key.admin,
        publish: key.publish,
        until: None,
        credential: Some(credential_id(key)),
    };
    keys.iter().map(|key| (key.clone(), caller(key))).collect()
}

/// Of the hash of the key's hash, which tells nothing about either.
fn credential_id(key: &ApiKey) -> CredentialId {
    let hash: [u8; 32] = Sha256::digest(key.sha256).into();
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    CredentialId(id)
}

impl Authenticate for ApiKeys {
    /// How long it takes tells neither how much of a key was right nor whose it was.
    fn authenticate(&self, credential: &str, _: WallTime) -> Result<Caller, Unauthorized> {
        let hash: [u8; 32] = Sha256::digest(credential).into();
        let (mut found, keys) = (None, self.current());
        for (key, caller) in &*keys {
            if bool::from(key.sha256.ct_eq(&hash)) {
                found = Some(caller);
            }
        }
        found.cloned().ok_or(CredentialFault::UnknownKey.into())
    }

    /// A key that lost a right, or has another principal now, was revoked and granted anew.
    fn is_current(&self, caller: &Caller) -> bool {
        self.current().iter().any(|(_, known)| known == caller)
    }

    fn revocations(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
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
        let now = WallTime::from_millis(1);
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
    fn callers_of_a_removed_or_changed_key_are_no_longer_current() {
        let keys = ApiKeys::new(&[key("old", "ann", false, true), key("new", "ann", false, true)]);
        let now = WallTime::from_millis(1);
        let (old, new) =
            (keys.authenticate("old", now).unwrap(), keys.authenticate("new", now).unwrap());
        let revocations = keys.revocations();
        keys.replace(&[key("new", "ann", false, true)]);
        assert!(revocations.has_changed().unwrap());
        assert!(!keys.is_current(&old), "another key of the same principal does not count");
        assert!(keys.is_current(&new));
        assert!(keys.authenticate("old", now).is_err());
        keys.replace(&[key("new", "ann", false, false)]);
        assert!(!keys.is_current(&new), "it may not publish any more");
    }

    #[test]
    fn debug_shows_no_hash() {
        let hash = Sha256::digest("one");
        let shown = format!("{:?}", ApiKeys::new(&[key("one", "ann", false, true)]));
        assert!(!shown.contains(&format!("{:?}", &hash[..4])) && shown.contains("ann"), "{shown}");
    }
}
