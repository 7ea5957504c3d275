//! Making and judging tokens.

use serde_json::{Value, json};

use super::*;

const OLD: &[u8] = b"an old secret of thirty-two byte";
const NEW: &[u8] = b"a new secret, longer than thirty-two bytes";
const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_999);
const LIFETIME: Duration = Duration::from_secs(900);
const INVALID: TokenRefusal = TokenRefusal::Invalid;

fn ring(secrets: &[&[u8]]) -> KeyRing {
    let mut keys = secrets.iter().map(|secret| SecretKey::new(secret).unwrap());
    KeyRing::new(keys.next().unwrap(), keys.collect())
}

fn session() -> SessionId {
    SessionId::parse("sess_AAECAwQFBgcICQoLDA0ODw").unwrap()
}

fn grant() -> Grant {
    Grant {
        session_id: session(),
        principal: Principal::new("zoë"),
        generation: Generation::new(3),
        lifetime: LIFETIME,
    }
}

fn issued() -> Issued {
    issue(&ring(&[OLD]), &grant(), [7; 16], NOW)
}

fn judge(text: &str) -> Result<Claims, TokenRefusal> {
    verify(&ring(&[OLD]), text, &session(), NOW)
}

/// The claims that a token of ours has at `NOW`.
fn good_claims() -> Value {
    json!({
        "session_id": session(), "iat": NOW.as_secs(), "exp": NOW.as_secs() + 900, "jti": "x",
        "purpose": PURPOSE, "sub": "zoë", "aud": AUDIENCE, "generation": 3,
    })
}

fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = good_claims();
    claims[name] = value;
    claims
}

fn claims_without(name: &str) -> Value {
    let mut claims = good_claims();
    claims.as_object_mut().unwrap().remove(name).unwrap();
    claims
}

/// A token as anybody who knows the secret could make it.
fn forge(header: &Value, claims: &Value) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = SecretKey::new(OLD).unwrap().sign(&signed);
    format!("{signed}.{}", url_safe(&signature))
}

fn forge_claims(claims: &Value) -> String {
    forge(&json!({"alg": "HS256", "typ": "JWT"}), claims)
}

#[test]
fn a_recipe_makes_the_same_token_each_time_and_is_none() {
    let recipe = TokenRecipe::new(&ring(&[OLD]), &grant(), [7; 16], NOW);
    let text = serde_json::to_string(&recipe).unwrap();
    let again: TokenRecipe = serde_json::from_str(&text).unwrap();
    assert_eq!(again.make(&ring(&[NEW, OLD])), Some(issued()), "also after a rotation");
    assert_eq!(again.make(&ring(&[NEW])), None);
    assert!(!text.contains("eyJ") && !text.contains(issued().token.as_str()));
}

#[test]
fn a_token_says_what_was_granted_in_whole_seconds() {
    let issued = issued();
    let claims = judge(issued.token.as_str()).unwrap();
    assert_eq!(claims.session_id, session());
    assert_eq!(claims.principal, Principal::new("zoë"));
    assert_eq!(claims.generation, Generation::new(3));
    assert_eq!(claims.issued_at, Timestamp::from_millis(1_794_744_000_000));
    assert_eq!(claims.expires_at, Timestamp::from_millis(1_794_744_900_000));
    assert_eq!(claims.expires_at, issued.expires_at);
    assert_eq!(issued.hash, TokenHash::of(issued.token.as_str()));
}

/// The expected text was made by Python's `hmac`, `json` and `base64`.
#[test]
fn a_token_is_the_text_that_another_implementation_makes() {
    assert_eq!(
        issued().token.as_str(),
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6Ikx5UDVpTzg4WTc1NiJ9.eyJzZXNzaW9uX2lkIjoic2Vzc19BQUVDQXdRRkJnY0lDUW9MREEwT0R3IiwiaWF0IjoxNzk0NzQ0MDAwLCJleHAiOjE3OTQ3NDQ5MDAsImp0aSI6IkJ3Y0hCd2NIQndjSEJ3Y0hCd2NIQnciLCJwdXJwb3NlIjoic2Vzc2lvbl9yZWNvbm5lY3QiLCJzdWIiOiJ6b8OrIiwiYXVkIjoicmVqb2luIiwiZ2VuZXJhdGlvbiI6M30.5p8RF-4m2ZHGR5IIO3sLlfHjUJcyyISqO_qozGfiiHY"
    );
}

