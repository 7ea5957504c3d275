//! The certificate that the server shows, and the key behind it. Both can be replaced while it runs:
//! connections that are made afterwards see the new one.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, Result, bail, ensure};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys, ServerConfig};

use crate::settings::Settings;

/// What TLS is served with.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    files: Arc<Files>,
    shown: Arc<ShownCertificate>,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The certificate that new connections see.
#[derive(Debug)]
struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Reads `tls_cert` and `tls_key`; nothing if TLS is not asked for.
pub(crate) fn open(settings: &Settings) -> Result<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) else {
        return Ok(None);
    };
    let files = Files { certificate: certificate.clone(), key: key.clone() };
    let shown = ShownCertificate(RwLock::new(Arc::new(files.read()?)));
    Ok(Some(Tls { files: Arc::new(files), shown: Arc::new(shown) }))
}

impl Tls {
    /// What makes TLS connections out of plain ones. Later reloads reach those it makes.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("TLS can't be set up")?;
        let resolver: Arc<ShownCertificate> = Arc::clone(&self.shown);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads both files again. When that fails the old certificate stays.
    pub(crate) fn reload(&self) -> Result<()> {
        let read = Arc::new(self.files.read()?);
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

/// The cryptography of every TLS connection, in both directions.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Files {
    fn read(&self) -> Result<CertifiedKey> {
        let chain = certificates(&self.certificate)?;
        let key = private_key(&self.key)?;
        let signer = ring::sign::any_supported_type(&key).map_err(|_| {
            wrong("tls_key", &self.key, "holds a kind of key that TLS has no use for")
        })?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
            Err(Error::InconsistentKeys(_)) => bail!(
                "tls_key {} is not the key of the first certificate in tls_cert {}",
                self.key.display(),
                self.certificate.display()
            ),
            Err(_) => bail!(wrong("tls_cert", &self.certificate, "holds a broken certificate")),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read("tls_cert", path)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| wrong("tls_cert", path, "is not whole PEM"))?;
    ensure!(!chain.is_empty(), wrong("tls_cert", path, "has no certificate in it (PEM)"));
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = read("tls_key", path)?;
    let is_encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.windows(mark.len()).any(|window| window == *mark));
    let encrypted = "is encrypted; `openssl pkey` writes it without a passphrase";
    ensure!(!is_encrypted, wrong("tls_key", path, encrypted));
    let key = PrivateKeyDer::from_pem_slice(&text);
    key.map_err(|_| wrong("tls_key", path, "has no private key in it (PEM)"))
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| wrong(setting, path, "can't be read"))
}

fn wrong(setting: &str, path: &Path, what: impl Display) -> anyhow::Error {
    anyhow::anyhow!("{setting} {} {what}", path.display())
}

#[cfg(test)]
pub(crate) mod tests;
