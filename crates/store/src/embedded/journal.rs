//! The body of a journal row: all that one commit did to the logs of all sessions.
//!
//! ```text
//! row    = header record*
//! header = magic:4 crc:4 number:8 first:8 next_key:8 sessions:8 sessions_sum:4 records:4 length:8
//! record = length:4 crc:4 head body          numbers are little-endian
//! ```
//!
//! `head` is a [`Head`] in postcard's encoding, `body` the bytes of an event, entry or snapshot. Each
//! checksum covers what follows it in the header or the record, so that a single record can be read
//! from the middle of a row and still be known to be whole. The header says which rows and how many
//! sessions there are after the commit: that is how anything missing is noticed.

use rejoin_core::log::{EntryKind, MessageDigest, Remembered, RememberedKey, Weight};
use rejoin_core::record::SnapshotMark;
use rejoin_core::{InSeq, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use super::piece::Place;

const MAGIC: &[u8; 4] = b"RJN1";
const HEADER: usize = 56;
const RECORD_HEADER: usize = 8;
/// More than any [`Head`] takes.
const MAX_HEAD: usize = 160;

/// Names the logs of a session inside the database, and its row. A restore of a session that goes on hands
/// it to the next session of the line together with the logs, so that nothing need be copied. Never used
/// again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(super) struct Key(pub(super) u64);

/// How far the numbering of a session has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    pub(super) head: Seq,
    pub(super) acked: Seq,
    pub(super) oldest: Seq,
    pub(super) in_head: InSeq,
    pub(super) covered: InSeq,
}

impl Numbers {
    /// Goes on to what `other` says, where that is further. Numbers never go back.
    pub(super) fn grow_to(&mut self, other: &Self) {
        self.head = self.head.max(other.head);
        self.acked = self.acked.max(other.acked);
        self.oldest = self.oldest.max(other.oldest);
        self.in_head = self.in_head.max(other.in_head);
        self.covered = self.covered.max(other.covered);
    }
}

/// What a record is. The order of the variants and fields is the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Head {
    /// An event of the out log.
    Event { key: Key, seq: Seq, at: Timestamp, weight: Weight },
    /// An entry of the in log.
    Entry {
        key: Key,
        in_seq: InSeq,
        at: Timestamp,
        kind: EntryKind,
        size: u32,
        digest: Option<MessageDigest>,
        /// When the session expires from then on. None in a copy: it changes nothing any more.
        deadline: Option<Timestamp>,
    },
    /// A message id that outlives its entry.
    Seen { key: Key, message: Remembered },
    /// The agent's state.
    Snapshot { key: Key, mark: SnapshotMark, size: u32 },
    /// The agent's state covers the entries up to here.
    Cover { key: Key, in_seq: InSeq },
    /// What a session's row would say if it were written now, as far as it changes often.
    Note { key: Key, numbers: Numbers, last_activity: Timestamp, expires_at: Timestamp },
    /// An idempotency key and what was published under it.
    SeenKey { key: Key, publication: RememberedKey },
    /// This entry is dealt with although one before it is not. Never older than the entry's own record, and
    /// rows go from the oldest on, so it is there as long as the entry is.
    Answered { key: Key, in_seq: InSeq },
    /// The id of this entry is forgotten: the session ended while the entry waited, and the message may be
    /// entered again. Like `Answered`, it is there as long as the entry's record is.
    Forgotten { key: Key, in_seq: InSeq },
    /// Of the out log everything before `first` is gone, and before `oldest` everything but results. Only
    /// logs with results say so: of others, the bounds tell what is gone. Rows go from the oldest on, so it
    /// is there as long as what it says is gone.
    Trimmed { key: Key, first: Seq, oldest: Seq },
}

impl Head {
    /// The session whose logs it is about.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Event { key, .. }
            | Self::Entry { key, .. }
            | Self::Seen { key, .. }
            | Self::Snapshot { key, .. }
            | Self::Cover { key, .. }
            | Self::Note { key, .. }
            | Self::SeenKey { key, .. }
            | Self::Answered { key, .. }
            | Self::Forgotten { key, .. }
            | Self::Trimmed { key, .. } => *key,
        }
    }
}

/// What a row says about the database as of its commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// The running number of the commit: the id of its row.
    pub(super) number: u64,
    /// The oldest row that there is after it.
    pub(super) first: u64,
    /// No session has this key or a higher one.
    pub(super) next_key: u64,
    /// How many rows the table of sessions has.
    pub(super) sessions: u64,
    /// Their checksums, combined by exclusive or: a row in an older version is noticed too.
    pub(super) sessions_sum: u32,
}

/// The records of a commit in the making. One buffer serves all commits.
#[derive(Debug)]
pub(super) struct Records {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for Records {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER], count: 0 }
    }
}

