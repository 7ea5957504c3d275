//! Reconnect tokens: JSON web tokens that say "whoever brings me may come back to this session".
//!
//! This file makes tokens and judges what can be judged from the text alone: form and signature,
//! expiry, session id, purpose and audience, in this order. Whether the session is known, the hash on
//! record and the token unused is left to those who know the session.
//!
//! The JWT is our own, in a few lines: HS256 and nothing else. A library's choice of algorithms is
//! what most attacks on JWT begin with.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ids::url_safe;
use crate::keys::{KeyRing, SecretKey};
use crate::limits;
use crate::{Generation, Principal, SessionId, Timestamp};

const ALGORITHM: &str = "HS256";
const PURPOSE: &str = "session_reconnect";
const AUDIENCE: &str = "rejoin";

/// The text of a token: a secret of its session's owner, so it is never shown but where it is asked
/// for by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

impl Token {
    /// The token as it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The SHA-256 of a token's text: all that is stored of it, so that nobody can come back to a session
/// by reading the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The hash of the token in `text`.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

impl fmt::Debug for TokenHash {
    /// Its first bytes: enough to tell tokens apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "TokenHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// What a token is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The session it leads back to.
    pub session_id: SessionId,
    /// The session's owner.
    pub principal: Principal,
    /// The session's generation when the token is made.
    pub generation: Generation,
    /// How long it is good; a fraction of a second counts as a whole one.
    pub lifetime: Duration,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// For the client.
    pub token: Token,
    /// For the store.
    pub hash: TokenHash,
    /// The first moment at which it is good no more.
    pub expires_at: Timestamp,
}

/// What a token said that passed every check of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The session it leads back to.
    pub session_id: SessionId,
    /// Whose session that was when the token was made. The caller's own principal is what counts.
    pub principal: Principal,
    /// The session's generation when the token was made.
    pub generation: Generation,
    /// When it was made, in whole seconds.
    pub issued_at: Timestamp,
    /// The first moment at which it is good no more.
    pub expires_at: Timestamp,
}

/// The first check that a token failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// Not a token of ours, changed on its way, or from the future.
    #[error("this is no reconnect token of this server")]
    Invalid,
    /// Its time is over.
    #[error("the reconnect token has expired")]
    Expired {
        /// Whether it would have passed all other checks, so that its bearer is merely late.
        otherwise_good: bool,
    },
    /// It leads to another session.
    #[error("the reconnect token belongs to another session")]
    SessionIdMismatch,
    /// It was signed for something else than coming back.
    #[error("the token was not made for reconnecting to a session")]
    InvalidPurpose,
}

/// A new token for `grant`, signed with the newest key. `jti` is random: it makes tokens differ that
/// were made within one second.
///
/// ```
/// use std::time::Duration;
/// use rejoin_core::keys::{KeyRing, SecretKey};
/// use rejoin_core::{Generation, Principal, SessionId, Timestamp, token};
///
/// let keys = KeyRing::new(SecretKey::new(b"thirty-two bytes or more of secret")?, vec![]);
/// let grant = token::Grant {
///     session_id: SessionId::from_random([1; 16]),
///     principal: Principal::anonymous(),
///     generation: Generation::new(1),
///     lifetime: Duration::from_secs(15 * 60),
/// };
/// let now = Timestamp::from_millis(1_794_744_000_000);
/// let issued = token::issue(&keys, &grant, [2; 16], now);
///
/// let claims = token::verify(&keys, issued.token.as_str(), &grant.session_id, now)?;
/// assert_eq!(claims.generation, Generation::new(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn issue(keys: &KeyRing, grant: &Grant, jti: [u8; 16], now: Timestamp) -> Issued {
    issue_with(keys.newest(), grant, jti, now)
}

/// What the token in `text` claims, if it may lead back to this session, or the first check it fails.
pub fn verify(
    keys: &KeyRing,
    text: &str,
    session_id: &SessionId,
    now: Timestamp,
) -> Result<Claims, TokenRefusal> {
    let signed = read_signed(keys, text).ok_or(TokenRefusal::Invalid)?;
    if signed.iat.is_some_and(|iat| iat > (now + limits::TOKEN_SKEW).as_secs()) {
        return Err(TokenRefusal::Invalid);
    }
    let expired = now.as_secs() >= signed.exp;
    let claims = signed.for_session(session_id);
    if expired {
        return Err(TokenRefusal::Expired { otherwise_good: claims.is_ok() });
    }
    claims
}

