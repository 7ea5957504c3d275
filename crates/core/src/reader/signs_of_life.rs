//! The timers of a reader, as data: nothing here asks a clock.
//!
//! | timer | what happens when it runs out |
//! |---|---|
//! | heartbeat | the client is asked whether it is there, and given a fresh token if it is due one |
//! | silence | a client that was not heard of, or let too many heartbeats pass, is cut off |
//! | inactivity | so is one that sends nothing but pongs, if that is wanted |
//! | export | a changed state that waited for the interval to end is sent |

use super::{LeaveReason, Reader, ReaderOutput, Tell};
use crate::codes::CloseCode;
use crate::record::{Record, SnapshotMark};
use crate::settings::Settings;
use crate::time::Timestamp;

/// When a client was last heard of and must be again.
#[derive(Debug)]
pub(super) struct SignsOfLife {
    /// The last frame, pong, or event that its transport took.
    last_heard: Timestamp,
    /// The last frame that was more than a pong.
    last_active: Timestamp,
    next_heartbeat: Timestamp,
    /// Heartbeats since it was last heard of.
    unanswered: u32,
    /// When it was last given a token.
    token_given: Timestamp,
}

/// When a changed state is sent by itself.
#[derive(Debug)]
pub(super) struct StateExport {
    /// The last state that was seen in the record.
    seen: Option<SnapshotMark>,
    last: Option<Timestamp>,
    /// When the one before that was sent.
    before: Option<Timestamp>,
    waits: bool,
}

impl StateExport {
    pub(super) fn of(record: &Record) -> Self {
        Self { seen: record.snapshot, last: None, before: None, waits: false }
    }

    /// A client that was last seen then is sent what was stored since.
    pub(super) fn is_due_since(&mut self, was_seen: Timestamp) {
        self.waits = self.seen.is_some_and(|mark| mark.at > was_seen);
    }

    /// The last one was not sent after all.
    pub(super) fn was_not_sent(&mut self) {
        self.last = self.before;
    }
}

impl SignsOfLife {
    pub(super) fn starting(now: Timestamp, settings: &Settings) -> Self {
        Self {
            last_heard: now,
            last_active: now,
            next_heartbeat: now + settings.heartbeat_interval,
            unanswered: 0,
            token_given: now,
        }
    }

    /// When it will be cut off if nothing is heard of it.
    fn lost_at(&self, settings: &Settings) -> Timestamp {
        let silent = self.last_heard + settings.heartbeat_timeout;
        match settings.inactivity_timeout {
            Some(timeout) => silent.min(self.last_active + timeout),
            None => silent,
        }
    }
}

impl Reader {
    /// When [`super::ReaderInput::Tick`] is next needed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.is_over {
            return None;
        }
        let signs = self.signs_of_life.as_ref();
        let beat = signs.map(|signs| signs.next_heartbeat.min(signs.lost_at(&self.settings)));
        beat.into_iter().chain(self.export_due()).min()
    }

    /// A sign of life: a frame, a pong, or its transport has taken events, if only to receive.
    pub(super) fn lives(&mut self, now: Timestamp) {
        if let Some(signs) = &mut self.signs_of_life {
            (signs.last_heard, signs.unanswered) = (now, 0);
        }
    }

    pub(super) fn on_heard(&mut self, now: Timestamp) {
        self.lives(now);
        if let Some(signs) = &mut self.signs_of_life {
            signs.last_active = now;
        }
    }

    pub(super) fn on_pong(&mut self, now: Timestamp) {
        self.lives(now);
    }

    pub(super) fn on_tick(&mut self, now: Timestamp) {
        self.check_signs_of_life(now);
        self.export_if_due(now);
    }

    fn check_signs_of_life(&mut self, now: Timestamp) {
        let (settings, Some(signs)) = (&self.settings, &mut self.signs_of_life) else { return };
        let due = signs.next_heartbeat <= now;
        let missed_too_many = due && signs.unanswered >= settings.max_heartbeat_misses;
        let lost = signs.lost_at(settings) <= now || missed_too_many;
        if (due || lost) && signs.unanswered > 0 {
            self.outputs.push_back(ReaderOutput::HeartbeatMissed);
        }
        if lost {
            return self.leave(LeaveReason::Closed(CloseCode::HeartbeatLost));
        }
        if due {
            signs.next_heartbeat = now + settings.heartbeat_interval;
            signs.unanswered += 1;
            let renew_token = now.since(signs.token_given) * 2 >= settings.token_ttl;
            if renew_token {
                signs.token_given = now;
            }
            self.tell(Tell::Heartbeat { head: self.record.head, renew_token });
        }
    }

    /// The record was looked at: the agent may have stored another state.
    pub(super) fn sees_state(&mut self) {
        if self.record.snapshot != self.export.seen {
            self.export.seen = self.record.snapshot;
            self.export.waits = self.record.snapshot.is_some();
        }
    }

    fn export_due(&self) -> Option<Timestamp> {
        let wanted = self.export.waits && self.signs_of_life.is_some();
        let soonest = |last| last + self.settings.auto_export_interval;
        wanted.then(|| self.export.last.map_or(Timestamp::default(), soonest))
    }

    /// Sends a changed state, if it is time; the events that were there with it go first.
    pub(super) fn export_if_due(&mut self, now: Timestamp) {
        if !self.is_over && self.export_due().is_some_and(|at| at <= now) {
            (self.export.waits, self.export.before) = (false, self.export.last.replace(now));
            self.tell(Tell::Checkpoint);
        }
    }
}
