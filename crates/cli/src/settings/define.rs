//! What a setting is, and the macro that makes everything out of the one list in `table.rs`: the
//! struct that the program reads, the table for flags, documentation and `check-config`, and the way
//! from one to the other.

use super::kind::Form;
use super::sources::Environment;

/// What is known about a setting besides its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Its name in the TOML file.
    pub(crate) key: &'static str,
    /// Under which heading it is documented.
    pub(crate) section: &'static str,
    /// The lines of its doc comment in the table.
    pub(crate) doc_lines: &'static [&'static str],
    /// How many values it takes.
    pub(crate) form: Form,
    /// What stands for its value in `--help`.
    pub(crate) placeholder: &'static str,
    /// What holds when nobody says anything.
    pub(crate) default: DefaultValue,
    /// The smallest value that is accepted.
    pub(crate) least: Option<&'static str>,
}

/// What holds when nobody says anything.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
    /// The value, written as in the environment.
    Text(&'static str),
    /// No value; in words, what that means.
    Absent(&'static str),
    /// A value that depends on the machine; in words, how.
    Computed(fn(&Environment) -> String, &'static str),
}

impl Setting {
    /// Its flag without the dashes: `session-ttl`.
    pub(crate) fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// Its environment variable: `REJOIN_SESSION_TTL`.
    pub(crate) fn variable(&self) -> String {
        format!("REJOIN_{}", self.key.to_ascii_uppercase())
    }

    /// What it does, in one or two sentences.
    pub(crate) fn documentation(&self) -> String {
        self.doc_lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// The first of these sentences, without its full stop.
    pub(crate) fn first_sentence(&self) -> String {
        let all = self.documentation();
        let first = all.split_once(". ").map_or(all.as_str(), |(first, _)| first);
        first.trim_end_matches('.').to_owned()
    }

    /// The default as people read it.
    pub(crate) fn default_in_words(&self) -> &'static str {
        match self.default {
            DefaultValue::Text(text) => text,
            DefaultValue::Absent(words) | DefaultValue::Computed(_, words) => words,
        }
    }
}

/// The one element of `values`, or nothing if it is empty: how the macro passes an optional part.
pub(super) const fn optional(values: &'static [&'static str]) -> Option<&'static str> {
    match values {
        [] => None,
        [value, ..] => Some(value),
    }
}

/// Makes [`Settings`](super::Settings) and [`TABLE`](super::table::TABLE) from lines of the form
/// `name: Kind = default, at_least "bound" => readiness;`, grouped under headings.
macro_rules! settings {
    ($( $section:literal { $(
        $(#[doc = $doc:literal])+
        $key:ident: $kind:ty = $default:expr $(, at_least $least:literal)?;
    )+ } )+) => {
        /// The value of every setting, whoever gave it.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Settings {
            $($( $(#[doc = $doc])+ pub(crate) $key: <$kind as Kind>::Value, )+)+
        }

        /// Every setting, in the order of the documentation.
        pub(crate) static TABLE: &[Setting] = &[$($( Setting {
            key: stringify!($key),
            section: $section,
            doc_lines: &[$($doc),+],
            form: <$kind as Kind>::FORM,
            placeholder: <$kind as Kind>::PLACEHOLDER,
            default: $default,
            least: optional(&[$($least)?]),
        }, )+)+];

        impl Settings {
            /// Reads every setting from its sources.
            pub(super) fn read(reader: &mut Reader<'_>) -> Self {
                let mut rows = TABLE.iter();
                let mut next = || rows.next().expect("a row for each field, in the same order");
                Self { $($( $key: reader.read::<$kind>(next()), )+)+ }
            }

            /// Every value as people may see it, in the order of [`TABLE`].
            pub(super) fn shown(&self) -> Vec<Shown> {
                vec![$($( <$kind as Kind>::show(&self.$key), )+)+]
            }
        }
    };
}
pub(super) use settings;
