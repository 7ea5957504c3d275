//! What the benchmarks have in common.

pub mod allocations;
pub mod report;
pub mod serving;
pub mod world;
