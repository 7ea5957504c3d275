//! Which server a command asks, and who is asking.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use hyper::Uri;
use hyper::header::HeaderValue;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::failure::Failure;

const DEFAULT_URL: &str = "http://127.0.0.1:8181";
const URL_VARIABLE: &str = "REJOIN_URL";
const CACERT_VARIABLE: &str = "REJOIN_CACERT";
const KEY_VARIABLE: &str = "REJOIN_API_KEY";

/// What commands that ask a server read from the environment. In it a person may well start a server, for which these
/// are no settings.
pub(crate) const VARIABLES: [&str; 3] = [URL_VARIABLE, CACERT_VARIABLE, KEY_VARIABLE];

/// A server, and the credential for it.
#[derive(Clone)]
pub(crate) struct Target {
    /// Without a slash at its end.
    pub(super) url: String,
    pub(super) key: Option<Key>,
    /// Who may vouch for an https server, beside those whom this machine trusts.
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

/// An API key, or any other bearer token.
#[derive(Clone)]
pub(super) struct Key {
    /// The value of `Authorization`, marked as secret.
    pub(super) header: HeaderValue,
    /// Where it is from, in words.
    pub(super) source: String,
}

impl Target {
    /// `command` with the flags that name a server.
    pub(crate) fn add_to(command: Command) -> Command {
        let url = Arg::new("url")
            .long("url")
            .value_name("URL")
            .help_heading("Server")
            .help(format!("The server to ask [env: {URL_VARIABLE}] [default: {DEFAULT_URL}]"));
        let key_file = Arg::new("key-file")
            .long("key-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help_heading("Server")
            .help(format!("A file with the API key [env for the key itself: {KEY_VARIABLE}]"))
            .long_help(format!(
                "A file with the API key. The key itself can be given in the environment \
                 ({KEY_VARIABLE}), and by no flag: every user of a machine sees the command lines of \
                 all others, and shells write them to their history."
            ));
        let cacert = Arg::new("cacert")
            .long("cacert")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help_heading("Server")
            .help(format!("Certificates (PEM) to trust for https, too [env: {CACERT_VARIABLE}]"));
        command.arg(url).arg(key_file).arg(cacert)
    }

    /// A server that wants no credential.
    pub(crate) fn open(url: String) -> Self {
        Self { url, key: None, authorities: Vec::new() }
    }

    /// What the flags and the environment say.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Result<Self, Failure> {
        let url = matches.get_one::<String>("url").cloned();
        let url = url.or_else(|| variable(URL_VARIABLE)).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let key = match matches.get_one::<PathBuf>("key-file") {
            Some(path) => Some(Key::read(path)?),
            None => match variable(KEY_VARIABLE) {
                Some(key) => Some(Key::new(&key, KEY_VARIABLE.to_owned())?),
                None => None,
            },
        };
        let cacert = matches.get_one::<PathBuf>("cacert").cloned();
        let cacert = cacert.or_else(|| variable(CACERT_VARIABLE).map(PathBuf::from));
        let authorities = cacert.map_or(Ok(Vec::new()), |path| certificates_in(&path))?;
        Ok(Self { url: checked(&url)?, key, authorities })
    }
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--cacert: {}: {why}", path.display()));
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| wrong(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(wrong("there is no certificate (PEM) in it".to_owned())),
        false => Ok(certificates),
    }
}

impl Key {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("--key-file: {} can't be read: {error}", path.display()))
        })?;
        Self::new(text.trim(), path.display().to_string())
    }

    fn new(key: &str, source: String) -> Result<Self, Failure> {
        let wrong = || Failure::Usage(format!("{source} has no API key in it"));
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let mut header = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| wrong())?;
        header.set_sensitive(true);
        Ok(Self { header, source })
    }
}

/// The variable's text, if it is set and not empty.
fn variable(name: &str) -> Option<String> {
    debug_assert!(VARIABLES.contains(&name), "{name} is not in VARIABLES");
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The address, if it is one. A wrong one is not repeated, for people put passwords in them.
fn checked(url: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "--url (or {URL_VARIABLE}) must look like http://host:port or https://host"
        ))
    };
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    let has_scheme = matches!(parsed.scheme_str(), Some("http" | "https"));
    let authority = parsed.authority().ok_or_else(wrong)?;
    if !has_scheme || authority.as_str().contains('@') || parsed.query().is_some() {
        return Err(wrong());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_or_https_with_a_host_and_no_password() {
        assert_eq!(checked("http://h:1/"), Ok("http://h:1".to_owned()));
        assert_eq!(checked("https://h/behind/a/proxy/"), Ok("https://h/behind/a/proxy".to_owned()));
        for wrong in ["", "h:1", "ws://h", "http://", "http://me:hunter2@h", "http://h?key=hunter2"]
        {
            let failure = checked(wrong).unwrap_err().to_string();
            assert!(!failure.contains("hunter2"), "{failure}");
        }
    }

    #[test]
    fn a_key_is_one_word_and_is_not_shown() {
        assert!(Key::new("", "x".into()).is_err());
        assert!(Key::new("two words", "x".into()).is_err());
        let key = Key::new("hunter2", "x".into()).map(|key| format!("{:?}", key.header));
        assert_eq!(key, Ok("Sensitive".to_owned()));
    }
}
