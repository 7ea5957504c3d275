//! JSON-RPC messages as they came. They are looked at, never rewritten: only an id is cut out and another
//! put in its place, so that unknown methods, fields and their order pass untouched.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::garbled::without_nulls;
use super::members::check_unique;
use crate::event::check_depth;
use crate::limits::RPC_ID_BYTES;

/// A JSON-RPC id as it was written: a string or a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(Box<str>);

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    text: Box<str>,
    kind: Kind,
}

/// Notifications that name a request.
const CANCELLED: &str = "notifications/cancelled";
const PROGRESS: &str = "notifications/progress";

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A question.
    Request {
        /// What its answer will name.
        id: RequestId,
        /// What is asked for.
        method: Box<str>,
    },
    /// Something that needs no answer.
    Notification {
        /// What it is about.
        method: Box<str>,
    },
    /// An answer; without an id if whoever answered could not read it.
    Response {
        /// The request that it answers.
        id: Option<RequestId>,
        /// Whether it says that the request failed.
        failed: bool,
    },
}

/// Why something is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMessage {
    /// It can't be read.
    #[error("it is no JSON: {0}")]
    Unreadable(String),
    /// It can be read, and is something else.
    #[error("it is no JSON-RPC 2.0 message: {0}")]
    Invalid(&'static str),
}

