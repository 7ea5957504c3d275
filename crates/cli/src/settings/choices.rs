//! Settings that are one of a few words.

use super::kind::{Kind, Shown};

/// Declares an enum whose variants are written as given, and that is its own kind of setting.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $( $(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal, )+ }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $( $(#[doc = $variant_doc])+ $variant, )+ }

        impl Kind for $name {
            type Value = Self;
            const PLACEHOLDER: &'static str = placeholder!($($word)+);

            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err(format!("{text:?} is none of the choices; write {}", words(&[$($word),+]))),
                }
            }

            fn show(value: &Self) -> Shown {
                match value { $( Self::$variant => Shown::quoted($word), )+ }
            }
        }
    };
}

/// The words of a choice with `|` between them.
macro_rules! placeholder {
    ($first:literal $($more:literal)*) => { concat!($first $(, "|", $more)*) };
}

/// The words as a person lists them: `a, b or c`.
fn words(all: &[&str]) -> String {
    match all {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => all.concat(),
    }
}

choice! {
    /// What becomes of a session whose connection is gone.
    OnDisconnect {
        /// It is cleaned up at once.
        Immediate = "immediate",
        /// It is parked for `disconnect_ttl`.
        Ttl = "ttl",
        /// It is parked as long as work is under way, then for `disconnect_ttl`.
        WhilePending = "while_pending",
    }
}
choice! {
    /// What happens when a client resumes a session that another one is attached to.
    Takeover {
        /// The newcomer gets it.
        Replace = "replace",
        /// The newcomer is turned away, unless it has a token.
        Reject = "reject",
    }
}
choice! {
    /// How callers prove who they are, as it was asked for; [`Access`](super::Access) is what came of it.
    AuthMode {
        /// They need not.
        None = "none",
        /// With a key of the `[[api_keys]]`.
        ApiKeys = "api_keys",
        /// With a JSON web token as described by `[jwt]`.
        Jwt = "jwt",
    }
}
choice! {
    /// Who may read `/metrics`.
    MetricsAccess {
        /// Whoever can reach the server.
        Open = "open",
        /// Administrators; where there is no authentication, callers on the same machine.
        Admin = "admin",
    }
}
choice! {
    /// How a stateless client's calls use a stateful MCP server.
    ModernUpstream {
        /// One upstream session for each principal and client name.
        PerPrincipal = "per_principal",
        /// A fresh upstream session for each call.
        PerRequest = "per_request",
    }
}
choice! {
    /// The HTTP status with which `/message` refuses a session that is gone.
    StaleStatus {
        /// 410 Gone.
        Gone = "410",
        /// 404 Not Found.
        NotFound = "404",
    }
}
choice! {
    /// For whom the log is written.
    LogFormat {
        /// For people.
        Text = "text",
        /// For machines: one JSON object a line.
        Json = "json",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_choice_is_answered_with_the_choices() {
        assert_eq!(OnDisconnect::parse("while_pending"), Ok(OnDisconnect::WhilePending));
        assert_eq!(
            OnDisconnect::parse("imediate"),
            Err("\"imediate\" is none of the choices; write immediate, ttl or while_pending".into())
        );
        assert_eq!(OnDisconnect::PLACEHOLDER, "immediate|ttl|while_pending");
    }
}
