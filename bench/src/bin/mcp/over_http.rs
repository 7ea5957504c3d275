//! A server called over Streamable HTTP, on connections that are kept.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::calling::{INITIALIZED, Latencies, initialize, one_by_one, tool_call};

/// A session over HTTP.
pub(crate) struct Session {
    address: SocketAddr,
    id: String,
}

impl Session {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(address).await?;
        let (id, body) = initialize();
        let answer = connection.post("", body).await?;
        let session = answer.headers().get("mcp-session-id");
        let session = session.context("it gives no session id")?.to_str()?.to_owned();
        result_in(answer, id).await?;
        let answer = connection.post(&session, INITIALIZED.to_owned()).await?;
        ensure!(
            answer.status().is_success(),
            "it does not take notifications: {}",
            answer.status()
        );
        answer.into_body().collect().await?;
        Ok(Self { address, id: session })
    }

    pub(crate) async fn call_for(&self, time: Duration, in_flight: usize) -> Result<Latencies> {
        let callers = (0..in_flight).map(|_| self.calls(time));
        Ok(Latencies::of(try_join_all(callers).await?.concat()))
    }

    async fn calls(&self, time: Duration) -> Result<Vec<Duration>> {
        let mut connection = Connection::open(self.address).await?;
        one_by_one(time, async || {
            let (id, body) = tool_call();
            result_in(connection.post(&self.id, body).await?, id).await
        })
        .await
    }
}

/// Reads an answer to its end, so that its connection can be used again. Returns when the result with this
/// id had arrived.
async fn result_in(answer: Response<Incoming>, id: u64) -> Result<Instant> {
    ensure!(answer.status().is_success(), "it answers {}", answer.status());
    let (mut body, mut text, mut arrived) = (answer.into_body(), vec![], None);
    let (spaced, plain) = (format!("\"id\": {id}"), format!("\"id\":{id}"));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        text.extend_from_slice(&data);
        if arrived.is_none() && [&spaced, &plain].iter().any(|id| contains(&text, id)) {
            arrived = Some(Instant::now());
        }
    }
    ensure!(contains(&text, "\"result\""), "no result: {}", String::from_utf8_lossy(&text));
    arrived.context("the answer is another request's")
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|at| at == part.as_bytes())
}

/// A connection that is made again if the server closes it between two requests.
struct Connection {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    driver: JoinSet<()>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async {
            let _ = connection.await; // the sender notices
        });
        Ok(Self { address, sender, driver })
    }

    async fn post(&mut self, session: &str, body: String) -> Result<Response<Incoming>> {
        if self.sender.ready().await.is_err() {
            *self = Self::open(self.address).await?;
        }
        let mut request = Request::post("/mcp")
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if !session.is_empty() {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        Ok(self.sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort_all();
    }
}
