//! The MCP server: rmcp's, with sessions that survive. What is particular to Rejoin is in [`serve`]; the tools
//! would look the same without.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

use crate::studio::Studio;

/// The journal's name in the data directory.
pub(crate) const JOURNAL: &str = "studio.jsonl";

/// Serves until it is killed.
pub(crate) async fn serve(address: SocketAddr, data: &Path, retry: Duration) -> Result<()> {
    std::fs::create_dir_all(data)?;
    let studio = Studio::open(&data.join(JOURNAL))?;
    let manager = rejoin_rmcp::open(&data.join("sessions"))?.sse_retry(retry).start()?;
    let factory =
        move || Ok(Tools { tool_router: Tools::tool_router(), studio: Arc::clone(&studio) });
    let service = rejoin_rmcp::service(factory, Arc::new(manager), Default::default());
    let router = axum::Router::new().route_service("/mcp", service);
    axum::serve(tokio::net::TcpListener::bind(address).await?, router).await?;
    Ok(())
}

struct Tools {
    tool_router: ToolRouter<Self>,
    studio: Arc<Studio>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Compose {
    /// Names the job: asking again is asking for the same one.
    job: String,
    /// How long the model takes.
    ms: u64,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Say {
    /// Names what is said: it is said once.
    key: String,
    who: String,
    text: String,
}

#[tool_router]
impl Tools {
    /// Idempotent, by the job's name: if the server dies over a call, the next one takes it up again by itself.
    #[tool(description = "Composes a melody", annotations(idempotent_hint = true))]
    async fn compose(
        &self,
        Parameters(Compose { job, ms }): Parameters<Compose>,
    ) -> Result<String, String> {
        self.studio.begin(&job, Duration::from_millis(ms)).map_err(|error| error.to_string())?;
        self.studio.artifact(&job).await.ok_or_else(|| "the studio has closed".to_owned())
    }

    #[tool(description = "Says something to the others", annotations(idempotent_hint = true))]
    async fn say(
        &self,
        Parameters(Say { key, who, text }): Parameters<Say>,
    ) -> Result<String, String> {
        self.studio.say(&key, &who, &text).map_err(|error| error.to_string())?;
        Ok("said".to_owned())
    }

    #[tool(description = "What was said so far", annotations(read_only_hint = true))]
    async fn listen(&self) -> String {
        self.studio.conversation().join("\n")
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_instructions("A studio for five musicians")
    }
}
