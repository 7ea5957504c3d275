//! The key file: one key a line, the newest first.
//!
//! ```text
//! # made by rejoin; the first key signs, all of them verify
//! 2026-11-15T12:00:00.000Z 3q2-7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs
//! ```
//!
//! The second word is the secret in base64url, as `k` in a JSON web key; decoded, it is the HS256 key
//! byte for byte. Lines that begin with `#` are left as they are. Reading and changing the text is
//! here; the file in the file system is in [`disk`](super::disk).

use std::fmt;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rejoin_core::keys::SecretKey;
use toml::value::Datetime;

/// What a new file begins with.
const HEADING: &str = "# made by rejoin; the first key signs, all of them verify; keep it secret";

/// The lines of a key file. There is at least one key in it.
pub(super) struct KeyFile {
    lines: Vec<KeyLine>,
}

enum KeyLine {
    /// A comment, or nothing.
    Other(String),
    Key(StoredKey),
}

/// A key as it stands in a file.
pub(super) struct StoredKey {
    created: String,
    secret: Vec<u8>,
    id: String,
}

impl StoredKey {
    /// A new key out of random bytes.
    pub(super) fn new(created: String, secret: [u8; 32]) -> Result<Self> {
        Self::of(created, secret.to_vec())
    }

    fn of(created: String, secret: Vec<u8>) -> Result<Self> {
        let id = SecretKey::new(&secret)?.id().to_owned();
        Ok(Self { created, secret, id })
    }

    fn parse(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let (Some(created), Some(secret), None) = (words.next(), words.next(), words.next()) else {
            bail!("is not a time and a secret in base64url, with a space between");
        };
        let time = created.parse::<Datetime>().ok();
        let is_whole = time.is_some_and(|time| time.date.is_some() && time.offset.is_some());
        ensure!(is_whole, "does not begin with a time such as 2026-11-15T12:00:00Z");
        let secret = secret.trim_end_matches('=');
        let secret = BASE64_URL_SAFE_NO_PAD.decode(secret);
        Self::of(
            created.to_owned(),
            secret.map_err(|_| anyhow!("has a secret that is no base64url"))?,
        )
    }

    /// The name under which tokens mention it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// When it was made, as the file says.
    pub(super) fn created(&self) -> &str {
        &self.created
    }

    /// The key to sign and verify with.
    pub(super) fn to_secret_key(&self) -> Result<SecretKey> {
        Ok(SecretKey::new(&self.secret)?)
    }
}

impl KeyFile {
    /// A file with this key alone.
    pub(super) fn with(key: StoredKey) -> Self {
        Self { lines: vec![KeyLine::Other(HEADING.into()), KeyLine::Key(key)] }
    }

    /// The keys in `text`. Errors name the line and never repeat it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let line = |(index, line): (usize, &str)| match line.trim() {
            "" => Ok(KeyLine::Other(line.into())),
            comment if comment.starts_with('#') => Ok(KeyLine::Other(line.into())),
            key => StoredKey::parse(key)
                .map(KeyLine::Key)
                .with_context(|| format!("line {}", index + 1)),
        };
        let file = Self { lines: text.lines().enumerate().map(line).collect::<Result<_>>()? };
        ensure!(file.keys().next().is_some(), "there is no key in it");
        Ok(file)
    }

    /// Every key, the newest first.
    pub(super) fn keys(&self) -> impl Iterator<Item = &StoredKey> {
        self.lines.iter().filter_map(|line| match line {
            KeyLine::Key(key) => Some(key),
            KeyLine::Other(_) => None,
        })
    }

    /// Makes `key` the one that signs. Of the older ones, the newest `keep` stay; gives those that go.
    pub(super) fn rotate(&mut self, key: StoredKey, keep: Option<usize>) -> Vec<StoredKey> {
        let first = self.lines.iter().position(|line| matches!(line, KeyLine::Key(_)));
        self.lines.insert(first.unwrap_or(self.lines.len()), KeyLine::Key(key));
        let mut seen = 0;
        self.take(|_| {
            seen += 1;
            keep.is_some_and(|keep| seen > keep.saturating_add(1))
        })
    }

    /// Takes out the key of that name. The one that signs stays: there would be none, or an older one
    /// would sign again.
    pub(super) fn retire(&mut self, id: &str) -> Result<()> {
        let newest = self.keys().next().is_some_and(|key| key.id == id);
        ensure!(!newest, "key {id} signs; make a newer one first, with `rejoin keys rotate`");
        let gone = self.take(|key| key.id == id);
        ensure!(!gone.is_empty(), "there is no key {id}; `rejoin keys list` shows those there are");
        Ok(())
    }

    fn take(&mut self, mut goes: impl FnMut(&StoredKey) -> bool) -> Vec<StoredKey> {
        let mut gone = Vec::new();
        for line in std::mem::take(&mut self.lines) {
            match line {
                KeyLine::Key(key) if goes(&key) => gone.push(key),
                stays @ (KeyLine::Key(_) | KeyLine::Other(_)) => self.lines.push(stays),
            }
        }
        gone
    }
}

