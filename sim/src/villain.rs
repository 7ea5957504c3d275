//! Everybody who tries what must not work: processes that were fenced, connections that were
//! replaced, clean-ups that come too late, thieves of tokens and forgers of states. They try on a
//! copy, so that only the judge notices them.

use std::collections::BTreeMap;
use std::time::Duration;

use rejoin_core::client::Secret;
use rejoin_core::keys::KeyRing;
use rejoin_core::lifetime::Lifetime;
use rejoin_core::log::Weight;
use rejoin_core::page::Body;
use rejoin_core::record::{About, Ending, Kind, Record, Transport};
use rejoin_core::seal;
use rejoin_core::state::{
    self, Ack, Append, Attach, Create, Detach, End, Enter, NewEvent, NewSnapshot, NewToken, Origin,
    Renew, Restore, Restored, Room, SessionState, Takeover, TokenUse,
};
use rejoin_core::token::TokenHash;
use rejoin_core::{Epoch, LogId, Principal, SessionId, Timestamp};

use crate::judge::Judge;
use crate::random::Random;

/// Tries one thing on a session.
pub(crate) fn try_session(
    session: &SessionState<Body>,
    random: &mut Random,
    now: Timestamp,
    judge: &mut Judge,
) {
    let record = session.record();
    let stale = record.generation.previous();
    let was_replaced = stale < record.generation;
    let mut copy = session.clone();
    match random.below(9) {
        0 if was_replaced => {
            let end = End {
                ending: Ending::Closed,
                only_parked: Some(stale),
                only_by: None,
                only_due: false,
                remember_for: Duration::ZERO,
                now,
            };
            judge.refused("P5: a stale clean-up was honoured", copy.end(&end).is_ok());
        }
        1 if was_replaced => {
            let ack = Ack { generation: stale, seq: record.head };
            judge.refused("P5: a stale ack was honoured", copy.ack(&ack).is_ok());
        }
        2 if was_replaced => {
            let detach =
                Detach { generation: stale, lifetime: Lifetime::keeping(Duration::ZERO), now };
            judge.refused("P5: a stale detach was honoured", copy.detach(&detach).is_ok());
        }
        3 if was_replaced => {
            let enter = Enter {
                generation: Some(stale),
                kind: rejoin_core::log::EntryKind::Message,
                digest: None,
                size: 1,
                body: Body::from(&b"x"[..]),
                max_waiting_bytes: 1000,
                keep_for: Duration::ZERO,
                now,
            };
            judge.refused("P5: a stale message was entered", copy.enter(enter).is_ok());
        }
        4 if record.term.get() > 0 => {
            let append = Append {
                term: record.term.previous(),
                first: record.head.next(),
                events: vec![NewEvent {
                    weight: Weight::passing(1),
                    body: Body::from(&b"zombie"[..]),
                }],
                snapshot: None,
                covers: None,
                answered: Vec::new(),
                named: false,
                key: None,
                now,
            };
            judge.refused("P5: a fenced process wrote", copy.append(append).is_ok());
        }
        5 => {
            let ack = Ack { generation: record.generation, seq: record.head.next() };
            judge.refused("P3: an ack beyond the head was taken", copy.ack(&ack).is_ok());
        }
        6 => {
            let attach = attach_as(&Principal::new("villain"), None, now);
            judge.refused("P6: a stranger attached", copy.attach(&attach).is_ok());
        }
        7 if record.attached.is_some() => {
            let end = End {
                ending: Ending::Expired,
                only_parked: Some(record.generation),
                only_by: None,
                only_due: false,
                remember_for: Duration::ZERO,
                now,
            };
            judge.refused("P11: a session with a client was cleaned up", copy.end(&end).is_ok());
        }
        8 if record.is_active() && record.expires_at > now => {
            let end = End {
                ending: Ending::Expired,
                only_parked: Some(record.generation),
                only_by: None,
                only_due: true,
                remember_for: Duration::ZERO,
                now,
            };
            judge.refused("P11: a session expired before its time", copy.end(&end).is_ok());
        }
        _ => {}
    }
}

