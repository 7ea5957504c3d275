//! The secrets that the run begins with, and the words that are nobody else's business.

/// What the process is given to keep.
pub(crate) const SIGNING: &str = "mcp-session-secret-0123456789-abcdefghij";
pub(crate) const OLD_SIGNING: &str = "mcp-session-secret-previous-9876543210-z";
pub(crate) const API_KEY: &str = "rk_live_4f1c9a7be2d34c0a8b55";
pub(crate) const JWT_SECRET: &str = "jwt-shared-secret-aaaabbbbccccddddeeee";
pub(crate) const OTLP: &str = "otlp-header-secret-77f0c1";
pub(crate) const HOOK: &str = "hook-secret-5b1d90c2aa";

/// What callers send along that is nobody's business.
pub(crate) const COOKIE: &str = "cookie-secret-8c2f11d07e";
pub(crate) const WRONG_KEY: &str = "rk_live_mistyped_0c77d1e9";
pub(crate) const QUERY: &str = "access-token-in-a-query-31b7";
pub(crate) const GARBAGE: &str = "garbage-token-e0f2a9c4417b";

/// What agents and clients say: it belongs to them, in frames, and nowhere else.
pub(crate) const STATE: &str = "state-canary-1f4e0a";
pub(crate) const MESSAGE: &str = "message-canary-b83d27";
pub(crate) const EVENT: &str = "event-canary-6a90cc";
