//! A server that lifecycle events are posted to.

use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{PATIENCE, text};

/// It listens until the test ends.
pub(crate) struct Hook {
    url: String,
    posted: mpsc::UnboundedReceiver<Value>,
    answer: Arc<Mutex<Value>>,
}

impl Hook {
    /// One that leaves it to the settings what becomes of a session.
    pub(crate) async fn start() -> Self {
        let (got, posted) = mpsc::unbounded_channel();
        let answer = Arc::new(Mutex::new(json!({})));
        let answers = Arc::clone(&answer);
        let take = move |Json(body): Json<Value>| async move {
            let _ = got.send(body); // the test may have ended
            Json(answers.lock().unwrap().clone())
        };
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", socket.local_addr().unwrap());
        let router = Router::new().route("/", post(take));
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { url, posted, answer }
    }

    /// The flag that makes a server post to it.
    pub(crate) fn flag(&self) -> String {
        format!("--hook-url={}", self.url)
    }

    /// From now on it answers this.
    pub(crate) fn answer(&self, answer: Value) {
        *self.answer.lock().unwrap() = answer;
    }

    /// The next event of a session, whatever comes before of others: its type and the record.
    pub(crate) async fn next(&mut self, session: &str) -> (String, Value) {
        loop {
            let posted = timeout(PATIENCE, self.posted.recv()).await.expect("nothing is posted");
            let mut posted = posted.expect("it listens");
            if posted["session"]["session_id"] == session {
                return (text(&posted["type"]), posted["session"].take());
            }
        }
    }
}
