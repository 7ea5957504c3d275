use super::*;

const OLD: &[u8] = b"an old secret of thirty-two byte";
const NEW: &[u8] = b"a new secret, longer than thirty-two bytes";
const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_999);
const EXPIRY: Timestamp = Timestamp::from_millis(1_794_830_400_999);
const NONCE: [u8; 12] = [5; 12];
const MAX: usize = 4096;
const CONTENT: &[u8] = br#"{"stage":"plan","current_step":2,"memory_snapshot":["memory memory"]}"#;

fn ring(secrets: &[&[u8]]) -> KeyRing {
    let mut keys = secrets.iter().map(|secret| SecretKey::new(secret).unwrap());
    KeyRing::new(keys.next().unwrap(), keys.collect())
}

fn zoe() -> Principal {
    Principal::new("zoë")
}

fn facts() -> StateFacts {
    StateFacts {
        principal: zoe(),
        session_id: SessionId::parse("sess_AAECAwQFBgcICQoLDA0ODw").unwrap(),
        epoch: Epoch::from_text("ep\noch"),
        seq: Seq::new(42),
        in_seq: InSeq::new(7),
        taken_at: NOW,
        sealed_at: None,
        expires_at: EXPIRY,
        origin: None,
    }
}

fn sealed() -> String {
    seal(&ring(&[OLD]), &facts(), CONTENT, NONCE, MAX).unwrap()
}

fn open_now(text: &str) -> Result<OpenedState, OpenError> {
    open(&ring(&[OLD]), text, &zoe(), NOW, MAX)
}

/// Bytes that no compression makes smaller, from a small xorshift generator.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// A seal by our own key around bytes that [`seal`] would not have made.
fn seal_raw(plain: &[u8]) -> String {
    let key = SecretKey::new(OLD).unwrap();
    let bound = bound_data(&key, &zoe());
    let payload = Payload { msg: plain, aad: bound.as_bytes() };
    let sealed = key.sealing().encrypt(&Nonce::from(NONCE), payload).unwrap();
    format!("{VERSION}.{}.{}", key.id(), url_safe(&[NONCE.as_slice(), &sealed].concat()))
}

#[test]
fn a_state_opens_to_what_was_sealed() {
    let opened = open_now(&sealed()).unwrap();
    assert_eq!(opened.facts, facts());
    assert_eq!(opened.content, CONTENT);
}

#[test]
fn a_state_is_good_for_no_longer_than_states_are_now() {
    let lifetime = Duration::from_secs(60);
    let sealed_at = NOW + Duration::from_secs(1);
    let facts = StateFacts { sealed_at: Some(sealed_at), ..facts() };
    let text = seal(&ring(&[OLD]), &facts, CONTENT, NONCE, MAX).unwrap();
    let opened = open_now(&text).unwrap();
    assert_eq!(opened.facts, facts);
    let last = sealed_at + lifetime - Duration::from_millis(1);
    assert!(opened.clone().within(lifetime, last).is_ok());
    let expires_at = sealed_at + lifetime;
    let session_id = facts.session_id;
    assert_eq!(
        opened.within(lifetime, expires_at).unwrap_err(),
        OpenError::Expired { session_id, expires_at }
    );
    let older = open_now(&sealed()).unwrap(); // it does not say when it was sealed
    assert!(older.within(lifetime, EXPIRY).is_ok());
}

#[test]
fn a_state_says_which_store_and_which_session_it_comes_from() {
    let store = crate::identity::StoreIdentity::new([7; 16]).mark();
    let facts = StateFacts { origin: Some(SealOrigin { store, created_at: NOW }), ..facts() };
    let text = seal(&ring(&[OLD]), &facts, CONTENT, NONCE, MAX).unwrap();
    assert_eq!(open_now(&text).unwrap().facts, facts);
}

