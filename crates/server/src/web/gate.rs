//! The gate before every path: a browser that was lured to a page of somebody else's must not be able
//! to speak to a server on its own machine, so the names it calls and comes from are checked. Browsers send
//! no `Origin` with a plain GET, but say in `Sec-Fetch-Site` whether another site is behind it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use super::answer::refuse;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Names that are answered besides those of this machine. A host is a name without a port, an origin a
/// scheme and a name, such as `https://app.example`.
#[derive(Clone, Debug, Default)]
pub struct AllowList(Vec<Box<str>>);

impl AllowList {
    /// These names, and loopback ones.
    pub fn of(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The names that are answered: of hosts that are called, of origins that are come from.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The `Host` names.
    pub hosts: AllowList,
    /// The `Origin`s.
    pub origins: AllowList,
    /// Whether a link on another site may lead here: right for pages, which do nothing by being opened,
    /// and for nothing else.
    pub navigation: bool,
}

/// Puts the gate before all routes of a router.
pub fn gate(router: Router, allowed: Allowed) -> Router {
    router.layer(from_fn_with_state(Arc::new(allowed), check))
}

/// Lets a request through if it names a host and comes from an origin that are allowed.
async fn check(State(allowed): State<Arc<Allowed>>, request: Request, next: Next) -> Response {
    let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = host.or_else(|| text(request.headers(), HOST));
    let Some(host) = host else {
        return refuse(StatusCode::BAD_REQUEST, "A request needs one Host header").into_response();
    };
    let name = without_port(&host);
    if !is_loopback(name) && !allowed.hosts.has(name) {
        let sentence = "This Host is not allowed; add it to allowed_hosts";
        return refuse(StatusCode::FORBIDDEN, sentence).into_response();
    }
    if request.headers().contains_key(ORIGIN) {
        let origin = text(request.headers(), ORIGIN).unwrap_or_default();
        if !is_loopback_origin(&origin) && !allowed.origins.has(&origin) {
            let sentence = "This Origin is not allowed; add it to allowed_origins";
            return refuse(StatusCode::FORBIDDEN, sentence).into_response();
        }
    } else if is_cross_site(request.headers())
        && !(allowed.navigation && is_navigation(request.method(), request.headers()))
    {
        let sentence = "A page of another site may not ask for this";
        return refuse(StatusCode::FORBIDDEN, sentence).into_response();
    }
    next.run(request).await
}

/// Whether a browser makes the request for a page of another site. What is said twice, or can't be read,
/// counts as that.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let known = ["same-origin", "same-site", "none"];
    headers.contains_key(FETCH_SITE)
        && !text(headers, FETCH_SITE).is_some_and(|site| known.contains(&site.as_str()))
}

/// Whether somebody followed a link, or typed an address, in a window of their own.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name, expected: &str| text(headers, name).is_some_and(|value| value == expected);
    method == Method::GET && is(FETCH_MODE, "navigate") && is(FETCH_DEST, "document")
}

/// The one value of a header; nothing if there is none, several, or one that is no text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next()?, values.next());
    if second.is_some() { None } else { first.to_str().ok().map(str::to_owned) }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !ends_open(name) => name,
        _ => host,
    }
}

/// Whether what stands before a colon is the inside of an IPv6 address.
fn ends_open(name: &str) -> bool {
    name.starts_with('[') && !name.ends_with(']')
}

fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
}

fn is_loopback_origin(origin: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|host| is_loopback(without_port(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_those_of_this_machine_with_any_port() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8181", "127.9.9.9", "[::1]", "[::1]:1"]
        {
            assert!(is_loopback(without_port(host)), "{host}");
        }
        for host in
            ["localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "[::2]"]
        {
            assert!(!is_loopback(without_port(host)), "{host}");
        }
    }

    #[test]
    fn requests_for_pages_of_other_sites_are_told_by_what_browsers_say() {
        let said = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FETCH_SITE, value.parse().unwrap());
            }
            is_cross_site(&headers)
        };
        for own in ["same-origin", "same-site", "none"] {
            assert!(!said(&[own]), "{own}");
        }
        assert!(!said(&[]), "not a browser");
        assert!(said(&["cross-site"]) && said(&["whatever"]) && said(&["none", "none"]));
    }

    #[test]
    fn origins_are_compared_whole() {
        assert!(is_loopback_origin("http://localhost:3000"));
        assert!(is_loopback_origin("https://[::1]:1"));
        for origin in ["null", "http://localhost@evil.example", "file://localhost", "http://evil"] {
            assert!(!is_loopback_origin(origin), "{origin}");
        }
        assert!(AllowList::of(["https://App.example"]).has("https://app.example"));
        assert!(!AllowList::of(["https://app.example"]).has("https://app.example.evil"));
    }
}
