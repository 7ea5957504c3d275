//! Places for children: how many there may be, and who goes when somebody else needs one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::agent::Orders;

/// All places of an agent. Whoever comes first has one first.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
    /// Woken when somebody may have become idle.
    idle: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    sitters: BTreeMap<u64, Sitter>,
    last: u64,
    /// How many wait for a place: no more than so many are asked to go.
    waiting: usize,
}

#[derive(Debug)]
struct Sitter {
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
}

impl Places {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { free, taken: Mutex::default(), idle: Notify::new() })
    }

    /// Waits for a place; nothing if the agent is told to stop before there is one.
    pub(crate) async fn take(self: &Arc<Self>, orders: &watch::Receiver<Orders>) -> Option<Place> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(self.sit(permit, orders));
        }
        let _waiting = Waiting::new(self);
        let mut orders = orders.clone();
        let free = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(free);
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            let for_work = *orders.borrow_and_update() == Orders::Work;
            self.make_room(for_work);
            tokio::select! {
                permit = &mut free => return Some(self.sit(permit.ok()?, &orders)),
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
        permit: OwnedSemaphorePermit,
        orders: &watch::Receiver<Orders>,
    ) -> Place {
        let asked_to_go = Arc::new(Notify::new());
        let (orders, asked) = (orders.clone(), Arc::clone(&asked_to_go));
        let mut taken = self.lock();
        taken.last += 1;
        let number = taken.last;
        taken.sitters.insert(number, Sitter { orders, asked_to_go: asked, goes: false });
        Place { places: Arc::clone(self), number, asked_to_go, _permit: permit }
    }

    /// Asks the one to go that has been idle longest; those whose client is there are asked last,
    /// and only by who has work to do.
    fn make_room(&self, for_work: bool) {
        let mut taken = self.lock();
        if taken.sitters.values().filter(|sitter| sitter.goes).count() >= taken.waiting {
            return;
        }
        let rank = |sitter: &Sitter| match *sitter.orders.borrow() {
            Orders::Idle { since, company } if !company || for_work => Some((company, since)),
            Orders::Idle { .. } | Orders::Work | Orders::Stop | Orders::End => None,
        };
        let staying = taken.sitters.values_mut().filter(|sitter| !sitter.goes);
        let ranked = staying.filter_map(|sitter| rank(sitter).map(|rank| (rank, sitter)));
        if let Some((_, sitter)) = ranked.min_by_key(|(rank, _)| *rank) {
            sitter.goes = true;
            sitter.asked_to_go.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
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

struct Waiting<'a>(&'a Places);

impl<'a> Waiting<'a> {
    fn new(places: &'a Places) -> Self {
        places.lock().waiting += 1;
        Self(places)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}