/// The text of the file, secrets and all: only for the file.
impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| match line {
            KeyLine::Other(text) => writeln!(f, "{text}"),
            KeyLine::Key(key) => {
                writeln!(f, "{} {}", key.created, BASE64_URL_SAFE_NO_PAD.encode(&key.secret))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-11-15T12:00:00.000Z";

    fn key(byte: u8) -> StoredKey {
        StoredKey::new(AT.into(), [byte; 32]).unwrap()
    }

    fn ids(file: &KeyFile) -> Vec<&str> {
        file.keys().map(StoredKey::id).collect()
    }

    fn refused(text: &str) -> String {
        format!("{:#}", KeyFile::parse(text).err().expect("it is refused"))
    }

    #[test]
    fn a_rotated_file_reads_back_with_the_newest_first_and_comments_in_place() {
        let mut file =
            KeyFile::parse(&format!("# ours\n\n{AT} {}\n# end\n", "A".repeat(43))).unwrap();
        assert!(file.rotate(key(7), None).is_empty());
        let text = file.to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(lines, ["#", "", AT, AT, "#"]);
        let again = KeyFile::parse(&text).unwrap();
        assert_eq!(ids(&again), [key(7).id(), key(0).id()]);
        assert_eq!(again.keys().next().unwrap().secret, [7; 32]);
    }

    #[test]
    fn rotating_keeps_as_many_older_keys_as_asked() {
        let mut file = KeyFile::with(key(1));
        file.rotate(key(2), None);
        let gone = file.rotate(key(3), Some(1));
        assert_eq!(ids(&file), [key(3).id(), key(2).id()]);
        assert_eq!(gone.iter().map(StoredKey::id).collect::<Vec<_>>(), [key(1).id()]);
        file.rotate(key(4), Some(0));
        assert_eq!(ids(&file), [key(4).id()]);
    }

    #[test]
    fn the_key_that_signs_cannot_be_retired_and_others_can() {
        let mut file = KeyFile::with(key(1));
        file.rotate(key(2), None);
        assert!(file.retire(key(2).id()).unwrap_err().to_string().contains("signs"));
        assert!(file.retire("nobody").unwrap_err().to_string().contains("no key nobody"));
        file.retire(key(1).id()).unwrap();
        assert_eq!(ids(&file), [key(2).id()]);
    }

    #[test]
    fn wrong_lines_are_named_by_number_and_never_repeated() {
        let secret = "hunter2hunter2hunter";
        for (text, why) in [
            (format!("# x\n{secret}\n"), "line 2: is not a time and a secret"),
            (format!("2026-11-15 {secret}\n"), "line 1: does not begin with a time"),
            (format!("{AT} {secret}!\n"), "line 1: has a secret that is no base64url"),
            (format!("{AT} {secret}\n"), "line 1: a signing secret has at least 32 bytes"),
            ("# nothing\n".into(), "there is no key in it"),
        ] {
            let refused = refused(&text);
            assert!(refused.starts_with(why), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
