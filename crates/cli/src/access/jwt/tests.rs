//! Tokens as issuers and attackers make them.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::settings::{Jwt, Secret};

const NOW: WallTime = WallTime::from_millis(1_800_000_000_000);
const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// The public part of an RSA key, and a token that it signed: `{"jwk", "token"}`.
fn rsa() -> (Value, String) {
    let made: Value = serde_json::from_str(include_str!("rs256.json")).unwrap();
    (made["jwk"].clone(), made["token"].as_str().unwrap().to_owned())
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Somebody who signs tokens.
enum Issuer {
    Hs256(Vec<u8>),
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl Issuer {
    fn p256() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Es256(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
    }

    fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::EdDsa(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Hs256(_) => "HS256",
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Hs256(secret) => json!({"kty": "oct", "kid": kid, "k": base64(secret)}),
            Self::Es256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": base64(x), "y": base64(y)})
            }
            Self::EdDsa(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": base64(pair.public_key())})
            }
        }
    }

    fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Hs256(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
            Self::Es256(pair) => pair.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Self::EdDsa(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", base64(signature))
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": self.algorithm()}), claims)
    }
}

fn claims() -> Value {
    let now = NOW.as_millis() / 1000;
    json!({"iss": "https://id.example", "aud": "rejoin", "sub": "ann", "exp": now + 300})
}

fn claims_with(key: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[key] = value;
    claims
}

fn open(key: JwtKey) -> Result<WebTokens> {
    WebTokens::open(&Jwt { issuer: "https://id.example".into(), audience: "rejoin".into(), key })
}

fn shared() -> (WebTokens, Issuer) {
    let secret = Secret::from_os(std::str::from_utf8(SECRET).unwrap().as_ref());
    (open(JwtKey::Secret(secret)).unwrap(), Issuer::Hs256(SECRET.to_vec()))
}

fn write(path: &Path, keys: &[Value]) {
    fs::write(path, json!({ "keys": keys }).to_string()).unwrap();
}

fn public(keys: &[Value]) -> (WebTokens, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    write(&path, keys);
    (open(JwtKey::JwksFile(path)).unwrap(), directory)
}

fn is_let_in(tokens: &WebTokens, token: &str) -> bool {
    tokens.authenticate(token, NOW).is_ok()
}

#[test]
fn a_token_gives_its_subject_its_rights_and_its_end() {
    let (tokens, issuer) = shared();
    let caller = tokens.authenticate(&issuer.sign(&claims()), NOW).unwrap();
    assert_eq!(
        (&*caller.principal.to_string(), caller.admin, caller.publish),
        ("ann", false, false)
    );
    assert_eq!(caller.until, Some(NOW + Duration::from_secs(300)));
    let admin = issuer.sign(&claims_with("rejoin_admin", json!(true)));
    assert!(tokens.authenticate(&admin, NOW).unwrap().admin);
    let publisher = issuer.sign(&claims_with("rejoin_publish", json!(true)));
    let caller = tokens.authenticate(&publisher, NOW).unwrap();
    assert!(caller.publish && !caller.admin);
    assert!(!is_let_in(&tokens, &issuer.sign(&claims_with("rejoin_admin", json!("true")))));
}

#[test]
fn what_is_wrong_with_a_token_is_told_apart() {
    use CredentialFault::{
        Audience, Expired, Issuer as WrongIssuer, Malformed, NotYetValid, Subject, UnknownKey,
    };
    let (tokens, issuer) = shared();
    let now = NOW.as_millis() / 1000;
    let fault = |token: &str| tokens.authenticate(token, NOW).unwrap_err().fault;
    for (key, value, expected) in [
        ("iss", json!("https://other.example"), WrongIssuer),
        ("aud", json!("other"), Audience),
        ("exp", json!(now - 60), Expired),
        ("nbf", json!(now + 61), NotYetValid),
        ("sub", json!(""), Subject),
        ("exp", json!("soon"), Malformed),
    ] {
        assert_eq!(fault(&issuer.sign(&claims_with(key, value))), expected, "{key}");
    }
    let stranger = Issuer::Hs256(b"another secret of thirty-two bytes".to_vec());
    assert_eq!(fault(&stranger.sign(&claims_with("exp", json!(1)))), UnknownKey);
    assert_eq!(fault("not a token"), Malformed);
}

#[test]
fn a_token_lasts_no_longer_than_the_key_that_signed_it() {
    let (old, new) = (Issuer::ed25519(), Issuer::ed25519());
    let (tokens, directory) = public(&[old.jwk("k"), new.jwk("l")]);
    let caller = |issuer: &Issuer| tokens.authenticate(&issuer.sign(&claims()), NOW).unwrap();
    let (by_old, by_new) = (caller(&old), caller(&new));
    let revocations = tokens.revocations();
    write(&directory.path().join("jwks.json"), &[new.jwk("k")]);
    tokens.reload().unwrap();
    assert!(revocations.has_changed().unwrap());
    assert!(!tokens.is_current(&by_old) && tokens.is_current(&by_new));
}

#[test]
fn every_claim_is_checked() {
    let (tokens, issuer) = shared();
    let now = NOW.as_millis() / 1000;
    let good = [
        ("aud", json!(["other", "rejoin"])),
        ("nbf", json!(now + 60)),
        ("nbf", Value::Null),
        ("exp", json!(now - 59)),
        ("exp", json!(now as f64 + 0.5)),
        ("exp", json!(1e300)),
        ("sub", json!("ü".repeat(255))),
    ];
    for (key, value) in good {
        assert!(
            is_let_in(&tokens, &issuer.sign(&claims_with(key, value.clone()))),
            "{key} {value}"
        );
    }
    let bad = [
        ("iss", json!("https://id.example/")),
        ("iss", json!(["https://id.example"])),
        ("iss", Value::Null),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("exp", json!(now - 60)),
        ("exp", json!(-1)),
        ("exp", json!("1900000000")),
        ("exp", Value::Null),
        ("nbf", json!(now + 61)),
        ("nbf", json!("soon")),
        ("sub", json!("")),
        ("sub", json!("a\nb")),
        ("sub", json!("a".repeat(256))),
        ("sub", json!(7)),
        ("sub", Value::Null),
    ];
    for (key, value) in bad {
        assert!(
            !is_let_in(&tokens, &issuer.sign(&claims_with(key, value.clone()))),
            "{key} {value}"
        );
    }
}

#[test]
fn whom_only_the_leeway_lets_in_may_stay_until_it_ends() {
    let (tokens, issuer) = shared();
    let token = issuer.sign(&claims_with("exp", json!(NOW.as_millis() / 1000 - 10)));
    let caller = tokens.authenticate(&token, NOW).unwrap();
    assert_eq!(caller.until, Some(NOW + Duration::from_secs(50)));
}

#[test]
fn tokens_of_each_kind_of_public_key_are_verified_and_changed_ones_are_not() {
    let signed = |issuer: Issuer| (issuer.jwk("k"), issuer.sign(&claims()));
    for (jwk, token) in [rsa(), signed(Issuer::p256()), signed(Issuer::ed25519())] {
        let (tokens, _directory) = public(std::slice::from_ref(&jwk));
        assert!(is_let_in(&tokens, &token), "{jwk}");
        let mut parts: Vec<_> = token.split('.').collect();
        let other = base64(claims_with("sub", json!("bob")).to_string());
        parts[1] = &other;
        let (signed, _) = token.rsplit_once('.').unwrap();
        for changed in [parts.join("."), format!("{signed}."), signed.to_owned()] {
            assert!(!is_let_in(&tokens, &changed), "{jwk}");
        }
    }
}

#[test]
fn a_token_cannot_choose_its_algorithm() {
    let ((rsa, token), ed25519) = (rsa(), Issuer::ed25519());
    let (tokens, _directory) = public(&[rsa.clone(), ed25519.jwk("ed")]);
    assert!(is_let_in(&tokens, &token) && is_let_in(&tokens, &ed25519.sign(&claims())));
    for algorithm in ["none", "None", "", "HS256", "RS256", "RS512", "PS256", "ES256", "eddsa"] {
        assert!(!is_let_in(&tokens, &ed25519.sign_with(&json!({"alg": algorithm}), &claims())));
    }
    let unsigned = ed25519.sign_with(&json!({"alg": "none"}), &claims());
    assert!(!is_let_in(&tokens, &format!("{}.", unsigned.rsplit_once('.').unwrap().0)));
    // The classic: the public key, which everybody knows, as shared secret.
    let n = BASE64_URL_SAFE_NO_PAD.decode(rsa["n"].as_str().unwrap()).unwrap();
    for known in [n, rsa.to_string().into_bytes()] {
        assert!(!is_let_in(&tokens, &Issuer::Hs256(known).sign(&claims())));
    }
    // A shared secret in a file of public keys is none.
    let (tokens, _directory) = public(&[rsa, Issuer::Hs256(SECRET.to_vec()).jwk("s")]);
    assert!(!is_let_in(&tokens, &Issuer::Hs256(SECRET.to_vec()).sign(&claims())));
}

#[test]
fn a_key_is_used_only_for_what_its_owner_says() {
    let (named, other) = (Issuer::ed25519(), Issuer::p256());
    let (tokens, _directory) = public(&[named.jwk("a"), other.jwk("b")]);
    let with = |kid: &str| json!({"alg": "EdDSA", "kid": kid});
    assert!(is_let_in(&tokens, &named.sign_with(&with("a"), &claims())));
    assert!(!is_let_in(&tokens, &named.sign_with(&with("b"), &claims())));
    assert!(!is_let_in(&tokens, &named.sign_with(&with("c"), &claims())));
    let critical = json!({"alg": "EdDSA", "crit": ["b64"], "b64": false});
    assert!(!is_let_in(&tokens, &named.sign_with(&critical, &claims())));
    for (field, value) in [("use", "enc"), ("alg", "ES256")] {
        let mut jwk = named.jwk("a");
        jwk[field] = json!(value);
        let (tokens, _directory) = public(&[jwk, other.jwk("b")]);
        assert!(!is_let_in(&tokens, &named.sign(&claims())), "{field}");
        assert!(is_let_in(&tokens, &other.sign(&claims())), "{field}");
    }
}

#[test]
fn what_is_no_token_is_refused_without_a_panic() {
    let (tokens, issuer) = shared();
    let good = issuer.sign(&claims());
    let long = issuer.sign(&claims_with("more", json!("x".repeat(MAX_TOKEN_BYTES))));
    for bad in
        ["", ".", "..", "...", "a.b.c", "ü.ü.ü", &format!("{good}="), &format!("{good}.x"), &long]
    {
        assert!(!is_let_in(&tokens, bad), "{bad}");
    }
    assert!(tokens.without_credential().is_err());
}

#[test]
fn a_changed_file_is_read_within_seconds_and_a_broken_one_leaves_the_old_keys() {
    let (old, new) = (Issuer::ed25519(), Issuer::ed25519());
    let (tokens, directory) = public(&[old.jwk("old")]);
    let path = directory.path().join("jwks.json");
    let start = Instant::now();
    let is_let_in = |issuer: &Issuer, seconds| {
        let Keys::Public(file) = &tokens.keys else { panic!("the keys are in a file") };
        file.keys_at(start + Duration::from_secs(seconds)); // from then on these are good
        is_let_in(&tokens, &issuer.sign(&claims()))
    };
    assert!(is_let_in(&old, 0));
    write(&path, &[new.jwk("new one"), old.jwk("old")]);
    assert!(!is_let_in(&new, 4), "it is not looked at for every call");
    assert!(is_let_in(&new, 5) && is_let_in(&old, 5));
    for broken in ["", "{", "{\"keys\": []}", "{\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-521\"}]}"]
    {
        fs::write(&path, broken).unwrap();
        assert!(is_let_in(&new, 20));
    }
    fs::remove_file(&path).unwrap();
    assert!(is_let_in(&new, 40));
    write(&path, &[old.jwk("old")]);
    assert!(!is_let_in(&new, 60) && is_let_in(&old, 60));
}

#[test]
fn a_file_without_usable_keys_is_refused_at_start_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    let refused = || format!("{:#}", open(JwtKey::JwksFile(path.clone())).unwrap_err());
    assert!(refused().contains("can't be read: No such file"), "{}", refused());
    fs::write(&path, "[]").unwrap();
    assert!(refused().ends_with("is not a JWKS, an object with a list \"keys\""), "{}", refused());
    write(&path, &[Issuer::Hs256(SECRET.to_vec()).jwk("s")]);
    assert!(refused().contains("has no RSA (2048 bits), P-256 or Ed25519 key"), "{}", refused());
}
