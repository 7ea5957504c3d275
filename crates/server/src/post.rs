//! POSTs JSON to one URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// How long an attempt may take, unless somebody says otherwise.
const ATTEMPT: Duration = Duration::from_secs(30);

/// What is read of an answer, so that its connection can be used again.
const ANSWER_BYTES: usize = 64 * 1024;

/// Connections that nobody uses are closed after this long.
const KEPT: Duration = Duration::from_secs(30);

/// Why nothing can be POSTed to a URL. It repeats nothing of it, for people put secrets in URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It can't be read, or has no host.
    #[error("the URL can't be read; write http://host/path or https://host/path")]
    Unreadable,
    /// There are no certificates to know a server by.
    #[error("no certificates were found to check an https server with; install ca-certificates")]
    NoCertificates,
    /// The TLS library refuses to be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
}

/// Why a POST was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("it answered {}", .0.as_u16())]
    Status(StatusCode),
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("no connection")]
    NoConnection,
    #[error("the connection broke")]
    Broken,
}

/// Keeps connections to one server.
pub(crate) struct Client {
    url: Uri,
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// How long an attempt may take.
    pub(crate) timeout: Duration,
}

impl Client {
    pub(crate) fn new(url: &str) -> Result<Self, BadUrl> {
        let url: Uri = url.parse().map_err(|_| BadUrl::Unreadable)?;
        let tls = match (url.scheme_str(), url.host()) {
            (Some("http"), Some(_)) => tls(RootCertStore::empty())?,
            (Some("https"), Some(_)) => tls(roots()?)?,
            _ => return Err(BadUrl::Unreadable),
        };
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .build(connector);
        Ok(Self { url, pool, timeout: ATTEMPT })
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
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("rejoin/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::from(json)).map_err(|_| NotTaken::NoConnection)?;
        let answer =
            self.pool.request(request).await.map_err(|error| match error.is_connect() {
                true => NotTaken::NoConnection,
                false => NotTaken::Broken,
            })?;
        let status = answer.status();
        // Read also where nobody looks at it, for the sake of the connection.
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        if status.is_success() { Ok(body) } else { Err(NotTaken::Status(status)) }
    }
}

/// Without the URL, whose query may be secret.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

fn tls(roots: RootCertStore) -> Result<ClientConfig, BadUrl> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BadUrl::Tls(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The certificates of the machine, so that a company's own work too.
fn roots() -> Result<RootCertStore, BadUrl> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(BadUrl::NoCertificates) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_that_is_http_and_a_host_and_is_repeated_nowhere() {
        for bad in ["", "agent.py", "/path", "ftp://host/hunter2", "http://", "http://h /hunter2"] {
            let error = Client::new(bad).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        let client = Client::new("http://127.0.0.1:9/agent?key=hunter2").unwrap();
        assert!(!format!("{client:?}").contains("hunter2"));
    }
}
