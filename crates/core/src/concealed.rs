//! Short secrets of clients that must be written down before they are used, such as a reconnect token in a tool call:
//! encrypted, so that nobody can use them by reading the store, and bound to the place where they stand.

use aes_gcm_siv::Nonce;
use aes_gcm_siv::aead::{Aead as _, Payload};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::ids::url_safe;
use crate::keys::{KeyRing, SecretKey};

const VERSION: &str = "concealed-1";
const NONCE_BYTES: usize = 12;

/// `text`, encrypted with the newest key for this place. `nonce` is random; should one ever repeat, all that shows is
/// whether two texts are equal.
pub fn conceal(
    keys: &KeyRing,
    text: &str,
    place: &str,
    nonce: [u8; NONCE_BYTES],
) -> Option<String> {
    let key = keys.newest();
    let bound = bound_data(key, place);
    let payload = Payload { msg: text.as_bytes(), aad: bound.as_bytes() };
    let sealed = key.sealing().encrypt(&Nonce::from(nonce), payload).ok()?; // over 64 GiB
    Some(format!("{VERSION}.{}.{}", key.id(), url_safe(&[nonce.as_slice(), &sealed].concat())))
}

/// What was concealed for this place; nothing if it was not, or if the key was retired.
pub fn reveal(keys: &KeyRing, concealed: &str, place: &str) -> Option<String> {
    let (key, body) = concealed.strip_prefix(VERSION)?.strip_prefix('.')?.split_once('.')?;
    let key = keys.by_id(key)?;
    let body = URL_SAFE_NO_PAD.decode(body).ok()?;
    let (nonce, sealed) = body.split_first_chunk::<NONCE_BYTES>()?;
    let bound = bound_data(key, place);
    let payload = Payload { msg: sealed, aad: bound.as_bytes() };
    String::from_utf8(key.sealing().decrypt(&Nonce::from(*nonce), payload).ok()?).ok()
}

fn bound_data(key: &SecretKey, place: &str) -> String {
    format!("{VERSION}.{}.{place}", key.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(secrets: &[u8]) -> KeyRing {
        let mut keys = secrets.iter().map(|byte| SecretKey::new(&secret(*byte)).unwrap());
        KeyRing::new(keys.next().unwrap(), keys.collect())
    }

    fn secret(seed: u8) -> Vec<u8> {
        (0..32).map(|index: u8| index.wrapping_mul(37) ^ seed).collect()
    }

    #[test]
    fn a_secret_is_revealed_at_its_place_only_also_after_a_rotation() {
        let text = r#"{"reconnect_token":"eyJhbGciOi.eyJz.x"}"#;
        let concealed = conceal(&keys(&[1]), text, "here", [7; 12]).unwrap();
        assert!(!concealed.contains("eyJ") && !concealed.contains("reconnect"), "{concealed}");
        assert_eq!(reveal(&keys(&[2, 1]), &concealed, "here").as_deref(), Some(text));
        assert_eq!(reveal(&keys(&[1]), &concealed, "there"), None);
        assert_eq!(reveal(&keys(&[2]), &concealed, "here"), None);
        assert_eq!(reveal(&keys(&[1]), text, "here"), None);
        let mut changed = concealed.clone();
        changed.pop();
        assert_eq!(reveal(&keys(&[1]), &changed, "here"), None);
    }
}
