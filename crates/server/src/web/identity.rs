//! Whom the server knows a caller to be: the one place that decides whether two requests come from the same one.
//!
//! Some requests do not name what they belong to: a client that comes back to `/sse` without a session id, a call of a
//! stateless client, a broken call that is issued again. What they belong to is found by who sends them, and only for
//! a [`KnownCaller`], which nothing but this file makes. An address tells nothing: behind a proxy everybody has the proxy's.

use axum::http::request::Parts;

use super::Front;
use super::visitor::{address, is_of_this_machine};
use crate::access::Caller;

/// Who sends a request, as far as the server can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    is_known: bool,
    name: String,
}

/// A caller whose requests can be told from those of all others: by its credential, or, where there is no authentication,
/// because it is a program on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownCaller<'a> {
    name: &'a str,
}

impl Identity {
    /// Who sends this request, whose credential says that it is `caller`.
    pub(super) fn of(front: &Front, caller: &Caller, parts: &Parts) -> Self {
        let principal = &caller.principal;
        if !front.settings.open {
            return Self { is_known: true, name: format!("{principal}\n") };
        }
        let address = address(parts).map(|address| address.to_canonical().to_string());
        let address = address.unwrap_or_default();
        match front.settings.mcp.knows_callers && is_of_this_machine(parts) {
            true => Self { is_known: true, name: format!("{principal}\n{address}") },
            false => Self { is_known: false, name: format!("{principal}\nunknown\n{address}") },
        }
    }

    /// The caller, if its requests can be told from those of all others.
    pub(super) fn known(&self) -> Option<KnownCaller<'_>> {
        self.is_known.then_some(KnownCaller { name: &self.name })
    }

    /// What a secret is bound to that is handed to this caller, so that fewer can use it than can come by it. It is not
    /// enough to find something by: callers that are not known share it.
    pub(super) fn binding(&self) -> &str {
        &self.name
    }
}

impl<'a> KnownCaller<'a> {
    /// What differs from one known caller to the next, and stays the same over restarts.
    pub(super) fn name(self) -> &'a str {
        self.name
    }
}