#[test]
fn an_empty_state_and_one_of_noise_open_to_what_was_sealed() {
    for content in [vec![], noise(2000)] {
        let text = seal(&ring(&[OLD]), &facts(), &content, NONCE, MAX).unwrap();
        assert_eq!(open_now(&text).unwrap().content, content);
    }
}

/// Made by Python's `cryptography` (AESGCMSIV) and `zlib`, with keys derived by its `hmac`.
#[test]
fn a_state_sealed_by_another_implementation_opens() {
    let opened = open_now("v1.LyP5iO88Y756.CQkJCQkJCQkJCQkJuBSNetLaIZw5cvA_20GeqO7z9NZdwWwQlJ6RBuGK-YIxlq8Jnr5_ceXbphuZLwzD8onwqS9YdptvKcKEseOLl6NX1ZrXRpXcPt6Ygb-3_KbdOiCmLqiySHgWgXEUdILvqzfa9ZBy_iCfJQGT_8FnsEu-kNTa7viC43VWibWpyydgVZD0T4rJpZQQq5u4Q29Dl-8fGJW5ScHrJFWD-9RD4C5jXWsHcn_SPGnLym9YzceHLkj4y6andvO0u6DOUZut2PQ6BaM-gZHAI8cGgQ70VTo4gvU").unwrap();
    assert_eq!(opened.facts, facts());
    assert_eq!(opened.content, CONTENT);
}

#[test]
fn the_key_id_is_in_clear_and_nothing_else_is() {
    let text = sealed();
    let key = SecretKey::new(OLD).unwrap();
    let body = text.strip_prefix(&format!("v1.{}.", key.id())).unwrap();
    let body = URL_SAFE_NO_PAD.decode(body).unwrap();
    for word in ["stage", "sess_", "zoë", "42"] {
        assert!(!body.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
    }
}

#[test]
fn a_seal_changed_in_any_bit_is_refused() {
    let good = sealed();
    for index in 0..good.len() {
        for bit in 0..7 {
            let mut changed = good.clone().into_bytes();
            changed[index] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open_now(&changed), Err(OpenError::NotAuthentic), "byte {index}, bit {bit}");
        }
    }
}

#[test]
fn a_seal_cut_short_or_spelled_otherwise_is_refused() {
    let good = sealed();
    for length in 0..good.len() {
        assert_eq!(open_now(&good[..length]), Err(OpenError::NotAuthentic));
    }
    for other in [format!("{good}="), format!("{good}A"), format!(" {good}"), format!("{good}\n")] {
        assert_eq!(open_now(&other), Err(OpenError::NotAuthentic));
    }
}

#[test]
fn a_foreign_principal_learns_no_more_than_a_forger() {
    for principal in ["zoe", "", "anonymous", "zoë.", "x.zoë"] {
        let opened = open(&ring(&[OLD]), &sealed(), &Principal::new(principal), NOW, MAX);
        assert_eq!(opened, Err(OpenError::NotAuthentic));
        let late = open(&ring(&[OLD]), &sealed(), &Principal::new(principal), EXPIRY, MAX);
        assert_eq!(late, Err(OpenError::NotAuthentic), "expiry is the owner's to know");
    }
}

#[test]
fn the_newest_key_seals_and_older_ones_open_until_retired() {
    let of = |keys: &KeyRing, text: &str| open(keys, text, &zoe(), NOW, MAX);
    assert!(of(&ring(&[NEW, OLD]), &sealed()).is_ok());
    assert_eq!(of(&ring(&[NEW]), &sealed()), Err(OpenError::NotAuthentic));
    let newer = seal(&ring(&[NEW, OLD]), &facts(), CONTENT, NONCE, MAX).unwrap();
    assert!(of(&ring(&[NEW]), &newer).is_ok());
}

#[test]
fn a_seal_that_names_another_key_of_the_ring_is_refused() {
    let (old, new) = (SecretKey::new(OLD).unwrap(), SecretKey::new(NEW).unwrap());
    let renamed = sealed().replace(old.id(), new.id());
    let opened = open(&ring(&[NEW, OLD]), &renamed, &zoe(), NOW, MAX);
    assert_eq!(opened, Err(OpenError::NotAuthentic));
}

