//! What is special to the embedded store: real files, crashes, damage, full disks.
//!
//! The behaviour that it shares with every other store is in `rejoin_store::suite`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests too")]

mod accounts;
mod answers;
mod backup;
mod bounds;
mod damage;
mod flush;
mod kill;
mod other_tools;
mod private;
mod races;
mod refusing;
mod restart;
mod sentences;
mod support;
