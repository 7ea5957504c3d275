//! The server's secrets, and every key made from them.
//!
//! A secret is given by people: `MCP_SESSION_SECRET` or a key file. It signs reconnect tokens byte for
//! byte as it is, so that any JWT library that knows it can check them; every other key is derived
//! from it under a label of its own. Where secrets come from is left to the shell, what is signed and
//! sealed with them to [`token`](crate::token) and [`seal`](crate::seal).

use std::fmt;

use aes_gcm_siv::Aes256GcmSiv;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::{ids, limits};

/// What each derived key is for. A label is part of the wire format: a changed one makes every seal
/// and successor made before unreadable.
mod label {
    pub(super) const KEY_ID: &[u8] = b"rejoin key id v1";
    pub(super) const SEALING: &[u8] = b"rejoin state sealing v1";
    pub(super) const SUCCESSOR: &[u8] = b"rejoin token successor v1";
}

/// Why bytes can't be a signing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// So short that it could be guessed.
    #[error(
        "a signing secret has at least {} bytes, this one has {length}; \
         `openssl rand -hex 32` makes a good one",
        limits::MIN_SECRET_BYTES
    )]
    TooShort {
        /// Its length in bytes.
        length: usize,
    },
}

/// One secret with the keys made from it, all computed once. The secret itself is not kept.
pub struct SecretKey {
    id: Box<str>,
    signing: Hmac<Sha256>,
    successor: Hmac<Sha256>,
    sealing: Aes256GcmSiv,
}

impl SecretKey {
    /// The key in `secret`, used byte for byte: no decoding, no trimming.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < limits::MIN_SECRET_BYTES {
            return Err(KeyError::TooShort { length: secret.len() });
        }
        Ok(Self {
            id: ids::url_safe(&derive::<9>(secret, label::KEY_ID)).into(),
            signing: hmac_under(secret),
            successor: hmac_under(&derive::<32>(secret, label::SUCCESSOR)),
            sealing: Aes256GcmSiv::new(&derive::<32>(secret, label::SEALING).into()),
        })
    }

    /// The name under which tokens and seals mention this key. It reveals nothing of the secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The HS256 signature of `message`.
    pub(crate) fn sign(&self, message: &str) -> [u8; 32] {
        authenticate(&self.signing, message)
    }

    /// Whether `signature` is this key's for `message`, compared in constant time.
    pub(crate) fn has_signed(&self, message: &str, signature: &[u8]) -> bool {
        self.signing.clone().chain_update(message).verify_slice(signature).is_ok()
    }

    /// What nobody without this key can foretell of the token that follows `used`.
    pub(crate) fn successor_of(&self, used: &str) -> [u8; 32] {
        authenticate(&self.successor, used)
    }

    /// The cipher that seals states.
    pub(crate) fn sealing(&self) -> &Aes256GcmSiv {
        &self.sealing
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.id).finish()
    }
}

/// The keys that are good at the same time: the newest signs and seals, the older ones only verify
/// and open, until they are retired.
///
/// ```
/// use rejoin_core::keys::{KeyRing, SecretKey};
///
/// let keys = KeyRing::new(SecretKey::new(&[2; 32])?, vec![SecretKey::new(&[1; 32])?]);
/// assert_eq!(keys.iter().count(), 2);
/// assert!(keys.by_id(keys.newest().id()).is_some());
/// # Ok::<(), rejoin_core::keys::KeyError>(())
/// ```
pub struct KeyRing {
    newest: SecretKey,
    older: Vec<SecretKey>,
}

impl KeyRing {
    /// The ring of these keys, `older` in the order in which they should be tried. One that is given
    /// twice, as happens half way through a rotation, is kept once.
    pub fn new(newest: SecretKey, older: Vec<SecretKey>) -> Self {
        let mut ring = Self { newest, older: Vec::with_capacity(older.len()) };
        for key in older {
            if ring.by_id(key.id()).is_none() {
                ring.older.push(key);
            }
        }
        ring
    }

    /// The key that signs and seals.
    pub fn newest(&self) -> &SecretKey {
        &self.newest
    }