#[test]
fn a_token_of_another_library_without_kid_is_tried_with_every_key() {
    let foreign = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJnZW5lcmF0aW9uIjozLCJhdWQiOiJyZWpvaW4iLCJzdWIiOiJ6b8OrIiwicHVycG9zZSI6InNlc3Npb25fcmVjb25uZWN0IiwianRpIjoiQndjSEJ3Y0hCd2NIQndjSEJ3Y0hCdyIsImV4cCI6MTc5NDc0NDkwMCwiaWF0IjoxNzk0NzQ0MDAwLCJzZXNzaW9uX2lkIjoic2Vzc19BQUVDQXdRRkJnY0lDUW9MREEwT0R3In0.4p_SnFtonCO5zWQmoJk1el9yh67tluZVsyin63hL8JI";
    assert!(verify(&ring(&[NEW, OLD]), foreign, &session(), NOW).is_ok());
    assert_eq!(verify(&ring(&[NEW]), foreign, &session(), NOW), Err(INVALID));
}

#[test]
fn a_token_changed_in_any_bit_is_refused() {
    let good = issued().token.as_str().to_owned();
    for index in 0..good.len() {
        for bit in 0..7 {
            let mut changed = good.clone().into_bytes();
            changed[index] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(judge(&changed), Err(INVALID), "byte {index}, bit {bit}");
        }
    }
}

#[test]
fn a_token_cut_short_or_continued_is_refused() {
    let good = issued().token.as_str().to_owned();
    for length in 0..good.len() {
        assert_eq!(judge(&good[..length]), Err(INVALID));
    }
    for more in ["=", ".", "A", " ", ".e30"] {
        assert_eq!(judge(&format!("{good}{more}")), Err(INVALID));
        assert_eq!(judge(&format!("{more}{good}")), Err(INVALID));
    }
}

#[test]
fn any_algorithm_but_hs256_is_refused_even_with_a_good_signature() {
    for alg in ["none", "None", "HS512", "HS384", "hs256", "RS256", ""] {
        let text = forge(&json!({"alg": alg, "typ": "JWT"}), &good_claims());
        assert_eq!(judge(&text), Err(INVALID), "{alg}");
    }
    assert_eq!(judge(&forge(&json!({"typ": "JWT"}), &good_claims())), Err(INVALID));
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&good_claims()));
    assert_eq!(judge(&unsigned), Err(INVALID));
}

#[test]
fn an_unknown_kid_or_critical_extension_is_refused_even_with_a_good_signature() {
    for (name, value) in [("kid", json!("other")), ("kid", json!(1)), ("crit", json!(["b64"]))] {
        let mut header = json!({"alg": "HS256"});
        header[name] = value;
        assert_eq!(judge(&forge(&header, &good_claims())), Err(INVALID), "{name}");
    }
}

#[test]
fn further_claims_are_ignored_and_wrong_types_are_invalid() {
    assert!(judge(&forge_claims(&good_claims())).is_ok());
    assert!(judge(&forge_claims(&claims_with("scope", json!({"any": [1]})))).is_ok());
    for name in ["iat", "exp", "generation"] {
        for value in [json!("1"), json!(-1), json!(1.5), json!([])] {
            assert_eq!(judge(&forge_claims(&claims_with(name, value))), Err(INVALID), "{name}");
        }
    }
    for name in ["session_id", "jti", "purpose", "sub", "aud"] {
        for value in [json!(1), json!(["rejoin"]), json!({})] {
            assert_eq!(judge(&forge_claims(&claims_with(name, value))), Err(INVALID), "{name}");
        }
    }
    assert_eq!(judge(&forge_claims(&json!("a text"))), Err(INVALID));
}

