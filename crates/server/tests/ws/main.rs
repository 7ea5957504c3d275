//! `/ws` over real sockets.
#![allow(clippy::unwrap_used)]

mod flows;
mod support;
