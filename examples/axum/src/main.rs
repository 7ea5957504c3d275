//! An agent built into an axum program that has routes of its own. It counts to the number that it is told, and
//! goes on where it was when the program is killed.
//!
//! `cargo run -p rejoin-axum-example`, then connect a client to ws://127.0.0.1:8181/ws.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rejoin::core::{EventBody, worker::Publication};
use rejoin::{Agent, EntryBody, Seat, embed};
use serde_json::json;
use tokio::net::TcpListener;

struct Counter;

#[async_trait::async_trait]
impl Agent for Counter {
    async fn run(&self, mut seat: Seat) {
        while let Some(entry) = seat.next().await {
            let last = EntryBody::from_body(&entry.body).content.and_then(|n| n.get().parse().ok());
            let before = seat.state().await.ok().flatten();
            let before: Option<(u64, u64)> =
                before.and_then(|s| serde_json::from_slice(&s.body).ok());
            let counted =
                before.filter(|(message, _)| *message == entry.in_seq.get()).map_or(0, |b| b.1);
            for number in counted + 1..=last.unwrap_or(0) {
                tokio::time::sleep(Duration::from_millis(20)).await; // work that takes its time
                let piece = format!("{number} ");
                let event = EventBody::new("agent.answer_delta", &piece).expect("a good name");
                let state = json!([entry.in_seq.get(), number]).to_string().into_bytes();
                let said = Publication {
                    events: vec![event],
                    state: Some(state.into()),
                    ..Default::default()
                };
                if seat.publish(said).await.is_err() {
                    return; // the session is over
                }
            }
            let whole: String =
                (1..=last.unwrap_or(0)).map(|number| format!("{number} ")).collect();
            let events = vec![EventBody::new("agent.final_answer", &whole).expect("a good name")];
            let in_seq = Some(entry.in_seq);
            let _ = seat.publish(Publication { events, in_seq, ..Default::default() }).await;
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let sessions = embed::open(Path::new("sessions"), Counter).await?;
    let routes = Router::new().route("/", get(|| async { "fine" })).merge(sessions.router());
    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8181".to_owned());
    sessions.serve(TcpListener::bind(address).await?, routes).await?;
    Ok(())
}
