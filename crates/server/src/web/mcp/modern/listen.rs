//! `subscriptions/listen`: a stream of what changes at the server behind, of the kinds that the client names.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use rejoin_core::SessionId;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::asked::{StatelessRequest, invalid};
use super::execution::tell;
use super::failure::denied;
use super::reader::{ReaderHeard, UpstreamReader};
use super::respond::{KEEP_ALIVE, STREAM_HEAD, event};
use super::server::ServerDescription;
use super::shape::with_meta;
use super::upstream::UpstreamSession;
use super::wire::meta;
use crate::limits;
use crate::mcp::message::{Message, RequestId, splice, with_member};
use crate::mcp::own_words::{notification, request};
use crate::random;
use crate::service::Denial;
use crate::web::Front;
use crate::web::mcp::McpFailure;
use crate::web::mcp::request::Client;
use crate::web::mcp::request::{Accepts, not_acceptable};

/// What a client wants to hear of.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WantedNews {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

/// What it will hear of.
struct Kinds {
    lists: Vec<(&'static str, &'static str)>,
    resources: HashSet<String>,
}

/// Somebody who listens.
struct Listening {
    front: Arc<Front>,
    client: Client,
    id: RequestId,
    reader: UpstreamReader,
    kinds: Kinds,
    _subscribed: Subscribed,
    begun: Option<String>,
    ended: bool,
}

pub(super) async fn listen(
    client: &Client,
    front: &Arc<Front>,
    accepts: Accepts,
    asked: StatelessRequest,
) -> Result<Response, McpFailure> {
    if !accepts.events {
        return Err(not_acceptable("Accept must name text/event-stream"));
    }
    let wanted = WantedNews::of(&asked)?;
    let upstream = UpstreamSession::of(client, front, &asked).await?;
    let kinds = Kinds::of(wanted, &upstream.server);
    let reader = UpstreamReader::attached(front, &upstream.record, upstream.record.head).await;
    let subscribed = Subscribed::to(front, &upstream, &kinds.resources).await.map_err(denied)?;
    let acknowledged = notification(
        "notifications/subscriptions/acknowledged",
        &json!({ "notifications": kinds.to_json() }),
    );
    let acknowledged = tagged(&acknowledged, &asked.id);
    let listening = Listening {
        front: Arc::clone(front),
        client: client.clone(),
        id: asked.id,
        reader,
        kinds,
        _subscribed: subscribed,
        begun: Some(event(&acknowledged)),
        ended: false,
    };
    Ok((STREAM_HEAD, Body::from_stream(unfold(listening, Listening::next))).into_response())
}

impl Listening {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(begun) = self.begun.take() {
            return Some((Ok(begun.into()), self));
        }
        if self.ended {
            return None;
        }
        let text = loop {
            let keep_alive = self.front.settings.sse_keep_alive;
            // It ends with the credential it came with.
            let patience = self.front.patience(&self.client.visitor.caller, keep_alive)?;
            match timeout(patience, self.reader.next()).await {
                Ok(ReaderHeard::Said(said)) => {
                    let message = said.message.filter(|message| self.kinds.have(message));
                    if let Some(message) = message {
                        break event(&tagged(message.text(), &self.id));
                    }
                }
                Ok(ReaderHeard::Over | ReaderHeard::Interrupted) => {
                    self.ended = true;
                    break event(&self.end());
                }
                Err(_) => break KEEP_ALIVE.to_owned(),
            }
        };
        Some((Ok(text.into()), self))
    }

    /// The server ends the subscription.
    fn end(&self) -> String {
        let id = &self.id;
        let result = with_meta(r#"{"resultType":"complete"}"#, meta::SUBSCRIPTION, id.as_json());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    }
}

impl WantedNews {
    /// Of another form it would be none, and its client would wait for ever for what it meant.
    fn of(asked: &StatelessRequest) -> Result<Self, McpFailure> {
        asked.required("notifications").ok_or_else(|| {
            invalid(
                "`notifications` must be an object: `toolsListChanged`, `promptsListChanged` and \
                 `resourcesListChanged` are true or false, `resourceSubscriptions` is a list of URIs",
            )
        })
    }
}

impl Kinds {
    /// What is wanted, as far as the server tells of it.
    fn of(wanted: WantedNews, server: &ServerDescription) -> Self {
        let lists = [
            (wanted.tools_list_changed, "tools", "toolsListChanged"),
            (wanted.prompts_list_changed, "prompts", "promptsListChanged"),
            (wanted.resources_list_changed, "resources", "resourcesListChanged"),
        ];
        let told = |feature: &str| server.does(feature, "listChanged");
        let lists = lists.into_iter().filter(|(wanted, feature, _)| *wanted && told(feature));
        let resources = match server.does("resources", "subscribe") {
            true => wanted.resource_subscriptions.into_iter().collect(),
            false => HashSet::new(),
        };
        Self { lists: lists.map(|(_, feature, name)| (feature, name)).collect(), resources }
    }

    fn to_json(&self) -> Value {
        let mut said = json!({});
        for (_, name) in &self.lists {
            said[*name] = true.into();
        }
        if !self.resources.is_empty() {
            said["resourceSubscriptions"] = self.resources.iter().cloned().collect();
        }
        said
    }

    /// Whether a message of the server is among them.
    fn have(&self, message: &Message) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Updated {
            uri: String,
        }
        let Some(what) = message.method().and_then(|m| m.strip_prefix("notifications/")) else {
            return false;
        };
        match what.split_once('/') {
            Some((feature, "list_changed")) => {
                self.lists.iter().any(|(known, _)| *known == feature)
            }
            Some(("resources", "updated")) => {
                self.resources.contains(&message.read_params::<Updated>().uri)
            }
            Some(_) | None => false,
        }
    }
}