#[test]
fn a_missing_claim_is_refused_by_the_check_that_needs_it() {
    let without = |name: &str| judge(&forge_claims(&claims_without(name))).unwrap_err();
    assert_eq!(without("session_id"), TokenRefusal::SessionIdMismatch);
    assert_eq!(without("purpose"), TokenRefusal::InvalidPurpose);
    assert_eq!(without("aud"), TokenRefusal::InvalidPurpose);
    for name in ["iat", "exp", "jti", "sub", "generation"] {
        assert_eq!(without(name), INVALID, "{name}");
    }
}

#[test]
fn a_token_expires_at_its_second_without_leeway() {
    let text = issued().token.as_str().to_owned();
    let at = |millis| verify(&ring(&[OLD]), &text, &session(), Timestamp::from_millis(millis));
    assert!(at(1_794_744_899_999).is_ok());
    let expired = TokenRefusal::Expired { otherwise_good: true };
    assert_eq!(at(1_794_744_900_000), Err(expired));
    assert_eq!(at(u64::MAX), Err(expired));
}

#[test]
fn a_token_is_good_for_no_longer_than_tokens_are_now() {
    let claims = judge(issued().token.as_str()).unwrap();
    let at = |millis, lifetime| claims.clone().within(lifetime, Timestamp::from_millis(millis));
    let expired = Err(TokenRefusal::Expired { otherwise_good: true });
    assert!(at(1_794_744_899_999, LIFETIME).is_ok());
    assert!(at(1_794_744_001_999, Duration::from_millis(1_500)).is_ok(), "in whole seconds");
    assert_eq!(at(1_794_744_002_000, Duration::from_millis(1_500)), expired);
}

#[test]
fn a_token_from_the_future_is_accepted_up_to_the_skew() {
    let from_ahead =
        |seconds| judge(&forge_claims(&claims_with("iat", json!(NOW.as_secs() + seconds))));
    assert!(from_ahead(60).is_ok());
    assert_eq!(from_ahead(61), Err(INVALID));
}

#[test]
fn the_first_check_that_fails_names_the_refusal() {
    // Each step mends the first fault of the one before.
    let mut claims = json!({
        "session_id": "sess_other", "iat": NOW.as_secs(), "exp": 1, "jti": "x",
        "purpose": "login", "sub": "zoë", "aud": AUDIENCE, "generation": 3,
    });
    let forged = forge_claims(&claims);
    assert_eq!(verify(&ring(&[NEW]), &forged, &session(), NOW), Err(INVALID));
    assert_eq!(judge(&forged), Err(TokenRefusal::Expired { otherwise_good: false }));
    claims["exp"] = json!(NOW.as_secs() + 1);
    assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::SessionIdMismatch));
    claims["session_id"] = json!(session());
    assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::InvalidPurpose));
    claims["purpose"] = json!(PURPOSE);
    assert!(judge(&forge_claims(&claims)).is_ok());
    claims["aud"] = json!("elsewhere");
    assert_eq!(judge(&forge_claims(&claims)), Err(TokenRefusal::InvalidPurpose));
    claims["exp"] = json!(1);
    let late_and_foreign = TokenRefusal::Expired { otherwise_good: false };
    assert_eq!(judge(&forge_claims(&claims)), Err(late_and_foreign));
}

#[test]
fn an_expired_token_is_otherwise_good_only_for_its_own_session() {
    let late = NOW + LIFETIME;
    let text = issued().token.as_str().to_owned();
    let of = |id: &SessionId| verify(&ring(&[OLD]), &text, id, late).unwrap_err();
    let other = SessionId::from_random([9; 16]);
    assert_eq!(of(&session()), TokenRefusal::Expired { otherwise_good: true });
    assert_eq!(of(&other), TokenRefusal::Expired { otherwise_good: false });
}

#[test]
fn the_newest_key_signs_and_older_ones_verify_until_retired() {
    let text = issued().token.as_str().to_owned();
    let of = |keys: &KeyRing| verify(keys, &text, &session(), NOW);
    assert!(of(&ring(&[NEW, OLD])).is_ok());
    assert_eq!(of(&ring(&[NEW])), Err(INVALID));
    let newer = issue(&ring(&[NEW, OLD]), &grant(), [7; 16], NOW);
    assert_eq!(judge(newer.token.as_str()), Err(INVALID));
    assert!(verify(&ring(&[NEW]), newer.token.as_str(), &session(), NOW).is_ok());
}

