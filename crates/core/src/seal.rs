//! Sealed state: a session's state in the client's hands, unreadable and unchangeable there.
//!
//! The text that the wire calls `signed_state` reads `v1.<key id>.<body>`. The body is base64url of a
//! nonce and of AES-256-GCM-SIV's ciphertext over the facts, a line of JSON, and the content,
//! compressed by deflate. Version, key id and principal are bound to it as associated data.
//!
//! A sealed state is data, never a credential: opening one shows that this server wrote it for this
//! principal, not that its bearer may do anything. Who may restore, and what was restored before, is
//! left to those who know the sessions.

use std::fmt;
use std::time::Duration;

use aes_gcm_siv::Nonce;
use aes_gcm_siv::aead::{Aead as _, Payload};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use serde::{Deserialize, Serialize};

use crate::identity::StoreMark;
use crate::ids::url_safe;
use crate::keys::{KeyRing, SecretKey};
use crate::limits;
use crate::{Epoch, InSeq, Principal, Seq, SessionId, Timestamp};

const VERSION: &str = "v1";
const NONCE_BYTES: usize = 12;
/// Deflate's usual trade between size and time.
const COMPRESSION_LEVEL: u8 = 6;

/// What a sealed state is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFacts {
    /// Whose state it is. Nobody else can open it.
    pub principal: Principal,
    /// The session it was taken from.
    pub session_id: SessionId,
    /// The incarnation of the out log that `seq` counts in.
    pub epoch: Epoch,
    /// The out position the state stands for.
    pub seq: Seq,
    /// The in position the state stands for: entries up to here are covered.
    pub in_seq: InSeq,
    /// When the state was taken.
    pub taken_at: Timestamp,
    /// When it was sealed; nothing in seals of earlier versions.
    pub sealed_at: Option<Timestamp>,
    /// The first moment at which it can be restored no more.
    pub expires_at: Timestamp,
    /// Which of all sessions of that id it was taken from; nothing in seals of earlier versions.
    pub origin: Option<SealOrigin>,
}

/// What tells a session from every other one of the same id: in another store, or here at another time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealOrigin {
    /// The store that has it.
    pub store: StoreMark,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A state that proved to be ours.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenedState {
    /// What it is bound to.
    pub facts: StateFacts,
    /// The bytes that were sealed.
    pub content: Vec<u8>,
}

impl OpenedState {
    /// The state, if it is good where states are good for `lifetime`: it may have been sealed where that was longer.
    pub fn within(self, lifetime: Duration, now: Timestamp) -> Result<Self, OpenError> {
        match self.facts.sealed_at.map(|sealed_at| sealed_at + lifetime) {
            Some(expires_at) if now >= expires_at => {
                Err(OpenError::Expired { session_id: self.facts.session_id, expires_at })
            }
            Some(_) | None => Ok(self),
        }
    }
}

impl fmt::Debug for OpenedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = format_args!("{} bytes", self.content.len());
        f.debug_struct("OpenedState")
            .field("facts", &self.facts)
            .field("content", &content)
            .finish()
    }
}

/// Why a state can't be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It takes more room than clients are asked to keep.
    #[error(
        "the state takes {size} bytes where {limit} are allowed; \
         keep less in it, or raise `max_state_bytes`"
    )]
    TooLarge {
        /// The size of the finished seal, or of the content where that alone is too much.
        size: usize,
        /// What that size may be at most.
        limit: usize,
    },
}

/// Why a sealed state is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Malformed, changed in a bit, of another principal, of a retired key or of another server. All
    /// of these look the same, so that nobody can learn by trying whose state it is.
    #[error(
        "the state was changed, or sealed by another server or for somebody else; export it again"
    )]
    NotAuthentic,
    /// Ours, but its time is over.
    #[error("the state expired at {expires_at}; start a new session")]
    Expired {
        /// The session it was taken from.
        session_id: SessionId,
        /// When that was.
        expires_at: Timestamp,
    },
    /// Larger than any that is sealed under the present `max_state_bytes`.
    #[error(
        "the state is larger than this server reads; \
         raise `max_state_bytes` to what it was when the state was exported"
    )]
    TooLarge,
}

/// The state in `content`, sealed with the newest key in at most `max_bytes` of text.
///
/// `nonce` is random. Should one ever repeat, all that shows is whether two states are equal.
///
/// ```
/// use rejoin_core::keys::{KeyRing, SecretKey};
/// use rejoin_core::seal::{self, StateFacts};
/// use rejoin_core::{Epoch, InSeq, Principal, Seq, SessionId, Timestamp};
///
/// let keys = KeyRing::new(SecretKey::new(b"thirty-two bytes or more of secret")?, vec![]);
/// let facts = StateFacts {
///     principal: Principal::new("zoë"),
///     session_id: SessionId::from_random([1; 16]),
///     epoch: Epoch::from_random([2; 6]),
///     seq: Seq::new(42),
///     in_seq: InSeq::new(7),
///     taken_at: Timestamp::from_millis(1_000),
///     sealed_at: Some(Timestamp::from_millis(2_000)),
///     expires_at: Timestamp::from_millis(9_000),
///     origin: None,
/// };
/// let sealed = seal::seal(&keys, &facts, b"{\"stage\":\"new\"}", [3; 12], 512 * 1024)?;
///
/// let now = Timestamp::from_millis(5_000);
/// let opened = seal::open(&keys, &sealed, &facts.principal, now, 512 * 1024)?;
/// assert_eq!(opened.content, b"{\"stage\":\"new\"}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn seal(
    keys: &KeyRing,
    facts: &StateFacts,
    content: &[u8],
    nonce: [u8; NONCE_BYTES],
    max_bytes: usize,
) -> Result<String, SealError> {
    check_size(content.len(), largest_content(max_bytes))?;
    let key = keys.newest();
    let plain = pack(facts, content);
    let bound = bound_data(key, &facts.principal);
    let payload = Payload { msg: &plain, aad: bound.as_bytes() };
    let too_long = |_| SealError::TooLarge { size: plain.len(), limit: max_bytes }; // over 64 GiB
    let sealed = key.sealing().encrypt(&Nonce::from(nonce), payload).map_err(too_long)?;
    let body = [nonce.as_slice(), &sealed].concat();
    let text = format!("{VERSION}.{}.{}", key.id(), url_safe(&body));
    check_size(text.len(), max_bytes)?;
    Ok(text)
}

