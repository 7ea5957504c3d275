//! Bounds of the web side, each with what would happen without it.

use std::time::Duration;

/// Bad credentials that one address may present at once; further ones are answered 429.
pub(super) const FAULTS_AT_ONCE: u32 = 40;

/// That budget gets one back in this time.
pub(super) const FAULTS_REFILL: Duration = Duration::from_secs(1);

/// Attempts of an address that is over budget are made this far apart.
pub(super) const TURNS: Duration = Duration::from_millis(100);

/// An attempt that would have to wait longer for its turn is rejected without being tried: those who wait
/// hold a connection each.
pub(super) const LONGEST_TURN: Duration = Duration::from_secs(2);

/// Addresses whose bad credentials are counted apart; all others share one budget.
pub(super) const FAULT_ADDRESSES: usize = 16_384;

/// Credentials that are remembered as good, by a hash of 8 bytes.
pub(super) const CREDENTIALS_REMEMBERED: usize = 65_536;

/// Bytes that are read on `/ws` from a caller that has not authenticated: enough for the longest credential.
pub(super) const STRANGER_BYTES: u64 = 32 * 1024;

/// A correction of the wall clock is noticed within this time by connections whose credential ends.
pub(super) const LOOK_AT_CLOCK: Duration = Duration::from_secs(15);

/// Bytes of requests that one caller may have on their way at once, unless the settings say otherwise, and always as many
/// as the largest request has. Without it each connection could have a body or a frame kept that never becomes whole …
pub(super) const RECEIVING_OF_CALLER: u64 = 64 * 1024 * 1024;

/// … those of all callers …
pub(super) const RECEIVING: u64 = 256 * 1024 * 1024;

/// … and always as many as so many of the largest requests have, so that one caller can't take all of it.
pub(super) const LARGEST_AT_ONCE: u64 = 4;

/// Bytes at the beginning of a frame that are not counted: most frames have no more, and need no lock.
pub(super) const UNCOUNTED_FRAME_BYTES: usize = 8 * 1024;

/// When a caller that sends too much at once should try again.
pub(super) const RETRY_RECEIVING: Duration = Duration::from_secs(1);
