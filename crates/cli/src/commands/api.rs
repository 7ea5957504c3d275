//! Requests to a server: JSON in, JSON out, and failures as people can act on them.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use rejoin_core::SessionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::failure::Failure;
use super::target::Target;
use crate::tls;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// How long an answer may take to begin, and to come whole.
const ANSWER: Duration = Duration::from_secs(30);

/// The largest answer that is read; a page of a list, or of events, is far below.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// What is wrong with most certificates that people sign themselves, and how to get a good one.
const AUTHORITY_AS_SERVER: &str = "its certificate is that of a certificate authority (CA:TRUE), as `openssl req \
     -x509` makes them, and is not accepted as a server's; make it with -addext \
     basicConstraints=critical,CA:FALSE, or sign another one for the server with it";

/// A server, ready to be asked.
pub(crate) struct Api {
    target: Target,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Api {
    /// Nothing is sent yet.
    pub(crate) fn new(target: Target) -> Result<Self, Failure> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust(&target)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        // A command asks now and then: a connection that was kept may be to a server that has gone.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { target, client })
    }

    /// The server's address.
    pub(crate) fn url(&self) -> &str {
        &self.target.url
    }

    /// Asks for something that is no one session's.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.answer(self.request(Method::GET, path), None).await
    }

    /// Asks something of a session; `rest` is what follows its id in the path.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        id: &SessionId,
        rest: &str,
    ) -> Result<T, Failure> {
        self.answer(self.request(method, &path_of(id, rest)), Some(id)).await
    }

    /// Makes a session for a client that says this of itself.
    pub(crate) async fn create<T: DeserializeOwned>(&self, client: &Value) -> Result<T, Failure> {
        let mut request = self.request(Method::POST, "/api/sessions");
        request.body = client.to_string().into();
        self.answer(request, None).await
    }

    /// Posts JSON to a session.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        id: &SessionId,
        rest: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let mut request = self.request(Method::POST, &path_of(id, rest));
        request.body = body.to_string().into();
        self.answer(request, Some(id)).await
    }

    /// Begins to follow a session's events, after the one with this id.
    pub(crate) async fn events(
        &self,
        id: &SessionId,
        last_event_id: Option<&str>,
    ) -> Result<Incoming, Failure> {
        let mut request = self.request(Method::GET, &path_of(id, "/events"));
        request.accept = "text/event-stream";
        request.last_event_id = last_event_id.map(str::to_owned);
        let response = self.send(request).await?;
        match response.status().is_success() {
            true => Ok(response.into_body()),
            false => Err(self.refusal(response, Some(id)).await),
        }
    }

    fn request(&self, method: Method, path: &str) -> Asked {
        let url = format!("{}{path}", self.target.url);
        Asked { method, url, accept: "application/json", last_event_id: None, body: Bytes::new() }
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        asked: Asked,
        session: Option<&SessionId>,
    ) -> Result<T, Failure> {
        let response = self.send(asked).await?;
        if !response.status().is_success() {
            return Err(self.refusal(response, session).await);
        }
        let body = self.read(response).await?;
        serde_json::from_slice(&body).map_err(|error| self.strange(error.to_string()))
    }

    async fn send(&self, asked: Asked) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::builder()
            .method(asked.method)
            .uri(asked.url)
            .header(ACCEPT, asked.accept)
            .header(USER_AGENT, concat!("rejoin/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = &self.target.key {
            request = request.header(AUTHORIZATION, key.header.clone());
        }
        if let Some(last) = asked.last_event_id {
            request = request.header("last-event-id", last);
        }
        if !asked.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(asked.body))
            .map_err(|error| Failure::Other(format!("the request can't be made: {error}")))?;
        match tokio::time::timeout(ANSWER, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.no_connection(&error)),
            Err(_) => Err(self.unreachable(format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Bytes, Failure> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
        match tokio::time::timeout(ANSWER, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(_)) | Err(_) => Err(Failure::Broken { url: self.target.url.clone() }),
        }
    }

    /// Why the server would not.
    async fn refusal(&self, response: Response<Incoming>, session: Option<&SessionId>) -> Failure {
        let (status, url) = (response.status(), self.target.url.clone());
        let body = match self.read(response).await {
            Ok(body) => body,
            Err(failure) => return failure,
        };
        // Anything may stand on that port, or between; only our server says what is the matter.
        let detail = serde_json::from_slice::<Refusal>(&body).ok().map(|refusal| refusal.detail);
        let is_ours = detail.is_some();
        match (status, session, &self.target.key) {
            (StatusCode::UNAUTHORIZED, _, None) => Failure::KeyMissing { url },
            (StatusCode::UNAUTHORIZED, _, Some(key)) => {
                Failure::KeyRefused { url, source_name: key.source.clone() }
            }
            (StatusCode::NOT_FOUND, Some(id), _) if is_ours => Failure::NotFound(id.clone()),
            (StatusCode::GONE, Some(id), _) if is_ours => Failure::Ended(id.clone()),
            (StatusCode::NOT_FOUND, _, _) if !is_ours => {
                self.strange("there is no /api".to_owned())
            }
            _ => {
                let reason = status.canonical_reason().unwrap_or("no reason given");
                let detail = detail.unwrap_or_else(|| reason.to_owned());
                Failure::Answer { url, status, detail: super::out::tame(&detail) }
            }
        }
    }

    fn no_connection(&self, error: &Error) -> Failure {
        let url = self.target.url.clone();
        if !error.is_connect() {
            return Failure::Broken { url };
        }
        let causes = || std::iter::successors(error.source(), |cause| (*cause).source());
        let refused = causes().any(|cause| {
            let io = cause.downcast_ref::<io::Error>();
            io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        });
        match causes().last() {
            _ if refused => Failure::NothingListens { url },
            Some(cause) if cause.to_string().contains("CaUsedAsEndEntity") => {
                self.unreachable(AUTHORITY_AS_SERVER.to_owned())
            }
            Some(cause) => self.unreachable(cause.to_string()),
            None => self.unreachable("no connection".to_owned()),
        }
    }

    fn unreachable(&self, why: String) -> Failure {
        Failure::Unreachable { url: self.target.url.clone(), why }
    }

    fn strange(&self, why: String) -> Failure {
        Failure::Strange { url: self.target.url.clone(), why }
    }
}

/// A request, before it is one.
struct Asked {
    method: Method,
    url: String,
    accept: &'static str,
    last_event_id: Option<String>,
    body: Bytes,
}

/// What our server says when it will not.
#[derive(Deserialize)]
struct Refusal {
    detail: String,
}

/// An id has no character that means something in a path.
fn path_of(id: &SessionId, rest: &str) -> String {
    format!("/api/sessions/{id}{rest}")
}

/// Trusts whom this machine trusts and the authority that was named; where no TLS is wanted, nobody needs to be.
fn trust(target: &Target) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(target.authorities.iter().cloned());
    if target.url.starts_with("https://") {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let sentence = "no certificates were found to check an https server with; install \
                            ca-certificates, or name a file with --cacert";
            return Err(Failure::Other(sentence.to_owned()));
        }
    }
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::Other(format!("TLS can't be set up: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
