//! HTTP towards one server that somebody has named: the connections, and what is trusted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::USER_AGENT;
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// A peer that has vanished without a word is found out by asking its TCP this often.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Connections that nobody uses are closed after this long: before the server does it, who by default may
/// after five seconds, and just as a request is on its way.
const KEPT: Duration = Duration::from_secs(4);

/// Why nothing can be sent to a URL. It repeats nothing of it, for people put secrets in URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It can't be read, or has no host.
    #[error("the URL can't be read; write http://host/path or https://host/path")]
    Unreadable,
    /// It has a user name or a password in it, which would not be sent.
    #[error("the URL must not have a user name or password in it")]
    UserInfo,
    /// There are no certificates to know a server by.
    #[error("no certificates were found to check an https server with; install ca-certificates")]
    NoCertificates,
    /// The TLS library refuses to be set up.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// It certainly got nothing.
    #[error("no connection")]
    NoConnection,
    /// It may have got everything.
    #[error("the connection broke")]
    Broken,
}

/// Keeps connections to one server.
pub(crate) struct Server {
    url: Uri,
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Server {
    pub(crate) fn new(url: &str) -> Result<Self, BadUrl> {
        let url: Uri = url.parse().map_err(|_| BadUrl::Unreadable)?;
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(BadUrl::UserInfo);
        }
        let tls = match (url.scheme_str(), url.host()) {
            (Some("http"), Some(_)) => tls(RootCertStore::empty())?,
            (Some("https"), Some(_)) => tls(roots()?)?,
            _ => return Err(BadUrl::Unreadable),
        };
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_keepalive(Some(KEEP_ALIVE));
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
        Ok(Self { url, pool })
    }

    /// A request to it, in the making.
    pub(crate) fn request(&self, method: Method) -> Builder {
        let request = Request::builder().method(method).uri(self.url.clone());
        request.header(USER_AGENT, concat!("rejoin/", env!("CARGO_PKG_VERSION")))
    }

    /// Sends a request, and returns when the answer begins.
    pub(crate) async fn send(
        &self,
        request: Builder,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let body = Full::new(body.into());
        let request = request.body(body).map_err(|_| NoAnswer::NoConnection)?;
        self.pool.request(request).await.map_err(|error| match error.is_connect() {
            true => NoAnswer::NoConnection,
            false => NoAnswer::Broken,
        })
    }
}

/// Without the URL, whose query may be secret.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
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
        let bad = ["", "agent.py", "/path", "ftp://host/hunter2", "http://", "http://h /hunter2"];
        for bad in bad.into_iter().chain(["http://me:hunter2@host/"]) {
            let error = Server::new(bad).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        let server = Server::new("http://127.0.0.1:9/agent?key=hunter2").unwrap();
        assert!(!format!("{server:?}").contains("hunter2"));
    }
}
