//! Reconnect tokens that MCP clients are given with results and bring in tool calls. Neither log holds one that can be
//! used: of a token that is given the log has the recipe, and what a call brings is encrypted until it is handled.

use rejoin_core::SessionId;
use rejoin_core::concealed;
use rejoin_core::record::Record;
use rejoin_core::state::NewToken;
use rejoin_core::token::{Grant, TokenRecipe};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Denial, Issued, Service};
use crate::mcp::message::{Message, read, splice};
use crate::random;

impl Service {
    /// A new token for the client of a session, which the store knows from now on.
    pub(crate) async fn token_recipe(&self, record: &Record) -> Result<TokenRecipe, Denial> {
        let (keys, now) = (self.keys(), self.now());
        let grant = Grant {
            session_id: record.id().clone(),
            principal: record.about.principal.clone(),
            generation: record.generation,
            lifetime: self.sessions().settings().session.token_ttl,
        };
        let recipe = TokenRecipe::new(&keys, &grant, random::bytes()?, now);
        let made = recipe.make(&keys).ok_or(Denial::Unavailable)?;
        let new = NewToken { hash: made.hash, expires_at: made.expires_at };
        let (service, id) = (self.clone(), record.id().clone());
        let put = self.finish(|owned| async move {
            Ok(service.sessions().store().change(owned).put_token(&id, new, now).await?)
        });
        put.await?;
        Ok(recipe)
    }

    /// The token that a recipe is of; nothing if its key was retired.
    pub(crate) fn token_of(&self, recipe: &TokenRecipe) -> Option<Issued> {
        let made = recipe.make(&self.keys())?;
        Some(Issued { token: made.token, expires_at: made.expires_at })
    }

    /// A tool call as it is stored, which may bring a token: its arguments are encrypted. Whatever they are, so that
    /// nobody can have arguments revealed that were read in a log.
    pub(crate) fn conceal_arguments(
        &self,
        session: &SessionId,
        call: &Message,
    ) -> Result<Message, Denial> {
        let Some(arguments) = arguments(call) else { return Ok(call.clone()) };
        let nonce = random::bytes()?;
        let concealed = concealed::conceal(&self.keys(), arguments, session.as_str(), nonce);
        let concealed = concealed.ok_or(Denial::Unavailable)?;
        Ok(with_arguments(call, arguments, &format!("\"{concealed}\"")))
    }

    /// The same call as it came; nothing if the key that encrypted it was retired.
    pub(crate) fn reveal_arguments(&self, session: &SessionId, call: &Message) -> Option<Message> {
        let Some(arguments) = arguments(call) else { return Some(call.clone()) };
        let concealed: String = read(Some(arguments));
        let revealed = concealed::reveal(&self.keys(), &concealed, session.as_str())?;
        Some(with_arguments(call, arguments, &revealed))
    }
}

/// The arguments of a tool call as they were written.
fn arguments(call: &Message) -> Option<&str> {
    #[derive(Default, Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
    }
    call.read_params::<Params<'_>>().arguments.map(RawValue::get)
}

fn with_arguments(call: &Message, arguments: &str, other: &str) -> Message {
    Message::parse(&splice(call.text(), arguments, other)).unwrap_or_else(|_| call.clone())
}
