//! What an event's id says: the session it is of, the stream, the place in the log, and the requests that
//! the stream still owes an answer. A client gives it back to go on, and nothing else need be remembered of
//! its streams.
//!
//! `<session>.<log>.<stream>.<seq>`, and for each request owed `.<entry>~<its id>`. An event that stands in no log
//! has the place of the one before it; what tells it from that is `.m<mark>` at the end, which says nothing else.

use std::collections::BTreeMap;
use std::fmt;

use rejoin_core::{InSeq, LogId, Seq, SessionId};
use sha2::{Digest as _, Sha256};

use crate::mcp::logged::StreamName;
use crate::mcp::message::RequestId;
use crate::random;

/// Requests that a stream owes an answer: the entry, and the id that the client gave it.
pub type Owed = BTreeMap<InSeq, RequestId>;

/// A place in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The session it is of.
    pub session: SessionTag,
    /// The log it stands in.
    pub log: LogId,
    /// The stream it belongs to.
    pub stream: StreamName,
    /// Its place in the log.
    pub seq: Seq,
    /// What the stream still owes an answer after it.
    pub owed: Owed,
}

/// What tells a session's ids from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTag(u32);

impl SessionTag {
    /// That of this session.
    pub fn of(session: &SessionId) -> Self {
        let digest = Sha256::digest(session.as_str());
        Self(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

/// What tells an event that stands in no log from all others at its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u64);

impl Mark {
    /// One that nobody else has. Without random bytes, which a server can't begin a stream without, all are the
    /// same.
    pub(super) fn new() -> Self {
        Self(u64::from_be_bytes(random::bytes().unwrap_or_default()))
    }

    fn is_one(part: &str) -> bool {
        let hex = part.strip_prefix(MARK);
        hex.is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok())
    }
}

/// What a mark begins with.
const MARK: char = 'm';

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{:x}", self.0)
    }
}

/// The longest id of a request that is repeated in an event's id. The answer to one with a longer id is found all
/// the same; only that it is gone can't be said.
const LONGEST_REPEATED: usize = 512;

/// Stands for an id that is longer.
const NOT_REPEATED: &str = "null";

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session: SessionTag(session), log, stream, seq, owed } = self;
        write!(f, "{session:08x}.{:x}.{stream}.{seq}", log.get())?;
        for (in_seq, id) in owed {
            write!(f, ".{in_seq}~")?;
            let repeated = Some(id.as_json()).filter(|json| json.len() <= LONGEST_REPEATED);
            for byte in repeated.unwrap_or(NOT_REPEATED).bytes() {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl EventId {
    /// What a client gave back; nothing if it can't be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let unmarked = text.rsplit_once('.').filter(|(_, last)| Mark::is_one(last));
        let mut parts = unmarked.map_or(text, |(place, _)| place).split('.');
        let session = u32::from_str_radix(parts.next()?, 16).ok()?;
        let log = LogId::new(u64::from_str_radix(parts.next()?, 16).ok()?);
        let stream = StreamName::parse(parts.next()?)?;
        let seq = Seq::new(parts.next()?.parse().ok()?);
        let owed = parts.map(owed).collect::<Option<Owed>>()?;
        Some(Self { session: SessionTag(session), log, stream, seq, owed })
    }
}

fn owed(part: &str) -> Option<(InSeq, RequestId)> {
    let (in_seq, hex) = part.split_once('~')?;
    let digit = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes = (0..hex.len()).step_by(2).map(digit).collect::<Option<Vec<_>>>()?;
    let json = String::from_utf8(bytes).ok()?;
    let id = if json == NOT_REPEATED { RequestId::text("") } else { RequestId::parse(&json)? };
    Some((InSeq::new(in_seq.parse().ok()?), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_be_read_again_and_has_no_character_that_needs_care() {
        let owed =
            [(InSeq::new(4), RequestId::text("a.~b")), (InSeq::new(5), RequestId::number(7))];
        let id = EventId {
            session: SessionTag::of(&SessionId::from_random([1; 16])),
            log: LogId::new(9),
            stream: StreamName::from_random([3; 8]),
            seq: Seq::new(12),
            owed: owed.into(),
        };
        let text = id.to_string();
        assert!(
            text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'~'),
            "{text}"
        );
        assert_eq!(EventId::parse(&text), Some(id));
    }

    #[test]
    fn a_request_with_a_long_id_has_a_place_too() {
        for length in [130, 5_000] {
            let id = EventId {
                session: SessionTag::of(&SessionId::from_random([1; 16])),
                log: LogId::new(9),
                stream: StreamName::from_random([3; 8]),
                seq: Seq::new(12),
                owed: [(InSeq::new(4), RequestId::text(&"x".repeat(length)))].into(),
            };
            let text = id.to_string();
            assert!(text.len() < 2_000);
            let read = EventId::parse(&text).unwrap();
            assert_eq!((read.seq, read.owed.len()), (id.seq, 1));
        }
    }

    #[test]
    fn an_id_with_a_mark_says_the_same_place() {
        let place = "00000000.9.g.1.4~37";
        let marks = [Mark::new(), Mark::new()].map(|mark| format!("{place}.{mark}"));
        assert_ne!(marks[0], marks[1]);
        for marked in marks {
            assert_eq!(EventId::parse(&marked), EventId::parse(place), "{marked}");
        }
    }

    #[test]
    fn what_is_none_of_ours_is_not_read() {
        for text in ["", "1", "a.b.c.d", "00000000.9.g.x", "00000000.9.g.1.4~zz", "0.9.g.1.mx"] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }
}
