//! The keys that verify web tokens: a shared secret, or the public keys in a JWKS file, which is read
//! again when it changes. A key has one algorithm, whatever a token says: else a public key could be
//! taken for a shared secret, and anybody could sign.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rejoin::CredentialId;
use ring::{hmac, signature};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::stamp::Stamp;

/// A JWKS file is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The shortest RSA modulus, in bytes.
const MIN_RSA_BYTES: usize = 2048 / 8;

/// One key that verifies.
#[derive(Debug)]
pub(super) struct VerifyingKey {
    id: Option<String>,
    material: Material,
    credential_id: CredentialId,
}

#[derive(Debug)]
enum Material {
    Hs256(hmac::Key),
    Rs256 { n: Vec<u8>, e: Vec<u8> },
    Es256 { point: Vec<u8> },
    EdDsa { point: Vec<u8> },
}

impl VerifyingKey {
    /// The shared secret as HS256 key.
    pub(super) fn shared(secret: &[u8]) -> Self {
        Self::new(None, Material::Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret)), secret)
    }

    /// A key, told from others by the bytes it is made of.
    fn new(id: Option<String>, material: Material, bytes: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(Sha256::digest(bytes)).into();
        let mut credential_id = [0; 16];
        credential_id.copy_from_slice(&hash[..16]);
        Self { id, material, credential_id: CredentialId(credential_id) }
    }

    /// What tokens that it signed are known by.
    pub(super) fn credential_id(&self) -> CredentialId {
        self.credential_id
    }

    /// Whether a token that names this algorithm and, perhaps, this key can be meant for it.
    pub(super) fn suits(&self, algorithm: &str, id: Option<&str>) -> bool {
        let named = match (&self.id, id) {
            (Some(mine), Some(asked)) => mine == asked,
            (None, _) | (_, None) => true,
        };
        named && self.material.algorithms().contains(&algorithm)
    }

    /// Whether `signed` was signed by the owner of this key.
    pub(super) fn has_signed(&self, signed: &[u8], sig: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Hs256(key) => hmac::verify(key, signed, sig),
            Material::Rs256 { n, e } => signature::RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                signed,
                sig,
            ),
            Material::Es256 { point } => {
                let algorithm = &signature::ECDSA_P256_SHA256_FIXED;
                signature::UnparsedPublicKey::new(algorithm, point).verify(signed, sig)
            }
            Material::EdDsa { point } => {
                signature::UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, sig)
            }
        };
        verified.is_ok()
    }
}

impl Material {
    /// What it is made of, unless it is secret.
    fn public_bytes(&self) -> Vec<u8> {
        match self {
            Self::Hs256(_) => Vec::new(),
            Self::Rs256 { n, e } => [&n[..], e].concat(),
            Self::Es256 { point } | Self::EdDsa { point } => point.clone(),
        }
    }

    /// The names of its one algorithm; EdDSA with this curve has two (RFC 9864).
    fn algorithms(&self) -> &'static [&'static str] {
        match self {
            Self::Hs256(_) => &["HS256"],
            Self::Rs256 { .. } => &["RS256"],
            Self::Es256 { .. } => &["ES256"],
            Self::EdDsa { .. } => &["EdDSA", "Ed25519"],
        }
    }
}

/// A key as a JWKS has it; what is not read here does not matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

impl Jwk {
    /// The key in it, unless it is of a kind or for a purpose that is none of ours.
    fn read(&self) -> Option<VerifyingKey> {
        let bytes = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let number = |text: &str| -> Option<Vec<u8>> {
            let bytes = bytes(text)?;
            Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
        };
        let material = match (self.kty.as_str(), self.crv.as_str()) {
            ("RSA", _) => {
                let (n, e) = (number(&self.n)?, number(&self.e)?);
                (n.len() >= MIN_RSA_BYTES && !e.is_empty()).then_some(Material::Rs256 { n, e })?
            }
            ("EC", "P-256") => {
                let point = [vec![4], bytes(&self.x)?, bytes(&self.y)?].concat(); // 4: uncompressed
                (point.len() == 65).then_some(Material::Es256 { point })?
            }
            ("OKP", "Ed25519") => {
                let point = bytes(&self.x)?;
                (point.len() == 32).then_some(Material::EdDsa { point })?
            }
            _ => return None,
        };
        let allowed = self.alg.as_deref().is_none_or(|alg| material.algorithms().contains(&alg));
        let to_sign = self.purpose.as_deref().is_none_or(|purpose| purpose == "sig");
        let bytes = material.public_bytes();
        (allowed && to_sign).then(|| VerifyingKey::new(self.kid.clone(), material, &bytes))
    }
}

/// The keys in the text of a JWKS that can be used here; there is at least one.
pub(super) fn parse(text: &str) -> Result<Vec<VerifyingKey>> {
    #[derive(Deserialize)]
    struct Jwks {
        keys: Vec<Value>,
    }
    let Ok(Jwks { keys }) = serde_json::from_str(text) else {
        anyhow::bail!("is not a JWKS, an object with a list \"keys\"");
    };
    let read = |key| serde_json::from_value::<Jwk>(key).ok()?.read();
    let usable: Vec<_> = keys.into_iter().filter_map(read).collect();
    ensure!(!usable.is_empty(), "has no RSA (2048 bits), P-256 or Ed25519 key for signatures");
    Ok(usable)
}

/// The keys in a file, as of some seconds ago.
#[derive(Debug)]
pub(super) struct JwksFile {
    path: PathBuf,
    state: Mutex<KeyFileState>,
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct KeyFileState {
    keys: Arc<[VerifyingKey]>,
    /// How the file looked when it was last read, well or not.
    seen: Option<Stamp>,
    /// When it was last looked at, by the monotonic clock: the wall clock may go back by a day.
    looked: Instant,
}

impl JwksFile {
    /// Reads the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let seen = Stamp::of(path).ok();
        let state = KeyFileState { keys: read(path)?, seen, looked: Instant::now() };
        let changed = watch::Sender::new(0);
        Ok(Self { path: path.to_owned(), state: Mutex::new(state), changed })
    }

    /// The keys that are good now. A new file that can't be used leaves the old ones good, and is told
    /// of once.
    pub(super) fn keys(&self) -> Arc<[VerifyingKey]> {
        self.keys_at(Instant::now())
    }

    /// The same at some moment.
    pub(super) fn keys_at(&self, now: Instant) -> Arc<[VerifyingKey]> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= LOOK_EVERY {
            state.looked = now;
            let seen = Stamp::of(&self.path).ok();
            if seen != state.seen {
                state.seen = seen;
                match read(&self.path) {
                    Ok(keys) => self.replace(&mut state, keys),
                    Err(error) => tracing::error!("the old keys of callers stay: {error:#}"),
                }
            }
        }
        Arc::clone(&state.keys)
    }

    /// Reads the file now.
    pub(super) fn reload(&self) -> Result<()> {
        let keys = read(&self.path)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(&mut state, keys);
        Ok(())
    }

    /// Changes when other keys are good.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn replace(&self, state: &mut KeyFileState, keys: Arc<[VerifyingKey]>) {
        state.keys = keys;
        self.changed.send_modify(|changes| *changes += 1);
    }
}

fn read(path: &Path) -> Result<Arc<[VerifyingKey]>> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("jwks_file {} can't be read", path.display()))?;
    let keys = parse(&text).with_context(|| format!("jwks_file {}", path.display()))?;
    Ok(keys.into())
}