/// The parts that matter, where they stand in the text.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A `null` that is there is something, unlike none.
pub(crate) fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl RequestId {
    /// An id that is a number.
    pub(crate) fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// An id that is a string, of characters that need no escapes.
    pub(crate) fn text(text: &str) -> Self {
        Self(format!("\"{text}\"").into())
    }

    /// An id as it stands in a message.
    pub fn parse(raw: &str) -> Option<Self> {
        let first = raw.bytes().next()?;
        let good = first == b'"' || first == b'-' || first.is_ascii_digit();
        good.then(|| Self(raw.into()))
    }

    /// As it was written.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Whether it is a string or a number without a fraction.
    fn is_text_or_whole(&self) -> bool {
        let number = || self.0.parse().is_ok_and(|number: f64| number.fract() == 0.0);
        self.0.starts_with('"') || number()
    }

    /// Whether it is the same as this one, which may be ours and written otherwise.
    pub(crate) fn names(&self, asked: &Self) -> bool {
        self == asked || self.as_number().is_some_and(|number| asked.as_number() == Some(number))
    }

    /// The number that it is, if it is one of ours. Some write 3 as 3.0 or as a string.
    pub(crate) fn as_number(&self) -> Option<u64> {
        self.0.parse().ok().or_else(|| {
            let text = self.0.trim_matches('"');
            let fraction = text.split_once('.');
            let whole = fraction.filter(|(_, rest)| rest.bytes().all(|digit| digit == b'0'));
            whole.map_or(text, |(whole, _)| whole).parse().ok()
        })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Message {
    /// Reads one message.
    pub fn parse(text: &str) -> Result<Self, NoMessage> {
        let text = one_line(text.trim());
        check_depth(text.as_bytes()).map_err(|error| NoMessage::Unreadable(error.to_string()))?;
        let shape: Shape<'_> =
            serde_json::from_str(&text).map_err(|error| match error.classify() {
                Category::Data => NoMessage::Invalid("its members have other types"),
                Category::Io | Category::Syntax | Category::Eof => {
                    NoMessage::Unreadable(error.to_string())
                }
            })?;
        match shape.kind() {
            Ok(kind) => Ok(Self { text: text.into(), kind }),
            Err(why) => without_nulls(&text).map_or(Err(why), |text| Self::parse(&text)),
        }
    }

    /// Reads one message of a client, of whom more is asked than of servers: what it wants an answer to, or
    /// answers, has an id, nothing that a header may name stands in it twice, and what stands for a request is short.
    pub(crate) fn of_client(text: &str) -> Result<Self, NoMessage> {
        let message = Self::parse(text)?;
        check_unique(message.text())?;
        message.shape().check_id(&message.kind)?;
        message.check_lengths()?;
        Ok(message)
    }

    /// Whatever names a request is kept until that is answered, and repeated with it.
    fn check_lengths(&self) -> Result<(), NoMessage> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Params<'a> {
            #[serde(borrow, rename = "requestId")]
            cancels: Option<&'a RawValue>,
            #[serde(borrow, rename = "progressToken")]
            reports: Option<&'a RawValue>,
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Meta<'a> {
            #[serde(borrow, rename = "progressToken")]
            token: Option<&'a RawValue>,
        }
        let is_long =
            |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().len() > RPC_ID_BYTES);
        let Params { cancels, reports, meta } = self.read_params();
        if is_long(self.shape().id) || (self.method() == Some(CANCELLED) && is_long(cancels)) {
            return Err(NoMessage::Invalid("an `id` has at most 1024 bytes"));
        }
        let Meta { token } = read(meta);
        if is_long(token) || (self.method() == Some(PROGRESS) && is_long(reports)) {
            return Err(NoMessage::Invalid("a `progressToken` has at most 1024 bytes"));
        }
        Ok(())
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The whole of it, in one line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The method, of a request or a notification.
    pub fn method(&self) -> Option<&str> {
        match &self.kind {
            Kind::Request { method, .. } | Kind::Notification { method } => Some(method),
            Kind::Response { .. } => None,
        }
    }

    /// The parameters as they were written.
    pub(crate) fn params(&self) -> Option<&RawValue> {
        self.shape().params
    }

    /// The parameters, as far as `T` knows them; its default if there are none of that form.
    pub(crate) fn read_params<'a, T: Deserialize<'a> + Default>(&'a self) -> T {
        read(self.params())
    }

    /// The result as it was written.
    pub(crate) fn result(&self) -> Option<&RawValue> {
        self.shape().result
    }

    /// The error as it was written.
    pub(crate) fn error(&self) -> Option<&RawValue> {
        self.shape().error
    }

    /// Whether it is the answer to the request of this id.
    pub(crate) fn answers(&self, asked: &RequestId) -> bool {
        let Kind::Response { id: Some(id), .. } = &self.kind else { return false };
        id.names(asked)
    }

    /// The same message under another id.
    pub(crate) fn with_id(&self, id: &RequestId) -> String {
        match self.shape().id {
            Some(known) => splice(&self.text, known.get(), id.as_json()),
            None => with_member(&self.text, "id", id.as_json()),
        }
    }

    /// The id that a cancellation names, and the same message with another one.
    pub(crate) fn cancelled_id(&self) -> Option<RequestId> {
        RequestId::parse(self.cancelled()?)
    }

    pub(crate) fn with_cancelled_id(&self, id: &RequestId) -> String {
        match self.cancelled() {
            Some(known) => splice(&self.text, known, id.as_json()),
            None => self.text.to_string(),
        }
    }

    fn cancelled(&self) -> Option<&str> {
        #[derive(Deserialize, Default)]
        struct Params<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: Option<&'a RawValue>,
        }
        self.read_params::<Params<'_>>().request_id.map(RawValue::get)
    }

    /// The same message with another error.
    pub(crate) fn with_error(&self, error: &str) -> String {
        match self.error() {
            Some(known) => splice(&self.text, known.get(), error),
            None => self.text.to_string(),
        }
    }

    /// The same message with another result.
    pub(crate) fn with_result(&self, result: &str) -> String {
        match self.result() {
            Some(known) => splice(&self.text, known.get(), result),
            None => self.text.to_string(),
        }
    }

    fn shape(&self) -> Shape<'_> {
        read(Some(&self.text))
    }
}

