//! rmcp's messages as text, and back.
//!
//! What was stored is not read into rmcp's typed results: several of those fit the same JSON, and the wrong one
//! would drop members. It is carried as it was written.

use rejoin::mcp::parts::Message;
use rmcp::model::{
    ClientJsonRpcMessage, CustomNotification, CustomRequest, CustomResult, ErrorCode, ErrorData,
    JsonRpcError, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
};
use serde_json::Value;

use crate::error::ManagerError;

/// What became of a request nobody can know: the server died over it.
const OUTCOME_UNKNOWN: ErrorCode = ErrorCode(-32050);

/// A message of a server as it is stored and sent.
pub(crate) fn text_of(message: &ServerJsonRpcMessage) -> Result<String, ManagerError> {
    serde_json::to_string(message).map_err(unstorable)
}

/// A message of a client as it is stored.
pub(crate) fn stored_form(message: &ClientJsonRpcMessage) -> Result<Message, ManagerError> {
    let text = serde_json::to_string(message).map_err(unstorable)?;
    Message::parse(&text).map_err(unstorable)
}

/// A message of a client that was stored; nothing if rmcp knows no such message.
pub(crate) fn client_message(stored: &Message) -> Option<ClientJsonRpcMessage> {
    serde_json::from_str(stored.text()).ok()
}

/// A message of a server that was stored.
pub(crate) fn server_message(text: &str) -> Option<ServerJsonRpcMessage> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    let id = value.get_mut("id").map(Value::take).and_then(|id| serde_json::from_value(id).ok());
    let method = value.get("method").and_then(Value::as_str).map(str::to_owned);
    let params = value.get_mut("params").map(Value::take);
    Some(match (method, id) {
        (Some(method), Some(id)) => {
            let request = ServerRequest::CustomRequest(CustomRequest::new(method, params));
            ServerJsonRpcMessage::request(request, id)
        }
        (Some(method), None) => ServerJsonRpcMessage::notification(
            ServerNotification::CustomNotification(CustomNotification::new(method, params)),
        ),
        (None, id) => match value.get_mut("error").map(Value::take) {
            Some(error) => {
                let error = serde_json::from_value(error).ok()?;
                ServerJsonRpcMessage::Error(JsonRpcError::new(id, error))
            }
            None => {
                let result = CustomResult::new(value.get_mut("result").map(Value::take)?);
                ServerJsonRpcMessage::response(ServerResult::CustomResult(result), id?)
            }
        },
    })
}

/// The answer to a request that the server died over.
pub(crate) fn outcome_unknown(id: RequestId) -> ServerJsonRpcMessage {
    let sentence = "outcome unknown: the server went away while this request was under way; it may or may \
                    not have taken effect";
    let data = serde_json::json!({ "reason": "server_lost" });
    let error = ErrorData::new(OUTCOME_UNKNOWN, sentence, Some(data));
    ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
}

fn unstorable(error: impl std::fmt::Display) -> ManagerError {
    ManagerError::Unstorable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_sent_as_it_was() {
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"unknown":{"a":1.5},"resultType":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-3,"message":"no","data":{"why":[1]}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","x":1}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0,"progressToken":3,"y":null}}"#,
        ] {
            let sent = text_of(&server_message(text).unwrap()).unwrap();
            let (sent, stored): (Value, Value) =
                (serde_json::from_str(&sent).unwrap(), serde_json::from_str(text).unwrap());
            assert_eq!(sent, stored);
        }
    }
}
