//! The four tests of seed 000, with curl and jq as they stand there. Instead of sleeping for sixteen
//! minutes the server's clock is moved on.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::process::Command;

use crate::common::SECOND;
use crate::common::web::{Setup, Web, later};
use serde_json::{Value, json};

const TOKEN_GENERATION: &str = r#"
SESSION_ID=$(curl -s http://localhost:8181/api/mcp/sessions/active | jq -r '.sessions[0].session_id')
TOKEN=$(curl -s http://localhost:8181/api/mcp/sessions/$SESSION_ID/token | jq -r '.reconnect_token')

echo "Session: $SESSION_ID"
echo "Token: $TOKEN"
"#;

const RECONNECTION: &str = r#"
curl -X POST http://localhost:8181/api/mcp/sessions/$SESSION_ID/reconnect \
  -H "Content-Type: application/json" \
  -d "{\"token\": \"$TOKEN\"}" | jq .
"#;

const INVALID_TOKEN: &str = r#"
curl -X POST http://localhost:8181/api/mcp/sessions/$SESSION_ID/reconnect \
  -H "Content-Type: application/json" \
  -d "{\"token\": \"invalid-token\"}" | jq .
"#;

/// What a script prints when it is run against this server.
async fn run(web: &Web, script: &str, variables: &[(&str, &str)]) -> String {
    let script = script.replace("localhost:8181", &web.address.to_string());
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script]).envs(variables.iter().copied());
    bash.env("NO_PROXY", "*");
    let output = tokio::task::spawn_blocking(move || bash.output()).await.unwrap().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "are curl and jq installed? {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_four_tests_of_seed_000_pass_as_they_are_written() {
    let web = Setup::open().start().await;
    let (id, _) = web.create().await;

    // Test 1: Token Generation
    let printed = run(&web, TOKEN_GENERATION, &[]).await;
    let (session, token) = printed.trim().split_once('\n').unwrap();
    assert_eq!(session, format!("Session: {id}"));
    let token = token.strip_prefix("Token: ").unwrap();
    assert_eq!(token.split('.').count(), 3, "{token} is no JWT");
    let variables = [("SESSION_ID", id.as_str()), ("TOKEN", token)];
    let answer = async |script| -> Value {
        serde_json::from_str(&run(&web, script, &variables).await).unwrap()
    };

    // Test 2: Successful Reconnection
    let reconnected = answer(RECONNECTION).await;
    assert_eq!(reconnected["success"], true);
    assert_eq!(reconnected["session_id"], json!(id));
    assert_eq!(reconnected["message"], "Session reconnected");

    // Test 3: Expired Token
    later(960 * SECOND).await;
    let expired = answer(RECONNECTION).await;
    assert_eq!(expired["detail"], "Reconnection failed: token_expired");

    // Test 4: Invalid Token
    let invalid = answer(INVALID_TOKEN).await;
    assert_eq!(invalid["detail"], "Reconnection failed: invalid_token");
}