impl Records {
    /// Adds a record and says where it is.
    pub(super) fn put(&mut self, head: &Head, body: &[u8]) -> Place {
        let start = self.bytes.len();
        let mut buffer = [0; MAX_HEAD];
        let head: &[u8] = postcard::to_slice(head, &mut buffer).expect("no head is that long");
        let (length, content) = (head.len() + body.len(), start + RECORD_HEADER);
        self.bytes.reserve(RECORD_HEADER + length);
        self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]); // for the checksum, which is quicker over all of it
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(body);
        let crc = crc32fast::hash(&self.bytes[content..]);
        self.bytes[content - 4..content].copy_from_slice(&crc.to_le_bytes());
        self.count += 1;
        self.place_from(start)
    }

    /// Adds a record as it stands in another row.
    pub(super) fn put_again(&mut self, record: &[u8]) -> Place {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.count += 1;
        self.place_from(start)
    }

    /// Bytes of all records so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - HEADER
    }

    /// Finishes the body of the row.
    pub(super) fn seal(&mut self, header: &Header) -> &[u8] {
        let mut front = [0; HEADER];
        front[..4].copy_from_slice(MAGIC);
        front[8..16].copy_from_slice(&header.number.to_le_bytes());
        front[16..24].copy_from_slice(&header.first.to_le_bytes());
        front[24..32].copy_from_slice(&header.next_key.to_le_bytes());
        front[32..40].copy_from_slice(&header.sessions.to_le_bytes());
        front[40..44].copy_from_slice(&header.sessions_sum.to_le_bytes());
        front[44..48].copy_from_slice(&self.count.to_le_bytes());
        front[48..56].copy_from_slice(&(self.len() as u64).to_le_bytes());
        let crc = crc32fast::hash(&front[8..]);
        front[4..8].copy_from_slice(&crc.to_le_bytes());
        self.bytes[..HEADER].copy_from_slice(&front);
        &self.bytes
    }

    /// The finished body of the row.
    pub(super) fn sealed(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins the next commit.
    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.count = 0;
        // One huge snapshot must not be held on to for ever.
        self.bytes.shrink_to(2 * super::limits::BATCH_BYTES);
    }

    fn place_from(&self, start: usize) -> Place {
        Place { start: start as u32, len: (self.bytes.len() - start) as u32 }
    }
}

/// Why the body of a row is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RowFault {
    #[error("its header is damaged")]
    Header,
    #[error("it is row {0}")]
    OtherRow(u64),
    #[error("a record in it is damaged")]
    Record,
    #[error("it has not the length it says")]
    Length,
}

/// A row's header and its records, once all of it is known to be whole: a commit counts as a whole or
/// not at all.
pub(super) fn read_row(number: u64, body: &[u8]) -> Result<(Header, RecordsIn<'_>), RowFault> {
    let (header, records) = begin_row(number, body)?;
    let mut unchecked = records.clone();
    while unchecked.next_checked()?.is_some() {}
    Ok((header, records))
}

/// The same before anything but the header is known to be whole: what
/// [`RecordsIn::next_checked`] gives counts once it has given nothing more.
pub(super) fn begin_row(number: u64, body: &[u8]) -> Result<(Header, RecordsIn<'_>), RowFault> {
    let (front, records) = body.split_first_chunk::<HEADER>().ok_or(RowFault::Header)?;
    let u32_at = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().unwrap_or_default());
    let u64_at = |at: usize| u64::from_le_bytes(front[at..at + 8].try_into().unwrap_or_default());
    if front[..4] != *MAGIC || u32_at(4) != crc32fast::hash(&front[8..]) {
        return Err(RowFault::Header);
    }
    let header = Header {
        number: u64_at(8),
        first: u64_at(16),
        next_key: u64_at(24),
        sessions: u64_at(32),
        sessions_sum: u32_at(40),
    };
    if header.number != number {
        return Err(RowFault::OtherRow(header.number));
    }
    if u64_at(48) != records.len() as u64 {
        return Err(RowFault::Length);
    }
    Ok((header, RecordsIn { row: body, at: HEADER, left: u32_at(44) }))
}

/// A record as it stands in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Where in the row.
    pub(super) place: Place,
    /// All of it.
    pub(super) bytes: &'a [u8],
    /// What it is.
    pub(super) head: Head,
    /// The body that comes with it.
    pub(super) body: &'a [u8],
}

/// The records of a row.
#[derive(Clone, Debug)]
pub(super) struct RecordsIn<'a> {
    row: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> RecordsIn<'a> {
    /// How many there are still.
    pub(super) fn left(&self) -> usize {
        self.left as usize
    }

    /// The next record of a row that is known to be whole, or nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record<'a>>, RowFault> {
        self.take_next(|_| Ok(()))
    }

    /// The next record if it is whole, or nothing at the end.
    pub(super) fn next_checked(&mut self) -> Result<Option<Record<'a>>, RowFault> {
        self.take_next(check_record)
    }

    fn take_next(
        &mut self,
        check: impl FnOnce(&[u8]) -> Result<(), RowFault>,
    ) -> Result<Option<Record<'a>>, RowFault> {
        let rest = &self.row[self.at..];
        if self.left == 0 {
            return if rest.is_empty() { Ok(None) } else { Err(RowFault::Length) };
        }
        let length = record_length(rest)?;
        let bytes = &rest[..length];
        check(bytes)?;
        let (head, body) = parse_record(bytes)?;
        let place = Place { start: self.at as u32, len: length as u32 };
        self.at += length;
        self.left -= 1;
        Ok(Some(Record { place, bytes, head, body }))
    }
}

