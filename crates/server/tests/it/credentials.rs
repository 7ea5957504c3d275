//! What credentials are judged by, how often bad ones may be tried, and what becomes of connections when
//! they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::web::{KeysOfTests, Setup, Web};
use rejoin::core::Principal;
use rejoin::web::WebSettings;
use rejoin::{
    Authenticate, Caller, CredentialFault, CredentialId, Unauthorized, WallClock, WallTime,
};
use tokio::sync::watch;

const START: WallTime = WallTime::from_millis(1_800_000_000_000);

/// A token that is good for ten minutes from [`START`] on, as an issuer elsewhere would say.
#[derive(Debug)]
struct TenMinutes;

impl Authenticate for TenMinutes {
    fn authenticate(&self, _: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        let until = START + Duration::from_secs(600);
        if now < START {
            return Err(CredentialFault::NotYetValid.into());
        }
        if now >= until {
            return Err(CredentialFault::Expired.into());
        }
        Ok(caller(Some(until)))
    }
}

fn caller(until: Option<WallTime>) -> Caller {
    let principal = Principal::new("alice");
    let credential = Some(CredentialId([7; 16]));
    Caller { principal, admin: true, publish: true, until, credential }
}

async fn judged_by(clock: &WallClock) -> Web {
    let mut setup = Setup { access: Arc::new(TenMinutes), ..Setup::keyed() };
    setup.web.wall_clock = clock.clone();
    setup.start().await
}

#[tokio::test]
async fn credentials_follow_the_wall_clock_when_it_is_set() {
    let clock = WallClock::standing_at(START);
    let web = judged_by(&clock).await;
    let path = "/api/sessions/active";
    web.get(path).by("token").send().await.expect(200);
    clock.set(START + Duration::from_secs(601)); // a suspend, or a correction
    web.get(path).by("token").send().await.expect(401);
    clock.set(WallTime::from_millis(START.as_millis() - 1));
    web.get(path).by("token").send().await.expect(401);
    clock.set(START + Duration::from_secs(599));
    web.get(path).by("token").send().await.expect(200);
}

#[tokio::test]
async fn a_request_that_waits_is_not_answered_after_its_credential_has_ended() {
    let clock = WallClock::standing_at(START + Duration::from_secs(599));
    let web = judged_by(&clock).await;
    let (id, _) = web.create_by("token").await;
    let path = format!("/api/sessions/{id}/events?wait=1s");
    let asked = web.get(&path).by("token");
    let (answer, ()) = tokio::join!(asked.send(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        clock.set(START + Duration::from_secs(601));
    });
    answer.expect(401);
}

#[tokio::test]
async fn bad_credentials_are_limited_and_good_ones_from_the_same_address_are_not() {
    let web = Setup::keyed().start().await;
    let (id, _) = web.create_by("bob").await;
    let mut statuses = Vec::new();
    for guess in 0..60 {
        let answer = web.get("/api/sessions").by(&format!("guess-{guess}")).send().await;
        if answer.status == 429 {
            let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!(wait >= 1);
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[59], 429, "{statuses:?}");
    web.get(&format!("/api/sessions/{id}")).by("bob").send().await.expect(200);
    web.get(&format!("/api/sessions/{id}")).by("alice").send().await.expect(404); // never seen before
    let metrics = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    assert!(metrics.contains(r#"rejoin_credentials_rejected_total{reason="unknown_key"} 60"#));
}

/// One key, until it is revoked.
#[derive(Debug)]
struct Revocable {
    revoked: AtomicBool,
    changed: watch::Sender<u64>,
}

impl Authenticate for Revocable {
    fn authenticate(&self, credential: &str, now: WallTime) -> Result<Caller, Unauthorized> {
        KeysOfTests.authenticate(credential, now)
    }

    fn is_current(&self, _: &Caller) -> bool {
        !self.revoked.load(Ordering::Relaxed)
    }

    fn revocations(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

#[tokio::test]
async fn streams_end_when_their_credential_is_revoked() {
    let access =
        Arc::new(Revocable { revoked: AtomicBool::new(false), changed: watch::Sender::new(0) });
    let keep_alive = Duration::from_millis(20);
    let web = WebSettings { open: false, sse_keep_alive: keep_alive, ..WebSettings::default() };
    let web = Setup { web, access: access.clone(), ..Setup::keyed() }.start().await;
    let (id, _) = web.create_by("alice").await;
    for path in [format!("/api/sessions/{id}/events"), "/sse".to_owned()] {
        access.revoked.store(false, Ordering::Relaxed);
        let asked = web.get(&path).by("alice").header("accept", "text/event-stream");
        let mut stream = asked.stream().await;
        assert!(stream.next_or_comment().await.is_some(), "it has begun");
        access.revoked.store(true, Ordering::Relaxed);
        access.changed.send_modify(|changes| *changes += 1);
        let ended = async { while stream.next_or_comment().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the stream ends");
    }
}
