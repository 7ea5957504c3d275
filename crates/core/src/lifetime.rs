//! How long a session without a client is kept, as pure functions of its record and the policy.
//!
//! Two rules hold under every policy: a session with an attachment is never cleaned up, and one with
//! work under way only by [`OnDisconnect::Immediate`] or when `session_ttl` has passed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::position::Generation;
use crate::record::Record;
use crate::time::Timestamp;

/// What happens to a session when its connection is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It ends at once.
    Immediate,
    /// It is kept for `disconnect_ttl`.
    #[default]
    Ttl,
    /// It is kept as long as work is under way, and for `disconnect_ttl` after that if one is set.
    WhilePending,
}

/// The settings that decide how long a session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The policy.
    pub on_disconnect: OnDisconnect,
    /// How long a parked session without work is kept.
    pub disconnect_ttl: Option<Duration>,
    /// How long any session is kept after the last detach, message or renewal.
    pub session_ttl: Duration,
}

/// What is to be done about a session without a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// End it now.
    End,
    /// Keep it until then, and look again.
    KeepUntil(Timestamp),
}

impl Default for Lifetime {
    fn default() -> Self {
        Self {
            on_disconnect: OnDisconnect::default(),
            disconnect_ttl: None,
            session_ttl: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Lifetime {
    /// Keeps every session without a client for so long.
    pub const fn keeping(session_ttl: Duration) -> Self {
        Self { on_disconnect: OnDisconnect::Ttl, disconnect_ttl: None, session_ttl }
    }

    /// How long a parked session without work is kept.
    pub fn idle_ttl(&self) -> Duration {
        let ttl = match self.on_disconnect {
            OnDisconnect::Immediate => Duration::ZERO,
            OnDisconnect::Ttl => self.disconnect_ttl.unwrap_or(self.session_ttl),
            OnDisconnect::WhilePending => self.disconnect_ttl.unwrap_or(Duration::ZERO),
        };
        ttl.min(self.session_ttl)
    }

    /// The last client has just gone.
    pub fn on_detach(&self, record: &Record, now: Timestamp) -> Verdict {
        match self.on_disconnect {
            OnDisconnect::Immediate => Verdict::End,
            OnDisconnect::Ttl | OnDisconnect::WhilePending if record.has_work() => {
                Verdict::KeepUntil(now + self.session_ttl)
            }
            OnDisconnect::Ttl | OnDisconnect::WhilePending => self.keep_for_idle(now, now),
        }
    }

    /// The agent has just finished all its work: nothing is done about a session with a client, nor about one that
    /// nobody has attached to yet, which waits as long as it was made to.
    pub fn after_work(&self, record: &Record, now: Timestamp) -> Option<Verdict> {
        let was_left = record.attached.is_none() && record.generation > Generation::ZERO;
        let is_done = record.is_active() && !record.has_work();
        (was_left && is_done).then(|| self.on_work_done(record, now))
    }

    /// The agent has just finished all its work, and no client is there. One that comes for the
    /// answer has as long as if it had gone now.
    pub fn on_work_done(&self, record: &Record, now: Timestamp) -> Verdict {
        self.keep_for_idle(record.last_activity, now)
    }

    /// The deadline of a parked session has come.
    pub fn on_due(&self, record: &Record, now: Timestamp) -> Verdict {
        let limit = record.last_activity + self.session_ttl;
        match self.on_disconnect {
            OnDisconnect::Immediate => Verdict::End,
            OnDisconnect::Ttl | OnDisconnect::WhilePending if record.has_work() && now < limit => {
                Verdict::KeepUntil(limit)
            }
            OnDisconnect::Ttl | OnDisconnect::WhilePending => Verdict::End,
        }
    }

    fn keep_for_idle(&self, last_activity: Timestamp, now: Timestamp) -> Verdict {
        let until = (now + self.idle_ttl()).min(last_activity + self.session_ttl);
        if until <= now { Verdict::End } else { Verdict::KeepUntil(until) }
    }
}
