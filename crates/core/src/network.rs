//! Where a caller is, as far as it can't change that at will. Limits and shares that hold for an address hold for this.

use std::fmt;
use std::net::IpAddr;

/// An IPv4 address, or the /64 of an IPv6 one: that is what one customer of a network has, with 2^64 addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// The network of an address. An IPv4 address in the form of an IPv6 one is an IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
            address @ IpAddr::V4(_) => address,
        })
    }

    /// The network of an address that is written as text; nothing if the text is no address.
    pub fn of_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::of)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> String {
        Network::of_text(text).unwrap().to_string()
    }

    #[test]
    fn an_ipv4_address_stands_for_itself_and_an_ipv6_one_for_its_network() {
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(Network::of_text("somewhere"), None);
    }
}
