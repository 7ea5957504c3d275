//! The Rust client and the binary over TLS.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rejoin_client::{Incoming, Session, Status};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// With the built-in agent, and `cert.pem` and `key.pem` of this directory.
    fn start(home: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.env_clear().args(["serve", "--listen=127.0.0.1:0", "--store=memory"]);
        command.arg("--data-dir").arg(home.join("data"));
        command.arg("--tls-cert").arg(home.join("cert.pem"));
        command.arg("--tls-key").arg(home.join("key.pem"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map(Result::unwrap).find_map(|line| {
            let (_, address) = line.split_once("listening on  https://")?;
            Some(address.rsplit_once(':')?.1.to_owned())
        });
        let url = format!("wss://localhost:{}/ws", port.expect("it says where it listens"));
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate for localhost and its key, in files.
fn certify(home: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(home.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(home.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// A client's trust in these.
fn trusting(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    certificates.into_iter().for_each(|certificate| roots.add(certificate).unwrap());
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test]
async fn the_client_speaks_to_a_server_over_tls() {
    let home = tempfile::tempdir().unwrap();
    let certificate = certify(home.path());
    let server = Server::start(home.path());
    let builder = Session::builder(&server.url).tls(trusting([certificate]));
    let mut session = builder.start().await.unwrap();
    timeout(PATIENCE, session.handle().send("hello")).await.unwrap().unwrap();
    let event = timeout(PATIENCE, session.next_event()).await.unwrap().unwrap();
    assert_eq!(event.seq.get(), 1);
    session.close().await;
}

#[tokio::test]
async fn the_client_does_not_speak_to_a_server_whose_certificate_it_does_not_trust() {
    let home = tempfile::tempdir().unwrap();
    certify(home.path());
    let server = Server::start(home.path());
    for builder in [Session::builder(&server.url), Session::builder(&server.url).tls(trusting([]))]
    {
        let mut session = builder.start().await.unwrap();
        loop {
            let item = timeout(PATIENCE, session.next()).await.unwrap().unwrap();
            assert!(!matches!(item, Incoming::Status(Status::Connected { .. })), "{item:?}");
            if matches!(item, Incoming::Status(Status::Reconnecting { .. })) {
                break;
            }
        }
    }
}

/// As `openssl req -x509` makes it: a certificate that may sign others.
fn certify_as_authority(home: &Path) {
    let mut about = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    about.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(home.join("cert.pem"), about.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(home.join("key.pem"), key.serialize_pem()).unwrap();
}

#[test]
fn a_certificate_of_an_authority_is_explained_when_a_server_has_it() {
    let home = tempfile::tempdir().unwrap();
    certify_as_authority(home.path());
    let server = Server::start(home.path());
    let url = server.url.replace("wss://", "https://").replace("/ws", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
    command.args(["sessions", "--url", &url, "--cacert"]).arg(home.path().join("cert.pem"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("basicConstraints=critical,CA:FALSE"), "{said}");
    assert!(!said.contains("CaUsedAsEndEntity"), "{said}");
}

#[tokio::test]
async fn a_command_trusts_the_authority_that_is_named_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    certify(home.path());
    let server = Server::start(home.path());
    let url = server.url.replace("wss://", "https://").replace("/ws", "");
    let ask = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.args(["sessions", "--url", &url]).args(flags).env_remove("REJOIN_CACERT");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let certificate = home.path().join("cert.pem").display().to_string();
    assert_eq!(ask(&["--cacert", &certificate]), (Some(0), String::new()));
    let (code, said) = ask(&[]);
    assert_eq!(code, Some(1), "{said}");
    let key = home.path().join("key.pem").display().to_string();
    let (code, said) = ask(&["--cacert", &key]);
    assert_eq!(
        (code, said.contains("there is no certificate (PEM) in it")),
        (Some(2), true),
        "{said}"
    );
}