/// The token that follows `used`, which said `claims` and was used at `used_at`.
///
/// Nothing in it is random: whoever has the key and the used token can make it again, so that a client
/// whose reply was lost can be given the same one although the store has only its hash.
pub fn successor(
    keys: &KeyRing,
    used: &str,
    claims: &Claims,
    generation: Generation,
    used_at: Timestamp,
    lifetime: Duration,
) -> Issued {
    let grant = claims.renewed(generation, lifetime);
    successor_with(keys.newest(), used, &grant, used_at)
}

/// The successor of `used` whose hash is `expected`, made again with whichever key made it first: the
/// keys may have rotated in between. Nothing if that key was retired, or if the arguments are not
/// those it was made from.
pub fn successor_again(
    keys: &KeyRing,
    used: &str,
    claims: &Claims,
    generation: Generation,
    used_at: Timestamp,
    lifetime: Duration,
    expected: &TokenHash,
) -> Option<Issued> {
    let grant = claims.renewed(generation, lifetime);
    keys.iter()
        .map(|key| successor_with(key, used, &grant, used_at))
        .find(|issued| issued.hash == *expected)
}

impl Claims {
    fn renewed(&self, generation: Generation, lifetime: Duration) -> Grant {
        Grant {
            session_id: self.session_id.clone(),
            principal: self.principal.clone(),
            generation,
            lifetime,
        }
    }
}

/// The header as we write it. The order of fields, here and in the claims, is the order on the wire;
/// a successor made again after an upgrade must be the same text.
#[derive(Serialize)]
struct WrittenHeader<'a> {
    alg: &'a str,
    typ: &'a str,
    kid: &'a str,
}

#[derive(Serialize)]
struct WrittenClaims<'a> {
    session_id: &'a SessionId,
    iat: u64,
    exp: u64,
    jti: &'a str,
    purpose: &'a str,
    sub: &'a Principal,
    aud: &'a str,
    generation: Generation,
}

#[derive(Deserialize)]
struct ReadHeader {
    alg: String,
    kid: Option<String>,
    /// Extensions that the issuer demands to be understood (RFC 7515, 4.1.11). We know none.
    crit: Option<IgnoredAny>,
}

/// The claims of a token with a good signature. All but `exp` may be missing, so that a token which
/// was signed with our secret for something else is refused for what it is: expired, or of another
/// purpose.
#[derive(Deserialize)]
struct SignedClaims {
    session_id: Option<String>,
    iat: Option<u64>,
    exp: u64,
    jti: Option<String>,
    purpose: Option<String>,
    sub: Option<String>,
    aud: Option<String>,
    generation: Option<Generation>,
}

impl SignedClaims {
    /// The checks after expiry, in their order.
    fn for_session(self, session_id: &SessionId) -> Result<Claims, TokenRefusal> {
        if self.session_id.as_deref() != Some(session_id.as_str()) {
            return Err(TokenRefusal::SessionIdMismatch);
        }
        if self.purpose.as_deref() != Some(PURPOSE) || self.aud.as_deref() != Some(AUDIENCE) {
            return Err(TokenRefusal::InvalidPurpose);
        }
        self.complete(session_id).ok_or(TokenRefusal::Invalid)
    }

    /// The claims, if none is missing that every token of ours has.
    fn complete(self, session_id: &SessionId) -> Option<Claims> {
        self.jti?;
        Some(Claims {
            session_id: session_id.clone(),
            principal: Principal::new(&self.sub?),
            generation: self.generation?,
            issued_at: at_second(self.iat?),
            expires_at: at_second(self.exp),
        })
    }
}

