//! Every bound of the protocol, in one place. What can be set by people is a default here and a
//! setting in the binary; what can't is a constant.

use std::time::Duration;

/// The longest id that is read: client-provided session ids, message ids, event ids.
pub const MAX_ID_CHARS: usize = 128;

/// How much of a principal's digest stands in the id of a session that its client named: enough that
/// nobody finds two principals of the same digest.
pub const PRINCIPAL_TAG_BYTES: usize = 20;

/// How much longer such an id is than the name: `name~`, the digest in base64 and another `~`.
pub const NAMED_ID_EXTRA_CHARS: usize = 5 + (PRINCIPAL_TAG_BYTES * 4).div_ceil(3) + 1;

/// The longest name of an event.
pub const MAX_EVENT_NAME_CHARS: usize = 128;

/// How deep JSON from outside may be nested: what is deeper, other programs can't read.
pub const MAX_JSON_DEPTH: usize = 128;

/// Message ids remembered per session, so that a resent message is entered once.
pub const MESSAGE_IDS: usize = 10_000;

/// How long a message id is remembered at least, as long as it is among the last [`MESSAGE_IDS`].
pub const MESSAGE_ID_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Entries of the in log that may wait for the agent; beyond that the sender is told to wait.
pub const WAITING_ENTRIES: usize = 1_000;

/// Covered entries of the in log that are kept for readers.
pub const KEPT_ENTRIES: usize = 1_000;

/// Reconnect tokens of one session that are good at the same time; the oldest goes.
pub const LIVE_TOKENS: usize = 4;

/// Used tokens that are remembered per session until they expire, to know a thief by.
pub const USED_TOKENS: usize = 1_024;

/// A token used again within this time, its successor still unused, is taken for a lost reply.
pub const TOKEN_GRACE: Duration = Duration::from_secs(10);

/// Clocks of issuer and verifier may differ by this much.
pub const TOKEN_SKEW: Duration = Duration::from_secs(60);

/// The shortest secret that is accepted for signing.
pub const MIN_SECRET_BYTES: usize = 32;

/// The longest token that is read at all.
pub const MAX_TOKEN_CHARS: usize = 2_048;

/// A state, opened, may be this many times as large as its seal may be; beyond that it is refused
/// before it fills the memory.
pub const STATE_EXPANSION: usize = 16;

/// A client's `last_seq` is believed up to this far past the snapshot it restores from.
pub const BELIEVED_PAST_SNAPSHOT: u64 = 1_000_000;

/// Events read for an attachment at once: enough to fill a socket, little enough to be fair.
pub const PAGE_EVENTS: usize = 256;

/// Bytes read for an attachment at once; a larger single event goes alone.
pub const PAGE_BYTES: usize = 256 * 1024;

/// Entries of the in log handed to the agent at once.
pub const HAND_ENTRIES: usize = 64;

/// Publications of one session that may wait for the one before them to be stored; beyond that the
/// producer waits. As many as a page has events: what is stored together is read and sent together.
pub const WAITING_PUBLICATIONS: usize = PAGE_EVENTS;

/// Bytes of them beyond which no more are taken.
pub const WAITING_PUBLICATION_BYTES: usize = 1024 * 1024;

/// Entries that an agent which has said nothing yet may take before the oldest counts as dealt with.
pub const TAKEN_IN_SILENCE: u64 = 16;

/// Publications that waited are stored together up to about this many bytes.
pub const APPEND_BYTES: usize = 256 * 1024;

/// Nothing that was there before a restart expires this soon after it.
pub const GRACE_AFTER_START: Duration = Duration::from_secs(60);

/// How long a session is kept whose end follows right away: until it does the session has neither ended
/// nor expired, and if a crash comes in between, this is when it will have.
pub const END_FOLLOWS: Duration = GRACE_AFTER_START;

/// A client's ack goes out after this many events …
pub const ACK_EVENTS: u64 = 100;

/// … or this long after the first event that no ack covers.
pub const ACK_DELAY: Duration = Duration::from_secs(1);

/// Upper bounds of a client's waits between attempts, until a server says otherwise.
pub const BACKOFF: [Duration; 7] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Steps of a server's own list that are looked at.
pub const BACKOFF_STEPS: usize = 64;

/// Refusals in a row after which a client stops, until a server says otherwise.
pub const MAX_ATTEMPTS: u32 = 5;

/// How long what a client asked on a socket that it gave up may still reach the server: about as long as
/// a server waits for a silent connection.
pub const LATE_ASK: Duration = Duration::from_secs(60);

/// How often heartbeats come, until a server says otherwise.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Nothing received for this many heartbeat intervals: the connection is dead.
pub const SILENT_INTERVALS: u32 = 2;

/// What a session counts against the bounds of its principal and of the server, besides what is in it: its
/// record and its places in a store's tables.
pub const SESSION_BYTES: usize = 1_024;

/// What an event counts there, besides its bytes.
pub const EVENT_OVERHEAD: usize = 64;

/// What an entry that waits counts, besides its bytes.
pub const ENTRY_OVERHEAD: usize = 128;

/// What a remembered message id or idempotency key counts.
pub const REMEMBERED_ID_BYTES: usize = 128;

/// What a token counts, live or used.
pub const TOKEN_BYTES: usize = 128;

/// Sessions of one principal that have ended and are remembered; the oldest are forgotten before their time.
pub const ENDED_SESSIONS: usize = 10_000;

/// Principals of which a store remembers up to when their seals are refused, because sessions that they had closed were
/// forgotten. Beyond that the oldest of these notes counts for all others.
pub const FORGOTTEN_SEALS: usize = 10_000;

/// Bounds of one session's out log. The defaults hold a turn of 20,000 small deltas with room to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Events kept.
    pub events: usize,
    /// Bytes kept; a single event over this is kept alone.
    pub bytes: usize,
    /// How long an event is kept after it was acked or a state covers it.
    pub retention: Duration,
    /// How long an event of an MCP session is kept. Nobody acks there.
    pub result_retention: Duration,
}

impl Default for LogBounds {
    fn default() -> Self {
        let hour = Duration::from_secs(60 * 60);
        Self { events: 50_000, bytes: 8 * 1024 * 1024, retention: hour, result_retention: hour }
    }
}
