//! The standard library's locks; in the tests of this crate those of shuttle, which tries one order after another
//! (`race.rs`).

#[cfg(test)]
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;
#[cfg(not(test))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
