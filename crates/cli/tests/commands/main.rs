//! The commands for people against a real server process: what they say, how they end, and what they
//! say when something is wrong.

mod asking;
mod choosing;
mod failing;
mod following;
mod support;
