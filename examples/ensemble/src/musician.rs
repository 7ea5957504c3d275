//! A musician: rmcp's client, unmodified. It knows nothing of sessions that survive. What it must do is what any
//! program does on a network: a call that was refused or broke before it began is made again, under the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures_util::future::join_all;
use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::pace::{AT_ONCE, Plan};
use crate::timeline::{Timeline, What};

/// How long a musician waits before it asks again.
const A_MOMENT: Duration = Duration::from_millis(50);

/// A musician at work.
pub(crate) struct Musician {
    pub(crate) name: &'static str,
    pub(crate) number: usize,
    pub(crate) timeline: Arc<Timeline>,
    /// Is told of each result.
    pub(crate) results: mpsc::UnboundedSender<String>,
    /// Calls that had to be made again.
    pub(crate) repeated: AtomicUsize,
}

type Client = RunningService<RoleClient, ()>;

impl Musician {
    /// Plays everything that is planned, through one session; returns each job with what came of it.
    pub(crate) async fn play(&self, url: &str, plan: Vec<Plan>) -> Result<Vec<(String, String)>> {
        let client = self.connect(url).await;
        let mut played = Vec::new();
        for together in plan.chunks(AT_ONCE) {
            let all = together.iter().map(|job| self.compose(&client, job));
            for result in join_all(all).await {
                played.push(result?);
            }
        }
        client.cancel().await.context("the client did not end")?;
        Ok(played)
    }

    /// A connection that breaks before the session begins is the one thing that nobody can come back to.
    async fn connect(&self, url: &str) -> Client {
        loop {
            match ().serve(StreamableHttpClientTransport::from_uri(url)).await {
                Ok(client) => return client,
                Err(_) => tokio::time::sleep(A_MOMENT).await,
            }
        }
    }

    async fn compose(&self, client: &Client, job: &Plan) -> Result<(String, String)> {
        let key = &job.key;
        let heard = self.call(client, "listen", json!({})).await?;
        self.timeline.note(self.number, What::Asked(key.clone()));
        let ms = job.takes.as_millis() as u64;
        let artifact = self.call(client, "compose", json!({ "job": key, "ms": ms })).await?;
        self.timeline.note(self.number, What::Got(key.clone()));
        let _ = self.results.send(key.clone());
        let theme = heard.lines().last().unwrap_or("silence");
        let text = format!("{key} is {artifact}, after {theme:.20}");
        self.call(client, "say", json!({ "key": key, "who": self.name, "text": text })).await?;
        Ok((key.clone(), artifact))
    }

    /// Makes a call until it is answered.
    async fn call(&self, client: &Client, tool: &'static str, arguments: Value) -> Result<String> {
        loop {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            let call = CallToolRequestParams::new(tool).with_arguments(arguments);
            match client.call_tool(call).await {
                Ok(result) => {
                    let text = result.content.first().and_then(|content| content.as_text());
                    let text = text.context("a text was expected")?.text.clone();
                    return if result.is_error == Some(true) {
                        bail!("{tool}: {text}")
                    } else {
                        Ok(text)
                    };
                }
                Err(error) if client.is_transport_closed() => {
                    bail!("{} lost its session: {error}", self.name)
                }
                Err(_) => {
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(A_MOMENT).await;
                }
            }
        }
    }
}