#[test]
fn a_state_expires_at_its_moment() {
    let at = |now| open(&ring(&[OLD]), &sealed(), &zoe(), now, MAX);
    assert!(at(Timestamp::from_millis(EXPIRY.as_millis() - 1)).is_ok());
    let session_id = facts().session_id;
    assert_eq!(at(EXPIRY), Err(OpenError::Expired { session_id, expires_at: EXPIRY }));
}

#[test]
fn the_limit_counts_the_finished_text() {
    let content = noise(1000);
    let size = seal(&ring(&[OLD]), &facts(), &content, NONCE, MAX).unwrap().len();
    assert!(seal(&ring(&[OLD]), &facts(), &content, NONCE, size).is_ok());
    let refused = seal(&ring(&[OLD]), &facts(), &content, NONCE, size - 1);
    assert_eq!(refused, Err(SealError::TooLarge { size, limit: size - 1 }));
}

#[test]
fn content_is_bounded_before_it_is_compressed() {
    let limit = MAX * limits::STATE_EXPANSION;
    let sealing = |length| seal(&ring(&[OLD]), &facts(), &vec![b' '; length], NONCE, MAX);
    let largest = sealing(limit).unwrap();
    assert_eq!(open_now(&largest).unwrap().content.len(), limit);
    assert_eq!(sealing(limit + 1), Err(SealError::TooLarge { size: limit + 1, limit }));
}

#[test]
fn a_text_over_the_limit_is_refused_before_it_is_decoded() {
    let text = sealed();
    let within = |max_bytes| open(&ring(&[OLD]), &text, &zoe(), NOW, max_bytes);
    assert!(within(text.len()).is_ok());
    assert_eq!(within(text.len() - 1), Err(OpenError::TooLarge));
    assert_eq!(open_now(&"x".repeat(MAX + 1)), Err(OpenError::TooLarge));
}

#[test]
fn a_decompression_bomb_is_refused() {
    let bomb = pack(&facts(), &vec![0; 2_000_000]);
    let text = seal_raw(&bomb);
    assert!(text.len() <= MAX, "small enough to be read at all: {}", text.len());
    assert_eq!(open_now(&text), Err(OpenError::TooLarge));
    let just_over = pack(&facts(), &vec![0; MAX * limits::STATE_EXPANSION + 1]);
    assert_eq!(open_now(&seal_raw(&just_over)), Err(OpenError::TooLarge));
}

#[test]
fn a_good_seal_around_something_else_is_refused() {
    let line = |facts: &[u8], rest: &[u8]| seal_raw(&[facts, b"\n", rest].concat());
    let packed = pack(&facts(), CONTENT);
    let end = packed.iter().position(|byte| *byte == b'\n').unwrap();
    for text in [
        seal_raw(b""),
        seal_raw(b"no line"),
        line(b"{}", &packed[end + 1..]),
        line(&packed[..end], b""),
        line(&packed[..end], b"\xff\xff"),
        line(&packed[..end], &packed[end + 1..packed.len() - 1]),
    ] {
        assert_eq!(open_now(&text), Err(OpenError::NotAuthentic));
    }
}

#[test]
fn a_repeated_nonce_still_gives_different_seals_for_different_states() {
    let one = seal(&ring(&[OLD]), &facts(), b"one", NONCE, MAX).unwrap();
    let two = seal(&ring(&[OLD]), &facts(), b"two", NONCE, MAX).unwrap();
    assert_ne!(one, two);
}

#[test]
fn debug_hides_the_content() {
    let shown = format!("{:?}", open_now(&sealed()).unwrap());
    assert!(shown.contains("sess_") && shown.contains("bytes"));
    assert!(!shown.contains("memory") && !shown.contains("109")); // 109 = 'm' in a list of bytes
}
