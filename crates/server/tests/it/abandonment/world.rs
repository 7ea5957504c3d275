//! A server whose handlers are driven by hand, and everybody who must hear of a change.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use futures_util::FutureExt as _;
use rejoin::core::codes::Reason;
use rejoin::core::log::EntryKind;
use rejoin::core::record::{Kind, Record, Transport};
use rejoin::core::{Principal, SessionId};
use rejoin::mcp::Gateway;
use rejoin::service::{Issued, Joined, Service, ServiceSettings, Visitor};
use rejoin::store::audit::AuditQuery;
use rejoin::store::{Query, Store};
use rejoin::web::{WebSettings, router};
use rejoin::{Agent, Authenticate as _, Cleanup, Lifecycle, Open, Seat, SessionHook, Sessions};
use tokio::task::yield_now;
use tower_service::Service as _;

use crate::common::failing::FailingStore;
use crate::common::web::ring;
use crate::common::{body, until};

/// How many polls each call of the store takes before and after it does something.
pub(crate) const TURNS: usize = 2;

/// No handler needs more polls than this.
const MOST_POLLS: usize = 400;

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) service: Service,
    pub(crate) store: Arc<FailingStore>,
    pub(crate) hook: Heard,
    pub(crate) running: Running,
}

/// What the hook was told, in order.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<(String, SessionId)>>>);

impl Heard {
    pub(crate) fn times(&self, what: &str, id: &SessionId) -> usize {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|(heard, of)| heard == what && of == id).count()
    }

    fn note(&self, what: &str, session: &Record) {
        self.0.lock().unwrap().push((what.to_owned(), session.id().clone()));
    }
}

#[async_trait]
impl SessionHook for Heard {
    async fn disconnected(&self, session: Record, _cleanup: Cleanup) {
        self.note("disconnected", &session);
    }

    fn happened(&self, what: Lifecycle, session: &Record) {
        self.note(what.as_str(), session);
    }
}

/// An agent that never covers what it is given, how many of it are at work, what they were given and how often one began.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Counts>);

#[derive(Default)]
struct Counts {
    at_work: AtomicUsize,
    given: AtomicUsize,
    begun: AtomicUsize,
}

impl Running {
    pub(crate) fn count(&self) -> usize {
        self.0.at_work.load(Ordering::SeqCst)
    }

    pub(crate) fn given(&self) -> usize {
        self.0.given.load(Ordering::SeqCst)
    }

    pub(crate) fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Agent for Running {
    async fn run(&self, mut seat: Seat) {
        struct AtWork(Running);
        impl Drop for AtWork {
            fn drop(&mut self) {
                self.0.0.at_work.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.0.at_work.fetch_add(1, Ordering::SeqCst);
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let _at_work = AtWork(self.clone());
        while seat.next().await.is_some() {
            self.0.given.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Tries something with every number of polls, until it is answered: `trial` gets a new world, and says whether it was. What
/// it asserts must hold each time.
pub(crate) async fn at_each_await(trial: impl AsyncFn(World, usize) -> bool) {
    let mut answered = 0;
    for polls in 0..MOST_POLLS {
        if trial(World::new(), polls).await {
            answered += 1;
            if answered == 3 {
                return; // the last ones have let it go on by itself for a while
            }
        }
    }
    panic!("it was never answered");
}

/// Polls a future so many times, with turns for everybody else in between, and drops it.
pub(crate) async fn polled<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Some(output) = (&mut future).now_or_never() {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

impl World {
    pub(crate) fn new() -> Self {
        let store = FailingStore::new();
        store.take_turns(TURNS);
        let (hook, running) = (Heard::default(), Running::default());
        let sessions = Sessions::builder(Arc::clone(&store) as Arc<dyn Store>)
            .hook(hook.clone())
            .agent(running.clone())
            .mcp(Gateway::built_in())
            .start()
            .unwrap();
        let keys = Arc::new(|| Arc::new(ring()));
        let service = Service::new(sessions, keys, ServiceSettings::default());
        let router = router(service.clone(), Arc::new(Open), WebSettings::default());
        Self { router, service, store, hook, running }
    }

    /// Makes a request and drops it after so many polls; its status, if it was answered.
    pub(crate) async fn request(&self, request: Request<Body>, polls: usize) -> Option<StatusCode> {
        let response = polled(self.call(request), polls).await;
        response.map(|response| response.status())
    }

    /// Makes a request and waits for its response.
    pub(crate) async fn call(&self, request: Request<Body>) -> Response {
        let answered: Result<Response, Infallible> = self.router.clone().call(request).await;
        answered.unwrap()
    }

    pub(crate) fn visitor(&self) -> Visitor {
        Visitor::over(Transport::WebSocket, Open.without_credential().unwrap(), None)
    }

    pub(crate) async fn session(&self) -> (Record, Issued) {
        let made = self.service.create_with_token(&self.visitor(), Kind::Agent, "{}").await;
        made.unwrap()
    }

    pub(crate) async fn join(&self, record: &Record) -> Joined {
        self.service.join_new(&self.visitor(), record, Transport::WebSocket).await.unwrap()
    }

    /// Gives a session's agent something to do, and waits until it is at it.
    pub(crate) async fn work(&self, id: &SessionId) {
        let message = body(r#"{"content":"work"}"#);
        let sessions = self.service.sessions();
        sessions.send(id, EntryKind::Message, None, message).await.unwrap();
        until(async || self.running.count() == 1).await;
    }

    pub(crate) async fn record(&self, id: &SessionId) -> Record {
        self.store.session(id).await.unwrap().unwrap()
    }

    pub(crate) async fn sessions(&self) -> Vec<Record> {
        self.store.sessions(&Query { limit: 99, ..Query::default() }).await.unwrap()
    }

    /// The reasons in the audit trail of a session, oldest first.
    pub(crate) async fn audited(&self, id: &SessionId) -> Vec<Reason> {
        let query = AuditQuery { session_id: Some(id.clone()), limit: 99, ..AuditQuery::default() };
        let page = self.store.audit_trail(&query).await.unwrap();
        page.records.iter().rev().map(|record| record.reason).collect()
    }

    /// Waits until nothing is on its way any more: everybody has had many turns.
    pub(crate) async fn settles(&self) {
        for _ in 0..40 * (TURNS + 1) {
            yield_now().await;
        }
        crate::common::settle().await;
    }

    /// Waits until nobody is attached to a session, and it goes on or has ended.
    pub(crate) async fn is_left(&self, id: &SessionId) {
        until(async || self.record(id).await.attached.is_none()).await;
    }

    /// Whether each session that there is was told to the hook once.
    pub(crate) async fn hook_knows_all(&self) {
        for record in self.sessions().await {
            let told =
                self.hook.times("created", record.id()) + self.hook.times("restored", record.id());
            assert_eq!(told, 1, "{:?}", record.id());
        }
    }
}

pub(crate) fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

pub(crate) fn me() -> Principal {
    Principal::anonymous()
}
