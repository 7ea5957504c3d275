//! What each principal makes the store hold, and all of them together, in bytes: kept up to date by every
//! change, never by looking at all sessions. Decision 0012 says who gives way.
//!
//! Events give way by themselves (`relief.rs`). Everything else takes at most a part of a bound, so that there
//! is always something left that can give way; beyond that sessions that have ended are forgotten, and then
//! whatever would add to it is refused.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rejoin_core::record::Status;
use rejoin_core::state::{Holding, Origin, OverBound, Restore, SessionState};
use rejoin_core::{Principal, SessionId, Timestamp};

use crate::forgotten::{ForgottenSeals, SealNote};
use crate::relief;

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of all principals together.
    pub(crate) all: u64,
    /// Of one.
    pub(crate) of_principal: u64,
}

/// What would add to what can't give way, and so which part of a bound it may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adds {
    /// A client: a session, a message.
    Client,
    /// An agent: its state. It may go on a while when clients are refused already.
    Agent,
}

impl Adds {
    /// In eighths. Events are let go until seven are left, so they always have one.
    const fn eighths(self) -> u64 {
        match self {
            Self::Client => 5,
            Self::Agent => 6,
        }
    }
}

/// A principal whose fixed part is beyond this many eighths is looked at before each addition.
const TIGHT_EIGHTHS: u64 = 4;

/// What a session is counted as, in few bytes: there are many. One that is not known counts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Bytes of its events alone, as they are measured.
    held: u32,
    /// What they count besides, and messages that are dealt with.
    beside: u32,
    /// See [`Holding::fixed`]. Never zero for a session that is known.
    fixed: u32,
    /// When it ended, in seconds, if it has and is remembered.
    ended_at: Option<NonZeroU32>,
}

impl Counted {
    /// A session that holds so much, with so many bytes of events.
    pub(crate) fn of<B>(state: &SessionState<B>, holding: Holding, held: usize) -> Self {
        // Nothing is this large. If it were it would count too little, but the same each time.
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let ended_at = match &state.vitals.status {
            Status::Active => None,
            Status::Ended { at, .. } => {
                Some(NonZeroU32::new(short(at.as_millis() / 1000)).unwrap_or(NonZeroU32::MIN))
            }
        };
        let (held, beside) = (short(held as u64), short(holding.events - held as u64));
        Self { held, beside, fixed: short(holding.fixed), ended_at }
    }

    /// What it holds.
    pub(crate) fn holding(&self) -> Holding {
        let events = self.held_bytes() + u64::from(self.beside);
        Holding { events, fixed: self.fixed.into() }
    }

    /// Bytes of its events alone, as they are measured.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.into()
    }

    fn is_known(&self) -> bool {
        self.fixed > 0
    }
}

/// All accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    bounds: Bounds,
    events: AtomicU64,
    fixed: AtomicU64,
    /// How many principals are over their bound.
    over: AtomicUsize,
    /// How many come near to it with what can't give way.
    tight: AtomicUsize,
    inner: Mutex<AccountTable>,
}

#[derive(Debug, Default)]
struct AccountTable {
    accounts: HashMap<Principal, Account>,
    over: HashSet<Principal>,
    forgotten: ForgottenSeals,
}

#[derive(Debug, Default)]
struct Account {
    holding: Holding,
    sessions: usize,
    /// Those that have ended, by when.
    ended: BTreeSet<(NonZeroU32, SessionId)>,
    tight: bool,
}