/// The claims in `text`, if a key of the ring signed them.
fn read_signed(keys: &KeyRing, text: &str) -> Option<SignedClaims> {
    if text.len() > limits::MAX_TOKEN_CHARS {
        return None;
    }
    let (signed, signature) = text.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: ReadHeader = decode(header)?;
    if header.alg != ALGORITHM || header.crit.is_some() {
        return None;
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let signed_it = |key: &&SecretKey| key.has_signed(signed, &signature);
    match header.kid {
        Some(kid) => keys.by_id(&kid).filter(signed_it)?,
        None => keys.iter().find(signed_it)?, // by another library, which knows the secret but no kid
    };
    decode(claims)
}

fn issue_with(key: &SecretKey, grant: &Grant, jti: [u8; 16], now: Timestamp) -> Issued {
    let iat = now.as_secs();
    let exp = iat.saturating_add(seconds_rounded_up(grant.lifetime));
    let header = WrittenHeader { alg: ALGORITHM, typ: "JWT", kid: key.id() };
    let claims = WrittenClaims {
        session_id: &grant.session_id,
        iat,
        exp,
        jti: &url_safe(&jti),
        purpose: PURPOSE,
        sub: &grant.principal,
        aud: AUDIENCE,
        generation: grant.generation,
    };
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let text = format!("{signed}.{}", url_safe(&key.sign(&signed)));
    Issued { hash: TokenHash::of(&text), token: Token(text.into()), expires_at: at_second(exp) }
}

fn successor_with(key: &SecretKey, used: &str, grant: &Grant, used_at: Timestamp) -> Issued {
    let mut jti = [0; 16];
    jti.copy_from_slice(&key.successor_of(used)[..16]);
    issue_with(key, grant, jti, used_at)
}

fn encode<T: Serialize>(part: &T) -> String {
    url_safe(&serde_json::to_vec(part).expect("texts and numbers are always JSON"))
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn seconds_rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn at_second(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    const OLD: &[u8] = b"an old secret of thirty-two byte";
    const NEW: &[u8] = b"a new secret, longer than thirty-two bytes";
    const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_999);
    const LIFETIME: Duration = Duration::from_secs(900);
    const INVALID: TokenRefusal = TokenRefusal::Invalid;

    fn ring(secrets: &[&[u8]]) -> KeyRing {
        let mut keys = secrets.iter().map(|secret| SecretKey::new(secret).unwrap());
        KeyRing::new(keys.next().unwrap(), keys.collect())
    }

    fn session() -> SessionId {
        SessionId::parse("sess_AAECAwQFBgcICQoLDA0ODw").unwrap()
    }

    fn grant() -> Grant {
        Grant {
            session_id: session(),
            principal: Principal::new("zoë"),
            generation: Generation::new(3),
            lifetime: LIFETIME,
        }
    }

    fn issued() -> Issued {
        issue(&ring(&[OLD]), &grant(), [7; 16], NOW)
    }

    fn judge(text: &str) -> Result<Claims, TokenRefusal> {
        verify(&ring(&[OLD]), text, &session(), NOW)
    }

    /// The claims that a token of ours has at `NOW`.
    fn good_claims() -> Value {
        json!({
            "session_id": session(), "iat": NOW.as_secs(), "exp": NOW.as_secs() + 900, "jti": "x",
            "purpose": PURPOSE, "sub": "zoë", "aud": AUDIENCE, "generation": 3,
        })
    }

    fn claims_with(name: &str, value: Value) -> Value {
        let mut claims = good_claims();
        claims[name] = value;
        claims
    }

    fn claims_without(name: &str) -> Value {
        let mut claims = good_claims();
        claims.as_object_mut().unwrap().remove(name).unwrap();
        claims
    }

    /// A token as anybody who knows the secret could make it.
    fn forge(header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = SecretKey::new(OLD).unwrap().sign(&signed);
        format!("{signed}.{}", url_safe(&signature))
    }

    fn forge_claims(claims: &Value) -> String {
        forge(&json!({"alg": "HS256", "typ": "JWT"}), claims)
    }

    #[test]
    fn a_token_says_what_was_granted_in_whole_seconds() {
        let issued = issued();
        let claims = judge(issued.token.as_str()).unwrap();
        assert_eq!(claims.session_id, session());
        assert_eq!(claims.principal, Principal::new("zoë"));
        assert_eq!(claims.generation, Generation::new(3));
        assert_eq!(claims.issued_at, Timestamp::from_millis(1_794_744_000_000));
        assert_eq!(claims.expires_at, Timestamp::from_millis(1_794_744_900_000));
        assert_eq!(claims.expires_at, issued.expires_at);
        assert_eq!(issued.hash, TokenHash::of(issued.token.as_str()));
    }

    /// The expected text was made by Python's `hmac`, `json` and `base64`.
    #[test]
    fn a_token_is_the_text_that_another_implementation_makes() {
        assert_eq!(
            issued().token.as_str(),
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6Ikx5UDVpTzg4WTc1NiJ9.eyJzZXNzaW9uX2lkIjoic2Vzc19BQUVDQXdRRkJnY0lDUW9MREEwT0R3IiwiaWF0IjoxNzk0NzQ0MDAwLCJleHAiOjE3OTQ3NDQ5MDAsImp0aSI6IkJ3Y0hCd2NIQndjSEJ3Y0hCd2NIQnciLCJwdXJwb3NlIjoic2Vzc2lvbl9yZWNvbm5lY3QiLCJzdWIiOiJ6b8OrIiwiYXVkIjoicmVqb2luIiwiZ2VuZXJhdGlvbiI6M30.5p8RF-4m2ZHGR5IIO3sLlfHjUJcyyISqO_qozGfiiHY"
        );
    }

    #[test]
    fn a_token_of_another_library_without_kid_is_tried_with_every_key() {
        let foreign = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJnZW5lcmF0aW9uIjozLCJhdWQiOiJyZWpvaW4iLCJzdWIiOiJ6b8OrIiwicHVycG9zZSI6InNlc3Npb25fcmVjb25uZWN0IiwianRpIjoiQndjSEJ3Y0hCd2NIQndjSEJ3Y0hCdyIsImV4cCI6MTc5NDc0NDkwMCwiaWF0IjoxNzk0NzQ0MDAwLCJzZXNzaW9uX2lkIjoic2Vzc19BQUVDQXdRRkJnY0lDUW9MREEwT0R3In0.4p_SnFtonCO5zWQmoJk1el9yh67tluZVsyin63hL8JI";
        assert!(verify(&ring(&[NEW, OLD]), foreign, &session(), NOW).is_ok());
        assert_eq!(verify(&ring(&[NEW]), foreign, &session(), NOW), Err(INVALID));
    }

    #[test]
    fn a_token_changed_in_any_bit_is_refused() {
        let good = issued().token.as_str().to_owned();
        for index in 0..good.len() {
            for bit in 0..7 {
                let mut changed = good.clone().into_bytes();
                changed[index] ^= 1 << bit;
                let changed = String::from_utf8(changed).unwrap();
                assert_eq!(judge(&changed), Err(INVALID), "byte {index}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_token_cut_short_or_continued_is_refused() {
        let good = issued().token.as_str().to_owned();
        for length in 0..good.len() {
            assert_eq!(judge(&good[..length]), Err(INVALID));
        }
        for more in ["=", ".", "A", " ", ".e30"] {
            assert_eq!(judge(&format!("{good}{more}")), Err(INVALID));
            assert_eq!(judge(&format!("{more}{good}")), Err(INVALID));
        }
    }

    #[test]
    fn any_algorithm_but_hs256_is_refused_even_with_a_good_signature() {
        for alg in ["none", "None", "HS512", "HS384", "hs256", "RS256", ""] {
            let text = forge(&json!({"alg": alg, "typ": "JWT"}), &good_claims());
            assert_eq!(judge(&text), Err(INVALID), "{alg}");
        }
        assert_eq!(judge(&forge(&json!({"typ": "JWT"}), &good_claims())), Err(INVALID));
        let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&good_claims()));
        assert_eq!(judge(&unsigned), Err(INVALID));
    }

    #[test]
    fn an_unknown_kid_or_critical_extension_is_refused_even_with_a_good_signature() {
        for (name, value) in [("kid", json!("other")), ("kid", json!(1)), ("crit", json!(["b64"]))]
        {
            let mut header = json!({"alg": "HS256"});
            header[name] = value;
            assert_eq!(judge(&forge(&header, &good_claims())), Err(INVALID), "{name}");
        }
    }

    #[test]
    fn further_claims_are_ignored_and_wrong_types_are_invalid() {
        assert!(judge(&forge_claims(&good_claims())).is_ok());
        assert!(judge(&forge_claims(&claims_with("scope", json!({"any": [1]})))).is_ok());
        for name in ["iat", "exp", "generation"] {
            for value in [json!("1"), json!(-1), json!(1.5), json!([])] {
                assert_eq!(judge(&forge_claims(&claims_with(name, value))), Err(INVALID), "{name}");
            }
        }
        for name in ["session_id", "jti", "purpose", "sub", "aud"] {
            for value in [json!(1), json!(["rejoin"]), json!({})] {
                assert_eq!(judge(&forge_claims(&claims_with(name, value))), Err(INVALID), "{name}");
            }
        }
        assert_eq!(judge(&forge_claims(&json!("a text"))), Err(INVALID));
    }

    #[test]
    fn a_missing_claim_is_refused_by_the_check_that_needs_it() {
        let without = |name: &str| judge(&forge_claims(&claims_without(name))).unwrap_err();
        assert_eq!(without("session_id"), TokenRefusal::SessionIdMismatch);
        assert_eq!(without("purpose"), TokenRefusal::InvalidPurpose);
        assert_eq!(without("aud"), TokenRefusal::InvalidPurpose);
        for name in ["iat", "exp", "jti", "sub", "generation"] {
            assert_eq!(without(name), INVALID, "{name}");
        }
    }

    #[test]
    fn a_token_expires_at_its_second_without_leeway() {
        let text = issued().token.as_str().to_owned();
        let at = |millis| verify(&ring(&[OLD]), &text, &session(), Timestamp::from_millis(millis));
        assert!(at(1_794_744_899_999).is_ok());
        let expired = TokenRefusal::Expired { otherwise_good: true };
        assert_eq!(at(1_794_744_900_000), Err(expired));
        assert_eq!(at(u64::MAX), Err(expired));
    }

    #[test]
    fn a_token_from_the_future_is_accepted_up_to_the_skew() {
        let from_ahead =
            |seconds| judge(&forge_claims(&claims_with("iat", json!(NOW.as_secs() + seconds))));
        assert!(from_ahead(60).is_ok());
        assert_eq!(from_ahead(61), Err(INVALID));
    }

    #[test]
    fn the_first_check_that_fails_names_the_refusal() {
        // Each step mends the first fault of the one before.
        let mut claims = json!({
            "session_id": "sess_other", "iat": NOW.as_secs(), "exp": 1, "jti": "x",
            "purpose": "login", "sub": "zoë", "aud": AUDIENCE, "generation": 3,
        });
        let forged = forge_claims(&claims);
        assert_eq!(verify(&ring(&[NEW]), &forged, &session(), NOW), Err(INVALID));
        assert_eq!(judge(&forged), Err(TokenRefusal::Expired { otherwise_good: false }));
        claims["exp"] = json!(NOW.as_secs() + 1);
        assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::SessionIdMismatch));
        claims["session_id"] = json!(session());
        assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::InvalidPurpose));
        claims["purpose"] = json!(PURPOSE);
        assert!(judge(&forge_claims(&claims)).is_ok());
        claims["aud"] = json!("elsewhere");
        assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::InvalidPurpose));
        claims["exp"] = json!(1);
        let late_and_foreign = TokenRefusal::Expired { otherwise_good: false };
        assert_eq!(judge(&forge_claims(&claims)), Err(late_and_foreign));
    }

    #[test]
    fn an_expired_token_is_otherwise_good_only_for_its_own_session() {
        let late = NOW + LIFETIME;
        let text = issued().token.as_str().to_owned();
        let of = |id: &SessionId| verify(&ring(&[OLD]), &text, id, late).unwrap_err();
        let other = SessionId::from_random([9; 16]);
        assert_eq!(of(&session()), TokenRefusal::Expired { otherwise_good: true });
        assert_eq!(of(&other), TokenRefusal::Expired { otherwise_good: false });
    }

    #[test]
    fn the_newest_key_signs_and_older_ones_verify_until_retired() {
        let text = issued().token.as_str().to_owned();
        let of = |keys: &KeyRing| verify(keys, &text, &session(), NOW);
        assert!(of(&ring(&[NEW, OLD])).is_ok());
        assert_eq!(of(&ring(&[NEW])), Err(INVALID));
        let newer = issue(&ring(&[NEW, OLD]), &grant(), [7; 16], NOW);
        assert_eq!(judge(newer.token.as_str()), Err(INVALID));
        assert!(verify(&ring(&[NEW]), newer.token.as_str(), &session(), NOW).is_ok());
    }

    #[test]
    fn tokens_over_the_limit_are_not_even_read() {
        let padded = |length| claims_with("padding", json!("x".repeat(length)));
        let longest = (0..2000).map(|length| forge_claims(&padded(length)));
        for text in longest {
            assert_eq!(judge(&text).is_ok(), text.len() <= limits::MAX_TOKEN_CHARS);
        }
    }

    #[test]
    fn a_token_of_the_longest_session_id_and_an_openid_subject_can_be_read() {
        let grant = Grant {
            session_id: SessionId::parse(&"s".repeat(limits::MAX_ID_CHARS)).unwrap(),
            principal: Principal::new(&"p".repeat(255)),
            generation: Generation::new(u64::MAX),
            lifetime: Duration::MAX,
        };
        let issued = issue(&ring(&[OLD]), &grant, [7; 16], NOW);
        assert!(verify(&ring(&[OLD]), issued.token.as_str(), &grant.session_id, NOW).is_ok());
    }

    #[test]
    fn a_fraction_of_a_second_of_lifetime_counts_as_a_whole_one() {
        let short = Grant { lifetime: Duration::from_millis(1), ..grant() };
        let issued = issue(&ring(&[OLD]), &short, [7; 16], NOW);
        assert_eq!(issued.expires_at, Timestamp::from_millis(1_794_744_001_000));
    }

    #[test]
    fn the_successor_of_a_token_is_always_the_same_and_differs_from_every_other() {
        let keys = ring(&[OLD]);
        let used = issued().token;
        let claims = judge(used.as_str()).unwrap();
        let next = |used: &str| successor(&keys, used, &claims, Generation::new(4), NOW, LIFETIME);
        let first = next(used.as_str());
        assert_eq!(first, next(used.as_str()));
        assert_ne!(first.token, used);
        assert_ne!(first.token, next(first.token.as_str()).token);
        let claims = verify(&keys, first.token.as_str(), &session(), NOW).unwrap();
        assert_eq!(
            (claims.generation, claims.issued_at.as_secs()),
            (Generation::new(4), NOW.as_secs())
        );
    }

    /// The expected hash was made by Python. A successor that is given again after an upgrade must be
    /// the text whose hash was stored before it.
    #[test]
    fn a_successor_is_the_text_that_another_implementation_derives() {
        let used = issued().token;
        let claims = judge(used.as_str()).unwrap();
        let next =
            successor(&ring(&[OLD]), used.as_str(), &claims, Generation::new(4), NOW, LIFETIME);
        let hex: String = next.hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "97b41d358d3b2f295b2aa75ac4d14077971c28266c6184f21e697c7fa14877f5");
    }

    #[test]
    fn a_successor_is_found_again_after_the_keys_rotated() {
        let used = issued().token;
        let claims = judge(used.as_str()).unwrap();
        let generation = Generation::new(4);
        let made = successor(&ring(&[OLD]), used.as_str(), &claims, generation, NOW, LIFETIME);
        let again = |keys: &KeyRing, used: &str, generation| {
            successor_again(keys, used, &claims, generation, NOW, LIFETIME, &made.hash)
        };
        assert_eq!(again(&ring(&[OLD]), used.as_str(), generation), Some(made.clone()));
        assert_eq!(again(&ring(&[NEW, OLD]), used.as_str(), generation), Some(made.clone()));
        assert_eq!(again(&ring(&[NEW]), used.as_str(), generation), None);
        assert_eq!(again(&ring(&[OLD]), "another token", generation), None);
        assert_eq!(again(&ring(&[OLD]), used.as_str(), Generation::new(5)), None);
    }

    #[test]
    fn debug_hides_the_token() {
        let issued = issued();
        let shown = format!("{issued:?}");
        assert!(shown.contains("Token(…)"));
        for part in issued.token.as_str().split('.') {
            assert!(!shown.contains(part));
        }
    }
}
