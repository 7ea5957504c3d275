//! Names and codes of revision 2026-07-28.

pub(super) use crate::web::mcp::revisions::{STATELESS as REVISION, UNSUPPORTED_VERSION};

/// What a request says of itself in its `_meta`.
pub(super) mod meta {
    pub(in super::super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub(in super::super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    pub(in super::super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub(in super::super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub(in super::super) const PROGRESS: &str = "progressToken";
    /// What a result says of whoever made it.
    pub(in super::super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
    /// What a notification says of the subscription it comes by.
    pub(in super::super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
}

/// The extension for calls that take long.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The headers besides the one that names the revision.
pub(super) const METHOD_HEADER: &str = "mcp-method";
pub(super) const NAME_HEADER: &str = "mcp-name";

pub(super) use crate::mcp::own_words::code::INTERNAL;

/// Headers do not say what the body does.
pub(super) const HEADER_MISMATCH: i32 = -32020;
/// The client has not declared what the request needs.
pub(super) const MISSING_CAPABILITY: i32 = -32021;
/// What older revisions say of a resource that is not there; this one says "invalid params".
pub(super) const RESOURCE_NOT_FOUND: i32 = -32002;
