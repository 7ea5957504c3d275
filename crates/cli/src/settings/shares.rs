//! What one principal may have of what the server has. Without authentication all callers are one
//! principal, which may have all of it.

use super::Config;

/// What part of `max_children` one principal may have, unless it is set.
const OF_CHILDREN: usize = 2;

/// What part of `max_buffered_bytes` one principal may have, unless it is set: several that are at their
/// bound leave something for others.
const OF_BYTES: u64 = 4;

/// What part of what a caller, or all of them, may have kept may be on its way at once: while it is handled there are
/// several copies of it.
const OF_RECEIVING: u64 = 4;

impl Config {
    /// Bytes of requests of one caller that may be on their way at once. Without authentication a caller is an address,
    /// and each is treated like one principal of several.
    pub(crate) fn receiving_of_caller(&self) -> u64 {
        let share = self.settings.max_buffered_bytes / OF_BYTES;
        self.max_bytes_per_principal().min(share) / OF_RECEIVING
    }

    /// The same of all callers.
    pub(crate) fn receiving(&self) -> u64 {
        self.settings.max_buffered_bytes / OF_RECEIVING
    }

    /// What the sessions of one principal may make the server hold.
    pub(crate) fn max_bytes_per_principal(&self) -> u64 {
        let all = self.settings.max_buffered_bytes;
        let share = if self.is_protected() { all / OF_BYTES } else { all };
        self.settings.max_bytes_per_principal.unwrap_or(share).min(all)
    }

    /// Children of one principal at the same time: half of all, so that others have some left.
    pub(crate) fn max_children_per_principal(&self) -> usize {
        let all = self.settings.max_children;
        let share = if self.is_protected() { all.div_ceil(OF_CHILDREN) } else { all };
        self.settings.max_children_per_principal.unwrap_or(share).min(all)
    }
}
