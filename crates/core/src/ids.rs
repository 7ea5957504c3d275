//! Names of things. All of them are parsed once at the edge and can't be wrong afterwards; those that
//! must not be guessed are made from random bytes that the caller brings.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits;
use crate::position::Seq;

/// Bytes as text that needs no escaping in a URL, a header or JSON.
pub(crate) fn url_safe(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Why a text is not the id it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Longer than any id of ours, or empty.
    #[error("an id has 1 to {} characters, this one has {length}", limits::MAX_ID_CHARS)]
    Length {
        /// Its length in bytes.
        length: usize,
    },
    /// A character outside `A-Za-z0-9._~-`.
    #[error("an id consists of A-Z a-z 0-9 . _ ~ and -")]
    Character,
}

fn check(text: &str) -> Result<(), IdError> {
    let longest = match text.starts_with(Reserved::Name.prefix()) {
        true => limits::MAX_ID_CHARS + limits::NAMED_ID_EXTRA_CHARS,
        false => limits::MAX_ID_CHARS,
    };
    if text.is_empty() || text.len() > longest {
        return Err(IdError::Length { length: text.len() });
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'-');
    if text.bytes().all(plain) { Ok(()) } else { Err(IdError::Character) }
}

/// Reads shared text without a copy in between, which serde's own way makes: a store that is opened
/// reads several of them for every session.
struct SharedText;

impl Visitor<'_> for SharedText {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }
}

/// Declares an id that is shared text, cheap to clone.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(SharedText).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A session's id: `sess_` and 128 random bits. Knowing it proves nothing; the principal is
    /// checked on every operation.
    SessionId
}
text_id! {
    /// Names a message of an application, so that sending it again is harmless.
    MessageId
}
text_id! {
    /// Who is calling: the owner of sessions. `anonymous` when authentication is off.
    Principal
}
text_id! {
    /// One run of a server process: the holder of leases.
    ProcessId
}

/// Ids that the server derives. No client can choose one that begins like them, so none of them can be
/// taken by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// A session whose client chose a name for it: the name follows, after a digest of the principal.
    Name,
    /// The upstream session of an MCP client without sessions.
    Stateless,
    /// A session of another store, of which only a trace is kept here.
    StandIn,
}

impl Reserved {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Name => "name~",
            Self::Stateless => "stateless~",
            Self::StandIn => "origin~",
        }
    }
}

/// How ids of new sessions begin.
const SERVER_MADE: &str = "sess_";

/// How derived ids of stateless clients began in earlier versions. Their sessions may still be there.
const STATELESS_BEFORE: &str = "stateless-";

impl SessionId {
    /// A new id from 128 random bits.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(format!("{SERVER_MADE}{}", url_safe(&bytes)).into())
    }

    /// An id as a client gave it, or why it can be none.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check(text)?;
        Ok(Self(text.into()))
    }

    pub(crate) fn reserved(kind: Reserved, rest: &str) -> Self {
        Self(format!("{}{rest}", kind.prefix()).into())
    }

    /// The id of the session that a client of `principal` calls `self`: one of its own for each principal.
    /// Where authentication is off there is one principal, so the name itself will do, unless it looks like
    /// an id that a server made.
    #[must_use]
    pub fn inside(&self, principal: &Principal) -> Self {
        if *principal == Principal::anonymous() && !self.0.starts_with(SERVER_MADE) {
            return self.clone();
        }
        self.always_inside(principal)
    }

    /// The same without the exception.
    #[must_use]
    pub fn always_inside(&self, principal: &Principal) -> Self {
        let tag = url_safe(&Sha256::digest(principal.as_str())[..limits::PRINCIPAL_TAG_BYTES]);
        Self::reserved(Reserved::Name, &format!("{tag}~{self}"))
    }

    /// Whether only a server makes ids that begin like this one.
    pub fn is_reserved(&self) -> bool {
        let derived = [Reserved::Name, Reserved::Stateless, Reserved::StandIn];
        let mut prefixes = derived.map(Reserved::prefix).into_iter().chain([STATELESS_BEFORE]);
        prefixes.any(|prefix| self.0.starts_with(prefix))
    }

    /// What the session's own client calls it: the name that the client chose, or the id.
    pub fn client_name(&self) -> &str {
        let named = self.0.strip_prefix(Reserved::Name.prefix());
        named.and_then(|rest| rest.split_once('~')).map_or(&self.0, |(_, name)| name)
    }
}

