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
mod tests {
    use super::*;

    const OLD: &[u8] = b"an old secret of thirty-two byte";
    const NEW: &[u8] = b"a new secret, longer than thirty-two bytes";
    const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_999);
    const EXPIRY: Timestamp = Timestamp::from_millis(1_794_830_400_999);
    const NONCE: [u8; 12] = [5; 12];
    const MAX: usize = 4096;
    const CONTENT: &[u8] =
        br#"{"stage":"plan","current_step":2,"memory_snapshot":["memory memory"]}"#;

    fn ring(secrets: &[&[u8]]) -> KeyRing {
        let mut keys = secrets.iter().map(|secret| SecretKey::new(secret).unwrap());
        KeyRing::new(keys.next().unwrap(), keys.collect())
    }

    fn zoe() -> Principal {
        Principal::new("zoë")
    }

    fn facts() -> StateFacts {
        StateFacts {
            principal: zoe(),
            session_id: SessionId::parse("sess_AAECAwQFBgcICQoLDA0ODw").unwrap(),
            epoch: Epoch::from_text("ep\noch"),
            seq: Seq::new(42),
            in_seq: InSeq::new(7),
            taken_at: NOW,
            sealed_at: None,
            expires_at: EXPIRY,
            origin: None,
        }
    }

    fn sealed() -> String {
        seal(&ring(&[OLD]), &facts(), CONTENT, NONCE, MAX).unwrap()
    }

    fn open_now(text: &str) -> Result<OpenedState, OpenError> {
        open(&ring(&[OLD]), text, &zoe(), NOW, MAX)
    }

    /// Bytes that no compression makes smaller, from a small xorshift generator.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    /// A seal by our own key around bytes that [`seal`] would not have made.
    fn seal_raw(plain: &[u8]) -> String {
        let key = SecretKey::new(OLD).unwrap();
        let bound = bound_data(&key, &zoe());
        let payload = Payload { msg: plain, aad: bound.as_bytes() };
        let sealed = key.sealing().encrypt(&Nonce::from(NONCE), payload).unwrap();
        format!("{VERSION}.{}.{}", key.id(), url_safe(&[NONCE.as_slice(), &sealed].concat()))
    }

    #[test]
    fn a_state_opens_to_what_was_sealed() {
        let opened = open_now(&sealed()).unwrap();
        assert_eq!(opened.facts, facts());
        assert_eq!(opened.content, CONTENT);
    }

    #[test]
    fn a_state_is_good_for_no_longer_than_states_are_now() {
        let lifetime = Duration::from_secs(60);
        let sealed_at = NOW + Duration::from_secs(1);
        let facts = StateFacts { sealed_at: Some(sealed_at), ..facts() };
        let text = seal(&ring(&[OLD]), &facts, CONTENT, NONCE, MAX).unwrap();
        let opened = open_now(&text).unwrap();
        assert_eq!(opened.facts, facts);
        let last = sealed_at + lifetime - Duration::from_millis(1);
        assert!(opened.clone().within(lifetime, last).is_ok());
        let expires_at = sealed_at + lifetime;
        let session_id = facts.session_id;
        assert_eq!(
            opened.within(lifetime, expires_at).unwrap_err(),
            OpenError::Expired { session_id, expires_at }
        );
        let older = open_now(&sealed()).unwrap(); // it does not say when it was sealed
        assert!(older.within(lifetime, EXPIRY).is_ok());
    }

    #[test]
    fn a_state_says_which_store_and_which_session_it_comes_from() {
        let store = crate::identity::StoreIdentity::new([7; 16]).mark();
        let facts = StateFacts { origin: Some(SealOrigin { store, created_at: NOW }), ..facts() };
        let text = seal(&ring(&[OLD]), &facts, CONTENT, NONCE, MAX).unwrap();
        assert_eq!(open_now(&text).unwrap().facts, facts);
    }

    #[test]
    fn an_empty_state_and_one_of_noise_open_to_what_was_sealed() {
        for content in [vec![], noise(2000)] {
            let text = seal(&ring(&[OLD]), &facts(), &content, NONCE, MAX).unwrap();
            assert_eq!(open_now(&text).unwrap().content, content);
        }
    }

    /// Made by Python's `cryptography` (AESGCMSIV) and `zlib`, with keys derived by its `hmac`.
    #[test]
    fn a_state_sealed_by_another_implementation_opens() {
        let opened = open_now("v1.LyP5iO88Y756.CQkJCQkJCQkJCQkJuBSNetLaIZw5cvA_20GeqO7z9NZdwWwQlJ6RBuGK-YIxlq8Jnr5_ceXbphuZLwzD8onwqS9YdptvKcKEseOLl6NX1ZrXRpXcPt6Ygb-3_KbdOiCmLqiySHgWgXEUdILvqzfa9ZBy_iCfJQGT_8FnsEu-kNTa7viC43VWibWpyydgVZD0T4rJpZQQq5u4Q29Dl-8fGJW5ScHrJFWD-9RD4C5jXWsHcn_SPGnLym9YzceHLkj4y6andvO0u6DOUZut2PQ6BaM-gZHAI8cGgQ70VTo4gvU").unwrap();
        assert_eq!(opened.facts, facts());
        assert_eq!(opened.content, CONTENT);
    }

    #[test]
    fn the_key_id_is_in_clear_and_nothing_else_is() {
        let text = sealed();
        let key = SecretKey::new(OLD).unwrap();
        let body = text.strip_prefix(&format!("v1.{}.", key.id())).unwrap();
        let body = URL_SAFE_NO_PAD.decode(body).unwrap();
        for word in ["stage", "sess_", "zoë", "42"] {
            assert!(!body.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_seal_changed_in_any_bit_is_refused() {
        let good = sealed();
        for index in 0..good.len() {
            for bit in 0..7 {
                let mut changed = good.clone().into_bytes();
                changed[index] ^= 1 << bit;
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(
                    open_now(&changed),
                    Err(OpenError::NotAuthentic),
                    "byte {index}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn a_seal_cut_short_or_spelled_otherwise_is_refused() {
        let good = sealed();
        for length in 0..good.len() {
            assert_eq!(open_now(&good[..length]), Err(OpenError::NotAuthentic));
        }
        for other in
            [format!("{good}="), format!("{good}A"), format!(" {good}"), format!("{good}\n")]
        {
            assert_eq!(open_now(&other), Err(OpenError::NotAuthentic));
        }
    }

    #[test]
    fn a_foreign_principal_learns_no_more_than_a_forger() {
        for principal in ["zoe", "", "anonymous", "zoë.", "x.zoë"] {
            let opened = open(&ring(&[OLD]), &sealed(), &Principal::new(principal), NOW, MAX);
            assert_eq!(opened, Err(OpenError::NotAuthentic));
            let late = open(&ring(&[OLD]), &sealed(), &Principal::new(principal), EXPIRY, MAX);
            assert_eq!(late, Err(OpenError::NotAuthentic), "expiry is the owner's to know");
        }
    }

    #[test]
    fn the_newest_key_seals_and_older_ones_open_until_retired() {
        let of = |keys: &KeyRing, text: &str| open(keys, text, &zoe(), NOW, MAX);
        assert!(of(&ring(&[NEW, OLD]), &sealed()).is_ok());
        assert_eq!(of(&ring(&[NEW]), &sealed()), Err(OpenError::NotAuthentic));
        let newer = seal(&ring(&[NEW, OLD]), &facts(), CONTENT, NONCE, MAX).unwrap();
        assert!(of(&ring(&[NEW]), &newer).is_ok());
    }

    #[test]
    fn a_seal_that_names_another_key_of_the_ring_is_refused() {
        let (old, new) = (SecretKey::new(OLD).unwrap(), SecretKey::new(NEW).unwrap());
        let renamed = sealed().replace(old.id(), new.id());
        let opened = open(&ring(&[NEW, OLD]), &renamed, &zoe(), NOW, MAX);
        assert_eq!(opened, Err(OpenError::NotAuthentic));
    }

    #[test]
    fn a_state_expires_at_its_moment() {
        let at = |now| open(&ring(&[OLD]), &sealed(), &zoe(), now, MAX);
        assert!(at(Timestamp::from_millis(EXPIRY.as_millis() - 1)).is_ok());
        let session_id = facts().session_id;
        assert_eq!(at(EXPIRY), Err(OpenError::Expired { session_id, expires_at: EXPIRY }));
    }

    #[test]
    fn the_limit_counts_the_finished_text() {
        let content = noise(1000);
        let size = seal(&ring(&[OLD]), &facts(), &content, NONCE, MAX).unwrap().len();
        assert!(seal(&ring(&[OLD]), &facts(), &content, NONCE, size).is_ok());
        let refused = seal(&ring(&[OLD]), &facts(), &content, NONCE, size - 1);
        assert_eq!(refused, Err(SealError::TooLarge { size, limit: size - 1 }));
    }

    #[test]
    fn content_is_bounded_before_it_is_compressed() {
        let limit = MAX * limits::STATE_EXPANSION;
        let sealing = |length| seal(&ring(&[OLD]), &facts(), &vec![b' '; length], NONCE, MAX);
        let largest = sealing(limit).unwrap();
        assert_eq!(open_now(&largest).unwrap().content.len(), limit);
        assert_eq!(sealing(limit + 1), Err(SealError::TooLarge { size: limit + 1, limit }));
    }

    #[test]
    fn a_text_over_the_limit_is_refused_before_it_is_decoded() {
        let text = sealed();
        let within = |max_bytes| open(&ring(&[OLD]), &text, &zoe(), NOW, max_bytes);
        assert!(within(text.len()).is_ok());
        assert_eq!(within(text.len() - 1), Err(OpenError::TooLarge));
        assert_eq!(open_now(&"x".repeat(MAX + 1)), Err(OpenError::TooLarge));
    }

    #[test]
    fn a_decompression_bomb_is_refused() {
        let bomb = pack(&facts(), &vec![0; 2_000_000]);
        let text = seal_raw(&bomb);
        assert!(text.len() <= MAX, "small enough to be read at all: {}", text.len());
        assert_eq!(open_now(&text), Err(OpenError::TooLarge));
        let just_over = pack(&facts(), &vec![0; MAX * limits::STATE_EXPANSION + 1]);
        assert_eq!(open_now(&seal_raw(&just_over)), Err(OpenError::TooLarge));
    }

    #[test]
    fn a_good_seal_around_something_else_is_refused() {
        let line = |facts: &[u8], rest: &[u8]| seal_raw(&[facts, b"\n", rest].concat());
        let packed = pack(&facts(), CONTENT);
        let end = packed.iter().position(|byte| *byte == b'\n').unwrap();
        for text in [
            seal_raw(b""),
            seal_raw(b"no line"),
            line(b"{}", &packed[end + 1..]),
            line(&packed[..end], b""),
            line(&packed[..end], b"\xff\xff"),
            line(&packed[..end], &packed[end + 1..packed.len() - 1]),
        ] {
            assert_eq!(open_now(&text), Err(OpenError::NotAuthentic));
        }
    }

    #[test]
    fn a_repeated_nonce_still_gives_different_seals_for_different_states() {
        let one = seal(&ring(&[OLD]), &facts(), b"one", NONCE, MAX).unwrap();
        let two = seal(&ring(&[OLD]), &facts(), b"two", NONCE, MAX).unwrap();
        assert_ne!(one, two);
    }

    #[test]
    fn debug_hides_the_content() {
        let shown = format!("{:?}", open_now(&sealed()).unwrap());
        assert!(shown.contains("sess_") && shown.contains("bytes"));
        assert!(!shown.contains("memory") && !shown.contains("109")); // 109 = 'm' in a list of bytes
    }
}