/// A notification that says which subscription it comes by.
fn tagged(text: &str, id: &RequestId) -> String {
    let Ok(message) = Message::parse(text) else { return text.to_owned() };
    let tag = |params: &str| with_meta(params, meta::SUBSCRIPTION, id.as_json());
    match message.params() {
        Some(params) => splice(message.text(), params.get(), &tag(params.get())),
        None => with_member(message.text(), "params", &tag("{}")),
    }
}

/// Subscriptions at the server behind, which somebody listens to.
struct Subscribed {
    front: Arc<Front>,
    upstream: UpstreamSession,
    resources: HashSet<String>,
}

impl Subscribed {
    async fn to(
        front: &Arc<Front>,
        upstream: &UpstreamSession,
        resources: &HashSet<String>,
    ) -> Result<Self, Denial> {
        let mut listened = upstream.begun.listened.lock().await;
        let all: HashSet<&String> = listened.keys().chain(resources).collect();
        let bytes: usize = all.iter().map(|uri| uri.len()).sum();
        if all.len() > limits::SUBSCRIPTIONS || bytes > limits::SUBSCRIPTION_BYTES {
            let why = "That many resources can't be listened to at once; listen to fewer";
            return Err(Denial::TooLarge(why.into()));
        }
        let (front, upstream) = (Arc::clone(front), upstream.clone());
        // What it has so far is given up with it if the rest is refused.
        let mut subscribed = Self { front, upstream: upstream.clone(), resources: HashSet::new() };
        for uri in resources {
            if !listened.contains_key(uri) {
                let session = upstream.record.id();
                change(&subscribed.front, session, "resources/subscribe", uri).await?;
            }
            *listened.entry(uri.clone()).or_default() += 1;
            subscribed.resources.insert(uri.clone());
        }
        Ok(subscribed)
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        let (front, upstream) = (Arc::clone(&self.front), self.upstream.clone());
        let resources = std::mem::take(&mut self.resources);
        self.front.service.sessions().spawn(|_| async move {
            leave(&front, &upstream, resources).await;
        });
    }
}

/// Nobody listens any more: whatever the last one listened to is given up.
async fn leave(front: &Front, upstream: &UpstreamSession, resources: HashSet<String>) {
    let mut listened = upstream.begun.listened.lock().await;
    for uri in resources {
        let Some(count) = listened.get_mut(&uri) else { continue };
        *count -= 1;
        if *count == 0 {
            listened.remove(&uri);
            let session = upstream.record.id();
            let _ = change(front, session, "resources/unsubscribe", &uri).await; // or it is over
        }
    }
    if upstream.alone {
        front.service.sessions().end_and_forget(upstream.record.id());
    }
}

async fn change(front: &Front, session: &SessionId, method: &str, uri: &str) -> Result<(), Denial> {
    let number = u64::from_be_bytes(random::bytes()?);
    let id = RequestId::text(&format!("subscription-{number:x}"));
    let params = to_raw_value(&json!({ "uri": uri })).ok();
    let text = request(&id, method, params.as_deref());
    tell(front.service.sessions(), session, &text).await
}