/// The state in `text`, if this server sealed it for `principal` and its time is not over.
pub fn open(
    keys: &KeyRing,
    text: &str,
    principal: &Principal,
    now: Timestamp,
    max_bytes: usize,
) -> Result<OpenedState, OpenError> {
    if text.len() > max_bytes {
        return Err(OpenError::TooLarge);
    }
    let plain = decrypt(keys, text, principal).ok_or(OpenError::NotAuthentic)?;
    let (facts, compressed) = unpack(&plain, principal).ok_or(OpenError::NotAuthentic)?;
    if now >= facts.expires_at {
        let StateFacts { session_id, expires_at, .. } = facts;
        return Err(OpenError::Expired { session_id, expires_at });
    }
    let content = decompress(compressed, largest_content(max_bytes))?;
    Ok(OpenedState { facts, content })
}

/// The facts as they stand inside a seal. The principal is missing: it is bound from outside.
#[derive(Serialize, Deserialize)]
struct SealedFacts {
    session_id: SessionId,
    epoch: Epoch,
    seq: Seq,
    in_seq: InSeq,
    taken_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed_at: Option<Timestamp>,
    expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<SealOrigin>,
}

/// The facts on a line of their own, then the content. The facts come first and are not compressed,
/// so that they are bounded by the seal's own size and known before anything is decompressed.
fn pack(facts: &StateFacts, content: &[u8]) -> Vec<u8> {
    let StateFacts {
        principal: _,
        session_id,
        epoch,
        seq,
        in_seq,
        taken_at,
        sealed_at,
        expires_at,
        origin,
    } = facts.clone();
    let facts =
        SealedFacts { session_id, epoch, seq, in_seq, taken_at, sealed_at, expires_at, origin };
    let mut packed = serde_json::to_vec(&facts).expect("texts and numbers are always JSON");
    packed.push(b'\n');
    packed.extend(compress_to_vec(content, COMPRESSION_LEVEL));
    packed
}

/// The facts and the compressed content in what [`pack`] made.
fn unpack<'a>(plain: &'a [u8], principal: &Principal) -> Option<(StateFacts, &'a [u8])> {
    let end = plain.iter().position(|byte| *byte == b'\n')?; // JSON escapes those inside of texts
    let SealedFacts { session_id, epoch, seq, in_seq, taken_at, sealed_at, expires_at, origin } =
        serde_json::from_slice(&plain[..end]).ok()?;
    let principal = principal.clone();
    let facts = StateFacts {
        principal,
        session_id,
        epoch,
        seq,
        in_seq,
        taken_at,
        sealed_at,
        expires_at,
        origin,
    };
    Some((facts, &plain[end + 1..]))
}

/// What was encrypted for `principal` into `text`, if it is all as it was.
fn decrypt(keys: &KeyRing, text: &str, principal: &Principal) -> Option<Vec<u8>> {
    let (version, rest) = text.split_once('.')?;
    let (key_id, body) = rest.split_once('.')?;
    if version != VERSION {
        return None;
    }
    let key = keys.by_id(key_id)?;
    let body = URL_SAFE_NO_PAD.decode(body).ok()?; // refuses padding and stray bits: one spelling only
    let (nonce, sealed) = body.split_first_chunk::<NONCE_BYTES>()?;
    let bound = bound_data(key, principal);
    let payload = Payload { msg: sealed, aad: bound.as_bytes() };
    key.sealing().decrypt(&Nonce::from(*nonce), payload).ok()
}

/// What a seal is bound to besides its inside. Only the principal, at the end, may contain a dot, so
/// no two triples give the same text.
fn bound_data(key: &SecretKey, principal: &Principal) -> String {
    format!("{VERSION}.{}.{principal}", key.id())
}

fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, OpenError> {
    decompress_to_vec_with_limit(compressed, limit).map_err(|error| {
        if error.status == TINFLStatus::HasMoreOutput {
            OpenError::TooLarge
        } else {
            OpenError::NotAuthentic
        }
    })
}

fn largest_content(max_bytes: usize) -> usize {
    max_bytes.saturating_mul(limits::STATE_EXPANSION)
}

fn check_size(size: usize, limit: usize) -> Result<(), SealError> {
    if size > limit { Err(SealError::TooLarge { size, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
