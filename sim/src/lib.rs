//! Whole schedules of Rejoin from one seed.
//!
//! A [`World`] has a disk, a server process that can die at any step, agents, clients with the real
//! client brain, and a network that loses whatever is on its way. All of them run the code of
//! `rejoin-core`; only the sockets, the clock and the fsync are make-believe. One seed decides every
//! step, so a failure is repeated by its seed, and the judge looks at everything that becomes
//! visible to somebody and compares it with what was promised.
//!
//! | file | what it plays |
//! |---|---|
//! | `random.rs` | chance, from a seed |
//! | `disk.rs` | the store: a queue of writes, of which a crash loses a suffix |
//! | `server/` | a server process: the session machines, the agents, the connections, and in half of the processes the clients' own readers |
//! | `client.rs` | an application with the client's brain |
//! | `judge.rs` | the promises |
//! | `villain.rs` | everybody who tries what must not work |
//! | `world.rs`, `world/` | who acts next, and how a run ends |

mod client;
mod disk;
mod judge;
mod random;
mod server;
mod villain;
mod world;

pub use judge::Counts;
pub use world::World;
