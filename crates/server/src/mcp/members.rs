//! The members of a JSON object, in their order, each name once. Of two members with one name some parsers take
//! the first and others the last, so a header that agrees with one of them says nothing about the other: whoever
//! goes by the header and whoever runs the body would see different requests. Such an object is rejected.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::message::NoMessage;

/// The members of an object, as they were written. Names are compared without their escapes.
#[derive(Debug)]
pub(crate) struct Members<V>(pub(crate) Vec<(String, V)>);

impl<V> Default for Members<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> Members<V> {
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<V> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }

    fn has_unique_names(&self) -> bool {
        let names: HashSet<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.len() == self.0.len()
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Members<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for InOrder<V> {
            type Value = Members<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<V>, A::Error> {
                let mut members = Members::default();
                while let Some(member) = map.next_entry()? {
                    members.0.push(member);
                }
                match members.has_unique_names() {
                    true => Ok(members),
                    false => Err(A::Error::custom("an object has two members of one name")),
                }
            }
        }
        from.deserialize_map(InOrder(PhantomData))
    }
}

/// Rejects a message that says something twice where Rejoin, or a proxy, goes by it: in the message itself, in its
/// `params`, and in their `_meta` with the objects in that. What a tool gets (`arguments`) is not looked at.
pub(crate) fn check_unique(message: &str) -> Result<(), NoMessage> {
    let message = object::<&RawValue>(message)?;
    let params = match message.get("params") {
        Some(params) => object::<&RawValue>(params.get())?,
        None => return Ok(()),
    };
    let meta = match params.get("_meta") {
        Some(meta) => object::<&RawValue>(meta.get())?,
        None => return Ok(()),
    };
    meta.0.iter().try_for_each(|(_, value)| object::<IgnoredAny>(value.get()).map(drop))
}

/// The members of an object; none of anything else.
fn object<'a, V: Deserialize<'a>>(text: &'a str) -> Result<Members<V>, NoMessage> {
    if !text.trim_start().starts_with('{') {
        return Ok(Members::default());
    }
    let twice =
        |_| NoMessage::Invalid("a member of it, of `params` or of `_meta` stands there twice");
    serde_json::from_str(text).map_err(twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_stands_twice_is_rejected_wherever_a_header_may_name_it() {
        for bad in [
            r#"{"id":1,"id":2}"#,
            r#"{"method":"a","m\u0065thod":"b"}"#,
            r#"{"x":1,"x":1}"#,
            r#"{"params":{"name":"a","name":"b"}}"#,
            r#"{"params":{"name":"a","n\u0061me":"a"}}"#,
            r#"{"params":{"uri":"a","x":{},"uri":"b"}}"#,
            r#"{"params":{"_meta":{},"_meta":{}}}"#,
            r#"{"params":{"_meta":{"v":1,"v":2}}}"#,
            r#"{"params":{"_meta":{"client":{"name":"a","name":"b"}}}}"#,
        ] {
            assert!(check_unique(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_tool_gets_is_its_own_business() {
        for good in [
            r#"{"params":{"name":"a","arguments":{"x":1,"x":2}}}"#,
            r#"{"params":["name","name"]}"#,
            r#"{"params":{"_meta":7,"a":{"_meta":{"x":1,"x":2}}}}"#,
            r#"{"id":1,"params":{"id":1,"_meta":{"id":1}}}"#,
        ] {
            assert!(check_unique(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn a_hundred_thousand_members_are_compared_in_linear_time() {
        let members: Vec<String> = (0..100_000).map(|n| format!(r#""m{n}":{n}"#)).collect();
        let text = format!(r#"{{"params":{{{}}}}}"#, members.join(","));
        assert!(check_unique(&text).is_ok()); // a quadratic comparison would take minutes
    }
}
