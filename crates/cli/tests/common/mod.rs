//! What the tests that run the binary have in common: how it is called, and where it listens.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

pub(crate) mod server_process;
pub(crate) mod small_disk;

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// The binary, without the settings of whoever runs the tests.
pub(crate) fn rejoin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    let is_ours = |name: &str| name.starts_with("REJOIN_") || name.starts_with("MCP_");
    for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    command
}

/// An address below those that the kernel gives to whoever connects: while a server is down, nobody
/// gets it by accident. Another one each time.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 1_000) as u16 * 10;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 32_000, "no port is free");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