impl Accounts {
    /// Of which nobody has anything.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            events: AtomicU64::new(0),
            fixed: AtomicU64::new(0),
            over: AtomicUsize::new(0),
            tight: AtomicUsize::new(0),
            inner: Mutex::default(),
        }
    }

    /// A session is counted as `now`; before, it was as `was`.
    pub(crate) fn count(&self, principal: &Principal, id: &SessionId, was: Counted, now: Counted) {
        if was == now {
            return;
        }
        let (had, has) = (was.holding(), now.holding());
        // They wrap, and come out right: nothing is taken away that was not added.
        self.events.fetch_add(has.events.wrapping_sub(had.events), Relaxed);
        self.fixed.fetch_add(has.fixed.wrapping_sub(had.fixed), Relaxed);
        let inner = &mut *self.lock();
        if !inner.accounts.contains_key(principal) {
            inner.accounts.insert(principal.clone(), Account::default());
        }
        let Some(account) = inner.accounts.get_mut(principal) else { return };
        account.change(id, &was, &now);
        let (known, knows) = (usize::from(was.is_known()), usize::from(now.is_known()));
        account.sessions = account.sessions + knows - known;
        let is_tight = account.holding.fixed > part(self.bounds.of_principal, TIGHT_EIGHTHS);
        if std::mem::replace(&mut account.tight, is_tight) != is_tight {
            let change = if is_tight { 1 } else { usize::MAX };
            self.tight.fetch_add(change, Relaxed);
        }
        let is_over = account.holding.total() > self.bounds.of_principal;
        if account.sessions == 0 {
            inner.accounts.remove(principal);
        }
        if is_over != inner.over.contains(principal) {
            match is_over {
                true => inner.over.insert(principal.clone()),
                false => inner.over.remove(principal),
            };
            self.over.store(inner.over.len(), Relaxed);
        }
    }

    /// What a principal holds.
    pub(crate) fn of(&self, principal: &Principal) -> Holding {
        self.lock().accounts.get(principal).map(|account| account.holding).unwrap_or_default()
    }

    /// What all hold together.
    pub(crate) fn all(&self) -> Holding {
        Holding { events: self.events.load(Relaxed), fixed: self.fixed.load(Relaxed) }
    }

    /// Whether an addition of so many bytes must be checked. Most need not: there is plenty of room.
    pub(crate) fn must_check(&self, more: u64) -> bool {
        let Bounds { all, of_principal } = self.bounds;
        let large = more > all.min(of_principal) / 8;
        let tight = self.fixed.load(Relaxed) > part(all, TIGHT_EIGHTHS);
        large || tight || self.tight.load(Relaxed) > 0
    }

    /// Whether a principal may hold so many bytes more that can't give way.
    pub(crate) fn check(
        &self,
        principal: &Principal,
        more: u64,
        adds: Adds,
    ) -> Result<(), OverBound> {
        let fits = |held: u64, bound: u64| {
            more == 0 || held.saturating_add(more) <= part(bound, adds.eighths())
        };
        if !fits(self.of(principal).fixed, self.bounds.of_principal) {
            return Err(OverBound::Principal);
        }
        if !fits(self.fixed.load(Relaxed), self.bounds.all) {
            return Err(OverBound::Server);
        }
        Ok(())
    }

    /// Some sessions of a principal that have ended, the oldest first.
    pub(crate) fn oldest_ended(&self, principal: &Principal, limit: usize) -> Vec<SessionId> {
        let inner = self.lock();
        let ended = inner.accounts.get(principal).into_iter().flat_map(|account| &account.ended);
        ended.take(limit).map(|(_, id)| id.clone()).collect()
    }

    /// How many sessions of a principal have ended and are remembered.
    pub(crate) fn ended(&self, principal: &Principal) -> usize {
        self.lock().accounts.get(principal).map_or(0, |account| account.ended.len())
    }

    /// Of those that have ended sessions, the principal that remembers the most.
    pub(crate) fn most_ended(&self) -> Option<Principal> {
        let inner = self.lock();
        let most = inner.accounts.iter().max_by_key(|(_, account)| account.ended.len());
        most.filter(|(_, account)| !account.ended.is_empty())
            .map(|(principal, _)| principal.clone())
    }

    /// Whether a principal, or all together, hold too much.
    pub(crate) fn holds_too_much(&self) -> bool {
        self.over.load(Relaxed) > 0 || self.excess() > 0
    }

    /// By how much all together hold too much.
    pub(crate) fn excess(&self) -> usize {
        relief::excess(self.all().total(), self.bounds.all)
    }

    /// The principals that hold too much, and by how much.
    pub(crate) fn excesses(&self) -> Vec<(Principal, usize)> {
        let inner = self.lock();
        let over = inner.over.iter().filter_map(|principal| {
            let held = inner.accounts.get(principal)?.holding.total();
            Some((principal.clone(), relief::excess(held, self.bounds.of_principal)))
        });
        over.collect()
    }

    /// Seals of a principal whose states were taken by `at` are refused from now on if their session is not
    /// known. Says what is to be written down of that.
    pub(crate) fn forget_seals(&self, principal: &Principal, at: Timestamp) -> Vec<SealNote> {
        self.lock().forgotten.note(principal, at)
    }

    /// The same for all principals that have no note of their own, as it was written down.
    #[cfg(feature = "embedded")]
    pub(crate) fn forget_seals_of_others(&self, at: Timestamp) {
        self.lock().forgotten.note_others(at);
    }

    /// Whether a snapshot may be of a session that was closed and forgotten; `known` is the
    /// session of the id that it names.
    pub(crate) fn may_be_forgotten<B, C>(
        &self,
        restore: &Restore<B>,
        known: Option<&SessionState<C>>,
    ) -> bool {
        let is_of = |known: &SessionState<C>| {
            restore.is_of(&known.about, &known.vitals.status, &known.vitals.epoch)
        };
        let here = match &restore.origin {
            Origin::Unsaid => true,
            Origin::Sealed { in_this_store, .. } => *in_this_store,
        };
        let until = self.lock().forgotten.until(&restore.create.about.principal);
        // Nothing is noted at the beginning of time.
        let forgotten = until > Timestamp::default() && restore.taken_at <= until;
        here && !known.is_some_and(is_of) && forgotten
    }

    fn lock(&self) -> MutexGuard<'_, AccountTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    fn change(&mut self, id: &SessionId, was: &Counted, now: &Counted) {
        let (had, has) = (was.holding(), now.holding());
        let Holding { events, fixed } = &mut self.holding;
        *events = events.wrapping_add(has.events).wrapping_sub(had.events);
        *fixed = fixed.wrapping_add(has.fixed).wrapping_sub(had.fixed);
        if was.ended_at != now.ended_at {
            if let Some(at) = was.ended_at {
                self.ended.remove(&(at, id.clone()));
            }
            if let Some(at) = now.ended_at {
                self.ended.insert((at, id.clone()));
            }
        }
    }
}

/// So many eighths of a bound.
const fn part(bound: u64, eighths: u64) -> u64 {
    (bound / 8).saturating_mul(eighths)
}
