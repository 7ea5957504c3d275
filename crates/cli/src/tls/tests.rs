//! Certificates as people give them, good and bad. The helpers also serve the listener's tests.

use std::fs;

use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
use tempfile::TempDir;

use super::*;
use crate::settings::{Config, Environment, Flags};

/// A directory with `cert.pem` and `key.pem` for `localhost`, and settings that name them.
pub(crate) struct Site {
    pub(crate) directory: TempDir,
    pub(crate) settings: Settings,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let line = ["rejoin", "--tls-cert", &path("cert.pem"), "--tls-key", &path("key.pem")];
        let matches = Flags::add_to(clap::Command::new("rejoin")).try_get_matches_from(line);
        let flags = Flags::from_matches(&matches.unwrap());
        let settings = Config::load(&flags, &Environment::default()).unwrap().settings;
        let site = Self { directory, settings };
        site.renew();
        site
    }

    /// Writes a new certificate and key, and gives the certificate.
    pub(crate) fn renew(&self) -> CertificateDer<'static> {
        let (certificate, key, der) = made();
        self.write("cert.pem", &certificate);
        self.write("key.pem", &key);
        der
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn refused(&self) -> String {
        let sentence = format!("{:#}", open(&self.settings).unwrap_err());
        sentence.replace(self.directory.path().to_str().unwrap(), "…")
    }
}

/// A certificate, its key, both in PEM, and the certificate in DER.
fn made() -> (String, String, CertificateDer<'static>) {
    let Made { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem(), cert.der().clone())
}

#[test]
fn a_certificate_and_its_key_are_accepted() {
    let tls = open(&Site::new().settings).unwrap().expect("TLS is on");
    assert!(tls.acceptor().is_ok());
}

#[test]
fn what_is_wrong_with_the_files_is_said_in_one_sentence() {
    let site = Site::new();
    let key = fs::read_to_string(site.directory.path().join("key.pem")).unwrap();
    for (text, why) in [
        (key.clone(), "tls_cert …/cert.pem has no certificate in it (PEM)"),
        (String::new(), "tls_cert …/cert.pem has no certificate in it (PEM)"),
        ("-----BEGIN CERTIFICATE-----\nabc".into(), "tls_cert …/cert.pem is not whole PEM"),
        (
            "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n".into(),
            "tls_cert …/cert.pem holds a broken certificate",
        ),
    ] {
        site.write("cert.pem", &text);
        assert_eq!(site.refused(), why);
    }
    fs::remove_file(site.directory.path().join("cert.pem")).unwrap();
    assert!(site.refused().starts_with("tls_cert …/cert.pem can't be read: No such file"));

    site.renew();
    let encrypted = "tls_key …/key.pem is encrypted; `openssl pkey` writes it without a passphrase";
    for (text, why) in [
        (key, "tls_key …/key.pem is not the key of the first certificate in tls_cert …/cert.pem"),
        (made().0, "tls_key …/key.pem has no private key in it (PEM)"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n".into(), encrypted),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n".into(), encrypted),
        (
            "-----BEGIN PRIVATE KEY-----\nYWJj\n-----END PRIVATE KEY-----\n".into(),
            "tls_key …/key.pem holds a kind of key that TLS has no use for",
        ),
    ] {
        site.write("key.pem", &text);
        assert_eq!(site.refused(), why);
    }
    fs::remove_file(site.directory.path().join("key.pem")).unwrap();
    assert!(site.refused().starts_with("tls_key …/key.pem can't be read: No such file"));
}

#[test]
fn a_reload_that_fails_leaves_the_old_certificate() {
    let site = Site::new();
    let tls = open(&site.settings).unwrap().expect("TLS is on");
    let shown = || tls.shown.0.read().unwrap().cert[0].clone();
    let first = shown();
    site.write("key.pem", "");
    assert!(tls.reload().is_err());
    assert_eq!(shown(), first);
    let second = site.renew();
    tls.reload().unwrap();
    assert_eq!(shown(), second);
}
