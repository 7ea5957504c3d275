//! Reconnect tokens over MCP: given with the first tool result of a session, and taken by the tool
//! `reconnect_session`, with which a client that lost its session id goes over to the session it had.

use std::net::IpAddr;
use std::sync::Arc;

use rejoin_core::codes::Reason;
use rejoin_core::record::{Ending, Record, Transport};
use rejoin_core::state::{End, Renewed};
use rejoin_core::token::TokenRecipe;
use rejoin_core::worker::Publication;
use rejoin_core::{EventBody, InSeq, SessionId, Timestamp};
use rejoin_store::Failure;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::desk::{Closing, Desk};
use super::pending::tool_called;
use super::waiting::Waiting;
use crate::access::Caller;
use crate::mcp::given::can_carry_token;
use crate::mcp::logged::{Entry, Event, Notes, StreamName};
use crate::mcp::message::{Kind, Message, RequestId, read, splice, with_element};
use crate::metrics::CallOutcome;
use crate::service::{Service, Visitor};

/// Our tool, and what it is called where the server has one of that name.
const TOOL: &str = "reconnect_session";
const TOOL_BESIDE: &str = "rejoin_reconnect_session";

/// The tool failed by itself.
const TOOL_ERROR: &str = "tool_error";

/// Entries that are looked through for requests.
const MOST_LOOKED_AT: usize = 100;

/// What comes of a call of our tool: the session that the client has again and what waits there, or the reason why
/// it has not.
type Went = Result<(Record, Waiting), &'static str>;

/// What a client calls our tool with.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall {
    arguments: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    session_id: String,
    reconnect_token: String,
}

/// Whether a message may call our tool, and so use a token.
pub(crate) fn uses_token(message: &Message) -> bool {
    matches!(tool_called(message).as_deref(), Some(TOOL | TOOL_BESIDE))
}

