//! Why a credential was rejected: the operator finds it in the log, in `/metrics` and in the audit trail. The caller is
//! told the same in every case.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use crate::ask;
use crate::common::server_process::ServerProcess;

const SECRET: &str = "jwt-shared-secret-of-more-than-32-bytes";
const TOKENS: &str = "auth = 'jwt'\nmetrics_access = 'open'\n[jwt]\nissuer = 'https://issuer.example'\n\
                      audience = 'rejoin'\nsecret_env = 'JWT_SECRET'\n";
const KEYS: &str =
    "metrics_access = 'open'\n[[api_keys]]\nname = 'operator'\nadmin = true\nkey_env = 'KEY'\n";
const KEY: &str = "the key of the operator, long enough";

/// The claims of an operator with these changed.
fn claims(changes: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "rejoin", "sub": "operator", "exp": now + 600, "rejoin_admin": true,
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn signed(header: &Value, claims: &Value, secret: &str) -> String {
    let text =
        format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    format!("{text}.{}", BASE64.encode(ring::hmac::sign(&key, text.as_bytes())))
}

fn token(changes: Value) -> String {
    signed(&json!({ "alg": "HS256" }), &claims(changes), SECRET)
}

async fn call(server: &ServerProcess, path: &str, credential: &str) -> String {
    let header = format!("Authorization: Bearer {credential}\r\n");
    ask(server.address(), "GET", path, &header, "").await
}

/// The one answer that tells nothing: without its date.
fn without_date(answer: &str) -> Vec<&str> {
    answer.lines().filter(|line| !line.starts_with("date:")).collect()
}

/// Presents each credential once, and finds its reason in each of the three places.
async fn each_is_explained(server: &ServerProcess, good: &str, bad: &[(&str, String)]) {
    let first = call(server, "/api/sessions", &bad[0].1).await;
    assert!(first.starts_with("HTTP/1.1 401"), "{first}");
    for (reason, credential) in bad {
        let answer = call(server, "/api/sessions", credential).await;
        assert_eq!(without_date(&answer), without_date(&first), "{reason} is told to a stranger");
    }
    let metrics = call(server, "/metrics", good).await;
    let reason_of = |record: &Value| record["reason"].as_str().unwrap().to_owned();
    let mut wanted: Vec<_> = bad.iter().map(|(reason, _)| (*reason).to_owned()).collect();
    wanted.push(wanted[0].clone());
    wanted.sort();
    for reason in &wanted {
        let count = wanted.iter().filter(|other| *other == reason).count();
        let line = format!("rejoin_credentials_rejected_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("credential rejected"));
        let about = lines.filter(|line| line.contains(&format!("reason=\"{reason}\"")));
        assert_eq!(about.clone().count(), count, "{reason}: {log}");
        assert!(about.clone().all(|line| line.contains("why=")), "{log}");
    }
    let mut audited = Vec::new();
    while audited.len() < wanted.len() {
        let answer = call(server, "/api/audit", good).await; // nobody waits for records of strangers
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let records = body["records"].as_array().unwrap_or_else(|| panic!("{body}")).clone();
        audited = records.iter().filter(|r| r["action"] == "authenticate").map(reason_of).collect();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    audited.sort();
    assert_eq!(audited, wanted);
    for (_, credential) in bad {
        assert!(!server.log().contains(credential.as_str()), "{credential} is in the log");
    }
}

#[tokio::test]
async fn why_a_web_token_is_rejected_is_told_to_the_operator_alone() {
    let server = ServerProcess::start(Vec::new(), TOKENS, &[("JWT_SECRET", SECRET)]).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let none = claims(json!({}));
    let bad = [
        ("expired", token(json!({ "exp": now - 120 }))),
        ("audience", token(json!({ "aud": "another" }))),
        ("issuer", token(json!({ "iss": "https://other.example" }))),
        ("not_yet_valid", token(json!({ "nbf": now + 300 }))),
        ("subject", token(json!({ "sub": "" }))),
        (
            "unknown_key",
            signed(&json!({ "alg": "HS256" }), &none, "another secret of 32 bytes or more"),
        ),
        ("malformed", "not-a-token-at-all".to_owned()),
    ];
    each_is_explained(&server, &token(json!({})), &bad).await;
}

#[tokio::test]
async fn why_an_api_key_is_rejected_is_told_to_the_operator_alone() {
    let server = ServerProcess::start(Vec::new(), KEYS, &[("KEY", KEY)]).await;
    each_is_explained(&server, KEY, &[("unknown_key", "a key that nobody has here".into())]).await;
}

/// Its hash is all that the server is given, which says nothing of its length.
#[tokio::test]
async fn a_key_of_a_few_letters_lets_nobody_in() {
    let hash = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"; // of "x"
    let file = format!("[[api_keys]]\nname = 'a'\nadmin = true\nkey_sha256 = '{hash}'\n");
    let server = ServerProcess::start(Vec::new(), &file, &[]).await;
    for header in ["X-API-Key: x\r\n", "Authorization: Bearer x\r\n", "X-API-Key: \r\n", ""] {
        let answer = ask(server.address(), "GET", "/api/sessions", header, "").await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{header:?}: {answer}");
    }
}

#[tokio::test]
async fn a_token_under_the_id_of_a_key_that_is_not_there_has_an_unknown_key() {
    let directory = tempfile::tempdir().unwrap();
    let known = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "here",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }] });
    let file = directory.path().join("keys.json");
    std::fs::write(&file, known.to_string()).unwrap();
    let config = TOKENS.replace("secret_env = 'JWT_SECRET'", &format!("jwks_file = {:?}", file));
    let server = ServerProcess::start(Vec::new(), &config, &[]).await;
    let header = json!({ "alg": "EdDSA", "kid": "elsewhere" });
    let answer = call(&server, "/api/sessions", &signed(&header, &claims(json!({})), SECRET)).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let metrics = call(&server, "/metrics", "").await;
    let line = "rejoin_credentials_rejected_total{reason=\"unknown_key\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
}

/// The log and the audit trail are bounded; the counter is not.
#[tokio::test]
async fn guesses_do_not_fill_the_log() {
    let server = ServerProcess::start(Vec::new(), KEYS, &[("KEY", KEY)]).await;
    let began = Instant::now();
    for guess in 0..39 {
        call(&server, "/api/sessions", &format!("guess {guess} of a key")).await;
    }
    let logged = server.log().matches("credential rejected").count();
    let most = 30 + 1 + began.elapsed().as_secs() / 2; // thirty a minute, all of them at once if need be
    assert!((30..=most).contains(&(logged as u64)), "{logged} lines\n{}", server.log());
    let metrics = call(&server, "/metrics", KEY).await;
    let line = "rejoin_credentials_rejected_total{reason=\"unknown_key\"} 39\n";
    assert!(metrics.contains(line), "{metrics}");
}
