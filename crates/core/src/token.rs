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

/// What a token was made from, for whoever has to give the same token again and must not store it. Without the key
/// nobody can make the token from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecipe {
    key: Box<str>,
    jti: [u8; 16],
    session_id: SessionId,
    principal: Principal,
    generation: Generation,
    issued_at: Timestamp,
    expires_at: Timestamp,
}

impl TokenRecipe {
    /// Of a new token for `grant`, which [`TokenRecipe::make`] makes.
    pub fn new(keys: &KeyRing, grant: &Grant, jti: [u8; 16], now: Timestamp) -> Self {
        let Grant { session_id, principal, generation, lifetime } = grant.clone();
        let issued_at = at_second(now.as_secs());
        let expires_at = at_second(now.as_secs().saturating_add(seconds_rounded_up(lifetime)));
        let key = keys.newest().id().into();
        Self { key, jti, session_id, principal, generation, issued_at, expires_at }
    }

    /// The session that the token leads back to.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// The token, the same each time; nothing if its key was retired.
    pub fn make(&self, keys: &KeyRing) -> Option<Issued> {
        let grant = Grant {
            session_id: self.session_id.clone(),
            principal: self.principal.clone(),
            generation: self.generation,
            lifetime: self.expires_at.since(self.issued_at),
        };
        Some(issue_with(keys.by_id(&self.key)?, &grant, self.jti, self.issued_at))
    }
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
    /// The claims, if the token is good where tokens are good for `lifetime`: it may have been made where that was longer.
    pub fn within(self, lifetime: Duration, now: Timestamp) -> Result<Self, TokenRefusal> {
        let expires_at = self.issued_at.as_secs().saturating_add(seconds_rounded_up(lifetime));
        match now.as_secs() >= expires_at {
            true => Err(TokenRefusal::Expired { otherwise_good: true }),
            false => Ok(self),
        }
    }

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
mod tests;
