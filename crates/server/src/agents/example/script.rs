//! What the example agent does for a message: the same steps each time, so that who goes on in the
//! middle knows where that is.

use std::time::Duration;

use serde_json::{Value, json};

use super::state::Memory;
use crate::entry::EntryBody;

/// Words of the answer that are said at once.
const WORDS_AT_ONCE: usize = 3;

/// How much of the question is repeated.
const QUOTED_CHARS: usize = 60;

/// One thing it does, and the event that says so.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) stage: &'static str,
    pub(super) event: &'static str,
    pub(super) content: Value,
    /// How long it takes, at the usual pace.
    pub(super) takes: Duration,
}

/// The question in a message: its text, or whatever else it is.
pub(super) fn question_of(body: &EntryBody) -> String {
    match serde_json::from_str(body.content_json()) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(members)) if members.get("text").is_some_and(Value::is_string) => {
            members["text"].as_str().unwrap_or_default().to_owned()
        }
        Ok(other) => other.to_string(),
        Err(_) => body.content_json().to_owned(),
    }
}

/// Everything it does for a question. It depends on nothing but what is given.
pub(super) fn script(question: &str, memory: &Memory) -> Vec<Step> {
    let (words, characters) = (question.split_whitespace().count(), question.chars().count());
    let answer = answer(question, words, characters, memory);
    let plan = json!(["Understand the question", "Count with a tool", "Write the answer"]);
    let call = json!({"tool": "count", "arguments": {"text": quoted(question)}});
    let result = json!({"tool": "count", "result": {"words": words, "characters": characters}});
    let mut steps = vec![
        step("planning", "agent.plan", 600, json!({ "steps": plan })),
        step("thinking", "agent.thinking", 800, json!("Reading the question.")),
        step("thinking", "agent.thinking", 800, json!("This can be counted.")),
        step("thinking", "agent.thinking", 800, json!("There is a tool for that.")),
        step("using_tool", "agent.tool_call", 600, call),
        step("using_tool", "agent.tool_result", 1_200, result),
    ];
    steps.extend(
        chunks(&answer)
            .into_iter()
            .map(|chunk| step("answering", "agent.answer_delta", 250, json!(chunk))),
    );
    steps.push(step("answered", "agent.final_answer", 300, json!(answer)));
    steps
}

fn step(stage: &'static str, event: &'static str, millis: u64, content: Value) -> Step {
    Step { stage, event, content, takes: Duration::from_millis(millis) }
}

fn answer(question: &str, words: usize, characters: usize, memory: &Memory) -> String {
    format!(
        "You wrote “{}”: {words} words and {characters} characters. Before this message I had \
         answered {} in this session. Cut the connection and come back: nothing of this is lost.",
        quoted(question),
        memory.answered,
    )
}

fn quoted(question: &str) -> String {
    let mut quoted: String = question.chars().take(QUOTED_CHARS).collect();
    if quoted.len() < question.len() {
        quoted.push('…');
    }
    quoted
}

/// The text in pieces of a few words, which put together are the text.
fn chunks(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    words.chunks(WORDS_AT_ONCE).map(<[&str]>::concat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_six_to_ten_seconds_however_long_it_is() {
        for question in ["", "hi", &"many words ".repeat(1_000)] {
            let takes: Duration =
                script(question, &Memory::default()).iter().map(|step| step.takes).sum();
            let range = Duration::from_secs(6)..Duration::from_secs(10);
            assert!(range.contains(&takes), "{takes:?}");
        }
    }

    #[test]
    fn the_pieces_of_an_answer_put_together_are_the_answer() {
        let script = script("What   is this?", &Memory::default());
        let pieces = script.iter().filter(|step| step.event == "agent.answer_delta");
        let together: String = pieces.filter_map(|step| step.content.as_str()).collect();
        assert_eq!(script.last().map(|step| step.content.clone()), Some(together.into()));
    }

    #[test]
    fn a_question_is_a_text_or_an_object_with_one_or_anything_else() {
        let question = |text: &str| question_of(&EntryBody::for_agent(text.as_bytes()));
        assert_eq!(question(r#"{"content":"hi"}"#), "hi");
        assert_eq!(question(r#"{"content":{"text":"hi","x":1}}"#), "hi");
        assert_eq!(question(r#"{"content":[1]}"#), "[1]");
        assert_eq!(question("hi"), "hi");
    }
}