/// Uses a token again that its owner has used before.
pub(crate) fn replay_token(
    session: &SessionState<Body>,
    token: &Secret,
    random: &mut Random,
    now: Timestamp,
    judge: &mut Judge,
) {
    let hash = TokenHash::of(token.reveal());
    if !judge.is_spent(&hash, now) {
        return;
    }
    let successor = NewToken { hash: TokenHash(random.bytes()), expires_at: now };
    let token =
        TokenUse { hash, successor, generation: session.record().generation, by_call: false };
    let principal = session.about.principal.clone();
    let mut copy = session.clone();
    if random.one_in(2) {
        let attach = attach_as(&principal, Some(token), now);
        judge.refused("P7: a used token attached", copy.attach(&attach).is_ok());
    } else {
        let renew = Renew { principal, token, attempt: None, keep_for: Duration::ZERO, now };
        judge.refused("P7: a used token renewed", copy.renew(&renew).is_ok());
    }
}

/// Brings a state that was changed, is somebody else's, or too old.
pub(crate) fn forge_state(
    keys: &KeyRing,
    owner: &Principal,
    state: &Secret,
    random: &mut Random,
    now: Timestamp,
    judge: &mut Judge,
) {
    let text = state.reveal();
    match random.below(3) {
        0 => {
            let mut bytes = text.as_bytes().to_vec();
            let place = random.below(bytes.len());
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let Ok(changed) = String::from_utf8(bytes) else { return };
            let opened = seal::open(keys, &changed, owner, now, 4096);
            judge.refused("P8: a changed state was opened", opened.is_ok());
        }
        1 => {
            let opened = seal::open(keys, text, &Principal::new("villain"), now, 4096);
            judge.refused("P8: somebody else's state was opened", opened.is_ok());
        }
        _ => {
            let too_late = now + crate::server::STATE_TTL;
            let opened = seal::open(keys, text, owner, too_late, 4096);
            judge.refused("P8: an expired state was opened", opened.is_ok());
        }
    }
}

/// Brings a state that names a session and was taken of another one: another principal's, of another kind, one that had
/// the id before, or one of another store.
pub(crate) fn restore_another(
    sessions: &BTreeMap<SessionId, SessionState<Body>>,
    named: &SessionId,
    random: &mut Random,
    now: Timestamp,
    judge: &mut Judge,
) {
    let mut copy = sessions.clone();
    let before = copy[named].record();
    let mut restore = restore_of(&before, random, now);
    let sealed = |created_at, in_this_store, random: &mut Random| Origin::Sealed {
        created_at,
        in_this_store,
        stand_in: SessionId::from_random(random.bytes()),
    };
    let created_at = before.about.created_at;
    if random.one_in(2) {
        restore.origin = sealed(created_at, true, random);
    }
    match random.below(5) {
        0 => restore.create.about.principal = Principal::new("villain"),
        1 => restore.create.about.kind = Kind::Mcp,
        2 => {
            let earlier = Timestamp::from_millis(created_at.as_millis().wrapping_sub(1));
            restore.origin = sealed(earlier, true, random);
        }
        3 if before.is_active() => restore.origin = sealed(created_at, false, random),
        _ => {
            restore.origin = sealed(created_at, false, random);
            restore.epoch = Epoch::from_random(random.bytes());
        }
    }
    let restored = state::restore(restore, &mut copy);
    let joined = matches!(restored, Ok(Restored::Joined(_)));
    let changed = copy[named].record() != before;
    judge.refused("P6: a state of another session led to this one", joined || changed);
}

/// What the owner of a session would ask for with a good state of it.
fn restore_of(record: &Record, random: &mut Random, now: Timestamp) -> Restore<Body> {
    let id = SessionId::from_random(random.bytes());
    let create = Create {
        about: About { id, ..(*record.about).clone() },
        log: LogId::from_random(random.bytes()),
        epoch: Epoch::from_random(random.bytes()),
        keep_for: Duration::from_secs(60),
        room: Room::UNLIMITED,
    };
    Restore {
        from: record.id().clone(),
        origin: Origin::Unsaid,
        create,
        epoch: record.epoch.clone(),
        seq: record.head,
        in_seq: record.covered,
        taken_at: now,
        state: NewSnapshot { size: 2, body: Body::from(&b"{}"[..]) },
        last_seq: None,
        takeover: Takeover::Replace,
        remember_for: Duration::from_secs(60),
        only_at: None,
        attempt: None,
        now,
    }
}

fn attach_as(principal: &Principal, token: Option<TokenUse>, now: Timestamp) -> Attach {
    let (principal, transport) = (principal.clone(), Transport::WebSocket);
    Attach { principal, transport, takeover: Takeover::Replace, token, attempt: None, now }
}
