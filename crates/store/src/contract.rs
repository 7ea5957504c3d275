//! What a store promises.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rejoin_core::identity::StoreIdentity;
use rejoin_core::lifetime::Verdict;
use rejoin_core::limits;
pub use rejoin_core::page::{
    Body, MessagePage, Page, StoredEntry, StoredEvent, StoredMessage, StoredSnapshot,
};
use rejoin_core::record::Record;
use rejoin_core::state::{
    Ack, AckRefused, Append, AppendRefused, Appended, Attach, AttachRefused, Attached, Create,
    Detach, End, EndRefused, Enter, EnterRefused, Entered, Holding, Keep, LeaseHeld, NewToken,
    NoRoom, OverBound, Renew, RenewRefused, Renewed, Restore, RestoreRefused, SessionOver, Stale,
    TakeLease, Tokens,
};
use rejoin_core::{Generation, InSeq, Principal, Seq, SessionId, Term, Timestamp};
use tokio::sync::oneshot;

use crate::audit::{AuditPage, AuditQuery, AuditRecord};
use crate::changes::Changes;
use crate::measure::{Measurements, StoreBytes};

/// Keeps sessions.
///
/// **Atomic.** Each call is one change: after a crash all of it is there or none of it, also where it
/// touches several things (an event with the state that goes with it, a token's use with the
/// attachment it gives). A store that let them fall apart would hand a message to the agent twice,
/// or let a token be used twice.
///
/// **Ordered.** Changes to one session take effect one after the other, in the order in which one
/// caller began them (first polled them), whether or not it waited for each; and each sees all that
/// came before it. They become durable in that order too: what came later is never there without it.
/// Guards (generation, term, expected seq) are checked inside that order; a store that checked them
/// outside would let a replaced connection or a fenced process write.
///
/// **Durable before known.** A call returns, and a reader sees what it did, only once it would
/// survive the crash that the store protects from. A store that answered sooner would hand out a seq
/// twice after a crash, and the client's own dedupe would then drop a real event. Acks and trimming
/// are the exception: they may be lost in a crash, which only offers again what the client has.
///
/// **Whole or said.** What was durable and can't be read any more is noticed when the store opens,
/// and the sessions it may concern begin a new epoch. Silence would make clients skip events.
///
/// **Stops on failure.** After a commit failed nothing is acknowledged any more: every call returns
/// [`Unavailable`] until the store is opened again. A disk without space and a lock that another program
/// holds are no such failure: the commit is made later. Meanwhile, and already when space runs low, calls
/// that bring something new ([`Store::create`], [`Store::enter`], [`Store::append`] of events or a state,
/// [`Store::restore`]) are refused as `Paused` and have changed nothing; reading goes on. Calls that are part
/// of the commit wait for it; [`Store::stalled`] says when their callers should be told that the outcome is
/// not known.
///
/// All calls may run concurrently; no call waits for a reader.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Tells this store from every other, for as long as it keeps any session.
    fn identity(&self) -> &StoreIdentity;

    /// Makes a session. Refused if one of that id is known, also an ended one, or if there is no room for it
    /// ([`Create::room`]): of any number of calls at once only as many succeed as there is room for.
    async fn create(&self, create: Create) -> Result<Record, Failure<CreateRefused>>;

    /// A session as of its last durable change; nothing if it is unknown or forgotten.
    async fn session(&self, id: &SessionId) -> Result<Option<Record>, Unavailable>;

    /// Tells when a session has changed in a way that [`Store::session`] or [`Store::read`] show, and when the store
    /// ceases to work. A reader that was told of a change sees it. Acks and trims need not be told, and messages are told
    /// to those who ask for that ([`Changes::and_messages`]).
    fn changes(&self, id: &SessionId) -> Changes;

    /// Sessions in the order of their ids, from after `query.after`.
    async fn sessions(&self, query: &Query) -> Result<Vec<Record>, Unavailable>;

    /// How many sessions go on: all, or those of one principal.
    async fn count(&self, principal: Option<&Principal>) -> Result<usize, Unavailable>;

    /// Sessions whose time has come by `now` (see [`Record::due_at`]), soonest first, and when the
    /// next one's will.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Due, Unavailable>;

    /// Sessions whose client was attached when the process before this one ended. They are parked now,
    /// and nobody was told. Whoever asks is to tell: the second time there are none.
    fn parked_at_start(&self) -> Vec<Parked> {
        Vec::new()
    }

    /// Notes that the process is alive. The next one takes clients that were attached for away since then:
    /// see [`Record::last_seen`]. Not durable at once.
    fn note_alive(&self, _now: Timestamp) {}

    /// Attaches a client: the generation goes up by one. Its [attempt](Attach::attempt) is in the audit trail with the same
    /// commit, also where a reused token revoked all others.
    async fn attach(
        &self,
        id: &SessionId,
        attach: Attach,
    ) -> Result<Attached, Failure<AttachRefused>>;

    /// Parks a session, if the generation that has gone is still the present one. Says what the policy wants; nothing if
    /// it was parked already.
    async fn detach(
        &self,
        id: &SessionId,
        detach: Detach,
    ) -> Result<Option<Verdict>, Failure<Stale>>;

    /// Notes what a client has received. May be lost in a crash.
    async fn ack(&self, id: &SessionId, ack: Ack) -> Result<(), Failure<AckRefused>>;

    /// Enters a message in the in log, once.
    async fn enter(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
    ) -> Result<Entered, Failure<EnterRefused>>;

    /// The same, telling `early` the number that a new message gets as soon as that is settled, before
    /// it is durable; a store that can't say it any sooner lets `early` drop. It is for the agent alone,
    /// which may begin with the message meanwhile: what it says of it becomes durable with the message or
    /// after it. Whoever sent the message must not learn of it before the call returns.
    async fn enter_early(
        &self,
        id: &SessionId,
        enter: Enter<Body>,
        early: oneshot::Sender<InSeq>,
    ) -> Result<Entered, Failure<EnterRefused>> {
        drop(early);
        self.enter(id, enter).await
    }

    /// Takes the right to run a session's agent: the term goes up by one if another process had it.
    async fn take_lease(&self, id: &SessionId, take: TakeLease)
    -> Result<Term, Failure<LeaseHeld>>;

    /// Gives that right back. Does nothing if another process has it by now.
    async fn give_up_lease(&self, id: &SessionId, term: Term) -> Result<(), Unavailable>;

    /// Appends events to the out log, with the state and the cover that go with them.
    async fn append(
        &self,
        id: &SessionId,
        append: Append<Body>,
    ) -> Result<Appended, Failure<AppendRefused>>;

    /// The held events after `after`, as many as fit, and the record they belong to. If events in
    /// between are gone the page starts at the oldest that is held: compare with `record.oldest`.
    async fn read(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Option<Page>, Unavailable>;

    /// The results after `after` that are kept from before `record.oldest`, as many as fit: where a log is
    /// over its bounds, what only passes by goes first. They may move here between two calls, so whoever
    /// reads on with [`Store::read`] and finds an older event gone looks here again.
    async fn read_kept(
        &self,
        id: &SessionId,
        after: Seq,
        limit: PageLimit,
    ) -> Result<Vec<StoredEvent>, Unavailable>;

    /// The entries of the in log after `after` that no state covers, at most `limit`.
    async fn entries(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: usize,
    ) -> Result<Vec<StoredEntry>, Unavailable>;

    /// The entries of the in log after `after` that are held, dealt with or not, as many as fit, and the
    /// record they belong to. Those that are dealt with are kept within the bounds of the session, in MCP
    /// sessions not at all. Nothing if the session is unknown.
    async fn messages(
        &self,
        id: &SessionId,
        after: InSeq,
        limit: PageLimit,
    ) -> Result<Option<MessagePage>, Unavailable>;

    /// The agent's last state.
    async fn snapshot(&self, id: &SessionId) -> Result<Option<StoredSnapshot>, Unavailable>;

    /// Remembers a reconnect token that is about to be given out.
    async fn put_token(
        &self,
        id: &SessionId,
        token: NewToken,
        now: Timestamp,
    ) -> Result<(), Failure<SessionOver>>;

    /// The reconnect tokens of a session, for people to look at: it may be a moment ahead of what is
    /// durable, so nothing may be decided by it. Nothing if the session is unknown.
    async fn tokens(&self, id: &SessionId) -> Result<Option<Tokens>, Unavailable>;

    /// Uses a token to renew a session without attaching to it. Its [attempt](Renew::attempt) is in the audit trail with
    /// the same commit, also where a reused token revoked all others.
    async fn renew(&self, id: &SessionId, renew: Renew) -> Result<Renewed, Failure<RenewRefused>>;

    /// Sets the deadline of a parked session.
    async fn keep(&self, id: &SessionId, keep: Keep) -> Result<(), Failure<Stale>>;

    /// Ends a session: both logs and the snapshot are deleted, the rest is remembered for a while. One that goes on in
    /// another session (`Ending::Restored`) is ended only if that one is active in the same step, else the answer is
    /// `NotFound`: so whoever follows from one session to the next never comes back to where it was.
    async fn end(&self, id: &SessionId, end: End) -> Result<Record, Failure<EndRefused>>;

    /// Forgets an ended session whose time has come. Does nothing to any other.
    async fn forget(&self, id: &SessionId, now: Timestamp) -> Result<(), Unavailable>;

    /// Goes on from a snapshot; says in which session, and whether that is new. If it is not, nothing has
    /// changed; if it is, the [attempt](Restore::attempt) is in the audit trail with the same commit.
    async fn restore(&self, restore: Restore<Body>)
    -> Result<Restoration, Failure<RestoreRefused>>;

    /// Adds to the audit trail. Past its bound the caller with the most records (the principal, and of its addresses the
    /// one with the most) loses its oldest, so that no caller pushes another's records out.
    async fn audit(&self, record: AuditRecord) -> Result<(), Unavailable>;

    /// Reads the audit trail, newest first.
    async fn audit_trail(&self, query: &AuditQuery) -> Result<AuditPage, Unavailable>;

    /// Lets go of settled events that have outlived their retention, also in sessions that nothing
    /// happens to; says when to ask again. A store that sees to it by itself says nothing.
    async fn settle(&self, now: Timestamp) -> Result<Option<Timestamp>, Unavailable> {
        let _ = now;
        Ok(None)
    }

    /// What a principal makes the store hold, in bytes, if the store keeps count.
    fn held_by(&self, principal: &Principal) -> Option<Holding> {
        let _ = principal;
        None
    }

    /// Whether calls that bring something new are refused as `Paused` at the moment.
    fn is_paused(&self) -> bool {
        false
    }

    /// Waits until commits have not been possible for a while, and says why. Calls that wait then are still
    /// done once commits are possible again, in their order; nobody knows when. Never returns for a store that
    /// answers every call in time.
    async fn stalled(&self) -> Unavailable {
        std::future::pending().await
    }

    /// What the store has measured about itself, if it does.
    fn measurements(&self) -> Option<&Measurements> {
        None
    }

    /// How many bytes it takes at this moment, as far as it knows.
    fn bytes(&self) -> StoreBytes {
        StoreBytes::default()
    }

    /// Makes everything durable that is not yet (acks, trims), and refuses all later calls.
    async fn close(&self) -> Result<(), Unavailable>;
}

