//! Whose records the audit trail holds. Past its bound the caller with the most records loses its oldest: the principal
//! with the most, and of its networks the one with the most. So no caller can push another's records out of the trail.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use rejoin_core::Principal;
use rejoin_core::network::Network;

/// The places of all records, by who made them.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    all: usize,
    principals: Ranked<Principal, Ranked<Option<Box<str>>, VecDeque<u64>>>,
}

impl Shares {
    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.all
    }

    /// A record was added. Places only grow.
    pub(crate) fn add(&mut self, principal: &Principal, address: Option<&str>, place: u64) {
        self.all += 1;
        self.principals.change(principal.clone(), |addresses| {
            addresses.change(address.map(network), |places| places.push_back(place));
        });
    }

    /// Takes out the record that goes first, and says where it is.
    pub(crate) fn give_way(&mut self) -> Option<u64> {
        let mut gone = None;
        let principal = self.principals.largest()?;
        self.principals.change(principal, |addresses| {
            if let Some(address) = addresses.largest() {
                addresses.change(address, |places| gone = places.pop_front());
            }
        });
        self.all -= usize::from(gone.is_some());
        gone
    }
}

/// The addresses of one network have one share: a caller may have any number of them.
fn network(address: &str) -> Box<str> {
    Network::of_text(address).map_or_else(|| address.into(), |network| network.to_string().into())
}

/// Something that holds records.
trait Holding: Default {
    fn count(&self) -> usize;
    fn oldest(&self) -> Option<u64>;
}

impl Holding for VecDeque<u64> {
    fn count(&self) -> usize {
        self.len()
    }

    fn oldest(&self) -> Option<u64> {
        self.front().copied()
    }
}

/// Holders by name, in the order in which they give way: the largest first, of equal ones the one with the oldest record.
#[derive(Debug)]
struct Ranked<K, H> {
    count: usize,
    holders: HashMap<K, H>,
    order: BTreeSet<(usize, Reverse<Option<u64>>, K)>,
}

impl<K, H> Default for Ranked<K, H> {
    fn default() -> Self {
        Self { count: 0, holders: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord, H: Holding> Ranked<K, H> {
    fn largest(&self) -> Option<K> {
        self.order.last().map(|(_, _, name)| name.clone())
    }

    fn change(&mut self, name: K, change: impl FnOnce(&mut H)) {
        let holder = self.holders.entry(name.clone()).or_default();
        let rank = |holder: &H| (holder.count(), Reverse(holder.oldest()), name.clone());
        let (had, was) = (holder.count(), rank(holder));
        change(holder);
        let (has, is) = (holder.count(), rank(holder));
        self.count = self.count - had + has;
        self.order.remove(&was);
        if has > 0 {
            self.order.insert(is);
        } else {
            self.holders.remove(&name);
        }
    }
}

impl<K: Clone + Eq + Hash + Ord, H: Holding> Holding for Ranked<K, H> {
    fn count(&self) -> usize {
        self.count
    }

    fn oldest(&self) -> Option<u64> {
        self.order.last().and_then(|(_, Reverse(oldest), _)| *oldest) // of those that go next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Principal {
        Principal::new(name)
    }

    #[test]
    fn the_caller_with_the_most_records_loses_its_oldest() {
        let mut shares = Shares::default();
        shares.add(&who("ann"), Some("a"), 0);
        for place in 1..4 {
            shares.add(&who("bob"), Some("b"), place);
        }
        assert_eq!(shares.give_way(), Some(1));
        assert_eq!(shares.give_way(), Some(2));
        assert_eq!(shares.give_way(), Some(0), "of equal ones the oldest goes");
        assert_eq!(shares.give_way(), Some(3));
        assert_eq!((shares.give_way(), shares.len()), (None, 0));
    }

    #[test]
    fn of_one_principal_the_address_with_the_most_records_gives_way() {
        let mut shares = Shares::default();
        let all = who("anonymous");
        shares.add(&all, Some("quiet"), 0);
        shares.add(&all, None, 1);
        for place in 2..6 {
            shares.add(&all, Some("loud"), place);
        }
        let gone: Vec<_> = (0..4).filter_map(|_| shares.give_way()).collect();
        assert_eq!(gone, [2, 3, 4, 0]);
    }

    #[test]
    fn addresses_of_one_network_have_one_share() {
        let mut shares = Shares::default();
        let all = who("anonymous");
        shares.add(&all, Some("192.0.2.1"), 0);
        shares.add(&all, Some("2001:db8::1"), 1);
        for place in 2..6 {
            shares.add(&all, Some(&format!("2001:db8:1:1::{place}")), place);
        }
        let gone: Vec<_> = (0..3).filter_map(|_| shares.give_way()).collect();
        assert_eq!(gone, [2, 3, 4]);
    }

    #[test]
    fn many_addresses_do_not_push_another_principal_out() {
        let mut shares = Shares::default();
        shares.add(&who("ann"), None, 0);
        for place in 1..100 {
            shares.add(&who("bob"), Some(&place.to_string()), place);
        }
        for place in 1..99 {
            assert_eq!(shares.give_way(), Some(place));
        }
    }
}
