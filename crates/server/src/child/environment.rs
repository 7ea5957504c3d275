//! What children see of our environment: everything but secrets of ours, and what lets a process speak to systemd for
//! us.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

/// Which variables children see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildEnvironment {
    /// Names that no child sees, besides those that always hold secrets of ours.
    pub hidden: Vec<String>,
    /// Names that children see although they begin like ours.
    pub kept: Vec<String>,
}

/// Variables with secrets of ours, and those that begin so.
const OUR_SECRETS: [&str; 2] = ["MCP_SESSION_SECRET", "REJOIN_"];

/// Variables in which telemetry has its credentials.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Variables by which a service is known to systemd: a child that says it is ready would say it in our place.
const SERVICE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

static CHILDREN_SEE: Mutex<ChildEnvironment> =
    Mutex::new(ChildEnvironment { hidden: Vec::new(), kept: Vec::new() });

/// Says what children that are started from now on see of this process's environment.
pub fn set_child_environment(environment: ChildEnvironment) {
    *CHILDREN_SEE.lock().unwrap_or_else(PoisonError::into_inner) = environment;
}

/// The names in our environment that a child must not see.
pub(super) fn hidden_names() -> Vec<OsString> {
    let children_see = CHILDREN_SEE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| children_see.hides(&name.to_string_lossy())).collect()
}

impl ChildEnvironment {
    /// Whether a variable is hidden. Secrets that sign are hidden in any case.
    pub fn hides(&self, name: &str) -> bool {
        let signs = name.starts_with(OUR_SECRETS[0]);
        let kept = self.kept.iter().any(|kept| kept == name);
        let ours = OUR_SECRETS.iter().any(|ours| name.starts_with(ours));
        let named = [&HEADERS[..], &SERVICE].concat().contains(&name);
        let hidden = ours || named || self.hidden.iter().any(|one| one == name);
        signs || hidden && !kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_what_is_kept_is_not() {
        let environment = ChildEnvironment {
            hidden: vec!["BACKEND_KEY".into(), "SHARED_KEY".into()],
            kept: vec!["REJOIN_URL".into(), "SHARED_KEY".into(), "MCP_SESSION_SECRET".into()],
        };
        for hidden in [
            "BACKEND_KEY",
            "MCP_SESSION_SECRET",
            "MCP_SESSION_SECRET_PREVIOUS",
            "REJOIN_HOOK_SECRET",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "NOTIFY_SOCKET",
        ] {
            assert!(environment.hides(hidden), "{hidden}");
        }
        for seen in ["PATH", "BACKEND_KEY_2", "REJOIN_URL", "SHARED_KEY", "OPENAI_API_KEY"] {
            assert!(!environment.hides(seen), "{seen}");
        }
    }
}