/// One record alone, as it stands in its row, if it is whole.
pub(super) fn read_record(record: &[u8]) -> Result<(Head, &[u8]), RowFault> {
    check_record(record)?;
    parse_record(record)
}

fn check_record(record: &[u8]) -> Result<(), RowFault> {
    let (front, content) = record.split_first_chunk::<RECORD_HEADER>().ok_or(RowFault::Record)?;
    let [.., a, b, c, d] = *front;
    let whole = u32::from_le_bytes([a, b, c, d]) == crc32fast::hash(content);
    if whole { Ok(()) } else { Err(RowFault::Record) }
}

fn parse_record(record: &[u8]) -> Result<(Head, &[u8]), RowFault> {
    let content = record.get(RECORD_HEADER..).ok_or(RowFault::Record)?;
    postcard::take_from_bytes(content).map_err(|_| RowFault::Record)
}

fn record_length(bytes: &[u8]) -> Result<usize, RowFault> {
    let length = bytes.first_chunk::<4>().ok_or(RowFault::Record)?;
    let length = u32::from_le_bytes(*length) as usize + RECORD_HEADER;
    if length <= bytes.len() { Ok(length) } else { Err(RowFault::Record) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Head = Head::Event {
        key: Key(7),
        seq: Seq::new(300),
        at: Timestamp::from_millis(1_794_744_000_123),
        weight: Weight::passing(5),
    };

    fn header() -> Header {
        Header { number: 9, first: 4, next_key: 8, sessions: 2, sessions_sum: 0xdead_beef }
    }

    fn every_head() -> Vec<Head> {
        let (key, at) = (Key(u64::MAX), Timestamp::from_millis(u64::MAX));
        let digest = MessageDigest::of("id", b"content");
        let (seq, in_seq) = (Seq::new(u64::MAX), InSeq::new(u64::MAX));
        let numbers =
            Numbers { head: seq, acked: seq, oldest: seq, in_head: in_seq, covered: in_seq };
        vec![
            Head::Event { key, seq, at, weight: Weight::result(usize::MAX) },
            Head::Entry {
                key,
                in_seq,
                at,
                kind: EntryKind::Cancel,
                size: u32::MAX,
                digest: Some(digest),
                deadline: Some(at),
            },
            Head::Seen { key, message: Remembered { digest, in_seq, at } },
            Head::Snapshot { key, mark: SnapshotMark { seq, in_seq, at }, size: u32::MAX },
            Head::Cover { key, in_seq },
            Head::Note { key, numbers, last_activity: at, expires_at: at },
            Head::SeenKey { key, publication: RememberedKey { digest, first: seq, last: seq, at } },
            Head::Answered { key, in_seq },
            Head::Forgotten { key, in_seq },
            Head::Trimmed { key, first: seq, oldest: seq },
        ]
    }

    /// The format on disk: a change that breaks this needs another `schema::VERSION`.
    #[test]
    fn a_row_has_these_bytes() {
        let mut records = Records::default();
        records.put(&EVENT, b"hello");
        let golden = "524a4e31\
             7c557c09\
             0900000000000000\
             0400000000000000\
             0800000000000000\
             0200000000000000\
             efbeadde\
             01000000\
             1800000000000000\
             10000000\
             cf5fe329\
             00 07 ac02 fbbcd0f89d34 05\
             68656c6c6f";
        let golden: String = golden.split_whitespace().collect();
        let hex: String =
            records.seal(&header()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
    }

    #[test]
    fn every_record_reads_back_from_its_row_and_from_its_place_alone() {
        let mut records = Records::default();
        let heads = every_head();
        let places: Vec<Place> = heads.iter().map(|head| records.put(head, b"body")).collect();
        let row = records.seal(&header()).to_vec();
        let (read, mut inside) = read_row(9, &row).unwrap();
        assert_eq!(read, header());
        for (head, place) in heads.iter().zip(&places) {
            let bytes = &row[place.start as usize..][..place.len as usize];
            let record = Record { place: *place, bytes, head: *head, body: b"body" };
            assert_eq!(inside.next().unwrap(), Some(record));
            assert_eq!(read_record(bytes).unwrap(), (*head, &b"body"[..]));
        }
        assert_eq!(inside.next().unwrap(), None);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut records = Records::default();
        for head in every_head() {
            records.put(&head, b"body");
        }
        let row = records.seal(&header()).to_vec();
        let whole = |row: &[u8]| -> Result<(), RowFault> {
            let (_, mut inside) = read_row(9, row)?;
            while inside.next()?.is_some() {}
            Ok(())
        };
        assert_eq!(whole(&row), Ok(()));
        for bit in 0..row.len() * 8 {
            let mut flipped = row.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(whole(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..row.len() {
            assert!(whole(&row[..length]).is_err(), "cut to {length}");
        }
    }
}
