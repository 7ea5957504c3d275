//! How much is read from a connection. Callers on `/ws` that have not said who they are get an allowance;
//! without it a stranger could have frames of megabytes kept for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many more bytes are read from a connection. Whoever serves the router makes one for each connection,
/// gives it to each of its requests as an extension, and heeds it when it reads from the socket. Where there
/// is none, strangers are held to `max_frame_bytes` alone.
#[derive(Clone, Debug)]
pub struct Intake(Arc<AtomicU64>);

const UNBOUNDED: u64 = u64::MAX;

impl Default for Intake {
    /// Without a bound.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNBOUNDED)))
    }
}

impl Intake {
    /// Whether nothing more is to be read.
    pub fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// So many bytes were read.
    pub fn took(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        if left != UNBOUNDED {
            let bytes = u64::try_from(bytes).unwrap_or(UNBOUNDED);
            // It may have been opened meanwhile, and stays so.
            let left_after = left.saturating_sub(bytes);
            let _ = self.0.compare_exchange(left, left_after, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// From now on so many bytes are read.
    pub(super) fn narrow(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// From now on there is no bound.
    pub(super) fn open(&self) {
        self.0.store(UNBOUNDED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_spent_until_it_is_opened() {
        let intake = Intake::default();
        intake.took(usize::MAX);
        assert!(!intake.is_spent(), "there is no bound");
        intake.narrow(10);
        intake.took(9);
        assert!(!intake.is_spent());
        intake.took(9);
        assert!(intake.is_spent());
        intake.open();
        intake.took(1_000);
        assert!(!intake.is_spent());
    }
}
