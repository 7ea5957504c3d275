//! Whether the headers of a request say what its body does: others between client and server go by them.

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::failure::refuse;
use super::wire::{HEADER_MISMATCH, METHOD_HEADER, NAME_HEADER, REVISION};
use crate::web::mcp::{McpFailure, PROTOCOL_VERSION, Revisions};

/// The revision that is named must be this one, in header and body alike, and be offered.
pub(super) fn check_version(
    headers: &HeaderMap,
    in_body: &str,
    revisions: &Revisions,
) -> Result<(), McpFailure> {
    check_equal(headers, PROTOCOL_VERSION, in_body)?;
    if in_body == REVISION && revisions.offers(REVISION) {
        return Ok(());
    }
    Err(McpFailure::new(StatusCode::BAD_REQUEST, revisions.unsupported(in_body)))
}

/// The method, and what it is about, must stand in the headers.
pub(super) fn check_routing(
    headers: &HeaderMap,
    method: &str,
    about: Option<&str>,
) -> Result<(), McpFailure> {
    check_equal(headers, METHOD_HEADER, method)?;
    match about {
        Some(about) => check_equal(headers, NAME_HEADER, about),
        None => Ok(()),
    }
}

fn check_equal(headers: &HeaderMap, name: &str, in_body: &str) -> Result<(), McpFailure> {
    let mut all = headers.get_all(name).iter();
    let given = all.next().ok_or_else(|| mismatch(&format!("{name} is missing")))?;
    if all.next().is_some() {
        return Err(mismatch(&format!("{name} is there twice")));
    }
    let given = given.to_str().map_err(|_| mismatch(&format!("{name} has other characters")))?;
    let given = decoded(given.trim()).ok_or_else(|| mismatch(&format!("{name} is no base64")))?;
    if given == in_body {
        return Ok(());
    }
    Err(mismatch(&format!("{name} says `{given}`, the body `{in_body}`")))
}

fn mismatch(sentence: &str) -> McpFailure {
    refuse(HEADER_MISMATCH, format!("header mismatch: {sentence}"))
}

/// A header's value: what can't stand in a header is written `=?base64?…?=`.
fn decoded(value: &str) -> Option<String> {
    let inside = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    match inside {
        Some(inside) => String::from_utf8(STANDARD.decode(inside).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_no_header_can_carry_is_written_in_base64() {
        assert_eq!(decoded("us-west1").as_deref(), Some("us-west1"));
        assert_eq!(decoded("=?base64?SGVsbG8sIOS4lueVjA==?=").as_deref(), Some("Hello, 世界"));
        assert_eq!(decoded("=?base64?no base64?="), None);
    }
}
