//! The life of a socket: opened, silent, closed, waited for; and the end of the client.

use std::time::Duration;

use super::recover::Request;
use super::saved::Saved;
use super::{Client, GivenUp, Output, Status, StopReason};
use crate::codes::{CloseCode, CloseMeaning, ErrorCode};
use crate::limits;
use crate::time::Timestamp;

/// A frame was over the limit of the peer (RFC 6455).
const MESSAGE_TOO_BIG: u16 = 1009;

/// How far the client is from being attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No socket; the next attempt comes.
    Waiting {
        /// When.
        until: Timestamp,
        /// What the server asked for. Being woken does not cut this short.
        not_before: Timestamp,
    },
    /// A socket is being opened.
    Connecting,
    /// The socket is open; the answer to this is awaited.
    Asking(Request),
    /// The server has confirmed the session.
    Attached,
    /// The socket was given up; its end is awaited.
    Closing {
        /// What the server asked for before.
        retry_after: Option<Duration>,
        /// Whether the next attempt needs no wait.
        at_once: bool,
    },
    /// The end.
    Stopped,
}

impl Client {
    pub(super) fn connect(&mut self) {
        self.phase = Phase::Connecting;
        self.status(Status::Connecting);
        self.outputs.push_back(Output::Connect);
    }

    pub(super) fn on_opened(&mut self, now: Timestamp) {
        if self.phase == Phase::Connecting {
            self.heard_at = now;
            self.ask(now);
        }
    }

    pub(super) fn on_connect_failed(&mut self, random: u32, now: Timestamp) {
        if self.phase == Phase::Connecting {
            self.wait(None, random, now);
        }
    }

    pub(super) fn on_closed(
        &mut self,
        code: Option<u16>,
        retry_after: Option<Duration>,
        random: u32,
        now: Timestamp,
    ) {
        let (asked_before, at_once) = match self.phase {
            Phase::Waiting { .. } | Phase::Stopped => return,
            Phase::Connecting => (None, false),
            Phase::Closing { retry_after, at_once } => (retry_after, at_once),
            Phase::Asking(request) => {
                self.give_up_what_is_too_big(code, Some(request));
                (None, false)
            }
            Phase::Attached => {
                self.give_up_what_is_too_big(code, None);
                self.detached();
                (None, false)
            }
        };
        self.phase = Phase::Closing { retry_after, at_once }; // there is no socket left to close
        if code == Some(CloseCode::Superseded.code()) && self.is_late_ask(now) {
            return self.wait(retry_after, random, now);
        }
        if let Some(code) = code
            && CloseMeaning::of(code) == CloseMeaning::Stop
        {
            return self.stop_by_code(code);
        }
        match retry_after.max(asked_before) {
            None if at_once => self.connect(),
            retry_after => self.wait(retry_after, random, now),
        }
    }

    /// Without this, what does not fit into a frame would be sent, and end the connection, for ever.
    fn give_up_what_is_too_big(&mut self, code: Option<u16>, asked: Option<Request>) {
        if code != Some(MESSAGE_TOO_BIG) {
            return;
        }
        if asked == Some(Request::Restore) {
            self.snapshot = None;
            self.save();
        }
        if let Some(message_id) = self.outbox.largest_on_its_way() {
            self.give_up(message_id, GivenUp::Refused(ErrorCode::MessageTooLarge));
        }
    }

    /// Waits before the next attempt. A session that is to be ended and never came to be needs none.
    fn wait(&mut self, retry_after: Option<Duration>, random: u32, now: Timestamp) {
        if self.wants_end && self.session_id.is_none() {
            return self.stop(StopReason::Ended);
        }
        let (attempt, delay) = self.backoff.next(retry_after, random);
        let not_before = now + retry_after.unwrap_or_default();
        self.phase = Phase::Waiting { until: now + delay, not_before };
        self.status(Status::Reconnecting { attempt, delay });
    }

    /// The machine was asleep or offline. Waiting on is useless; and a server that was due to be heard
    /// of by now is not waited for a second time.
    pub(super) fn on_wake(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Waiting { not_before, until } => {
                self.phase = Phase::Waiting { until: until.min(not_before.max(now)), not_before };
            }
            Phase::Asking(_) | Phase::Attached => {
                let interval = self.heartbeat_interval;
                if !interval.is_zero() && now.since(self.heard_at) > interval {
                    self.abandon(None, true);
                }
            }
            Phase::Connecting | Phase::Closing { .. } | Phase::Stopped => {}
        }
    }

    /// The server lives, and that is all there is to it.
    pub(super) fn on_heard(&mut self, now: Timestamp) {
        if matches!(self.phase, Phase::Asking(_) | Phase::Attached) {
            self.heard_at = now;
        }
    }

    /// When a server that says nothing counts as gone.
    pub(super) fn silence_ends(&self) -> Option<Timestamp> {
        let patience = self.heartbeat_interval.saturating_mul(limits::SILENT_INTERVALS);
        (!patience.is_zero()).then(|| self.heard_at + patience)
    }

    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        self.silence_ends().is_some_and(|end| end <= now)
    }

    /// Gives this socket up; another is tried when it is closed.
    pub(super) fn abandon(&mut self, retry_after: Option<Duration>, at_once: bool) {
        if self.phase == Phase::Attached {
            self.detached();
        }
        self.phase = Phase::Closing { retry_after, at_once };
        self.outputs.push_back(Output::Close);
    }

    fn detached(&mut self) {
        self.outbox.disconnected();
        self.save();
        self.status(Status::ConnectionLost);
    }

    /// Another connection has the session: somebody else's, or an earlier one of ours.
    pub(super) fn on_superseded(&mut self, now: Timestamp) {
        if self.is_late_ask(now) {
            self.abandon(None, false);
        } else {
            self.stop(StopReason::Superseded);
        }
    }

    /// Whether we may have been superseded by ourselves: what was asked on a socket that we gave up can
    /// reach the server after what was asked on the next. Nobody reads that connection, so stopping
    /// would leave the session to nobody. Told once: if it is another client after all, that one stays.
    fn is_late_ask(&mut self, now: Timestamp) -> bool {
        self.late_ask_until.take().is_some_and(|until| now <= until)
    }

    fn stop_by_code(&mut self, code: u16) {
        let reason = if code == CloseCode::Superseded.code() {
            StopReason::Superseded
        } else if code == CloseCode::SessionEnded.code() {
            StopReason::Ended
        } else {
            StopReason::Closed { code }
        };
        // The socket is closed already.
        self.phase =
            Phase::Waiting { until: Timestamp::default(), not_before: Timestamp::default() };
        self.stop(reason);
    }

    /// The end. Messages that were not answered for are told; what was saved stays, unless the session
    /// was ended.
    pub(super) fn stop(&mut self, reason: StopReason) {
        self.give_up_all();
        if reason == StopReason::Ended {
            self.forget();
        } else {
            self.save();
        }
        if matches!(self.phase, Phase::Asking(_) | Phase::Attached) {
            self.outputs.push_back(Output::Close);
        }
        self.phase = Phase::Stopped;
        self.status(Status::Stopped { reason });
    }

    fn forget(&mut self) {
        self.session_id = None;
        self.token = None;
        self.snapshot = None;
        self.saved = Saved::default();
        self.outputs.push_back(Output::Save(Saved::default()));
    }
}
