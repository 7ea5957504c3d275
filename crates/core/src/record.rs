//! What is remembered of a session besides the contents of its logs: the view that readers get, that
//! the resume decision looks at, and that lists and dashboards show.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{LogId, Principal, ProcessId, SessionId};
use crate::position::{Epoch, Generation, InSeq, Seq, Term};
use crate::time::Timestamp;

/// What never changes in a session's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The session's id.
    pub id: SessionId,
    /// Who may do anything with it.
    pub principal: Principal,
    /// What speaks through it.
    pub kind: Kind,
    /// What the client said of itself when it made the session, as JSON; empty if nothing.
    pub client: Box<str>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What speaks through a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An agent and its client.
    Agent,
    /// An MCP server and its client.
    Mcp,
}

/// How a client is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A WebSocket on `/ws`.
    WebSocket,
    /// MCP Streamable HTTP.
    StreamableHttp,
    /// MCP HTTP+SSE.
    Sse,
    /// Inside the process that embeds the library.
    Local,
}

/// Whether a session goes on, and if not, how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Attached or parked.
    Active,
    /// Over, but remembered until no credential of its can live any more.
    Ended {
        /// How it ended.
        ending: Ending,
        /// When.
        at: Timestamp,
        /// When it may be forgotten.
        forget_at: Timestamp,
    },
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Its user or an administrator ended it.
    Closed,
    /// Its time ran out.
    Expired,
    /// A snapshot of it was restored, and this session goes on in its place.
    Restored {
        /// The session that goes on.
        to: SessionId,
    },
    /// Its connection was gone, and a policy or the hook ended it. Nobody wanted its work undone.
    CleanedUp,
}

impl Ending {
    /// Whether a snapshot of the session may be gone on from. If so its message ids stay known.
    pub fn is_restorable(&self) -> bool {
        match self {
            Self::Expired | Self::CleanedUp => true,
            Self::Closed | Self::Restored { .. } => false,
        }
    }

    /// The session in which it goes on, if it does.
    pub fn leads_to(&self) -> Option<&SessionId> {
        match self {
            Self::Restored { to } => Some(to),
            Self::Closed | Self::Expired | Self::CleanedUp => None,
        }
    }
}

/// The right to run a session's agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The process that has it.
    pub holder: ProcessId,
    /// Until when nobody else may take it.
    pub until: Timestamp,
}

/// Where a snapshot stands: the positions in both logs that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMark {
    /// The out position it stands for.
    pub seq: Seq,
    /// The entries it covers.
    pub in_seq: InSeq,
    /// When it was taken.
    pub at: Timestamp,
}

/// A session as a reader sees it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What never changes.
    pub about: Arc<About>,
    /// Whether it goes on.
    pub status: Status,
    /// Its logs. A restore hands them on to the next session of the line; loss begins others.
    pub log: LogId,
    /// The incarnation of the out log.
    pub epoch: Epoch,
    /// Whether that is the session's first one: only then a position without an epoch is accepted.
    pub first_epoch: bool,
    /// Whether the last ack is of an incarnation that was lost: where its client stands nobody knows.
    pub ack_lost: bool,
    /// Whether an agent of the session has ever named an entry. Covers alone don't say so: an agent
    /// that never names one covers entries by taking the next.
    pub named: bool,
    /// The client's side.
    pub generation: Generation,
    /// The agent's side.
    pub term: Term,
    /// Who runs the agent, if anybody.
    pub lease: Option<Lease>,
    /// How a client is attached, if one is.
    pub attached: Option<Transport>,
    /// The last detach, message or renewal; or the start of a process that found it attached, which is
    /// what its deadlines are counted from.
    pub last_activity: Timestamp,
    /// When its client was last known to be there.
    pub last_seen: Timestamp,
    /// When it expires, unless a client is attached.
    pub expires_at: Timestamp,
    /// How often a client came back.
    pub reconnect_count: u64,
    /// The last event.
    pub head: Seq,
    /// The oldest event that is held; the one after the head if none is.
    pub oldest: Seq,
    /// Everything up to here has been acked.
    pub acked: Seq,
    /// Bytes held in the out log.
    pub held_bytes: usize,
    /// The last entry of the in log.
    pub in_head: InSeq,
    /// Every entry up to here is covered by the agent's state.
    pub covered: InSeq,
    /// Where the last snapshot stands, if there is one.
    pub snapshot: Option<SnapshotMark>,
}

impl Record {
    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.about.id
    }

    /// Whether it is attached or parked.
    pub fn is_active(&self) -> bool {
        matches!(self.status, Status::Active)
    }

    /// Since when its client has been away; nothing if one is attached or none ever was.
    pub fn away_since(&self) -> Option<Timestamp> {
        let is_parked = self.attached.is_none() && self.generation > Generation::ZERO;
        is_parked.then_some(self.last_seen)
    }

    /// Events held.
    pub fn held(&self) -> u64 {
        self.head.next().steps_from(self.oldest)
    }

    /// Whether the agent has something to do: an entry that its state does not cover.
    pub fn has_work(&self) -> bool {
        self.covered < self.in_head
    }

    /// When something must be done about it if nobody comes: expire it, or forget it.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.status.due_at(self.attached, self.expires_at)
    }
}

impl Status {
    /// See [`Record::due_at`].
    pub(crate) fn due_at(
        &self,
        attached: Option<Transport>,
        expires_at: Timestamp,
    ) -> Option<Timestamp> {
        match self {
            Self::Active if attached.is_some() => None,
            Self::Active => Some(expires_at),
            Self::Ended { forget_at, .. } => Some(*forget_at),
        }
    }
}
