//! The handlers that live in this process, by session.
//!
//! A session has one handler at a time, or none. The place of one that has ended is free as soon as it has,
//! and only for itself: an older handler never takes the place of a newer one away.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rejoin::core::SessionId;

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them. `L` is the way to one.
#[derive(Debug)]
pub(crate) struct Live<L>(Arc<Mutex<Places<L>>>);

#[derive(Debug)]
struct Places<L> {
    by_session: HashMap<SessionId, Place<L>>,
    made: u64,
}

#[derive(Debug)]
struct Place<L> {
    number: u64,
    way: L,
    ready: bool,
    /// Whether somebody has asked for it since it was last looked whether anybody does.
    wanted: bool,
}

/// A handler's own place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Ours<L>(Frees<L>);

#[derive(Debug)]
struct Frees<L> {
    live: Live<L>,
    session: SessionId,
    number: u64,
}

impl<L> Clone for Live<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> Default for Live<L> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Places { by_session: HashMap::new(), made: 0 })))
    }
}

impl<L: Clone> Live<L> {
    /// Takes the place of a session's handler; nothing if there is one.
    pub(crate) fn take(&self, session: &SessionId, way: L) -> Option<Ours<L>> {
        let mut places = self.lock();
        places.made += 1;
        let number = places.made;
        let Entry::Vacant(place) = places.by_session.entry(session.clone()) else { return None };
        place.insert(Place { number, way, ready: false, wanted: true });
        Some(Ours(Frees { live: self.clone(), session: session.clone(), number }))
    }

    /// The way to a session's handler.
    pub(crate) fn get(&self, session: &SessionId) -> Option<L> {
        self.lock().by_session.get(session).map(|place| place.way.clone())
    }

    /// Whether a session has a handler that has been introduced to its client. If so it will not leave before
    /// whoever asks has had time to use it.
    pub(crate) fn want(&self, session: &SessionId) -> bool {
        match self.lock().by_session.get_mut(session) {
            Some(place) => {
                place.wanted = true;
                place.ready
            }
            None => false,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_session.len()
    }
}

impl<L> Live<L> {
    fn lock(&self) -> MutexGuard<'_, Places<L>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> Ours<L> {
    /// The handler has been introduced: its client's messages may come.
    pub(crate) fn is_ready(&self) {
        self.0.change(|place| place.ready = true);
    }

    /// Leaves the place, unless somebody has asked for the handler since this was last tried.
    pub(crate) fn leave_if_unwanted(&self) -> bool {
        let mut places = self.0.live.lock();
        match places.by_session.get_mut(&self.0.session) {
            Some(place) if place.number == self.0.number => {
                let wanted = std::mem::take(&mut place.wanted);
                if !wanted {
                    places.by_session.remove(&self.0.session);
                }
                !wanted
            }
            Some(_) | None => true,
        }
    }
}

impl<L> Frees<L> {
    fn change(&self, change: impl FnOnce(&mut Place<L>)) {
        let mut places = self.live.lock();
        let place = places.by_session.get_mut(&self.session);
        if let Some(place) = place.filter(|place| place.number == self.number) {
            change(place);
        }
    }
}

impl<L> Drop for Frees<L> {
    fn drop(&mut self) {
        let mut places = self.live.lock();
        let ours = |place: &Place<L>| place.number == self.number;
        if places.by_session.get(&self.session).is_some_and(ours) {
            places.by_session.remove(&self.session);
        }
    }
}
