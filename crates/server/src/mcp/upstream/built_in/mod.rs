//! The MCP server that is there when no other is named: tools that take their time, to try what a session
//! survives. It runs in this process and is spoken to as any other server is, so it can be lost as any other.
//!
//! | file | concern |
//! |---|---|
//! | `tools.rs` | what there is, and what it says of itself |
//! | `call.rs` | one call of a tool |

mod call;
mod tools;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use self::call::Call;
use super::{Heard, Link, Theirs, WAITING};
use crate::mcp::message::{Kind, Message, RequestId};
use crate::mcp::own_words::{RpcError, code, error_response, notification};
use crate::mcp::{NEWEST_REVISION, REVISIONS};

/// Starts a server for one session.
pub(super) fn connect() -> Link {
    let (to, outgoing) = mpsc::channel(WAITING);
    let (incoming, from) = mpsc::channel(WAITING);
    let memory = Arc::new(ServerMemory::default());
    let server = BuiltInServer { incoming, memory, calls: HashMap::new(), tasks: JoinSet::new() };
    let keeper = async {
        server.run(outgoing).await;
        None
    };
    Link::kept_by(keeper, to, from, Theirs::default())
}

/// What a server keeps in memory for its session: gone with it.
#[derive(Debug, Default)]
struct ServerMemory {
    notes: Mutex<Vec<String>>,
    /// The least level of log messages that the client wants.
    level: Mutex<Level>,
}

/// Levels of log messages, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    #[default]
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The server of one session.
struct BuiltInServer {
    incoming: mpsc::Sender<Heard>,
    memory: Arc<ServerMemory>,
    calls: HashMap<RequestId, AbortHandle>,
    /// Requests under way. Whatever is said is said by them, so that listening never has to wait.
    tasks: JoinSet<()>,
}

impl BuiltInServer {
    async fn run(mut self, mut outgoing: mpsc::Receiver<String>) {
        loop {
            tokio::select! {
                text = outgoing.recv() => match text {
                    Some(text) => self.take(&text),
                    None => return,
                },
                Some(_) = self.tasks.join_next() => {
                    self.calls.retain(|_, call| !call.is_finished());
                }
            }
        }
    }

    fn take(&mut self, text: &str) {
        let Ok(message) = Message::parse(text) else { return }; // the gateway wrote it
        match message.kind().clone() {
            Kind::Request { id, method } => {
                let voice = RequestVoice { incoming: self.incoming.clone(), id: id.clone() };
                let memory = Arc::clone(&self.memory);
                let task = self.tasks.spawn(answer(voice, memory, method, message));
                self.calls.insert(id, task);
            }
            Kind::Notification { method } if &*method == "notifications/cancelled" => {
                let cancelled = message.cancelled_id().and_then(|id| self.calls.remove(&id));
                cancelled.inspect(AbortHandle::abort);
            }
            Kind::Notification { .. } | Kind::Response { .. } => {}
        }
    }
}

/// Says things about one request.
struct RequestVoice {
    incoming: mpsc::Sender<Heard>,
    id: RequestId,
}

impl RequestVoice {
    async fn notify(&self, method: &str, params: &Value) {
        self.say(notification(method, params)).await;
    }

    async fn answer(&self, result: Result<Value, RpcError>) {
        let text = match result {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id),
            Err(error) => error_response(Some(&self.id), &error),
        };
        self.say(text).await;
    }

    async fn say(&self, text: String) {
        let heard = Heard::Said { text, during: self.id.as_number() };
        let _ = self.incoming.send(heard).await; // the session may be over
    }
}

async fn answer(
    voice: RequestVoice,
    memory: Arc<ServerMemory>,
    method: Box<str>,
    message: Message,
) {
    let result = match &*method {
        "initialize" => Ok(hello(&message)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools::list() })),
        "tools/call" => Call::of(&voice, &memory, &message).run().await,
        "logging/setLevel" => set_level(&memory, &message),
        _ => Err(RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method {method:?}"))),
    };
    voice.answer(result).await;
}

fn hello(message: &Message) -> Value {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Hello {
        protocol_version: String,
    }
    let asked = message.read_params::<Hello>().protocol_version;
    let agreed = if REVISIONS.contains(&&*asked) { &*asked } else { NEWEST_REVISION };
    json!({
        "protocolVersion": agreed,
        "capabilities": { "tools": {}, "logging": {} },
        "serverInfo": {
            "name": "rejoin",
            "title": "Rejoin's example tools",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "instructions": "Tools that take their time. Cut the connection while one of them works, or \
                         restart Rejoin: the session goes on.",
    })
}

fn set_level(memory: &ServerMemory, message: &Message) -> Result<Value, RpcError> {
    #[derive(Default, Deserialize)]
    struct Params {
        level: Option<Level>,
    }
    let level = message.read_params::<Params>().level.ok_or_else(|| {
        RpcError::new(code::INVALID_PARAMS, "`level` must be one of debug, info, …, emergency")
    })?;
    *memory.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
    Ok(json!({}))
}
