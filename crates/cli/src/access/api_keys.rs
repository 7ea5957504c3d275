//! API keys. Only their hashes are here, and each of them is looked at for every call. They can be
//! replaced while the server runs. Since a hash says nothing of its key's length, that is checked when a key is
//! presented.

use std::sync::{Arc, PoisonError, RwLock};

use rejoin::core::Principal;
use rejoin::{Authenticate, Caller, CredentialFault, CredentialId, Unauthorized, WallTime};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::limits::MIN_KEY_CHARS;
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
    /// How long it takes tells neither how much of a key was right nor whose it was. A key that is too short for anybody
    /// to have is rejected before it is compared.
    fn authenticate(&self, credential: &str, _: WallTime) -> Result<Caller, Unauthorized> {
        if credential.chars().take(MIN_KEY_CHARS).count() < MIN_KEY_CHARS {
            return Err(CredentialFault::UnknownKey.into());
        }
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
            key("number one", "ann", false, true),
            key("number two", "bob", true, false),
            key("number three", "bob", false, false),
        ]);
        let now = WallTime::from_millis(1);
        let who = |credential| {
            let caller = keys.authenticate(credential, now).ok()?;
            assert_eq!(caller.until, None);
            Some((caller.principal.to_string(), caller.admin, caller.publish))
        };
        assert_eq!(who("number one"), Some(("ann".into(), false, true)));
        assert_eq!(who("number two"), Some(("bob".into(), true, false)));
        assert_eq!(who("number three"), Some(("bob".into(), false, false)));
        for wrong in ["", "Number one", "number one ", "ann", &"number one".repeat(10_000)] {
            assert_eq!(who(wrong), None);
        }
        assert!(keys.without_credential().is_err());
    }

    /// Whoever made the hash may have used an empty variable, or a key of a few letters.
    #[test]
    fn a_key_that_is_too_short_is_rejected_though_its_hash_is_known() {
        let now = WallTime::from_millis(1);
        for short in ["", "x", "1234567", "ü234567"] {
            let keys = ApiKeys::new(&[key(short, "ann", true, true)]);
            let rejected = keys.authenticate(short, now).unwrap_err();
            assert_eq!(rejected.fault, CredentialFault::UnknownKey, "{short:?}");
        }
        for long_enough in ["12345678", "ü2345678"] {
            let keys = ApiKeys::new(&[key(long_enough, "ann", true, true)]);
            assert!(keys.authenticate(long_enough, now).is_ok());
        }
    }

    #[test]
    fn callers_of_a_removed_or_changed_key_are_no_longer_current() {
        let keys = ApiKeys::new(&[
            key("the old key", "ann", false, true),
            key("the new key", "ann", false, true),
        ]);
        let now = WallTime::from_millis(1);
        let (old, new) = (
            keys.authenticate("the old key", now).unwrap(),
            keys.authenticate("the new key", now).unwrap(),
        );
        let revocations = keys.revocations();
        keys.replace(&[key("the new key", "ann", false, true)]);
        assert!(revocations.has_changed().unwrap());
        assert!(!keys.is_current(&old), "another key of the same principal does not count");
        assert!(keys.is_current(&new));
        assert!(keys.authenticate("the old key", now).is_err());
        keys.replace(&[key("the new key", "ann", false, false)]);
        assert!(!keys.is_current(&new), "it may not publish any more");
    }

    #[test]
    fn debug_shows_no_hash() {
        let hash = Sha256::digest("one");
        let shown = format!("{:?}", ApiKeys::new(&[key("one", "ann", false, true)]));
        assert!(!shown.contains(&format!("{:?}", &hash[..4])) && shown.contains("ann"), "{shown}");
    }
}
