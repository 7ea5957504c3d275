//! Real connections, from a real TLS client, to a router that says whom it talks to.

use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::tls::tests::Site;
use crate::tls::{self, Tls};

/// A server that answers with the peer's address, and ends with the test.
struct Server {
    address: SocketAddr,
    scheme: &'static str,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(tls: Option<&Tls>) -> Server {
    let acceptor = tls.map(|tls| tls.acceptor().unwrap());
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(address, acceptor, Duration::from_secs(60)).await.unwrap();
    let (address, scheme) = (listener.local_addr().unwrap(), listener.scheme());
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
    let router = Router::new().route("/", get(who));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(axum::serve(listener.with_peers(), service).into_future());
    Server { address, scheme, task }
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Asks over TLS, trusting nothing but `certificate`.
async fn ask_over_tls(
    address: SocketAddr,
    certificate: &CertificateDer<'static>,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let own = stream.local_addr()?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
    let answer = ask(stream).await;
    assert!(answer.ends_with(&own.to_string()), "{answer}");
    Ok(answer)
}

#[tokio::test]
async fn a_plain_connection_is_served_and_its_peer_is_known() {
    let server = serve(None).await;
    assert_eq!(server.scheme, "http");
    let stream = TcpStream::connect(server.address).await.unwrap();
    let own = stream.local_addr().unwrap().to_string();
    assert!(ask(stream).await.ends_with(&own));
}

#[tokio::test]
async fn a_tls_connection_is_served_and_its_peer_is_known() {
    let site = Site::new();
    let certificate = site.renew();
    let tls = tls::open(&site.settings).unwrap().unwrap();
    let server = serve(Some(&tls)).await;
    assert_eq!(server.scheme, "https");
    let answer = ask_over_tls(server.address, &certificate).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn handshakes_that_never_end_and_plain_speakers_hold_up_nobody() {
    let site = Site::new();
    let certificate = site.renew();
    let tls = tls::open(&site.settings).unwrap().unwrap();
    let server = serve(Some(&tls)).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let answered = ask_over_tls(server.address, &certificate);
    tokio::time::timeout(HANDSHAKE / 2, answered).await.expect("it does not wait").unwrap();
    let mut heard = Vec::new();
    plain.read_to_end(&mut heard).await.ok();
    assert!(!heard.starts_with(b"HTTP"), "plain HTTP is not answered");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_given_up() {
    let site = Site::new();
    let tls = tls::open(&site.settings).unwrap().unwrap();
    let server = serve(Some(&tls)).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut heard = Vec::new();
    let ended = silent.read_to_end(&mut heard); // time passes by itself while everybody waits
    tokio::time::timeout(HANDSHAKE * 2, ended).await.expect("it is closed").unwrap();
    assert!(heard.is_empty());
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections() {
    let site = Site::new();
    let old = site.renew();
    let tls = tls::open(&site.settings).unwrap().unwrap();
    let server = serve(Some(&tls)).await;
    assert!(ask_over_tls(server.address, &old).await.is_ok());
    let new = site.renew();
    tls.reload().unwrap();
    assert!(ask_over_tls(server.address, &new).await.is_ok());
    assert!(ask_over_tls(server.address, &old).await.is_err());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_peer_that_takes_no_bytes_is_given_up() {
    let address = "127.0.0.1:0".parse().unwrap();
    let mut listener = Listener::bind(address, None, Duration::from_millis(300)).await.unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let peer = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = Accept::accept(&mut listener).await;
    stream.write_all(&[0; 64 * 1024]).await.unwrap(); // more than the peer has room for
    let noticed = tokio::time::timeout(Duration::from_secs(20), stream.read_u8()).await;
    let error = noticed.expect("it is given up").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(peer); // it was there all the time
}
