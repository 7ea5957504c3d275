//! Who may call, and the secrets behind it.

use super::super::access::{Jwt, JwtKey};
use super::*;

const SECRET: &str = "a secret of more than thirty-two bytes";

#[test]
fn listening_beyond_loopback_needs_authentication_or_a_word() {
    let file = "[[api_keys]]\nname = 'a'\nkey_env = 'A_KEY'";
    let beyond = ["--listen", "0.0.0.0:8181"];
    assert!(load("", &[], &["--listen", "0.0.0.0:8181", "--insecure-no-auth"]).is_ok());
    assert!(load("", &[], &["--listen", "[::1]:8181"]).is_ok());
    assert!(load("", &[], &beyond).is_err());
    assert!(load(file, &[("A_KEY", "sixteen letters.")], &beyond).is_ok());
    assert!(
        load(file, &[("A_KEY", "sixteen letters."), ("REJOIN_AUTH", "none")], &beyond).is_err()
    );
}

#[test]
fn a_key_that_can_be_guessed_in_an_hour_is_refused_and_a_short_one_is_told_of() {
    let file = "[[api_keys]]\nname = 'a'\nkey_env = 'A_KEY'";
    for short in ["#", "1234567", "ü234567"] {
        let text = "A_KEY: has ";
        let problems = problems(file, &[("A_KEY", short)], &[]);
        assert!(problems[0].starts_with(text) && !problems[0].contains(short), "{problems:?}");
    }
    let config = load(file, &[("A_KEY", "12345678")], &[]).unwrap();
    assert_eq!(config.short_keys, ["a"]);
    assert_eq!(config.hidden_variables, ["A_KEY"]);
}

#[test]
fn the_hash_of_an_empty_key_is_refused() {
    let empty = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
    for hash in [empty.to_owned(), empty.to_lowercase()] {
        let file = format!("[[api_keys]]\nname = 'a'\nkey_sha256 = '{hash}'");
        let problems = problems(&file, &[], &[]);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(
            problem.starts_with("rejoin.toml:3: key_sha256 is that of an empty key"),
            "{problem}"
        );
    }
}

#[test]
fn api_keys_turn_authentication_on() {
    let hash = "32788D57247BC541DF4E9E89BA1E63137C5EA4037B13140A67D6B1815C76453B"; // of "test the same key"
    let file = format!(
        "[[api_keys]]\nname = 'a'\nadmin = true\nkey_sha256 = '{hash}'
         [[api_keys]]\nname = 'b'\nprincipal = 'team'\nkey_env = 'B_KEY'"
    );
    let config = load(&file, &[("B_KEY", "another good key")], &[]).unwrap();
    let Access::ApiKeys(keys) = &config.access else { panic!("{:?}", config.access) };
    assert_eq!(
        (keys[0].principal.as_str(), keys[0].admin, keys[0].sha256[..2].to_vec()),
        ("a", true, vec![0x32, 0x78])
    );
    assert_eq!((keys[1].principal.as_str(), keys[1].admin), ("team", false));
    let same = problems(&file, &[("B_KEY", "test the same key")], &[]);
    assert_eq!(same, ["rejoin.toml:5: API key \"b\" has the name or the key of \"a\""]);
}

#[test]
fn tables_of_the_file_are_checked_field_by_field() {
    let file = "auth = 'jwt'
[[api_keys]]
name = 'short'
key_sha256 = 'hunter2'
admn = true
[[api_keys]]
key_env = 'NOT_SET'
key_sha256 = ''
[[api_keys]]
name = 'unset'
publish = 'perhaps'
key_env = 'NOT_SET'
[jwt]
issuer = 'https://id.example'
secret_env = 'JWT_SECRET'
";
    assert_eq!(
        problems(file, &[("JWT_SECRET", "hunter2")], &[]),
        [
            "rejoin.toml:4: key_sha256 is not 64 hex digits; it has 7 characters",
            "rejoin.toml:5: unknown setting \"admn\" in [[api_keys]]; did you mean \"admin\"?",
            "rejoin.toml:6: [[api_keys]] needs exactly one of key_sha256 and key_env",
            "rejoin.toml:6: [[api_keys]] needs name",
            "rejoin.toml:9: the environment variable \"NOT_SET\" is named here, but it is not set",
            "rejoin.toml:11: publish: \"perhaps\" is neither true nor false",
            "rejoin.toml:13: [jwt] needs audience",
            "JWT_SECRET: has 7 bytes; a secret needs at least 32, and `openssl rand -hex 32` makes a good one",
        ]
    );
}

#[test]
fn auth_needs_what_it_names() {
    assert_eq!(
        problems("", &[], &["--auth", "jwt"]),
        ["--auth: auth is \"jwt\", which needs a table [jwt] in the file"]
    );
    assert_eq!(
        problems("auth = 'api_keys'", &[], &[]),
        ["rejoin.toml:1: auth is \"api_keys\", which needs [[api_keys]] in the file"]
    );
    let jwt = "[jwt]\nissuer = 'i'\naudience = 'a'\njwks_file = 'keys.json'";
    assert_eq!(
        problems(jwt, &[], &[]),
        ["rejoin.toml:1: [jwt] does nothing without auth = \"jwt\""]
    );
    let config = load(jwt, &[], &["--auth", "jwt"]).unwrap();
    let key = JwtKey::JwksFile("keys.json".into());
    assert_eq!(config.access, Access::Jwt(Jwt { issuer: "i".into(), audience: "a".into(), key }));
}

#[test]
fn session_secrets_are_taken_byte_for_byte_and_must_be_long() {
    let previous = format!("{SECRET} one,{SECRET} two");
    let variables = [("MCP_SESSION_SECRET", SECRET), ("MCP_SESSION_SECRET_PREVIOUS", &previous)];
    let secrets = load("", &variables, &[]).unwrap().secrets;
    assert_eq!(secrets.current.unwrap().expose(), SECRET.as_bytes());
    assert_eq!(secrets.previous[1].expose(), format!("{SECRET} two").as_bytes());
    assert_eq!(
        problems("", &[("MCP_SESSION_SECRET", "")], &[]),
        [
            "MCP_SESSION_SECRET: has 0 bytes; a secret needs at least 32, and `openssl rand -hex 32` makes a good one"
        ]
    );
    assert_eq!(
        problems("", &variables, &["--key-file", "keys"]),
        [
            "--key-file: key_file and MCP_SESSION_SECRET are both set, and only one of them can sign; unset one"
        ]
    );
}

#[test]
fn a_principal_has_255_characters_at_most_and_no_control_characters() {
    let file = |principal: &str| {
        format!("[[api_keys]]\nname = 'a'\nkey_env = 'A_KEY'\nprincipal = {principal}")
    };
    let load = |principal: &str| load(&file(principal), &[("A_KEY", "sixteen letters.")], &[]);
    assert!(load(&format!("'{}'", "ü".repeat(255))).is_ok());
    for bad in ["''", "\"a\\nb\"", &format!("'{}'", "a".repeat(256))] {
        let problem = "rejoin.toml:4: principal: a principal has 1 to 255 characters, none of them a \
                       control character";
        assert_eq!(load(bad).unwrap_err(), [problem]);
    }
}
