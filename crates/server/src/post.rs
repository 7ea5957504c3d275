//! POSTs JSON to one URL.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, StatusCode};

use crate::outward::{BadUrl, NoAnswer, Server};

/// How long an attempt may take, unless somebody says otherwise.
const ATTEMPT: Duration = Duration::from_secs(30);

/// What is read of an answer, so that its connection can be used again.
const ANSWER_BYTES: usize = 64 * 1024;

/// Why a POST was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("it answered {}", .0.as_u16())]
    Status(StatusCode),
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// Posts to one URL.
#[derive(Debug)]
pub(crate) struct Poster {
    server: Server,
    /// How long an attempt may take.
    pub(crate) timeout: Duration,
}

impl Poster {
    pub(crate) fn new(url: &str) -> Result<Self, BadUrl> {
        Ok(Self { server: Server::new(url)?, timeout: ATTEMPT })
    }

    /// Sends JSON, and returns the answer once it was taken. Of a long answer only the beginning.
    pub(crate) async fn post(
        &self,
        json: Vec<u8>,
        headers: &[(&'static str, String)],
    ) -> Result<Bytes, NotTaken> {
        let attempt = tokio::time::timeout(self.timeout, self.attempt(json, headers));
        attempt.await.unwrap_or(Err(NotTaken::TimedOut(self.timeout)))
    }

    async fn attempt(
        &self,
        json: Vec<u8>,
        headers: &[(&'static str, String)],
    ) -> Result<Bytes, NotTaken> {
        let mut request =
            self.server.request(Method::POST).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let answer = self.server.send(request, json).await?;
        let status = answer.status();
        // Read also where nobody looks at it, for the sake of the connection.
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        if status.is_success() { Ok(body) } else { Err(NotTaken::Status(status)) }
    }
}