impl Desk<'_> {
    /// Whether a request calls our tool.
    pub(super) async fn is_for_us(&mut self, in_seq: InSeq) -> Result<bool, Closing> {
        if !self.gateway.session_tools {
            return Ok(false);
        }
        match self.requests.get(in_seq).and_then(super::pending::Pending::tool).as_deref() {
            Some(TOOL_BESIDE) => Ok(true),
            Some(TOOL) => Ok(self.annotations_of(TOOL).await?.is_none()),
            Some(_) | None => Ok(false),
        }
    }

    /// An answer of the server, with what we have to add.
    pub(super) async fn with_session_tools(
        &mut self,
        in_seq: InSeq,
        text: String,
    ) -> Result<String, Closing> {
        if !self.gateway.session_tools {
            return Ok(text);
        }
        let method = self.requests.get(in_seq).map(|pending| pending.method().to_owned());
        match method.as_deref() {
            Some("tools/list") => Ok(self.with_our_tool(&text).await?.unwrap_or(text)),
            Some("tools/call") => {
                self.give_token_with(in_seq, &text).await;
                Ok(text)
            }
            Some(_) | None => Ok(text),
        }
    }

    /// The last page of the server's tools, with ours.
    async fn with_our_tool(&mut self, text: &str) -> Result<Option<String>, Closing> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Page<'a> {
            #[serde(borrow)]
            tools: Option<&'a RawValue>,
            next_cursor: Option<String>,
        }
        let Ok(message) = Message::parse(text) else { return Ok(None) };
        let page: Page<'_> = read(message.result());
        let (Some(tools), None) = (page.tools, page.next_cursor) else { return Ok(None) };
        let name = match self.annotations_of(TOOL).await? {
            Some(_) => TOOL_BESIDE,
            None => TOOL,
        };
        let tools = (tools.get(), with_element(tools.get(), &our_tool(name).to_string()));
        Ok(Some(splice(message.text(), tools.0, &tools.1)))
    }

    /// A token that was used before this gateway began is followed by another one, too.
    pub(super) async fn recall_token_use(&self) {
        if self.gateway.session_tools && self.keeping.book().token_given {
            let used = self.last_token_use().await;
            if used.is_some() && used != self.keeping.book().token_used {
                self.shared.hubs.token_used(&self.session);
            }
        }
    }

    /// When a token of the session was last used, as far as it is remembered.
    async fn last_token_use(&self) -> Option<Timestamp> {
        let tokens = self.shared.store.tokens(&self.session).await.ok().flatten()?;
        tokens.used().next_back().map(|(_, at)| at)
    }

    /// Has a tool's result bring a reconnect token, if the client needs one.
    async fn give_token_with(&mut self, in_seq: InSeq, text: &str) {
        let used = self.shared.hubs.take_renewed(&self.session);
        if self.keeping.book().token_given && !used {
            return;
        }
        let can = Message::parse(text).is_ok_and(|answer| can_carry_token(&answer));
        let recipe = if can { self.new_token().await } else { None };
        match recipe {
            Some(recipe) => self.requests.note_token(in_seq, recipe),
            None if used => self.shared.hubs.token_used(&self.session), // the next result brings it
            None => {}
        }
    }

    async fn new_token(&mut self) -> Option<TokenRecipe> {
        let last_use = self.last_token_use().await; // a use after this is followed by yet another one
        let service = self.service()?;
        let record = self.shared.store.session(&self.session).await.ok().flatten()?;
        let recipe = service.token_recipe(&record).await.ok()?;
        let book = self.keeping.change();
        (book.token_given, book.token_used) = (true, last_use);
        Some(recipe)
    }

    fn service(&self) -> Option<Service> {
        self.shared.service.get().and_then(crate::service::WeakService::upgrade)
    }

    /// The client wants to go over to a session that it has a token of.
    pub(super) async fn reconnect_session(&mut self, in_seq: InSeq) -> Result<(), Closing> {
        let Some(pending) = self.requests.get(in_seq) else { return Ok(()) };
        let (id, stream, from) = (pending.id.clone(), pending.stream.clone(), pending.from);
        let call =
            self.service().and_then(|it| it.reveal_arguments(&self.session, &pending.message));
        let ToolCall { arguments } = call.map(|call| call.read_params()).unwrap_or_default();
        let transport = match stream.is_whole() {
            true => Transport::Sse,
            false => Transport::StreamableHttp,
        };
        let hub = Arc::clone(&self.hub);
        let _shut = hub.shut().await; // nothing comes between looking for other requests and the end
        let went = self.renew(in_seq, arguments, transport, from).await;
        let to = went.as_ref().map_or(&self.session, |(record, _)| record.id()).clone();
        let body = self.our_answer(in_seq, &id, &stream, &to, &went);
        if to == self.session {
            let outcome = went.map_or(CallOutcome::ToolError, |_| CallOutcome::Success);
            self.count_call(in_seq, outcome);
            return self.conclude(in_seq, body).await;
        }
        let Err(reason) = self.go_over(&to, body).await else {
            self.count_call(in_seq, CallOutcome::Success);
            return Err(Closing::Left);
        };
        self.count_call(in_seq, CallOutcome::ToolError);
        let body = self.our_answer(in_seq, &id, &stream, &self.session, &Err(reason));
        self.conclude(in_seq, body).await
    }

    /// What our tool says, in the log of the session that the client has then. It does not say what it was asked,
    /// which is a token: nobody is given that later.
    fn our_answer(
        &self,
        in_seq: InSeq,
        id: &RequestId,
        stream: &StreamName,
        to: &SessionId,
        went: &Went,
    ) -> EventBody {
        let repeats = went.as_ref().map(|(_, waiting)| waiting.seqs.clone()).unwrap_or_default();
        let notes = Notes { fetched: self.fetched_meanwhile(to), repeats, token: None };
        let (text, stream, answers) = (answer(id, went), stream.clone(), Some(in_seq));
        Event { message: Some(&text), stream, answers, request: None, notes }.to_body()
    }

    /// Renews the session that the client names, and collects the results that nobody has fetched.
    async fn renew(
        &self,
        in_seq: InSeq,
        arguments: Arguments,
        transport: Transport,
        from: Option<IpAddr>,
    ) -> Went {
        let service = self.service().ok_or(TOOL_ERROR)?;
        let own =
            self.shared.store.session(&self.session).await.ok().flatten().ok_or(TOOL_ERROR)?;
        let principal = own.about.principal.clone();
        let caller =
            Caller { principal, admin: false, publish: false, until: None, credential: None };
        let visitor = Visitor::over(transport, caller, from);
        let Arguments { session_id, reconnect_token } = arguments;
        if self.requests.entries().len() > 1 || self.has_requests_after(in_seq).await {
            let busy = Reason::SessionBusy;
            service.write_down_renewal(&visitor, &session_id, busy).await;
            return Err(busy.as_str());
        }
        let call = (self.session.clone(), in_seq);
        let renewed = service.renew_mcp(&visitor, &session_id, reconnect_token, call).await;
        let Renewed { record, token } = renewed.map_err(|denial| denial.reason().as_str())?;
        let waiting = Waiting::of(&self.shared, record.id(), token.used_at).await;
        Ok((record, waiting.map_err(|_| TOOL_ERROR)?))
    }

    /// Whether the client has asked for something else that has not come here yet.
    async fn has_requests_after(&self, in_seq: InSeq) -> bool {
        let waiting = self.shared.store.entries(&self.session, in_seq, MOST_LOOKED_AT).await;
        waiting.unwrap_or_default().iter().any(|stored| {
            let entry = Entry::from_body(&stored.body);
            entry.is_some_and(|entry| matches!(entry.message.kind(), Kind::Request { .. }))
        })
    }

    /// From now on this session is another name for the other one. The answer is given there: what this one had goes.
    /// If the other one has ended meanwhile, perhaps because its client has just come here, this one goes on.
    async fn go_over(&mut self, to: &SessionId, answer: EventBody) -> Result<(), &'static str> {
        let events = vec![answer];
        let publication = Publication { events, results: true, ..Publication::default() };
        let service = self.service().ok_or(TOOL_ERROR)?;
        let end = End {
            ending: Ending::Restored { to: to.clone() },
            only_parked: None,
            only_by: None,
            only_due: false,
            remember_for: self.shared.settings.session.lifetime.session_ttl * NAMES_LAST,
            now: self.shared.clock.now(),
        };
        let (shared, session, to) = (Arc::clone(&self.shared), self.session.clone(), to.clone());
        // Whole, though this agent may be stopped meanwhile: an answer that is given belongs to a session that is left.
        let went = self.shared.tasks.finish(|owned| async move {
            if let Err(why) = service.sessions().publish(&to, publication).await {
                tracing::warn!(session = %to, %why, "a client could not go over to this session");
                return Err(TOOL_ERROR);
            }
            match shared.end(owned, &session, end).await {
                Ok(_) | Err(Failure::Refused(_)) => Ok(()), // it may have ended by itself
                Err(Failure::NotFound | Failure::Unavailable(_)) => Err(TOOL_ERROR),
            }
        });
        went.await.unwrap_or(Err(TOOL_ERROR))
    }
}

/// What our tool says.
fn answer(id: &RequestId, went: &Went) -> String {
    let said = match went {
        Ok((record, waiting)) => json!({
            "success": true,
            "message": "Session reconnected successfully",
            "session_id": record.id().client_name(),
            "reconnect_count": record.reconnect_count,
            "waiting": waiting.calls,
        }),
        Err(reason) => json!({
            "success": false,
            "reason": reason,
            "message": format!("Reconnection failed: {reason}"),
        }),
    };
    let result = json!({ "content": [{ "type": "text", "text": said.to_string() }] });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// How many times a session's time to live its other names are known.
const NAMES_LAST: u32 = 7;

fn our_tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": "Goes over to a session that you had before and have a reconnect token of, with \
                        the results that were not fetched.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "session_id": { "type": "string", "description": "The id of the session." },
                "reconnect_token": { "type": "string", "description": "The token that came with it." },
            },
            "required": ["session_id", "reconnect_token"],
        },
        "annotations": { "title": "Reconnect to a session", "readOnlyHint": false },
    })
}
