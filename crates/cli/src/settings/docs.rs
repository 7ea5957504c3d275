//! `docs/configuration.md`, made from the table. A test compares the file with what is made here, and
//! rewrites it when told to: `UPDATE_DOCS=1 cargo test -p rejoin-cli configuration_page`.

use super::access::{API_KEY_FIELDS, JWT_FIELDS};
use super::define::{DefaultValue, Setting};
use super::table::TABLE;

const UPDATE: &str = "UPDATE_DOCS=1 cargo test -p rejoin-cli configuration_page";

const INTRODUCTION: &str = "\
# Configuration

Nothing has to be set: `rejoin` alone starts a server. Whatever is set comes from four places, and the later wins:

1. the defaults below,
2. the TOML file that `--config` or `REJOIN_CONFIG` names (no file is read unasked),
3. environment variables: `session_ttl` is `REJOIN_SESSION_TTL`,
4. flags: `session_ttl` is `--session-ttl`.

`rejoin check-config`, with the same file, environment and flags, prints every value with where it came from and starts
nothing. What it prints is a TOML file itself. Mistakes are told all at once, each with its place:

```text
rejoin.toml:4: unknown setting \"heartbeat_intervall\"; did you mean \"heartbeat_interval\"?
REJOIN_SESSION_TTL: \"24 hourz\" is not a duration; write 30s, 15m or 24h
```

- **Durations** are text: `\"500ms\"`, `\"30s\"`, `\"15m\"`, `\"24h\"`, `\"2d\"`, `\"1h 30m\"`.
- **Sizes** are text, `\"512KiB\"`, `\"4MiB\"`, `\"16MB\"` (a million each), or a number of bytes.
- **Lists** are TOML arrays; in variables and flags commas separate, and a flag may be repeated.
- **Switches** are `true` or `false`; as a flag, `--client-session-ids` alone means `true`.
- **Paths** that are relative start at the current directory.
- A variable that begins with `REJOIN_` and is no setting is a mistake, except those that Kubernetes makes for a service of
  that name.

A small file:

```toml
listen = \"127.0.0.1:8181\"
session_ttl = \"72h\"
buffer_bytes = \"8MiB\"
on_disconnect = \"while_pending\"
```
";

const FILE_ONLY: &str = "\
## API keys: `[[api_keys]]`

Only in the file, one table for each key. Callers present a key as `Authorization: Bearer …` or `X-API-Key`; only its
SHA-256 is kept. SIGHUP reads them again; connections of a key that was removed or changed are closed.
";

const EXAMPLE_KEY: &str = "\
```toml
[[api_keys]]
name = \"backend\"
publish = true
key_env = \"BACKEND_KEY\"
```
";

const JWT: &str = "\
## JSON web tokens: `[jwt]`

Only in the file, with `auth = \"jwt\"`. What must hold of a token, which callers present as `Authorization: Bearer …`:

- its signature is good under a key below. The key decides the algorithm: HS256 for `secret_env`; for a JWKS its RSA keys of
  2048 bits and more verify RS256, P-256 keys ES256, Ed25519 keys EdDSA. Other keys in it are left aside;
- `iss` is `issuer`, `aud` is `audience` or a list with it;
- `exp` is there and not past, `nbf`, if it is there, not ahead, with 60 s of leeway for both. A connection ends when the
  token it came with does;
- `sub` has 1 to 255 characters, none of them a control character. It is the principal.

`rejoin_admin` and `rejoin_publish`, if they are there and `true`, allow what `admin` and `publish` allow an API key.
";

const SECRETS: &str = "\
## What one principal can make the server hold

Whatever a principal calls, and however often, the server grows by no more than this beside what it holds for others. A test
(`crates/cli/tests/bounds.rs`) pushes each route as hard as it can and compares.

| what grows | by at most |
|---|---|
| memory | 2 × `max_bytes_per_principal` + 64 MiB |
| files | 2 × `max_bytes_per_principal` + 96 MiB |

