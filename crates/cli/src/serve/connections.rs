//! HTTP over the connections of a listener, each a task of its own with deadlines: for its handshake, for
//! the head of its first and of every further request, and for bodies. What a response takes is bounded by
//! `TCP_USER_TIMEOUT` (see [`crate::listener`]).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rejoin::web::Intake;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};
use tower_service::Service as _;

use crate::limits::{BODY_PAUSE, FIRST_HEAD, HEAD_BYTES, NEXT_HEAD, WHOLE_BODY};
use crate::listener::{Accepted, Listener};

/// Answers on `listener` until `stopped`, and then until every connection has had its last response.
pub(crate) async fn serve(
    mut listener: Listener,
    routes: Router,
    stopped: impl Future<Output = ()>,
) {
    let (stopping, stop) = watch::channel(false);
    let (alive, mut ended) = mpsc::channel::<Infallible>(1);
    let mut stopped = pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            accepted = listener.accept() => {
                tokio::spawn(one(accepted, routes.clone(), stop.clone(), alive.clone()));
            }
        }
    }
    drop((listener, alive));
    stopping.send_replace(true);
    ended.recv().await; // nothing is ever sent; it ends when every task has dropped its end
}

async fn one(
    accepted: Accepted,
    routes: Router,
    mut stop: watch::Receiver<bool>,
    _alive: mpsc::Sender<Infallible>,
) {
    let peer = accepted.peer;
    let ready = tokio::select! {
        ready = accepted.ready() => ready,
        _ = stop.wait_for(|stop| *stop) => None,
    };
    let Some(stream) = ready else { return };
    let requests = Requests { routes, peer, intake: stream.intake(), begun: Arc::default() };
    let begun = Arc::clone(&requests.begun);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(NEXT_HEAD).max_buf_size(HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), requests).with_upgrades();
    let mut connection = pin!(connection);
    let mut first_head = pin!(tokio::time::sleep(FIRST_HEAD));
    let (mut waits, mut stopping) = (true, false);
    loop {
        tokio::select! {
            served = connection.as_mut() => {
                if let Err(error) = served {
                    tracing::trace!(%peer, "connection failed: {error}");
                }
                return;
            }
            () = first_head.as_mut(), if waits => {
                waits = false;
                if !begun.load(Ordering::Relaxed) {
                    return;
                }
            }
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// What one connection asks for.
struct Requests {
    routes: Router,
    peer: SocketAddr,
    intake: Intake,
    /// Whether the head of a request has come.
    begun: Arc<AtomicBool>,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = <Router as tower_service::Service<hyper::Request<Body>>>::Future;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        self.begun.store(true, Ordering::Relaxed);
        let mut request = request.map(|body| Body::new(TimedBody::new(body)));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        request.extensions_mut().insert(self.intake.clone());
        self.routes.clone().call(request)
    }
}

/// The body of a request, which fails if it takes too long.
struct TimedBody {
    body: Incoming,
    began: Instant,
    /// The moment to give up, while it is waited for bytes.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    fn new(body: Incoming) -> Self {
        Self { body, began: Instant::now(), deadline: None }
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let latest = (Instant::now() + BODY_PAUSE).min(self.began + WHOLE_BODY);
        let deadline =
            self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(latest)));
        ready!(deadline.as_mut().poll(context));
        let error = io::Error::new(io::ErrorKind::TimedOut, "the body does not come");
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
