//! Every setting, once. From this list come the TOML keys, the flags (`--session-ttl`), the environment
//! variables (`REJOIN_SESSION_TTL`), the defaults, `--help`, `docs/configuration.md` and
//! `rejoin check-config`. The doc comments are what users read.

use super::choices::{
    AuthMode, LogFormat, MetricsAccess, ModernUpstream, OnDisconnect, StaleStatus, Takeover,
};
use super::define::DefaultValue::{Absent, Computed, Text};
use super::define::{Setting, optional, settings};
use super::headers::Headers;
use super::kind::{Kind, List, Maybe, Shown};
use super::remote::{HostName, HttpUrl, McpRevision, Program, StoreChoice, WebOrigin};
use super::scalars::{Count, FilePath, ListenAddress, Switch, VariableName};
use super::secret::Secret;
use super::size::Size;
use super::sources::{Environment, Reader};
use super::time::{Time, TimeOrOff, Waits};
use crate::logging::Filter;

settings! {
"Server" {
    /// The address and port to listen on. Beyond loopback it needs `auth`, or `insecure_no_auth`.
    listen: ListenAddress = Text("127.0.0.1:8181");
    /// Where the embedded store and the signing keys live; made on first start. `~` is not expanded.
    data_dir: FilePath = Computed(default_data_dir, DATA_DIR_IN_WORDS);
    /// Where sessions are kept: `embedded` (files in `data_dir`), `memory` (gone with the process) or a
    /// `postgres://` URL, which is not yet available.
    store: StoreChoice = Text("embedded");
    /// Starts on a damaged store with what is whole of it, however much is lost. Without it only the last few commits may
    /// be missing. It is meant for one start: do not leave it on.
    accept_data_loss: Switch = Text("false");
    /// On SIGTERM, how long work under way may take to finish before connections are closed.
    drain_timeout: Time = Text("30s");
    /// The certificate chain (PEM) to serve TLS with, the server's own first; goes with `tls_key`. Both
    /// are read again on SIGHUP.
    tls_cert: Maybe<FilePath> = Absent("no TLS");
    /// The private key (PEM, not encrypted) of `tls_cert`.
    tls_key: Maybe<FilePath> = Absent("no TLS");
    /// How the log is written to standard error: `text` for people, `json` for machines.
    log: LogFormat = Text("text");
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or directives such as
    /// `info,rejoin::store=debug`.
    log_level: Filter = Text("info");
    /// Where to send spans: the base URL of an OpenTelemetry collector (OTLP over HTTP, protobuf), to
    /// which `/v1/traces` is added. Attaches, resumes, appends, exports and restores are told, without
    /// contents and without secrets.
    otlp_endpoint: Maybe<HttpUrl> = Absent("no telemetry");
    /// Headers for `otlp_endpoint`, as `name=value` with commas between. They are taken for secret;
    /// flags can be seen by other users of the machine, so prefer the environment.
    otlp_headers: Maybe<Headers> = Absent("none");
}

"Sessions" {
    /// How long a session lives after its last detach, message or renewal.
    session_ttl: Time = Text("24h"), at_least "1ms";
    /// What happens when a session's connection is gone: it is cleaned up (`immediate`), parked for
    /// `disconnect_ttl` (`ttl`), or parked as long as work is under way, at most `session_ttl`
    /// (`while_pending`).
    on_disconnect: OnDisconnect = Text("ttl");
    /// How long a session without a connection is kept for its client to come back.
    disconnect_ttl: Maybe<Time> = Absent("as session_ttl");
    /// A second client for a session that has one: `replace` hands it over, `reject` does so only for
    /// a reconnect token.
    takeover: Takeover = Text("replace");
    /// Parks a session whose client, though connected, has sent nothing but pongs for this long; `off`
    /// never does.
    inactivity_timeout: TimeOrOff = Text("off"), at_least "1ms";
    /// Sessions of the whole server; beyond that new ones are refused.
    max_sessions: Count<usize> = Text("100000"), at_least "1";
    /// Sessions of one principal; beyond that new ones are refused.
    max_sessions_per_principal: Count<usize> = Text("10000"), at_least "1";
    /// Records of reconnect attempts that are kept; the oldest go first.
    audit_max: Count<usize> = Text("100000"), at_least "1";
}

"Connections" {
    /// How often the server sends a heartbeat.
    heartbeat_interval: Time = Text("30s"), at_least "1ms";
    /// How long a connection may be silent before it counts as lost; not below `heartbeat_interval`.
    heartbeat_timeout: Time = Text("60s");
    /// How many heartbeats may go unanswered before the connection counts as lost.
    max_heartbeat_misses: Count<u32> = Text("2"), at_least "1";
    /// The waits between a client's attempts to reconnect, in seconds, as told to clients, which add
    /// jitter. The last one repeats.
    reconnect_backoff: Waits = Text("1,2,4,8,16,30,60");
    /// How many refusals a client should take before it gives up, as told to clients. An unreachable
    /// server is no refusal.
    max_reconnect_attempts: Count<u32> = Text("5"), at_least "1";
    /// The largest WebSocket frame that is read.
    max_frame_bytes: Size = Text("1MiB"), at_least "1KiB";
    /// Connections at the same time; further ones are closed at once.
    max_connections: Maybe<Count<usize>> = Absent("as many as open files allow"), at_least "1";
    /// Connections from one address, or one IPv6 /64, at the same time. Connections from the same machine
    /// are held to it only if it is set. A proxy needs room for all its clients.
    max_connections_per_address: Maybe<Count<usize>> = Absent("half of max_connections"), at_least "1";
    /// The `Origin` headers that are accepted, such as `https://app.example`.
    allowed_origins: List<WebOrigin> = Absent("loopback names only");
    /// The names in `Host` headers that are accepted, with any port.
    allowed_hosts: List<HostName> = Absent("loopback names only");
}

"Buffers" {
    /// Events kept for each session, acked ones included; past it the oldest go, acked ones first.
    buffer_size: Count<usize> = Text("50000"), at_least "1";
    /// Bytes of events kept for each session; a single larger event is kept alone.
    buffer_bytes: Size = Text("8MiB"), at_least "1KiB";
    /// How long an event is kept after it was acked or a state covers it.
    buffer_retention: Time = Text("1h");
    /// Bytes kept for all sessions together: events, messages, states, records, tokens; not below
    /// `buffer_bytes`. Past it acked events and those that a state covers go first, then those of the
    /// sessions parked for longest; if what can't go takes five eighths of it, new sessions and messages are
    /// refused with `SERVER_BUSY`.
    max_buffered_bytes: Size = Text("1GiB");
    /// The same for the sessions of one principal. Sessions of its that have ended are forgotten before
    /// anything is refused, the oldest first.
    max_bytes_per_principal: Maybe<Size> =
        Absent("a quarter of max_buffered_bytes; all of it without authentication"), at_least "1MiB";
    /// Free space of the disk that holds `data_dir` below which nothing new is taken: writes get 503 and
    /// `SERVER_BUSY`, reads are served, and it ends when there is space again. Never more than a sixteenth
    /// of the disk.
    disk_reserve: Size = Text("64MiB");
}

"Tokens and state" {
    /// How long a reconnect token is good for, also one that was issued before this was lowered.
    /// `MCP_RECONNECT_TOKEN_EXPIRY`, in minutes, sets it too; `REJOIN_TOKEN_TTL` wins.
    token_ttl: Time = Text("15m"), at_least "1s";
    /// A file with signing keys, the newest first, in place of `MCP_SESSION_SECRET`. Nobody but its owner
    /// may have access to it.
    key_file: Maybe<FilePath> = Absent("`keys` in data_dir, made on first start");
    /// How long an exported state can be restored. Once it is lowered that counts for older ones, too.
    state_ttl: Time = Text("24h"), at_least "1s";
    /// The largest sealed state; it has to fit into a frame, so it must be below `max_frame_bytes`.
    max_state_bytes: Size = Text("512KiB"), at_least "1KiB";
    /// A changed state is exported by itself at most this often.
    auto_export_interval: Time = Text("60s");
}

"Access" {
    /// How callers prove who they are: `none`, `api_keys` (see `[[api_keys]]`) or `jwt` (see `[jwt]`).
    auth: Maybe<AuthMode> = Absent("api_keys once there are any, else none");
    /// Lets anybody in when listening beyond loopback without authentication.
    insecure_no_auth: Switch = Text("false");
    /// Who may read `/metrics`: everybody who can reach the server (`open`), or callers with an `admin` key
    /// (`admin`); without authentication that means callers on the same machine.
    metrics_access: Maybe<MetricsAccess> = Absent("open on loopback, admin beyond");
}

"Lifecycle hook" {
    /// A URL to which every lifecycle event of a session is posted.
    hook_url: Maybe<HttpUrl> = Absent("no hook");
    /// The secret that signs what is posted to `hook_url`. Flags can be seen by other users of the
    /// machine; prefer the environment.
    hook_secret: Maybe<Secret> = Absent("unsigned");
}

"Agents and MCP servers" {
    /// The agent: a command, run once for each session, or the URL of a backend. How to write one: docs/first-agent.md.
    agent: Maybe<Program> = Absent("a built-in example");
    /// The secret that signs what is posted to an agent behind a URL, as `hook_secret` does for hooks.
    agent_secret: Maybe<Secret> = Absent("unsigned");
    /// An agent behind a URL whose response brings no byte for so long is called again.
    agent_idle_timeout: Time = Text("60s"), at_least "1s";
    /// The MCP server: a command, run once for each session, or the URL of a Streamable HTTP server.
    mcp: Maybe<Program> = Absent("a built-in example");
    /// How long a child process without work is kept while a client is attached.
    child_idle_ttl: Time = Text("1h");
    /// How long a child process without work is kept after its client has left; no longer than
    /// `child_idle_ttl`.
    child_detached_ttl: Time = Text("5m");
    /// Child processes at the same time; when it is reached, idle ones are stopped.
    max_children: Count<usize> = Text("64"), at_least "1";
    /// Child processes of one principal at the same time; its other sessions wait for one of these.
    max_children_per_principal: Maybe<Count<usize>> =
        Absent("half of max_children; all of them without authentication"), at_least "1";
    /// Environment variables that agents and MCP servers must not see. Those that `key_env` and `secret_env`
    /// name, `MCP_SESSION_SECRET…`, all that begin with `REJOIN_`, and headers of OpenTelemetry are hidden
    /// anyway.
    child_env_hide: List<VariableName> = Absent("none");
    /// Environment variables that agents and MCP servers see although they would be hidden.
    child_env_keep: List<VariableName> = Absent("none");
}

"MCP" {
    /// The largest MCP message that is read.
    max_mcp_bytes: Size = Text("16MiB"), at_least "1KiB";
    /// How often an SSE stream gets a comment to keep it open.
    sse_keep_alive: Time = Text("15s"), at_least "1ms";
    /// After what time an SSE client should come back when its stream ends.
    sse_retry: Time = Text("3s"), at_least "1ms";
    /// How long results and finished tasks are kept to be fetched again, within the bounds of the buffer,
    /// where results go last.
    result_retention: Time = Text("1h");
    /// Lets clients of `/sse` choose the id of a new session. Without authentication such an id is a
    /// secret.
    client_session_ids: Switch = Text("false");
    /// Makes a session for a message to one that nobody knows, in place of refusing it.
    adopt_unknown_sessions: Switch = Text("false");
    /// The status with which `/message` refuses a session that is gone: `410`, or `404` for clients
    /// that want that.
    stale_session_status: StaleStatus = Text("410");
    /// How long a call whose stream broke waits for the same call to come again; `0s` cancels at once.
    reissue_window: Time = Text("15s");
    /// A call not answered within this time becomes a durable task, for clients that understand tasks.
    task_after: Time = Text("5s");
    /// The revisions of MCP that clients are offered; `/sse` and `/message` are there only with
    /// `2024-11-05`. A client that asks for another one is offered the newest of them that has sessions, or
    /// refused with those there are.
    mcp_revisions: List<McpRevision> = Absent("all");
    /// Upstream sessions for stateless clients: one `per_principal` and client name, or a new one
    /// `per_request`. Without `auth` a caller behind a proxy always gets a new one.
    modern_upstream: ModernUpstream = Text("per_principal");
    /// Whether a tool's own word that it only reads, or is idempotent, is enough to run it again after
    /// a crash.
    trust_annotations: Switch = Text("true");
    /// Adds the tool `reconnect_session`, and tokens in results, to the MCP server behind the gateway.
    /// The built-in one always has them.
    session_tools: Switch = Text("false");
    /// Whether the first tool result after a restart of the MCP server ends with a text that says so:
    /// what the server kept in memory is gone, and a model reads nothing else.
    tell_restarts: Switch = Text("true");
}
}

const DATA_DIR_IN_WORDS: &str = "$STATE_DIRECTORY (systemd), else $XDG_DATA_HOME/rejoin, else ~/.local/share/rejoin, else ./rejoin-data";

/// Where people's data lives on this machine, by the XDG convention.
fn default_data_dir(environment: &Environment) -> String {
    let data_home = environment.text("XDG_DATA_HOME").filter(|path| path.starts_with('/'));
    match (data_home, environment.text("HOME")) {
        (Some(data_home), _) => format!("{data_home}/rejoin"),
        (None, Some(home)) => format!("{}/.local/share/rejoin", home.trim_end_matches('/')),
        (None, None) => "rejoin-data".into(),
    }
}