impl Shape<'_> {
    fn kind(&self) -> Result<Kind, NoMessage> {
        if self.jsonrpc.as_deref() != Some("2.0") {
            return Err(NoMessage::Invalid("`jsonrpc` must be \"2.0\""));
        }
        let id = self.id.filter(|raw| raw.get() != "null");
        let id = match id.map(|raw| RequestId::parse(raw.get())) {
            Some(None) => return Err(NoMessage::Invalid("`id` must be a string or a number")),
            Some(Some(id)) => Some(id),
            None => None,
        };
        let (failed, nothing_failed) = match self.error.map(RawValue::get) {
            Some("null") => (false, true),
            Some(_) => (true, false),
            None => (false, false),
        };
        match (&self.method, id, self.result.is_some(), failed) {
            (Some(method), Some(id), false, false) => {
                Ok(Kind::Request { id, method: method.as_ref().into() })
            }
            (Some(method), None, false, false) => {
                Ok(Kind::Notification { method: method.as_ref().into() })
            }
            (None, id, result, failed) if result != failed && !nothing_failed => {
                Ok(Kind::Response { id, failed })
            }
            _ => Err(NoMessage::Invalid("it must have a method, a result or an error")),
        }
    }

    fn check_id(&self, kind: &Kind) -> Result<(), NoMessage> {
        match kind {
            Kind::Request { id, .. } if !id.is_text_or_whole() => {
                Err(NoMessage::Invalid("`id` must be a string or an integer"))
            }
            Kind::Notification { .. } if self.id.is_some() => {
                Err(NoMessage::Invalid("`id` must not be null; a notification has none"))
            }
            Kind::Response { id: None, failed: false } => {
                Err(NoMessage::Invalid("a result must have the `id` of what it answers"))
            }
            Kind::Request { .. } | Kind::Notification { .. } | Kind::Response { .. } => Ok(()),
        }
    }
}

impl Default for Shape<'_> {
    fn default() -> Self {
        let (jsonrpc, method) = (None, None);
        Self { jsonrpc, id: None, method, params: None, result: None, error: None }
    }
}

/// A JSON object with another member at its beginning. The object has none of that name.
pub(crate) fn with_member(object: &str, name: &str, value: &str) -> String {
    let inside = object.trim_start().strip_prefix('{').unwrap_or("}");
    let comma = if inside.trim_start().starts_with('}') { "" } else { "," };
    format!(r#"{{"{name}":{value}{comma}{inside}"#)
}

/// A JSON array with another element at its end.
pub(crate) fn with_element(array: &str, element: &str) -> String {
    let inside = array.trim_end().strip_suffix(']').unwrap_or("[");
    let comma = if inside.trim_end().ends_with('[') { "" } else { "," };
    format!("{inside}{comma}{element}]")
}

/// What raw JSON says, as far as `T` knows it; its default if it is of another form.
pub(crate) fn read<'a, T: Deserialize<'a> + Default>(raw: Option<impl AsJson<'a>>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.json()).ok()).unwrap_or_default()
}

/// JSON that was read before, or is known to be some.
pub(crate) trait AsJson<'a> {
    fn json(self) -> &'a str;
}

impl<'a> AsJson<'a> for &'a RawValue {
    fn json(self) -> &'a str {
        self.get()
    }
}

impl<'a> AsJson<'a> for &'a str {
    fn json(self) -> &'a str {
        self
    }
}

impl<'a> AsJson<'a> for &'a Box<str> {
    fn json(self) -> &'a str {
        self
    }
}

/// JSON without line breaks: those in it stand between its parts, never inside a text.
fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\r']) {
        true => text.replace(['\n', '\r'], " ").into(),
        false => text.into(),
    }
}

/// `text` with `other` in place of `part`, which is a slice of it.
pub(crate) fn splice(text: &str, part: &str, other: &str) -> String {
    let from = part.as_ptr().addr() - text.as_ptr().addr();
    let mut spliced = String::with_capacity(text.len() + other.len());
    spliced.push_str(&text[..from]);
    spliced.push_str(other);
    spliced.push_str(&text[from + part.len()..]);
    spliced
}

#[cfg(test)]
mod tests;
