//! How much is read from a connection. Callers on `/ws` that have not said who they are get an allowance;
//! without it a stranger could have frames of megabytes kept for it. Frames of those that have count against what may be
//! received of a caller at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::UNCOUNTED_FRAME_BYTES;
use super::receiving::RequestPlace;

/// How many more bytes are read from a connection. Whoever serves the router makes one for each connection,
/// gives it to each of its requests as an extension, and heeds it when it reads from the socket. Where there
/// is none, callers on `/ws` are held to `max_frame_bytes` alone.
#[derive(Clone, Debug)]
pub struct Intake(Arc<IntakeState>);

#[derive(Debug)]
struct IntakeState {
    left: AtomicU64,
    /// Whether a caller has more under way than it may.
    full: AtomicBool,
    /// What has come since a frame was handed on.
    frame: Mutex<Option<FrameComing>>,
}

/// The frame that is coming.
#[derive(Debug)]
struct FrameComing {
    place: RequestPlace,
    /// The first bytes of each frame, which are not counted: most frames have no more.
    uncounted: usize,
}

const UNBOUNDED: u64 = u64::MAX;

impl Default for Intake {
    /// Without a bound.
    fn default() -> Self {
        let (left, full) = (AtomicU64::new(UNBOUNDED), AtomicBool::new(false));
        Self(Arc::new(IntakeState { left, full, frame: Mutex::default() }))
    }
}

/// What `/ws` tells these failures by: errors of a socket reach it as text.
const TOO_LONG: &str = "the message is too long for a caller that has not authenticated";
pub(super) const TOO_MUCH: &str = "too much is being received of this caller at once";

impl Intake {
    /// Why nothing more is to be read, in the words of the error that whoever reads from the socket fails with; nothing
    /// if there is no reason.
    pub fn refusal(&self) -> Option<&'static str> {
        if self.0.full.load(Ordering::Relaxed) {
            return Some(TOO_MUCH);
        }
        (self.0.left.load(Ordering::Relaxed) == 0).then_some(TOO_LONG)
    }

    /// So many bytes were read.
    pub fn took(&self, bytes: usize) {
        let left = self.0.left.load(Ordering::Relaxed);
        if left == UNBOUNDED {
            return self.count(bytes);
        }
        let bytes = u64::try_from(bytes).unwrap_or(UNBOUNDED);
        // It may have been opened meanwhile, and stays so.
        let left_after = left.saturating_sub(bytes);
        let (to, success, failure) = (left_after, Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.0.left.compare_exchange(left, to, success, failure);
    }

    fn count(&self, bytes: usize) {
        let mut frame = self.0.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(FrameComing { place, uncounted }) = &mut *frame else { return };
        let free = bytes.min(UNCOUNTED_FRAME_BYTES - *uncounted);
        *uncounted += free;
        if place.grow(bytes - free).is_err() {
            self.0.full.store(true, Ordering::Relaxed);
        }
    }

    /// From now on so many bytes are read.
    pub(super) fn narrow(&self, bytes: u64) {
        self.0.left.store(bytes, Ordering::Relaxed);
    }

    /// From now on frames count against what may be received of a caller, in this place.
    pub(super) fn open(&self, place: RequestPlace) {
        let mut frame = self.0.frame.lock().unwrap_or_else(PoisonError::into_inner);
        if frame.is_none() {
            *frame = Some(FrameComing { place, uncounted: 0 });
        }
        self.0.left.store(UNBOUNDED, Ordering::Relaxed);
    }

    /// A frame is whole: its place, until it was handed on.
    pub(super) fn hand_on(&self) -> Option<RequestPlace> {
        let mut frame = self.0.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let FrameComing { place, uncounted } = frame.as_mut()?;
        *uncounted = 0;
        Some(place.split())
    }

    /// A frame of so many bytes came that is none of a message: what has come of one is kept on.
    pub(super) fn drop_control(&self, bytes: usize) {
        let mut frame = self.0.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(FrameComing { place, uncounted }) = &mut *frame else { return };
        let counted = bytes.saturating_sub(*uncounted);
        *uncounted = uncounted.saturating_sub(bytes);
        place.shrink(counted);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::WebSettings;
    use super::super::receiving::{Receiving, Sender};
    use super::*;

    fn place() -> RequestPlace {
        let settings = WebSettings { receiving_of_caller: 0, ..WebSettings::default() };
        Arc::new(Receiving::new(&settings)).place(Sender::At(None))
    }

    /// What one caller may send at once under these settings.
    const BOUND: usize = 16 * 1024 * 1024;

    #[test]
    fn an_allowance_is_spent_until_it_is_opened() {
        let intake = Intake::default();
        intake.took(usize::MAX);
        assert_eq!(intake.refusal(), None, "there is no bound");
        intake.narrow(10);
        intake.took(9);
        assert_eq!(intake.refusal(), None);
        intake.took(9);
        assert_eq!(intake.refusal(), Some(TOO_LONG));
        intake.open(place());
        intake.took(1_000);
        assert_eq!(intake.refusal(), None);
    }

    #[test]
    fn what_has_come_of_a_frame_counts_until_it_was_handed_on() {
        let intake = Intake::default();
        intake.open(place());
        intake.took(BOUND);
        drop(intake.hand_on());
        intake.took(BOUND);
        let waits = intake.hand_on();
        assert_eq!(intake.refusal(), None);
        intake.took(UNCOUNTED_FRAME_BYTES + 1 + UNCOUNTED_FRAME_BYTES);
        assert_eq!(intake.refusal(), Some(TOO_MUCH));
        drop(waits);
    }

    #[test]
    fn pings_between_the_parts_of_a_message_give_nothing_back_but_themselves() {
        let intake = Intake::default();
        intake.open(place());
        for _ in 0..BOUND / 1_000 {
            intake.took(1_000 + 131);
            intake.drop_control(131);
        }
        assert_eq!(intake.refusal(), None);
        for _ in 0..200 {
            intake.took(131);
            intake.drop_control(131);
        }
        assert_eq!(intake.refusal(), None, "pings alone never add up");
        for _ in 0..40 {
            intake.took(1_000 + 131);
            intake.drop_control(131);
        }
        assert_eq!(intake.refusal(), Some(TOO_MUCH));
    }
}