impl MessageId {
    /// An id as an application gave it, or why it can be none. Any characters will do: it stands in
    /// JSON only.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.is_empty() || text.len() > limits::MAX_ID_CHARS {
            return Err(IdError::Length { length: text.len() });
        }
        Ok(Self(text.into()))
    }
}

impl Principal {
    /// The principal of everybody when authentication is off.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// A principal as authentication established it. Its text is nobody's input: any will do.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }
}

impl ProcessId {
    /// A new process's id from random bytes.
    pub fn from_random(bytes: [u8; 9]) -> Self {
        Self(format!("proc_{}", url_safe(&bytes)).into())
    }
}

/// Names an out log and its in log inside a store, also when a restore hands them to another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogId(u64);

impl LogId {
    /// A new log's id from random bytes.
    pub const fn from_random(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// The id with this number, as a store kept it.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Names one event for ever. It is made of the log and the seq, so that it need not be stored and
/// stays the same when a restore gives the log to another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The log the event was appended to.
    pub log: LogId,
    /// Its number there.
    pub seq: Seq,
}

impl EventId {
    /// The id in `text`, if it is one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let (log, seq) = text.strip_prefix("evt_")?.split_once('-')?;
        let log = LogId(u64::from_str_radix(log, 16).ok()?);
        let seq = Seq::new(seq.parse().ok()?);
        let id = Self { log, seq };
        (id.to_string() == text).then_some(id) // one spelling per id
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "evt_{:016x}-{}", self.log.0, self.seq)
    }
}

/// Names an attachment inside one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_carry_128_bits_and_parse_back() {
        let id = SessionId::from_random([0xff; 16]);
        assert_eq!(id.as_str(), "sess______________________w");
        assert_eq!(SessionId::parse(id.as_str()), Ok(id));
    }

    #[test]
    fn ids_with_other_characters_or_lengths_are_refused() {
        assert_eq!(SessionId::parse(""), Err(IdError::Length { length: 0 }));
        assert_eq!(SessionId::parse(&"x".repeat(129)), Err(IdError::Length { length: 129 }));
        assert_eq!(SessionId::parse("a/b"), Err(IdError::Character));
        assert_eq!(SessionId::parse("a\0"), Err(IdError::Character));
    }

    #[test]
    fn a_name_is_another_session_for_each_principal_and_can_be_read_back() {
        let name = SessionId::parse("a-name~with~tildes.and_22").unwrap();
        let principals = ["ann", "ann~", "an", "Ann", "änn", "ann:x", "", "anonymous"];
        let ids = principals.map(|principal| name.always_inside(&Principal::new(principal)));
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id) && id.is_reserved());
            assert_eq!(id.client_name(), name.as_str());
            assert_eq!(SessionId::parse(id.as_str()).as_ref(), Ok(id));
        }
        let longest = SessionId::parse(&"x".repeat(limits::MAX_ID_CHARS)).unwrap();
        let longest = longest.inside(&Principal::new("ann"));
        assert_eq!(SessionId::parse(longest.as_str()), Ok(longest));
    }

    #[test]
    fn without_authentication_a_name_is_the_id_unless_it_looks_like_one_of_ours() {
        let inside = |text| SessionId::parse(text).unwrap().inside(&Principal::anonymous());
        assert_eq!(inside("a-chosen-name-of-a-client").as_str(), "a-chosen-name-of-a-client");
        assert!(inside("sess_AAECAwQFBgcICQoLDA0ODw").is_reserved());
        assert!(!SessionId::from_random([1; 16]).is_reserved());
    }

    #[test]
    fn event_ids_have_one_spelling() {
        let id = EventId { log: LogId::new(0xabc), seq: Seq::new(42) };
        assert_eq!(id.to_string(), "evt_0000000000000abc-42");
        assert_eq!(EventId::parse(&id.to_string()), Some(id));
        assert_eq!(EventId::parse("evt_abc-42"), None);
        assert_eq!(EventId::parse("evt_0000000000000abc-042"), None);
        assert_eq!(EventId::parse("evt_999"), None);
    }
}
