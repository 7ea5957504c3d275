//! Posting to the collector over HTTP/1.1, plain or TLS: a connection for each batch, on the SDK's own
//! thread. The server's runtime takes no part in it and may have ended before the last batch is sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use axum::http::{HeaderValue, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::settings::HttpUrl;
use crate::tls;

/// How long one batch may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024;

/// Whoever takes spans.
pub(super) struct Collector {
    /// As people may see it.
    name: String,
    runtime: Runtime,
    tls: Option<TlsConnector>,
    /// Whether the last batch failed: that is told once, not for every batch.
    failing: AtomicBool,
}

impl Collector {
    pub(super) fn new(endpoint: &HttpUrl) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tls = endpoint.as_str().starts_with("https://").then(connector).transpose()?;
        Ok(Self {
            name: endpoint.to_string(),
            runtime: runtime.context("the runtime of telemetry can't be started")?,
            tls,
            failing: AtomicBool::new(false),
        })
    }

    async fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let (host, port) = address_of(request.uri())?;
        let stream = TcpStream::connect((host.as_str(), port)).await.context("no connection")?;
        match &self.tls {
            None => send(stream, request).await,
            Some(connector) => {
                let name = ServerName::try_from(host).context("the host has no valid name")?;
                let stream = connector.connect(name, stream).await.context("no TLS")?;
                send(stream, request).await
            }
        }
    }

    /// Says that it fails, or works again.
    fn tell(&self, outcome: &Result<Response<Bytes>>) {
        let failure = match outcome {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(format!("{error:#}")),
        };
        let was_failing = self.failing.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(failure) if !was_failing => {
                tracing::warn!(collector = self.name, "spans can't be sent: {failure}");
            }
            None if was_failing => tracing::info!(collector = self.name, "spans are sent again"),
            Some(_) | None => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    /// Blocks the thread, which is the SDK's own and has nothing else to do.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let outcome = self.runtime.block_on(async {
            let posted = tokio::time::timeout(TIMEOUT, self.post(request)).await;
            posted.context("no answer in time").flatten()
        });
        self.tell(&outcome);
        Ok(outcome?)
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collector").field(&self.name).finish()
    }
}

/// The host, without the brackets of an IPv6 address, and the port.
fn address_of(uri: &Uri) -> Result<(String, u16)> {
    let host = uri.host().context("the URL has no host")?;
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Ok((host.to_owned(), uri.port_u16().unwrap_or(default)))
}

/// Sends `request` over a connection of its own and reads the whole answer.
async fn send<S>(stream: S, mut request: Request<Bytes>) -> Result<Response<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().context("the URL has no host")?;
    let host = HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().insert(header::HOST, host);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;

    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let Ok(body) = body else { bail!("its answer can't be read") };
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await, // it is closed, and the answer is there or never comes
    }
}

/// Trusts whom this machine trusts.
fn connector() -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    ensure!(
        !roots.is_empty(),
        "otlp_endpoint: this machine has no certificates to trust for https"
    );
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .context("TLS can't be set up")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
