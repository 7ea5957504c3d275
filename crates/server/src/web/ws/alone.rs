//! What a session does for whoever is attached to it, for a connection that has none: heartbeats, and
//! the news that the server goes down.

use axum::extract::ws::Message;
use rejoin_core::codes::CloseCode;
use rejoin_core::{Seq, Timestamp};

use super::connection::{AfterStep, Connection};
use super::words;
use crate::service::Phase;

/// The heartbeat of a connection that has no session, whose session would have one.
pub(super) struct Idle {
    pub(super) opened: Timestamp,
    pub(super) heard: Timestamp,
    pub(super) next_beat: Timestamp,
    /// Whether nothing was heard since the last one.
    pub(super) unanswered: bool,
}

impl Connection {
    /// The server is on its way down. Whoever is attached hears of it from its session.
    pub(super) fn on_phase(&mut self) -> AfterStep {
        let phase = *self.phase.borrow_and_update();
        if self.closing.is_some() {
            return AfterStep::GoOn;
        }
        match (phase, &self.attached) {
            (Phase::Open, _) | (_, Some(_)) => AfterStep::GoOn,
            (Phase::Draining, None) => {
                self.tell_draining();
                AfterStep::GoOn
            }
            (Phase::Closing, None) => {
                self.tell_draining(); // there may have been nothing to wait for
                AfterStep::Close(CloseCode::Draining)
            }
        }
    }

    /// Tells a client without a session, once.
    pub(super) fn tell_draining(&mut self) {
        if !std::mem::replace(&mut self.told_draining, true) {
            let sentence = "The server is going down and will be back";
            self.out.text(words::notice(None, "draining", sentence, self.now()));
        }
    }

    pub(super) fn silent_at(&self) -> Timestamp {
        self.idle.heard + self.service().sessions().settings().session.heartbeat_timeout
    }

    /// The heartbeat of a connection without a session, and its end if it is not answered.
    pub(super) fn beat_alone(&mut self, now: Timestamp) -> AfterStep {
        let (lost, due) = (self.silent_at() <= now, self.idle.next_beat <= now);
        if (lost || due) && std::mem::take(&mut self.idle.unanswered) {
            self.service().sessions().counted().heartbeats_missed.inc();
        }
        if lost {
            return AfterStep::Close(CloseCode::HeartbeatLost);
        }
        if due {
            let interval = self.service().sessions().settings().session.heartbeat_interval;
            (self.idle.next_beat, self.idle.unanswered) = (now + interval, true);
            let uptime = self.service().uptime();
            self.out.text(words::heartbeat(None, Seq::ZERO, uptime, None, now));
            self.out.push(Message::Ping(Vec::new().into()));
        }
        AfterStep::GoOn
    }
}
