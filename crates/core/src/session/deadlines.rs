//! Every timer of a live session, as data. The driver waits for the soonest; nothing here asks a
//! clock.
//!
//! | timer | what happens when it runs out |
//! |---|---|
//! | heartbeat | the client is asked whether it is there, and given a fresh token if it is due one |
//! | silence | a client that was not heard of, or let too many heartbeats pass, is cut off |
//! | inactivity | so is one that sends nothing but pongs, if that is wanted |
//! | export | a changed state that waited for the interval to end is sent |
//!
//! The deadline of a session without a client is not here: it is the store's, so that a hundred
//! thousand parked sessions need no task of their own.

use std::hash::{DefaultHasher, Hasher as _};

use super::attach::Attachment;
use super::{Interest, LeaveReason, Output, Session, Settings, Tell};
use crate::codes::CloseCode;
use crate::ids::AttachmentId;
use crate::time::Timestamp;

/// A client's signs of life.
#[derive(Debug)]
pub(super) struct Pulse {
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
#[derive(Debug, Default)]
pub(super) struct Export {
    last: Option<Timestamp>,
    waits: bool,
    /// The last state that went to the store, as a hash …
    known: Option<u64>,
    /// … and whether it was another than the one before, while it is on its way.
    changes: bool,
}

impl Export {
    /// The agent's state goes to the store.
    pub(super) fn note_state(&mut self, state: &[u8]) {
        let mut hash = DefaultHasher::new();
        hash.write(state);
        let hash = Some(hash.finish());
        self.changes = std::mem::replace(&mut self.known, hash) != hash;
    }

    /// The state that was on its way is stored; says whether it is a changed one.
    fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changes)
    }

    /// Nobody knows what the store has.
    pub(super) fn forget_state(&mut self) {
        (self.known, self.changes) = (None, false);
    }
}

impl Pulse {
    pub(super) fn starting(now: Timestamp, settings: &Settings) -> Self {
        Self {
            last_heard: now,
            last_active: now,
            next_heartbeat: now + settings.heartbeat_interval,
            unanswered: 0,
            token_given: now,
        }
    }

    /// A sign of life: a frame, a pong, or its transport has taken events, if only to receive.
    pub(super) fn beats(&mut self, now: Timestamp) {
        self.last_heard = now;
        self.unanswered = 0;
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

impl Session {
    /// When [`super::Input::Tick`] is next needed.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let pulses =
            self.attachments.values().filter(|client| client.interest == Interest::Events).map(
                |client| client.pulse.next_heartbeat.min(client.pulse.lost_at(&self.settings)),
            );
        pulses.chain(self.export_due()).min()
    }

    pub(super) fn on_heard(&mut self, attachment: AttachmentId, now: Timestamp) {
        if let Some(client) = self.attachments.get_mut(&attachment) {
            client.pulse.beats(now);
            client.pulse.last_active = now;
        }
    }

    pub(super) fn on_pong(&mut self, attachment: AttachmentId, now: Timestamp) {
        if let Some(client) = self.attachments.get_mut(&attachment) {
            client.pulse.beats(now);
        }
    }

    pub(super) fn on_tick(&mut self, now: Timestamp) {
        for attachment in self.attachments.keys().copied().collect::<Vec<_>>() {
            self.check_pulse(attachment, now);
        }
        if self.export_due().is_some_and(|at| at <= now) {
            self.export(now);
        }
    }

    fn check_pulse(&mut self, attachment: AttachmentId, now: Timestamp) {
        let settings = &self.settings;
        let Some(client) = self.attachments.get_mut(&attachment) else { return };
        if client.interest == Interest::Presence {
            return;
        }
        let pulse = &mut client.pulse;
        let due = pulse.next_heartbeat <= now;
        let missed_too_many = due && pulse.unanswered >= settings.max_heartbeat_misses;
        let lost = pulse.lost_at(settings) <= now || missed_too_many;
        if (due || lost) && pulse.unanswered > 0 {
            self.outputs.push_back(Output::HeartbeatMissed);
        }
        if lost {
            self.leave(attachment, LeaveReason::Closed(CloseCode::HeartbeatLost));
            return self.on_left(attachment, now);
        }
        if due {
            pulse.next_heartbeat = now + settings.heartbeat_interval;
            pulse.unanswered += 1;
            let renew_token = now.since(pulse.token_given) * 2 >= settings.token_ttl;
            if renew_token {
                pulse.token_given = now;
            }
            let head = self.record.head;
            self.tell(attachment, Tell::Heartbeat { head, renew_token });
        }
    }

    /// The agent has checkpointed a state.
    pub(super) fn state_stored(&mut self, now: Timestamp) {
        self.export.waits |= self.export.has_changed();
        if self.export_due().is_some_and(|at| at <= now) {
            self.export(now);
        }
    }

    fn export_due(&self) -> Option<Timestamp> {
        // To somebody who is not confirmed yet nothing would be sent, and the change be forgotten.
        let wanted = self.export.waits && self.readers().next().is_some();
        let soonest = |last| last + self.settings.auto_export_interval;
        wanted.then(|| self.export.last.map_or(Timestamp::default(), soonest))
    }

    fn export(&mut self, now: Timestamp) {
        self.export.waits = false;
        self.export.last = Some(now);
        for attachment in self.readers().collect::<Vec<_>>() {
            self.tell(attachment, Tell::Checkpoint);
        }
    }

    /// Those who are confirmed, and told everything.
    fn readers(&self) -> impl Iterator<Item = AttachmentId> {
        let reads = |client: &Attachment| {
            client.generation.is_some() && client.interest == Interest::Events
        };
        self.attachments.iter().filter(move |(_, client)| reads(client)).map(|(id, _)| *id)
    }
}