/// Why a call had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure<R> {
    /// No session of that id is known.
    #[error("no such session")]
    NotFound,
    /// The session is known, and this can't be done to it.
    #[error("{0}")]
    Refused(R),
    /// The store does not work.
    #[error("the store is unavailable: {}", .0.0)]
    Unavailable(Unavailable),
}

impl<R> From<Unavailable> for Failure<R> {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

/// The store does not work any more, with the sentence that says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store is unavailable: {0}")]
pub struct Unavailable(pub Arc<str>);

/// Why a session was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateRefused {
    /// The id is taken.
    #[error("a session of that id exists")]
    Exists,
    /// The principal or the server holds as much as it may.
    #[error(transparent)]
    OverBound(OverBound),
    /// There may be no further one.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// The store takes nothing new for now: its disk is nearly full, or another program has it locked.
    #[error("the store takes no new sessions for now; try again later")]
    Paused,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// This session was made and goes on.
    Made {
        /// The session.
        record: Box<Record>,
        /// The session that it replaces, which went on until now.
        replaced: Option<Box<Record>>,
    },
    /// The line goes on in this session already.
    Joined(Box<Record>),
}

impl Restoration {
    /// The session in which the line goes on.
    pub fn record(&self) -> &Record {
        match self {
            Self::Made { record, .. } | Self::Joined(record) => record,
        }
    }

    /// The same, to keep.
    pub fn into_record(self) -> Record {
        match self {
            Self::Made { record, .. } | Self::Joined(record) => *record,
        }
    }
}

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only those of this principal.
    pub principal: Option<Principal>,
    /// Only those that go on.
    pub active_only: bool,
    /// Only those whose id comes after this one.
    pub after: Option<SessionId>,
    /// At most so many.
    pub limit: usize,
}

/// Sessions whose time has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// They, soonest first.
    pub records: Vec<Record>,
    /// When the next one's time comes.
    pub next: Option<Timestamp>,
}

/// A session that was parked because the process that served its client ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Which.
    pub id: SessionId,
    /// The generation of that client.
    pub generation: Generation,
}

/// How much to read at once. At least one event, or entry, is read, however large.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// At most so many events.
    pub events: usize,
    /// At most so many bytes, unless the first event alone is larger.
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { events: limits::PAGE_EVENTS, bytes: limits::PAGE_BYTES }
    }
}

impl PageLimit {
    /// Whether one more fits after `read` of them, `bytes` being the sum with it.
    pub(crate) fn has_room(&self, read: usize, bytes: usize) -> bool {
        read == 0 || (read < self.events && bytes <= self.bytes)
    }
}