| what is counted apart | of one principal | of all together |
|---|---|---|
| calls of MCP clients without sessions that wait in `reissue_window` for the same call; what breaks beyond that is cancelled | 2,500, and 1,000 equal ones | 10,000 |
| sessions that have ended and are remembered; the oldest are forgotten | 10,000 | within `max_buffered_bytes` |
| notes up to when sealed states are refused, because a closed session was forgotten before its time; beyond that the oldest note counts for all principals that have none | 1 | 10,000 |
| records of the audit trail; those of whoever has the most go first | what others leave | `audit_max` |
| a page of a list of sessions or of the audit trail | 1 MiB | |
| bytes of bodies and frames that have come, until they are handed on or answered; beyond that 503 with `Retry-After` and `SERVER_BUSY`, on a WebSocket close code 4003 | a quarter of `max_bytes_per_principal`, but as much as the largest request (`max_mcp_bytes`, 2 × `max_frame_bytes`) | a quarter of `max_buffered_bytes`, but as much as four of those |

Without authentication the bytes of bodies and frames count for each address, or IPv6 /64, which may have a sixteenth of
`max_buffered_bytes`.

## Processors

The server works on one thread less than there are processors, and on at least one; the embedded store has a thread of its own
that writes. `TOKIO_WORKER_THREADS` in the environment says how many it is instead.

## Secrets

Secrets are never logged or printed; `check-config` only says that they are set.

| variable | what it does |
|---|---|
| `MCP_SESSION_SECRET` | The secret that signs reconnect tokens and seals states, byte for byte, at least 32 bytes. Without it and without `key_file`, keys are made in `data_dir` on first start (with `store = \"memory\"`, a key that ends with the process). Not together with `key_file`. |
| `MCP_SESSION_SECRET_PREVIOUS` | Secrets that signed before and still verify, separated by commas, at least 32 bytes each (so one with a comma in it can't be given here). Also with `key_file` or made keys, to move from one to the other. |

A key file has one key a line, the newest first: the time it was made and the secret in base64url, with a space between. The
first one signs, all of them verify. Lines that begin with `#` are comments. The file is refused if its group or others may
read or change it.

| command | what it does |
|---|---|
| `rejoin keys list` | shows the keys by id, which one signs, and when they were made |
| `rejoin keys rotate` | makes a new key that signs from now on; with `--keep N`, only the newest N of the older ones stay |
| `rejoin keys retire ID` | takes a key out; tokens and states it signed are refused from then on |

They take the same settings as the server. One that runs notices within 5 s, or at once on SIGHUP.
";

/// The whole page.
fn page() -> String {
    let mut page = format!(
        "<!-- Made from crates/cli/src/settings/table.rs by: {UPDATE} -->\n\n{INTRODUCTION}"
    );
    let mut section = "";
    for setting in TABLE {
        if setting.section != section {
            section = setting.section;
            page +=
                &format!("\n## {section}\n\n| setting | default | what it does |\n|---|---|---|\n");
        }
        page += &row(setting);
    }
    page + &format!(
        "\n{FILE_ONLY}\n{}\n{EXAMPLE_KEY}\n{JWT}\n{}\n{SECRETS}",
        fields(&API_KEY_FIELDS),
        fields(&JWT_FIELDS)
    )
}

fn row(setting: &Setting) -> String {
    let names = [setting.key.to_owned(), format!("--{}", setting.flag()), setting.variable()];
    let names = names.map(|name| format!("`{name}`")).join("<br>");
    let default = match setting.default {
        DefaultValue::Text(text) => format!("`{text}`"),
        DefaultValue::Absent(words) | DefaultValue::Computed(_, words) => words.to_owned(),
    };
    let mut about = setting.documentation();
    if let Some(least) = setting.least {
        about += &format!(" At least `{least}`.");
    }
    format!("| {names} | {default} | {about} |\n")
}

fn fields(fields: &[(&str, &str)]) -> String {
    let rows =
        fields.iter().map(|(key, about)| format!("| `{key}` | {} |\n", about.replace('|', "\\|")));
    format!("| field | what it is |\n|---|---|\n{}", rows.collect::<String>())
}

#[test]
fn configuration_page_is_what_the_table_makes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page(), "docs/configuration.md is not what the table makes; run: {UPDATE}");
}

#[test]
fn every_setting_is_documented_in_full_sentences() {
    for setting in TABLE {
        let about = setting.documentation();
        assert!(
            about.ends_with('.') && about.starts_with(|c: char| c.is_uppercase() || c == '`'),
            "{about}"
        );
        assert!(!about.contains('|'), "{about} would break the page's table");
    }
}
