//! The TOML file: which line gives which setting, and the tables that only a file can have. Syntax
//! errors are told by line and message alone: the parser's own picture of the line could show a secret.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::kind::Raw;
use super::problem::{Origin, Problems, did_you_mean};
use super::sources::Given;
use super::table::TABLE;

/// The tables that have no flag and no variable.
const TABLES: [&str; 2] = ["api_keys", "jwt"];

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) given: Vec<Given>,
    pub(super) api_keys: Vec<Block>,
    pub(super) jwt: Option<Block>,
}

/// A table of the file: one of `[[api_keys]]`, or `[jwt]`.
#[derive(Debug)]
pub(super) struct Block {
    /// Its first line.
    pub(super) origin: Origin,
    pub(super) fields: Vec<Field>,
}

/// One line in a [`Block`].
#[derive(Debug)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

impl Field {
    fn text(&self) -> Option<String> {
        match &self.raw {
            Raw::One(text) => Some(text.clone()),
            Raw::Many(_) => None,
        }
    }
}

impl File {
    /// The environment variables that its tables name.
    pub(super) fn variables(&self) -> Vec<String> {
        let fields = self.api_keys.iter().chain(&self.jwt).flat_map(|block| &block.fields);
        fields.filter(|field| field.key.ends_with("_env")).filter_map(Field::text).collect()
    }

    /// What stands in `text`, which was read from `path`.
    pub(super) fn parse(path: &str, text: &str, problems: &mut Problems) -> Self {
        let lines = Lines { path, text };
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            problems.add(lines.origin(error.span().unwrap_or_default()), error.message());
        }
        let mut file = Self::default();
        for (key, value) in document.get_ref() {
            file.entry(&lines, key, value, problems);
        }
        file
    }

    fn entry(
        &mut self,
        lines: &Lines<'_>,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
        problems: &mut Problems,
    ) {
        let (name, origin) = (key.get_ref().as_ref(), lines.origin(key.span()));
        match (name, value.get_ref()) {
            ("api_keys", DeValue::Array(items)) => {
                for item in items {
                    self.api_keys.extend(lines.block("[[api_keys]]", item, problems));
                }
            }
            ("api_keys", _) => {
                problems.add(origin, "api_keys is a list of tables; write [[api_keys]]")
            }
            ("jwt", _) => self.jwt = lines.block("[jwt]", value, problems),
            (_, given) => match TABLE.iter().find(|setting| setting.key == name) {
                Some(setting) => match raw(given) {
                    Some(raw) => self.given.push(Given { key: setting.key, raw, origin }),
                    None => problems.add(origin, format!("{name}: takes a value, not a table")),
                },
                None => {
                    let known = TABLE.iter().map(|setting| setting.key).chain(TABLES);
                    let near = did_you_mean(name, known);
                    problems.add(origin, format!("unknown setting {name:?}{near}"));
                }
            },
        }
    }
}

/// The file's text, to find lines in.
struct Lines<'a> {
    path: &'a str,
    text: &'a str,
}

impl Lines<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        let before = self.text.as_bytes().iter().take(span.start);
        let line = 1 + before.filter(|b| **b == b'\n').count();
        Origin::File { path: self.path.into(), line }
    }

    fn block(
        &self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        problems: &mut Problems,
    ) -> Option<Block> {
        let origin = self.origin(value.span());
        let DeValue::Table(table) = value.get_ref() else {
            problems.add(origin, format!("{name} is a table"));
            return None;
        };
        let mut fields = Vec::new();
        for (key, value) in table {
            let (key, origin) = (key.get_ref().to_string(), self.origin(key.span()));
            match raw(value.get_ref()) {
                Some(raw) => fields.push(Field { key, raw, origin }),
                None => problems.add(origin, format!("{key}: takes a value, not a table")),
            }
        }
        Some(Block { origin, fields })
    }
}

/// The value as text, or nothing for what has none: tables, and lists of lists.
fn raw(value: &DeValue<'_>) -> Option<Raw> {
    match value {
        DeValue::Array(items) => {
            let items = items.iter().map(|item| scalar(item.get_ref()));
            items.collect::<Option<_>>().map(Raw::Many)
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => scalar(value).map(Raw::One),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(moment) => Some(moment.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
