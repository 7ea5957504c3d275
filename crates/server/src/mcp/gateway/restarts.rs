//! A server that was started again has lost what it kept in memory. Clients show log messages to nobody, so the model is
//! told where it reads: in the first tool result after the restart, as a text of its own. It stands behind the content,
//! because programs take what they look for from the first block.

use rejoin_core::InSeq;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::desk::Desk;
use crate::mcp::message::{Message, read, splice, with_element};

/// What the model is told.
const NOTICE: &str = "Note: the MCP server was restarted since the last call. What it kept in memory for this session \
                      (open pages, variables, logins, earlier results) is gone.";

impl Desk<'_> {
    /// The server was started again: the next tool result says so.
    pub(super) fn note_restart(&mut self) {
        if self.gateway.tells_restarts && !self.keeping.book().restarted {
            self.keeping.change().restarted = true;
        }
    }

    /// An answer of the server, which says that the server was started again if that has to be said. It is said once,
    /// in one commit with the answer.
    pub(super) fn with_notice(&mut self, in_seq: InSeq, text: String) -> String {
        let is_call = |pending: &super::pending::Pending| pending.method() == "tools/call";
        if !self.keeping.book().restarted || !self.requests.get(in_seq).is_some_and(is_call) {
            return text;
        }
        let Some(told) = told(&text) else { return text }; // the next one says it
        self.keeping.change().restarted = false;
        told
    }
}

/// A tool's result with the notice behind its content; nothing if it has no content.
fn told(text: &str) -> Option<String> {
    #[derive(Default, Deserialize)]
    struct Result<'a> {
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    let message = Message::parse(text).ok()?;
    let result: Result<'_> = read(message.result());
    let content = result.content.map(RawValue::get).filter(|content| content.starts_with('['))?;
    let notice = json!({ "type": "text", "text": NOTICE }).to_string();
    Some(splice(message.text(), content, &with_element(content, &notice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> serde_json::Value {
        let told = told(text).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&told).unwrap();
        answer["result"].clone()
    }

    #[test]
    fn the_notice_stands_behind_the_content_and_changes_nothing_else() {
        let notice = json!({ "type": "text", "text": NOTICE });
        let empty = content(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[ ]}}"#);
        assert_eq!(empty, json!({ "content": [notice] }));
        let full = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}],"structuredContent":{"x":1},"isError":false}}"#;
        let expected = json!({
            "content": [{ "type": "text", "text": "a" }, notice],
            "structuredContent": { "x": 1 },
            "isError": false,
        });
        assert_eq!(content(full), expected);
    }

    #[test]
    fn what_has_no_content_is_left_alone() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
