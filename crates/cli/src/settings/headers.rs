//! Headers for a server that we call. People put tokens into them, so they are never shown.

use std::fmt;
use std::str::FromStr as _;

use axum::http::{HeaderName, HeaderValue};

use super::kind::{Kind, Shown};

/// Headers, as `name=value` with commas between. What is wrong is told without the values.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Headers(Vec<(HeaderName, HeaderValue)>);

impl Headers {
    /// Each with its value, which may be secret.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(set)")
    }
}

impl Kind for Headers {
    type Value = Self;
    const PLACEHOLDER: &'static str = "NAME=VALUE,…";

    fn parse(text: &str) -> Result<Self, String> {
        let header = |(index, part): (usize, &str)| {
            let wrong = || format!("header {} is not name=value", index + 1);
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let name = HeaderName::from_str(name.trim()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            Ok((name, value))
        };
        text.split(',').enumerate().map(header).collect::<Result<_, _>>().map(Self)
    }

    fn show(_: &Self) -> Shown {
        Shown::Hidden("(set)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_values_and_are_never_shown() {
        let headers = Headers::parse("Authorization=Basic aHVudGVyMg==, x-tenant=a").unwrap();
        let all: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(all[0], ("authorization", &HeaderValue::from_static("Basic aHVudGVyMg==")));
        assert_eq!(all[1], ("x-tenant", &HeaderValue::from_static("a")));
        assert!(!format!("{headers:?} {:?}", Headers::show(&headers)).contains("aHVu"));
        for bad in ["", "hunter2", "a=b,hunter2", "hunter2 2=b", "=hunter2", "a=hunter2\u{1}"] {
            let error = Headers::parse(bad).unwrap_err();
            assert!(error.ends_with("is not name=value") && !error.contains("hunter"), "{error}");
        }
    }
}
