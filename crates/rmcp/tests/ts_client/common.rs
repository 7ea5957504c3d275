//! Where a server listens.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// An address below those that the kernel gives to whoever connects: while a server is down, nobody gets it by
/// accident. Another one each time.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 10;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 20_000, "no port is free");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
