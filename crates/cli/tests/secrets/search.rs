//! Noticing a secret, in whatever disguise.

use crate::known::{EVENT, MESSAGE, STATE};

/// Everything that must not be seen.
#[derive(Default)]
pub(crate) struct Secrets {
    /// What each is called, and the forms it may be seen in.
    known: Vec<(String, Vec<String>)>,
    pub(crate) handed_out: usize,
}

impl Secrets {
    pub(crate) fn add(&mut self, name: &str, secret: &str) {
        let bytes = secret.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let numbers = format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
        let mut forms = vec![secret.to_owned(), hex, numbers];
        // The secret part of what has a public head, also if it is cut off.
        let last = secret.rsplit('.').next().unwrap_or(secret);
        if last.len() >= 24 {
            forms.push(last[..20].to_owned());
        }
        self.known.push((name.to_owned(), forms));
    }

    pub(crate) fn add_contents(&mut self) {
        for (name, canary) in [("state", STATE), ("a message", MESSAGE), ("an event", EVENT)] {
            self.add(name, canary);
        }
    }

    pub(crate) fn found_in(&self, text: &str) -> Option<&str> {
        let shows = |forms: &[String]| forms.iter().any(|form| text.contains(form));
        self.known.iter().find(|(_, forms)| shows(forms)).map(|(name, _)| name.as_str())
    }

    pub(crate) fn are_not_in(&self, place: &str, text: &str) {
        if let Some(name) = self.found_in(text) {
            panic!("{name} is in {place}: {text}");
        }
    }
}

#[test]
fn a_secret_is_noticed_in_every_disguise() {
    let mut secrets = Secrets::default();
    secrets.add("the key", "rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd");
    let whole = b"rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd";
    let hex: String = whole.iter().map(|byte| format!("{byte:02x}")).collect();
    for leak in [
        "key=rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd",
        "cut off: abcdefghijklmnopqrstuv…",
        &format!("{whole:?}"),
        &hex,
    ] {
        assert_eq!(secrets.found_in(leak), Some("the key"), "{leak}");
    }
    assert_eq!(secrets.found_in("rk_0123456789 is its public name"), None);
}
