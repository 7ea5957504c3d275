//! The same over real sockets and a store on a disk: requests are sent, and the connection is closed at some moment.

use std::sync::Arc;
use std::time::Duration;

use rejoin::core::SessionId;
use rejoin::core::codes::Reason;
use rejoin::store::audit::AuditQuery;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::common::mcp_client::kept_in;
use crate::common::until;
use crate::common::web::{Setup, Web};

/// Moments at which the client hangs up.
const MOMENTS: u64 = 40;

/// However slow the machine, nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_token_that_is_used_is_in_the_audit_trail_whenever_its_client_hangs_up() {
    let home = tempfile::tempdir().unwrap();
    let web = Setup { store: kept_in(home.path()), ..Setup::open() }.start().await;
    let mut used = 0;
    for moment in 0..MOMENTS {
        let (id, token) = web.create().await;
        let body = serde_json::json!({ "token": token }).to_string();
        hang_up(&web, "POST", &format!("/api/sessions/{id}/reconnect"), &body, moment).await;
        let id = SessionId::parse(&id).unwrap();
        until(async || web.service.sessions().live() == 0).await;
        let record = web.store.session(&id).await.unwrap().unwrap();
        let query = AuditQuery { session_id: Some(id), limit: 9, ..AuditQuery::default() };
        let noted = web.store.audit_trail(&query).await.unwrap().records;
        assert_eq!(noted.len() as u64, record.reconnect_count, "at moment {moment}");
        assert!(noted.iter().all(|record| record.reason == Reason::Reconnected));
        used += record.reconnect_count;
    }
    assert!(used > 0, "no request was read before its client hung up");
}

#[tokio::test]
async fn a_session_that_is_ended_has_no_driver_whenever_its_client_hangs_up() {
    let home = tempfile::tempdir().unwrap();
    let web = Setup { store: kept_in(home.path()), ..Setup::open() }.start().await;
    let mut ended = 0;
    for moment in 0..MOMENTS {
        let (id, _) = web.create().await;
        let mut joined = web.attach(&id).await;
        hang_up(&web, "DELETE", &format!("/api/sessions/{id}"), "", moment).await;
        let id = SessionId::parse(&id).unwrap();
        if web.store.session(&id).await.unwrap().unwrap().is_active() {
            drop(joined);
        } else {
            let told = async { while joined.attachment.next().await.is_some() {} };
            tokio::time::timeout(PATIENCE, told).await.expect("it is told that it is over");
            ended += 1;
        }
        until(async || web.service.sessions().live() == 0).await;
    }
    assert!(ended > 0, "no request was read before its client hung up");
}

#[tokio::test]
async fn the_bound_of_sessions_holds_for_requests_at_once() {
    for store in [kept(), memory()] {
        let (_home, store) = store;
        let mut setup = Setup { store, ..Setup::open() };
        setup.service.max_sessions = 10;
        let web = Arc::new(setup.start().await);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let web = Arc::clone(&web);
            callers.spawn(async move { web.post("/api/sessions").send().await.status });
        }
        let answers = callers.join_all().await;
        let made = answers.iter().filter(|status| **status == 201).count();
        let busy = answers.iter().filter(|status| **status == 503).count();
        assert_eq!((made, busy), (10, 90));
    }
}

type Home = Option<tempfile::TempDir>;

fn kept() -> (Home, Arc<dyn rejoin::store::Store>) {
    let home = tempfile::tempdir().unwrap();
    let store = kept_in(home.path());
    (Some(home), store)
}

fn memory() -> (Home, Arc<dyn rejoin::store::Store>) {
    (None, Arc::new(rejoin::store::MemoryStore::default()))
}

/// Sends a request and closes the connection a moment later.
async fn hang_up(web: &Web, method: &str, path: &str, body: &str, moment: u64) {
    let mut stream = TcpStream::connect(web.address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::sleep(Duration::from_micros(moment * 50)).await;
    drop(stream);
    tokio::time::sleep(Duration::from_millis(30)).await; // what it began is done by then
}
