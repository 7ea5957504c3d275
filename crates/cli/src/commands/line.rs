//! An event as a line for people.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::out::{Ink, Out, tame};
use super::when;

/// An event of the out log, as far as people look at it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) event: String,
    #[serde(default)]
    pub(crate) seq: u64,
    #[serde(default)]
    pub(crate) timestamp: String,
    #[serde(default)]
    content: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) metadata: Value,
}

impl Event {
    /// What it says, on one line.
    pub(crate) fn text(&self) -> String {
        self.content.as_deref().map_or_else(String::new, |content| text_of(content.get()))
    }

    /// The whole of it, on one line.
    pub(crate) fn line(&self, out: &Out) -> String {
        let name = tame(&self.event);
        format!(
            "{} {} {} {}",
            out.paint(Ink::Dim, &format!("{:>5}", self.seq)),
            out.paint(Ink::Dim, when::time_of_day(&tame(&self.timestamp))),
            out.paint(ink_of(&name), &format!("{name:<20}")),
            self.text(),
        )
        .trim_end()
        .to_owned()
    }
}

/// JSON text as people read it: a text without its quotes, everything else as it stands.
pub(crate) fn text_of(json: &str) -> String {
    match serde_json::from_str::<Value>(json) {
        Ok(Value::Null) => String::new(),
        Ok(Value::String(text)) => tame(&text),
        Ok(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) | Err(_) => {
            tame(json)
        }
    }
}

/// The ink for an event of this name.
pub(crate) fn ink_of(name: &str) -> Ink {
    match name {
        "agent.final_answer" => Ink::Green,
        "agent.failed" => Ink::Red,
        "agent.cancelled" => Ink::Yellow,
        _ => Ink::Cyan,
    }
}

/// What is said where events are gone.
pub(crate) fn gap_line(gap: &Value, out: &Out) -> String {
    let number = |name: &str| gap.get(name).and_then(Value::as_u64);
    let sentence = match (number("from"), number("to")) {
        (Some(from), Some(to)) if from == to => format!("event {from} is gone"),
        (Some(from), Some(to)) => format!("events {from} to {to} are gone"),
        _ => "the place is not known any more; what follows is all that is held".to_owned(),
    };
    let reason = gap.get("reason").and_then(Value::as_str).unwrap_or("unknown");
    out.paint(Ink::Yellow, &format!("  --- gap: {sentence} ({})", tame(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let event = |content: Value| {
            let envelope = json!({
                "event": "agent.thinking", "seq": 7, "timestamp": "2026-11-15T12:00:01.000Z",
                "content": content, "metadata": {},
            });
            serde_json::from_value::<Event>(envelope).unwrap().line(&Out::plain())
        };
        let start = "    7 12:00:01 agent.thinking";
        assert_eq!(event(json!("a\nb")), format!("{start}       a\\nb"));
        assert_eq!(event(json!({"a": 1})), format!("{start}       {{\"a\":1}}"));
        assert_eq!(event(Value::Null), start);
    }

    #[test]
    fn a_gap_says_what_is_missing_and_why() {
        let line = |gap: Value| gap_line(&gap, &Out::plain());
        let evicted = json!({"from": 1, "to": 4, "reason": "evicted", "lost": null});
        assert_eq!(line(evicted), "  --- gap: events 1 to 4 are gone (evicted)");
        let unknown = json!({"from": null, "to": null, "reason": "position_unknown"});
        assert!(line(unknown).contains("all that is held (position_unknown)"));
    }
}