    /// The key of that name, unless it was retired or never was ours.
    pub fn by_id(&self, id: &str) -> Option<&SecretKey> {
        self.iter().find(|key| key.id() == id)
    }

    /// Every key, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &SecretKey> {
        std::iter::once(&self.newest).chain(&self.older)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing ")?;
        f.debug_list().entries(self.iter().map(SecretKey::id)).finish()
    }
}

/// A key for one use only, by HKDF-SHA256. The secret enters it as input, never as an HMAC key, so
/// that no signature of a token can equal a derived key.
fn derive<const BYTES: usize>(secret: &[u8], label: &[u8]) -> [u8; BYTES] {
    let mut key = [0; BYTES];
    Hkdf::<Sha256>::new(None, secret)
        .expand(label, &mut key)
        .expect("HKDF-SHA256 gives up to 8160 bytes, and no key here has more than 32");
    key
}

fn hmac_under(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn authenticate(mac: &Hmac<Sha256>, message: &str) -> [u8; 32] {
    mac.clone().chain_update(message).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"an old secret of thirty-two byte";
    const OTHER: &[u8] = b"a new secret, longer than thirty-two bytes";

    fn key(secret: &[u8]) -> SecretKey {
        SecretKey::new(secret).unwrap()
    }

    fn ids(ring: &KeyRing) -> Vec<&str> {
        ring.iter().map(SecretKey::id).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn secrets_under_32_bytes_are_refused() {
        assert_eq!(SecretKey::new(&SECRET[1..]).unwrap_err(), KeyError::TooShort { length: 31 });
        assert!(SecretKey::new(SECRET).is_ok());
    }

    /// The expected values are Python's: `hmac` for HMAC, and HKDF written out with it.
    #[test]
    fn keys_are_the_ones_another_implementation_derives() {
        let key = key(SECRET);
        assert_eq!(key.id(), "LyP5iO88Y756");
        assert_eq!(
            hex(&derive::<32>(SECRET, label::SEALING)),
            "ccc1cd9ca383c964275ce284296e5a0b5daac7e5082c8a7f59f70031b67278cb"
        );
        assert_eq!(
            hex(&key.sign("message")),
            "61dd1f3ad129bae178cca3bbe7765dbd67ce1115d3230ed41fe9679078f35288"
        );
        assert_eq!(
            hex(&key.successor_of("message")),
            "4cd0da301bef1ddf740a6212fa3443aeb2a8df34ccfcbb3cf2bc759eeb71502d"
        );
    }

    #[test]
    fn a_signature_holds_for_its_key_and_message_only() {
        let signature = key(SECRET).sign("message");
        assert!(key(SECRET).has_signed("message", &signature));
        assert!(!key(SECRET).has_signed("massage", &signature));
        assert!(!key(OTHER).has_signed("message", &signature));
        assert!(!key(SECRET).has_signed("message", &signature[..31]));
        assert!(!key(SECRET).has_signed("message", &[]));
    }

    #[test]
    fn a_ring_goes_from_the_newest_to_the_oldest_and_holds_each_once() {
        let ring = KeyRing::new(key(OTHER), vec![key(SECRET), key(OTHER), key(SECRET)]);
        assert_eq!(ids(&ring), [key(OTHER).id(), key(SECRET).id()]);
        assert_eq!(ring.newest().id(), key(OTHER).id());
        assert_eq!(ring.by_id(key(SECRET).id()).map(SecretKey::id), Some(key(SECRET).id()));
        assert!(ring.by_id(key(&[0; 32]).id()).is_none());
        assert!(ring.by_id("").is_none());
    }

    #[test]
    fn debug_shows_ids_only() {
        let ring = KeyRing::new(key(OTHER), vec![key(SECRET)]);
        let shown = format!("{ring:?}");
        assert_eq!(shown, format!("KeyRing [{:?}, {:?}]", key(OTHER).id(), key(SECRET).id()));
        assert_eq!(format!("{:?}", key(SECRET)), format!("SecretKey({:?})", key(SECRET).id()));
    }
}
