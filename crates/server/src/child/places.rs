//! Places for children: how many there may be in all and for one principal, and which child goes when
//! another one needs its place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin_core::Principal;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::agent::Orders;

/// All places of an agent. Whoever comes first has one first; but a principal that has its share waits for
/// one of its own.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// How many one principal may have.
    share: usize,
    taken: Mutex<PlacesTaken>,
    /// Woken when somebody may have become idle.
    idle: Notify,
}

#[derive(Debug, Default)]
struct PlacesTaken {
    sitters: BTreeMap<u64, Sitter>,
    last: u64,
    /// How many wait for a place: no more than so many are asked to go.
    waiting: usize,
    /// The share of each principal that has a place or waits for one.
    shares: HashMap<Principal, Share>,
}

/// What one principal may have.
#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    /// How many of its agents have a place, or wait for one in any way.
    users: usize,
    /// How many wait because the share is used up.
    waiting: usize,
}

#[derive(Debug)]
struct Sitter {
    principal: Principal,
    orders: watch::Receiver<Orders>,
    asked_to_go: Arc<Notify>,
    goes: bool,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    asked_to_go: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
    _of_share: OwnedSemaphorePermit,
    _user: User,
}

impl Places {
    /// So many, and as many for a single principal.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Self::shared(count, count)
    }

    /// So many, of which one principal may have `share`.
    pub(crate) fn shared(count: usize, share: usize) -> Arc<Self> {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let (free, share) = (Arc::new(Semaphore::new(count)), share.clamp(1, count));
        Arc::new(Self { free, share, taken: Mutex::default(), idle: Notify::new() })
    }

    /// As many, of which one principal may have `share`. For those that nobody has yet.
    pub(crate) fn with_share(&self, share: usize) -> Arc<Self> {
        Self::shared(self.free.available_permits(), share)
    }

    /// Waits for a place; nothing if the agent is told to stop before there is one.
    pub(crate) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        orders: &watch::Receiver<Orders>,
    ) -> Option<Place> {
        let user = User::new(self, principal);
        let of_share = self.wait_for(&user.share, Some(principal), orders).await?;
        let permit = self.wait_for(&self.free, None, orders).await?;
        Some(self.sit(user, of_share, permit, orders))
    }

    /// Waits for one of `free`: those of a principal, or of all.
    async fn wait_for(
        self: &Arc<Self>,
        free: &Arc<Semaphore>,
        whose: Option<&Principal>,
        orders: &watch::Receiver<Orders>,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
            return Some(permit);
        }
        let _waiting = PlaceWaiting::new(self, whose);
        let mut orders = orders.clone();
        let free = Arc::clone(free).acquire_owned();
        tokio::pin!(free);
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            let for_work = *orders.borrow_and_update() == Orders::Work;
            self.lock().make_room(for_work, whose);
            tokio::select! {
                permit = &mut free => return permit.ok(),
                () = idle => {}
                changed = orders.changed() => {
                    if changed.is_err() || orders.borrow().is_stop() {
                        return None;
                    }
                }
            }
        }
    }

    fn sit(
        self: &Arc<Self>,
        user: User,
        of_share: OwnedSemaphorePermit,
        permit: OwnedSemaphorePermit,
        orders: &watch::Receiver<Orders>,
    ) -> Place {
        let asked_to_go = Arc::new(Notify::new());
        let sitter = Sitter {
            principal: user.principal.clone(),
            orders: orders.clone(),
            asked_to_go: Arc::clone(&asked_to_go),
            goes: false,
        };
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        taken.sitters.insert(number, sitter);
        drop(taken);
        let places = Arc::clone(self);
        Place { places, number, asked_to_go, _permit: permit, _of_share: of_share, _user: user }
    }

    fn lock(&self) -> MutexGuard<'_, PlacesTaken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlacesTaken {
    /// Asks an idle child to go, of `whose` if that is given: one of the principal that has the most, and
    /// of those the one that has been idle longest. Those whose client is there are asked last, and only
    /// by who has work to do.
    fn make_room(&mut self, for_work: bool, whose: Option<&Principal>) {
        let concerned = |sitter: &Sitter| whose.is_none_or(|whose| *whose == sitter.principal);
        let going = self.sitters.values().filter(|sitter| sitter.goes && concerned(sitter));
        if going.count() >= self.waiting(whose) {
            return;
        }
        let held = self.held();
        let rank = |sitter: &Sitter| match *sitter.orders.borrow() {
            Orders::Idle { since, company } if !company || for_work => {
                Some((company, Reverse(held.get(&sitter.principal).copied()), since))
            }
            Orders::Idle { .. } | Orders::Work | Orders::Stop | Orders::End => None,
        };
        let staying = self.sitters.values_mut().filter(|sitter| !sitter.goes && concerned(sitter));
        let ranked = staying.filter_map(|sitter| rank(sitter).map(|rank| (rank, sitter)));
        if let Some((_, sitter)) = ranked.min_by_key(|(rank, _)| *rank) {
            sitter.goes = true;
            sitter.asked_to_go.notify_one();
        }
    }

    /// How many wait for a place of all, or for one of a principal's own.
    fn waiting(&self, whose: Option<&Principal>) -> usize {
        let Some(principal) = whose else { return self.waiting };
        self.shares.get(principal).map_or(0, |share| share.waiting)
    }

    fn count_waiting(&mut self, whose: Option<&Principal>, change: impl FnOnce(&mut usize)) {
        let waiting = match whose {
            None => Some(&mut self.waiting),
            Some(principal) => self.shares.get_mut(principal).map(|share| &mut share.waiting),
        };
        if let Some(waiting) = waiting {
            change(waiting);
        }
    }

    /// How many places each principal has.
    fn held(&self) -> HashMap<Principal, usize> {
        let mut held = HashMap::new();
        for sitter in self.sitters.values() {
            *held.entry(sitter.principal.clone()).or_default() += 1;
        }
        held
    }
}

