//! Kinds without an idea of their own: booleans, numbers, the address to listen on, paths, the log's
//! filter.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::kind::{Form, Kind, Shown};
use crate::logging::Filter;

/// On or off.
pub(crate) struct Switch;

impl Kind for Switch {
    type Value = bool;
    const FORM: Form = Form::Switch;
    const PLACEHOLDER: &'static str = "BOOL";

    fn parse(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
    }

    fn show(value: &bool) -> Shown {
        Shown::Toml(value.to_string())
    }
}

/// A number of things.
pub(crate) struct Count<T>(PhantomData<T>);

impl<T: FromStr + fmt::Display + PartialOrd> Kind for Count<T> {
    type Value = T;
    const PLACEHOLDER: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("{text:?} is not a whole number that fits here"))
    }

    fn show(value: &T) -> Shown {
        Shown::Toml(value.to_string())
    }

    fn is_below(value: &T, least: &T) -> bool {
        value < least
    }
}

/// An address of this machine, with a port.
pub(crate) struct ListenAddress;

impl Kind for ListenAddress {
    type Value = SocketAddr;
    const PLACEHOLDER: &'static str = "ADDRESS:PORT";

    fn parse(text: &str) -> Result<SocketAddr, String> {
        text.parse().map_err(|_| {
            format!("{text:?} is not an address with a port; write 127.0.0.1:8181 or [::1]:8181")
        })
    }

    fn show(value: &SocketAddr) -> Shown {
        Shown::quoted(value)
    }
}

/// A path, relative to the current directory if it is relative.
pub(crate) struct FilePath;

impl Kind for FilePath {
    type Value = PathBuf;
    const PLACEHOLDER: &'static str = "PATH";

    fn parse(text: &str) -> Result<PathBuf, String> {
        if text.is_empty() { Err("is empty; write a path".into()) } else { Ok(text.into()) }
    }

    fn show(value: &PathBuf) -> Shown {
        Shown::quoted(value.display())
    }
}

/// The name of an environment variable.
pub(crate) struct VariableName;

impl Kind for VariableName {
    type Value = String;
    const PLACEHOLDER: &'static str = "NAME";

    fn parse(text: &str) -> Result<String, String> {
        let is_name = !text.is_empty() && !text.contains(['=', '\0']);
        if is_name {
            Ok(text.into())
        } else {
            Err(format!("{text:?} is not the name of a variable"))
        }
    }

    fn show(value: &String) -> Shown {
        Shown::quoted(value)
    }
}

impl Kind for Filter {
    type Value = Filter;
    const PLACEHOLDER: &'static str = "LEVEL";

    fn parse(text: &str) -> Result<Filter, String> {
        Filter::parse(text).map_err(|error| error.to_string())
    }

    fn show(value: &Filter) -> Shown {
        Shown::quoted(value.as_str())
    }
}
