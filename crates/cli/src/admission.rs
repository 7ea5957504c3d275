//! How many connections there may be, in all and from one address. A place is held for as long as its
//! socket is open, whatever protocol is spoken over it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rejoin_core::network::Network;

use crate::limits::{FEWEST_CONNECTIONS, FILES_PER_CHILD, LOG_REFUSALS_EVERY, OTHER_FILES};
use crate::settings::Settings;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionBounds {
    pub(crate) all: usize,
    pub(crate) per_address: usize,
    /// Whether connections from this machine are held to the bound of an address as well: somebody has set it.
    pub(crate) of_this_machine_too: bool,
}

impl ConnectionBounds {
    /// What the settings say, or what `files` open files allow. One address may have half of all
    /// connections: fewer would strangle a proxy.
    pub(crate) fn of(settings: &Settings, files: u64) -> Self {
        let children = settings.max_children as u64 * FILES_PER_CHILD;
        let room = files.saturating_sub(OTHER_FILES).saturating_sub(children);
        let room = usize::try_from(room).unwrap_or(usize::MAX).max(FEWEST_CONNECTIONS);
        let all = settings.max_connections.unwrap_or(room);
        if all > room {
            tracing::warn!(max_connections = all, files, "more connections than open files allow");
        }
        let set = settings.max_connections_per_address;
        let per_address = set.unwrap_or((all / 2).max(1));
        Self { all, per_address, of_this_machine_too: set.is_some() }
    }
}

/// Counts connections.
#[derive(Debug)]
pub(crate) struct Admission {
    bounds: ConnectionBounds,
    state: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    open: usize,
    by_address: HashMap<Network, usize>,
    refused: u64,
    logged: Option<Instant>,
}

/// The place of one connection. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    /// Where its connection comes from, if that is held to a bound.
    from: Option<Network>,
}

impl Admission {
    pub(crate) fn new(bounds: ConnectionBounds) -> Arc<Self> {
        Arc::new(Self { bounds, state: Mutex::default() })
    }

    /// A place for a connection from there; nothing if there is none left. Unless the bound of an address was set,
    /// connections from this machine count against none but the one for all: they are a proxy's, or the operator's.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let is_bound = self.bounds.of_this_machine_too || !peer.to_canonical().is_loopback();
        let from = is_bound.then(|| Network::of(peer));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let here = from.map_or(0, |from| state.by_address.get(&from).copied().unwrap_or(0));
        if state.open >= self.bounds.all || here >= self.bounds.per_address {
            state.refuse(peer);
            return None;
        }
        state.open += 1;
        if let Some(from) = from {
            *state.by_address.entry(from).or_default() += 1;
        }
        Some(Place { admission: Arc::clone(self), from })
    }
}

impl OpenConnections {
    fn refuse(&mut self, peer: IpAddr) {
        self.refused += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_REFUSALS_EVERY) {
            let (refused, open) = (std::mem::take(&mut self.refused), self.open);
            self.logged = Some(Instant::now());
            tracing::warn!(refused, open, last = %peer, "connections refused: no place is left");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open -= 1;
        let Some(from) = self.from else { return };
        if let Some(count) = state.by_address.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                state.by_address.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Config, Flags};

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn bounds(all: usize, per_address: usize) -> ConnectionBounds {
        ConnectionBounds { all, per_address, of_this_machine_too: false }
    }

    #[test]
    fn a_bound_that_was_set_holds_for_this_machine_too() {
        for (variables, admitted) in
            [(&[][..], 5), (&[("REJOIN_MAX_CONNECTIONS_PER_ADDRESS", "2")][..], 2)]
        {
            let variables = variables.iter().copied().collect();
            let settings = Config::load(&Flags::default(), &variables).unwrap().settings;
            let admission = Admission::new(ConnectionBounds::of(&settings, 1_000_000));
            let held: Vec<_> =
                (0..5).filter_map(|_| admission.admit(address("127.0.0.1"))).collect();
            assert_eq!(held.len(), admitted);
        }
    }

    #[test]
    fn one_address_has_its_bound_and_all_together_have_theirs() {
        let admission = Admission::new(bounds(5, 2));
        let near = address("127.0.0.1");
        let held: Vec<_> = (0..2).map(|_| admission.admit(address("192.0.2.1")).unwrap()).collect();
        assert!(admission.admit(address("192.0.2.1")).is_none());
        assert!(admission.admit(address("::ffff:192.0.2.1")).is_none(), "the same address");
        let local: Vec<_> = (0..3).map(|_| admission.admit(near).unwrap()).collect();
        assert!(admission.admit(near).is_none(), "all places are taken");
        drop(held);
        assert!(admission.admit(address("192.0.2.1")).is_some());
        drop(local);
        let state = admission.state.lock().unwrap();
        assert_eq!((state.open, state.by_address.len()), (0, 0), "nothing is left behind");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let admission = Admission::new(bounds(9, 1));
        let _held = admission.admit(address("2001:db8::1")).unwrap();
        assert!(admission.admit(address("2001:db8::2")).is_none());
        assert!(admission.admit(address("2001:db8:0:1::1")).is_some());
    }
}