impl Place {
    /// Waits until the one who sits here has to make room, being idle.
    pub(crate) async fn needed(&self, mut orders: watch::Receiver<Orders>) {
        loop {
            tokio::select! {
                () = self.asked_to_go.notified() => {
                    if matches!(*orders.borrow(), Orders::Idle { .. }) {
                        return;
                    }
                    self.stay(); // there is work again: somebody else has to go
                }
                changed = orders.changed() => match changed {
                    Ok(()) => self.places.idle.notify_waiters(),
                    Err(_) => return std::future::pending().await,
                },
            }
        }
    }

    fn stay(&self) {
        if let Some(sitter) = self.places.lock().sitters.get_mut(&self.number) {
            sitter.goes = false;
        }
        self.places.idle.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().sitters.remove(&self.number);
    }
}

/// An agent that has a place or waits for one: as long as a principal has such, its share is known.
#[derive(Debug)]
struct User {
    places: Arc<Places>,
    principal: Principal,
    share: Arc<Semaphore>,
}

impl User {
    fn new(places: &Arc<Places>, principal: &Principal) -> Self {
        let mut taken = places.lock();
        let share = taken.shares.entry(principal.clone()).or_insert_with(|| {
            let free = Arc::new(Semaphore::new(places.share));
            Share { free, users: 0, waiting: 0 }
        });
        share.users += 1;
        let share = Arc::clone(&share.free);
        Self { places: Arc::clone(places), principal: principal.clone(), share }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(share) = taken.shares.get_mut(&self.principal) {
            share.users -= 1;
            if share.users == 0 {
                taken.shares.remove(&self.principal);
            }
        }
    }
}

struct PlaceWaiting<'a> {
    places: &'a Places,
    whose: Option<&'a Principal>,
}

impl<'a> PlaceWaiting<'a> {
    fn new(places: &'a Places, whose: Option<&'a Principal>) -> Self {
        places.lock().count_waiting(whose, |waiting| *waiting += 1);
        Self { places, whose }
    }
}

impl Drop for PlaceWaiting<'_> {
    fn drop(&mut self) {
        self.places.lock().count_waiting(self.whose, |waiting| *waiting -= 1);
    }
}
