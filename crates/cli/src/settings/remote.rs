//! What lies outside this process: URLs, programs, the store, and the names callers may use. A URL may
//! carry a password, so none of these repeats in an error what was given.

use std::fmt;

use super::kind::{Kind, Shown};
use super::secret::Secret;

/// A URL with scheme `http` or `https`, without a user name or password in it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl(Box<str>);

impl HttpUrl {
    /// The whole URL. Its query may be secret: not for logs.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Without the query, in which people put tokens.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once('?') {
            Some((before, _)) => write!(f, "{before}?…"),
            None => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Kind for HttpUrl {
    type Value = Self;
    const PLACEHOLDER: &'static str = "URL";

    fn parse(text: &str) -> Result<Self, String> {
        let after_scheme = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let authority = after_scheme.and_then(|rest| rest.split(['/', '?', '#']).next());
        match authority {
            None | Some("") => Err("is not a URL; write http://… or https://…".into()),
            Some(_) if text.contains(char::is_whitespace) => Err("has a space in its URL".into()),
            Some(authority) if authority.contains('@') => {
                Err("must not have a user name or password in its URL".into())
            }
            Some(_) => Ok(Self(text.into())),
        }
    }

    fn show(value: &Self) -> Shown {
        match value.0.contains('?') {
            true => Shown::Hidden("(a URL with a query)"),
            false => Shown::quoted(&value.0),
        }
    }
}

/// What answers for sessions: a command that is run, or a server that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A command line.
    Command(String),
    /// A server.
    Http(HttpUrl),
}

impl Kind for Program {
    type Value = Self;
    const PLACEHOLDER: &'static str = "COMMAND|URL";

    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty; write a command or http://…".into());
        }
        let has_scheme = text.split_whitespace().next().is_some_and(|word| word.contains("://"));
        if has_scheme {
            HttpUrl::parse(text).map(Self::Http)
        } else {
            Ok(Self::Command(text.into()))
        }
    }

    fn show(value: &Self) -> Shown {
        match value {
            Self::Command(line) => Shown::quoted(line),
            Self::Http(url) => HttpUrl::show(url),
        }
    }
}

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    /// In files under the data directory.
    Embedded,
    /// In memory: a restart loses them.
    Memory,
    /// In a PostgreSQL database; the URL is hidden because it may hold a password.
    Postgres(Secret),
}

impl Kind for StoreChoice {
    type Value = Self;
    const PLACEHOLDER: &'static str = "embedded|memory|postgres://…";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "memory" => Ok(Self::Memory),
            _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
                Secret::parse(text).map(Self::Postgres)
            }
            _ => Err("is not a store; write embedded, memory or postgres://…".into()),
        }
    }

    fn show(value: &Self) -> Shown {
        match value {
            Self::Embedded => Shown::quoted("embedded"),
            Self::Memory => Shown::quoted("memory"),
            Self::Postgres(_) => Shown::Hidden("postgres://(set)"),
        }
    }
}

/// An origin as browsers send it, in lower case: `https://app.example`, `http://localhost:3000`.
pub(crate) struct WebOrigin;

impl Kind for WebOrigin {
    type Value = String;
    const PLACEHOLDER: &'static str = "ORIGIN";

    fn parse(text: &str) -> Result<String, String> {
        let origin = text.to_ascii_lowercase();
        let (scheme, host) = origin.split_once("://").unwrap_or_default();
        let (name, port) = split_port(host);
        if !scheme.is_empty()
            && is_host(name)
            && port.is_none_or(|port| port.parse::<u16>().is_ok())
        {
            return Ok(origin);
        }
        Err(format!("{text:?} is not an origin; write https://app.example, without a path"))
    }

    fn show(value: &String) -> Shown {
        Shown::quoted(value)
    }
}

/// A revision of MCP that is served.
pub(crate) struct McpRevision;

impl Kind for McpRevision {
    type Value = String;
    const PLACEHOLDER: &'static str = "REVISION";

    fn parse(text: &str) -> Result<String, String> {
        let known = rejoin::web::Revisions::known();
        if known.contains(&text) {
            return Ok(text.to_owned());
        }
        Err(format!(
            "{text:?} is no revision of MCP that is served; there are {}",
            known.join(", ")
        ))
    }

    fn show(value: &String) -> Shown {
        Shown::quoted(value)
    }
}

/// A host's name in lower case, good for any port.
pub(crate) struct HostName;

impl Kind for HostName {
    type Value = String;
    const PLACEHOLDER: &'static str = "HOST";

    fn parse(text: &str) -> Result<String, String> {
        if is_host(text) {
            return Ok(text.to_ascii_lowercase());
        }
        Err(format!("{text:?} is not a host name; write app.example, without scheme and port"))
    }

    fn show(value: &String) -> Shown {
        Shown::quoted(value)
    }
}

/// The name and, if there is one, the port of `name:port` or `[v6]:port`.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// A name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(inside) = text.strip_prefix('[') {
        return inside.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_command_unless_it_begins_with_a_scheme() {
        let command = Program::parse("node agent.js --api http://x").unwrap();
        assert_eq!(command, Program::Command("node agent.js --api http://x".into()));
        assert!(matches!(Program::parse("http://127.0.0.1:9000/mcp"), Ok(Program::Http(_))));
        assert!(Program::parse("ftp://x").is_err());
        assert!(Program::parse("http:// x").is_err());
        assert!(Program::parse("  ").is_err());
    }

    #[test]
    fn neither_errors_nor_debug_repeat_what_a_url_hides() {
        for text in ["https://me:hunter2@host/", "ws://me:hunter2@host/", "https://h /hunter2"] {
            let error = HttpUrl::parse(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = StoreChoice::parse("postgre://me:hunter2@db/x").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
        let url = HttpUrl::parse("https://host/hook?token=hunter2").unwrap();
        let store = StoreChoice::parse("postgres://me:hunter2@db/x").unwrap();
        let shown = format!(
            "{url} {url:?} {:?} {store:?} {:?}",
            HttpUrl::show(&url),
            StoreChoice::show(&store)
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(url.as_str(), "https://host/hook?token=hunter2");
    }

    #[test]
    fn origins_have_a_scheme_and_no_path_and_hosts_have_neither_scheme_nor_port() {
        for good in [
            "https://App.example",
            "http://localhost:3000",
            "http://[::1]:8181",
            "tauri://localhost",
        ] {
            assert_eq!(WebOrigin::parse(good), Ok(good.to_ascii_lowercase()));
        }
        for bad in [
            "",
            "*",
            "null",
            "app.example",
            "https://app.example/",
            "https://a:b",
            "https://",
            "://a",
        ] {
            assert!(WebOrigin::parse(bad).is_err(), "{bad}");
        }
        for good in ["app.example", "10.0.0.1", "[::1]", "rejoin_1"] {
            assert_eq!(HostName::parse(good), Ok(good.into()));
        }
        for bad in ["", "*", "https://app.example", "app.example:80", "::1", "a/b"] {
            assert!(HostName::parse(bad).is_err(), "{bad}");
        }
    }
}
