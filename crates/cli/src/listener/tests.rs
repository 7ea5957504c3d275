//! Real connections, from a real TLS client, to a router that says whom it talks to.

use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::limits::{BODY_PAUSE, FIRST_HEAD, HEAD_BYTES, NEXT_HEAD, WHOLE_BODY};
use crate::serve::connections;
use crate::tls::tests::Site;
use crate::tls::{self, Tls};

const PLENTY: ConnectionBounds =
    ConnectionBounds { all: 1000, per_address: 1000, of_this_machine_too: false };

/// A server that answers with the peer's address, and ends with the test.
struct Server {
    address: SocketAddr,
    scheme: &'static str,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(tls: Option<&Tls>) -> Server {
    serve_within(tls, PLENTY).await
}

async fn serve_within(tls: Option<&Tls>, bounds: ConnectionBounds) -> Server {
    let acceptor = tls.map(|tls| tls.acceptor().unwrap());
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(address, acceptor, Duration::from_secs(60), bounds).unwrap();
    let (address, scheme) = (listener.local_addr().unwrap(), listener.scheme());
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
    let length = |body: axum::body::Bytes| async move { body.len().to_string() };
    let router = Router::new().route("/", get(who)).route("/", post(length));
    let task = tokio::spawn(connections::serve(listener, router, std::future::pending()));
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

/// Everything that comes until the other side closes. Time passes by itself while everybody waits.
async fn until_closed(stream: &mut TcpStream, within: Duration) -> String {
    let mut heard = Vec::new();
    let ended = stream.read_to_end(&mut heard);
    let _ = tokio::time::timeout(within, ended).await.expect("it is closed");
    String::from_utf8_lossy(&heard).into_owned()
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
    assert_eq!(until_closed(&mut silent, HANDSHAKE * 2).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_first_request_whose_head_never_ends_is_given_up() {
    let server = serve(None).await;
    for head in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut slow = TcpStream::connect(server.address).await.unwrap();
        slow.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(until_closed(&mut slow, FIRST_HEAD * 2).await, "", "{head}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_for_nothing_more_is_given_up_later() {
    let server = serve(None).await;
    for rest in ["", "GET / HTTP/1.1\r\n"] {
        let mut idle = TcpStream::connect(server.address).await.unwrap();
        let whole = format!("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n{rest}");
        let began = tokio::time::Instant::now();
        idle.write_all(whole.as_bytes()).await.unwrap();
        let heard = until_closed(&mut idle, NEXT_HEAD * 2).await;
        assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
        assert!(began.elapsed() > FIRST_HEAD, "a response gives it more time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_or_trickles_is_given_up() {
    let server = serve(None).await;
    let head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
    let mut half = TcpStream::connect(server.address).await.unwrap();
    half.write_all(head).await.unwrap();
    let heard = until_closed(&mut half, BODY_PAUSE * 2).await;
    assert!(!heard.starts_with("HTTP/1.1 200"), "{heard}");
    let mut trickle = TcpStream::connect(server.address).await.unwrap();
    trickle.write_all(head).await.unwrap();
    let (mut reader, mut writer) = trickle.split();
    let began = tokio::time::Instant::now();
    let write = async {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(BODY_PAUSE / 2).await;
        }
    };
    let mut heard = Vec::new();
    tokio::select! {
        () = write => {}
        _ = reader.read_to_end(&mut heard) => {}
    }
    assert!(began.elapsed() <= WHOLE_BODY + BODY_PAUSE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_head_without_end_is_refused_before_it_fills_the_memory() {
    let server = serve(None).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}", "a".repeat(2 * HEAD_BYTES));
    let _ = stream.write_all(head.as_bytes()).await; // it may be closed meanwhile
    let heard = until_closed(&mut stream, FIRST_HEAD / 2).await;
    assert!(heard.is_empty() || heard.starts_with("HTTP/1.1 431"), "{heard}");
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_and_places_come_back() {
    let server =
        serve_within(None, ConnectionBounds { all: 2, per_address: 1, of_this_machine_too: false })
            .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200", "this machine is not held to the bound of one address");
        held.push(stream);
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(until_closed(&mut third, FIRST_HEAD / 2).await, "");
    drop(held);
    let answered = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let mut answer = String::new();
            let asked = stream.write_all(request).await;
            if asked.is_ok()
                && stream.read_to_string(&mut answer).await.is_ok()
                && !answer.is_empty()
            {
                return;
            }
        }
    };
    tokio::time::timeout(FIRST_HEAD, answered).await.expect("places come back");
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
    let mut listener = Listener::bind(address, None, Duration::from_millis(300), PLENTY).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let peer = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let mut stream = listener.accept().await.ready().await.unwrap();
    stream.write_all(&[0; 64 * 1024]).await.unwrap(); // more than the peer has room for
    let noticed = tokio::time::timeout(Duration::from_secs(20), stream.read_u8()).await;
    let error = noticed.expect("it is given up").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(peer); // it was there all the time
}
