//! What a kind of value is: how it is read from text, whichever source the text came from, and how
//! it is shown again. The kinds themselves are in `scalars`, `time`, `size`, `choices` and `remote`.

use std::fmt;
use std::marker::PhantomData;

/// A value as a source gave it, before it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A single value: text, or a TOML number or boolean in text.
    One(String),
    /// A TOML array, or a flag given several times.
    Many(Vec<String>),
}

/// How many values a setting takes, which decides the shape of its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One: `--session-ttl 24h`.
    One,
    /// A boolean: `--client-session-ids`, or `--client-session-ids=false`.
    Switch,
    /// Several: separated by commas, or the flag repeated.
    List,
}

/// A value as people may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// As it would stand in the TOML file.
    Toml(String),
    /// It is set, and that is all that may be said; the text tells as much as is harmless.
    Hidden(&'static str),
    /// There is no value.
    Absent,
}

impl Shown {
    /// Text as a TOML string, quoted and escaped.
    pub(crate) fn quoted(text: impl fmt::Display) -> Self {
        Self::Toml(toml::Value::String(text.to_string()).to_string())
    }
}

/// A kind of setting.
///
/// Errors are whole clauses that follow the name of the source ("REJOIN_SESSION_TTL: …"), say what to
/// write instead, and repeat the value only where it can't be a secret.
pub(crate) trait Kind {
    /// What the rest of the program works with.
    type Value;
    /// How many values it takes.
    const FORM: Form = Form::One;
    /// What stands for the value in `--help`.
    const PLACEHOLDER: &'static str;

    /// The value in `text`, or what is wrong with it.
    fn parse(text: &str) -> Result<Self::Value, String>;

    /// The value in `raw`. Only lists take several.
    fn read(raw: &Raw) -> Result<Self::Value, String> {
        match raw {
            Raw::One(text) => Self::parse(text),
            Raw::Many(_) => Err("takes one value, not a list".into()),
        }
    }

    /// The value when nobody gave one, for kinds that can do without.
    fn absent() -> Option<Self::Value> {
        None
    }

    /// The value as people may see it.
    fn show(value: &Self::Value) -> Shown;

    /// Whether `value` is below the smallest that is allowed. Kinds without an order have none.
    fn is_below(_value: &Self::Value, _least: &Self::Value) -> bool {
        false
    }
}

/// A value that need not be there.
pub(crate) struct Maybe<K>(PhantomData<K>);

impl<K: Kind> Kind for Maybe<K> {
    type Value = Option<K::Value>;
    const FORM: Form = K::FORM;
    const PLACEHOLDER: &'static str = K::PLACEHOLDER;

    fn parse(text: &str) -> Result<Self::Value, String> {
        K::parse(text).map(Some)
    }

    fn absent() -> Option<Self::Value> {
        Some(None)
    }

    fn show(value: &Self::Value) -> Shown {
        value.as_ref().map_or(Shown::Absent, K::show)
    }

    fn is_below(value: &Self::Value, least: &Self::Value) -> bool {
        value.as_ref().zip(least.as_ref()).is_some_and(|(value, least)| K::is_below(value, least))
    }
}

/// Any number of values; empty when nobody gave one.
pub(crate) struct List<K>(PhantomData<K>);

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;
    const FORM: Form = Form::List;
    const PLACEHOLDER: &'static str = K::PLACEHOLDER;

    /// Commas separate; an empty text is an empty list.
    fn parse(text: &str) -> Result<Self::Value, String> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        text.split(',').map(|item| K::parse(item.trim())).collect()
    }

    fn read(raw: &Raw) -> Result<Self::Value, String> {
        match raw {
            Raw::One(text) => Self::parse(text),
            Raw::Many(items) => items.iter().map(|item| K::parse(item)).collect(),
        }
    }

    fn absent() -> Option<Self::Value> {
        Some(Vec::new())
    }

    fn show(value: &Self::Value) -> Shown {
        if value.is_empty() {
            return Shown::Absent;
        }
        let mut items = Vec::with_capacity(value.len());
        for item in value {
            match K::show(item) {
                Shown::Toml(text) => items.push(text),
                hidden @ (Shown::Hidden(_) | Shown::Absent) => return hidden,
            }
        }
        Shown::Toml(format!("[{}]", items.join(", ")))
    }
}
