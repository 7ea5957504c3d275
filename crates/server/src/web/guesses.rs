//! A limit on guessing credentials. An address that has presented too many bad ones must wait for each
//! further attempt, so that it learns little, and the good credentials of its neighbours still work:
//! those accepted before are let through at once, others when it is their turn.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rejoin_core::Timestamp;
use rejoin_core::network::Network;

use super::limits::{
    CREDENTIALS_REMEMBERED, FAULT_ADDRESSES, FAULTS_AT_ONCE, FAULTS_REFILL, LONGEST_TURN, TURNS,
};

/// Counts bad credentials by address.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    hasher: RandomState,
    state: Mutex<GuessTable>,
}

#[derive(Debug, Default)]
struct GuessTable {
    addresses: HashMap<GuessSource, Budget>,
    /// Hashes of credentials that were accepted.
    accepted: HashSet<u64>,
}

/// Where a guess came from. Nothing stands for all that there is no room to tell apart.
type GuessSource = Option<Network>;

#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// When all of it is there again.
    full_at: Timestamp,
    /// When the next attempt over budget may be made.
    next_turn: Timestamp,
}

/// Whether a credential may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// At once.
    Now,
    /// After so long.
    After(Duration),
    /// Not before so long, so not now.
    NotBefore(Duration),
}

impl Guesses {
    /// When a credential from there may be tried.
    pub(super) fn turn(&self, credential: &str, from: Option<IpAddr>, now: Timestamp) -> Turn {
        let hash = self.hasher.hash_one(credential);
        let mut state = self.state();
        let network = state.network(from);
        let Some(budget) = state.addresses.get(&network).copied() else { return Turn::Now };
        if !budget.is_spent(now) || state.accepted.contains(&hash) {
            return Turn::Now;
        }
        let turn = budget.next_turn.max(now);
        let wait = turn.since(now);
        if wait > LONGEST_TURN {
            return Turn::NotBefore(wait);
        }
        state.addresses.insert(network, Budget { next_turn: turn + TURNS, ..budget });
        Turn::After(wait)
    }

    /// A credential was good.
    pub(super) fn accepted(&self, credential: &str) {
        let hash = self.hasher.hash_one(credential);
        let mut state = self.state();
        if state.accepted.len() >= CREDENTIALS_REMEMBERED && !state.accepted.contains(&hash) {
            state.accepted.clear();
        }
        state.accepted.insert(hash);
    }

    /// A credential was bad. Says how long to wait once the budget is spent.
    pub(super) fn failed(&self, from: Option<IpAddr>, now: Timestamp) -> Option<Duration> {
        let mut state = self.state();
        state.forget_recovered(now);
        let network = state.network(from);
        let budget = state.addresses.entry(network).or_default();
        if budget.is_spent(now) {
            return Some(budget.full_at.since(now + FAULTS_REFILL * (FAULTS_AT_ONCE - 1)));
        }
        budget.full_at = budget.full_at.max(now) + FAULTS_REFILL;
        None
    }

    /// Credentials were revoked: none counts as accepted before.
    pub(super) fn forget_accepted(&self) {
        self.state().accepted.clear();
    }

    fn state(&self) -> MutexGuard<'_, GuessTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuessTable {
    fn network(&self, from: Option<IpAddr>) -> GuessSource {
        let network = from.map(Network::of);
        let room = self.addresses.len() < FAULT_ADDRESSES;
        if room || self.addresses.contains_key(&network) { network } else { None }
    }

    fn forget_recovered(&mut self, now: Timestamp) {
        if self.addresses.len() >= FAULT_ADDRESSES {
            self.addresses.retain(|_, budget| budget.full_at > now || budget.next_turn > now);
        }
    }
}

impl Budget {
    fn is_spent(&self, now: Timestamp) -> bool {
        self.full_at.max(now) + FAULTS_REFILL > now + FAULTS_REFILL * FAULTS_AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn from(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    fn spend(guesses: &Guesses, address: Option<IpAddr>) {
        for _ in 0..FAULTS_AT_ONCE {
            assert_eq!(guesses.failed(address, NOW), None);
        }
    }

    #[test]
    fn bad_credentials_have_a_budget_that_comes_back() {
        let guesses = Guesses::default();
        spend(&guesses, from("192.0.2.1"));
        assert_eq!(guesses.failed(from("192.0.2.1"), NOW), Some(FAULTS_REFILL));
        assert_eq!(guesses.failed(from("192.0.2.2"), NOW), None, "another address");
        assert_eq!(guesses.failed(from("192.0.2.1"), NOW + FAULTS_REFILL), None);
        assert!(guesses.failed(from("192.0.2.1"), NOW + FAULTS_REFILL).is_some());
    }

    #[test]
    fn over_budget_attempts_take_turns_and_accepted_credentials_do_not_wait() {
        let guesses = Guesses::default();
        let here = from("192.0.2.1");
        guesses.accepted("good");
        spend(&guesses, here);
        assert_eq!(guesses.turn("guess", here, NOW), Turn::After(Duration::ZERO));
        assert_eq!(guesses.turn("guess", here, NOW), Turn::After(TURNS));
        let mut most = 0;
        while let Turn::After(wait) = guesses.turn("guess", here, NOW) {
            assert!(wait <= LONGEST_TURN);
            most += 1;
            assert!(most < 1_000, "the line of those who wait is bounded");
        }
        assert!(matches!(guesses.turn("guess", here, NOW), Turn::NotBefore(_)));
        assert_eq!(guesses.turn("good", here, NOW), Turn::Now);
        assert_eq!(guesses.turn("guess", from("192.0.2.2"), NOW), Turn::Now);
        guesses.forget_accepted();
        assert!(matches!(guesses.turn("good", here, NOW), Turn::NotBefore(_)));
    }

    #[test]
    fn an_ipv6_network_is_one_address_and_a_mapped_one_is_ipv4() {
        let guesses = Guesses::default();
        spend(&guesses, from("2001:db8::1"));
        assert!(guesses.failed(from("2001:db8::ffff:2"), NOW).is_some());
        assert_eq!(guesses.failed(from("2001:db8:0:1::1"), NOW), None);
        spend(&guesses, from("192.0.2.1"));
        assert!(guesses.failed(from("::ffff:192.0.2.1"), NOW).is_some());
    }

    #[test]
    fn addresses_without_end_share_a_budget_and_do_not_fill_the_memory() {
        let guesses = Guesses::default();
        for number in 0..FAULT_ADDRESSES {
            let address = IpAddr::from((number as u32).to_be_bytes());
            assert_eq!(guesses.failed(Some(address), NOW), None);
        }
        for _ in 0..FAULTS_AT_ONCE {
            assert_eq!(guesses.failed(from("203.0.113.1"), NOW), None);
        }
        assert!(guesses.failed(from("203.0.113.2"), NOW).is_some());
        assert!(guesses.state().addresses.len() <= FAULT_ADDRESSES + 1);
        assert_eq!(guesses.failed(from("203.0.113.3"), NOW + FAULTS_REFILL), None, "recovered");
    }
}