#[test]
fn tokens_over_the_limit_are_not_even_read() {
    let padded = |length| claims_with("padding", json!("x".repeat(length)));
    let longest = (0..2000).map(|length| forge_claims(&padded(length)));
    for text in longest {
        assert_eq!(judge(&text).is_ok(), text.len() <= limits::MAX_TOKEN_CHARS);
    }
}

#[test]
fn a_token_of_the_longest_session_id_and_an_openid_subject_can_be_read() {
    let grant = Grant {
        session_id: SessionId::parse(&"s".repeat(limits::MAX_ID_CHARS)).unwrap(),
        principal: Principal::new(&"p".repeat(255)),
        generation: Generation::new(u64::MAX),
        lifetime: Duration::MAX,
    };
    let issued = issue(&ring(&[OLD]), &grant, [7; 16], NOW);
    assert!(verify(&ring(&[OLD]), issued.token.as_str(), &grant.session_id, NOW).is_ok());
}

#[test]
fn a_fraction_of_a_second_of_lifetime_counts_as_a_whole_one() {
    let short = Grant { lifetime: Duration::from_millis(1), ..grant() };
    let issued = issue(&ring(&[OLD]), &short, [7; 16], NOW);
    assert_eq!(issued.expires_at, Timestamp::from_millis(1_794_744_001_000));
}

#[test]
fn the_successor_of_a_token_is_always_the_same_and_differs_from_every_other() {
    let keys = ring(&[OLD]);
    let used = issued().token;
    let claims = judge(used.as_str()).unwrap();
    let next = |used: &str| successor(&keys, used, &claims, Generation::new(4), NOW, LIFETIME);
    let first = next(used.as_str());
    assert_eq!(first, next(used.as_str()));
    assert_ne!(first.token, used);
    assert_ne!(first.token, next(first.token.as_str()).token);
    let claims = verify(&keys, first.token.as_str(), &session(), NOW).unwrap();
    assert_eq!(
        (claims.generation, claims.issued_at.as_secs()),
        (Generation::new(4), NOW.as_secs())
    );
}

/// The expected hash was made by Python. A successor that is given again after an upgrade must be
/// the text whose hash was stored before it.
#[test]
fn a_successor_is_the_text_that_another_implementation_derives() {
    let used = issued().token;
    let claims = judge(used.as_str()).unwrap();
    let next = successor(&ring(&[OLD]), used.as_str(), &claims, Generation::new(4), NOW, LIFETIME);
    let hex: String = next.hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "97b41d358d3b2f295b2aa75ac4d14077971c28266c6184f21e697c7fa14877f5");
}

#[test]
fn a_successor_is_found_again_after_the_keys_rotated() {
    let used = issued().token;
    let claims = judge(used.as_str()).unwrap();
    let generation = Generation::new(4);
    let made = successor(&ring(&[OLD]), used.as_str(), &claims, generation, NOW, LIFETIME);
    let again = |keys: &KeyRing, used: &str, generation| {
        successor_again(keys, used, &claims, generation, NOW, LIFETIME, &made.hash)
    };
    assert_eq!(again(&ring(&[OLD]), used.as_str(), generation), Some(made.clone()));
    assert_eq!(again(&ring(&[NEW, OLD]), used.as_str(), generation), Some(made.clone()));
    assert_eq!(again(&ring(&[NEW]), used.as_str(), generation), None);
    assert_eq!(again(&ring(&[OLD]), "another token", generation), None);
    assert_eq!(again(&ring(&[OLD]), used.as_str(), Generation::new(5)), None);
}

#[test]
fn debug_hides_the_token() {
    let issued = issued();
    let shown = format!("{issued:?}");
    assert!(shown.contains("Token(…)"));
    for part in issued.token.as_str().split('.') {
        assert!(!shown.contains(part));
    }
}
