//! Who may read `/metrics`.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use crate::common::web::{Setup, Web};
use rejoin::web::{MetricsFor, WebSettings};

/// The status with which `/metrics` is answered to somebody.
async fn told(web: &Web, key: Option<&str>) -> u16 {
    let asking = web.get("/metrics");
    let answer = key.map_or(asking.clone(), |key| asking.by(key)).send().await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status == 200, text.contains("rejoin_sessions"), "{text}");
    answer.status
}

fn only_for_administrators(setup: Setup) -> Setup {
    let web = WebSettings { metrics: MetricsFor::Administrators, ..setup.web };
    Setup { web, ..setup }
}

#[tokio::test]
async fn measurements_are_open_unless_that_is_changed() {
    let web = Setup::keyed().start().await;
    for key in [None, Some("alice"), Some("nobody"), Some("admin")] {
        assert_eq!(told(&web, key).await, 200);
    }
}

#[tokio::test]
async fn a_scrape_that_needs_no_credential_is_not_counted_as_a_rejected_one() {
    let web = Setup::keyed().start().await;
    for key in [None, Some("nobody")] {
        assert_eq!(told(&web, key).await, 200);
    }
    let counted = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    let mut rejected =
        counted.lines().filter(|line| line.starts_with("rejoin_credentials_rejected"));
    assert!(rejected.all(|line| line.ends_with(" 0")), "{counted}");
    web.get("/api/sessions").send().await.expect(401);
    let counted = String::from_utf8(web.get("/metrics").send().await.body).unwrap();
    assert!(counted.contains(r#"rejoin_credentials_rejected_total{reason="missing"} 1"#));
}

#[tokio::test]
async fn measurements_can_be_for_administrators_only() {
    let web = only_for_administrators(Setup::keyed()).start().await;
    for (key, status) in
        [(None, 401), (Some("nobody"), 401), (Some("alice"), 403), (Some("admin"), 200)]
    {
        assert_eq!(told(&web, key).await, status, "{key:?}");
    }
}

#[tokio::test]
async fn without_authentication_that_means_callers_on_the_same_machine() {
    let near = only_for_administrators(Setup::open()).start().await;
    assert_eq!(told(&near, None).await, 200);
    let peer = Some("192.0.2.7:4711".parse().unwrap());
    let far = Setup { peer, ..only_for_administrators(Setup::open()) }.start().await;
    assert_eq!(told(&far, None).await, 403);
}
