//! An agent behind a URL: each entry is POSTed to it, and what it has to say it publishes by HTTP.
//!
//! The body is `{session_id, event, message_id, in_seq, content, state}`, `event` being `user.message`
//! or `user.cancel` and `state` the session's as it is then. An answer of 2xx covers the entry; anything
//! else, or none, and it is sent again, for as long as the session lives. Entries come in order and one
//! at a time: a backend that wants to hear of a cancel while it works answers before it works.

use std::time::Duration;

use async_trait::async_trait;
use rejoin_core::MessageId;
use rejoin_core::page::StoredEntry;
use rejoin_core::session::Publication;
use rejoin_store::Unavailable;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::agent::{Agent, Seat};
use crate::entry::{EntryBody, event_name};
use crate::outward::BadUrl;
use crate::post::Client;

/// The wait after the first attempt that failed; it doubles with each …
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// … up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Hands the entries of every session to one backend.
#[derive(Debug)]
pub struct Http {
    client: Client,
}

impl Http {
    /// The backend at this URL, with scheme `http` or `https`.
    pub fn new(url: &str) -> Result<Self, BadUrl> {
        Ok(Self { client: Client::new(url)? })
    }

    /// With so long for each attempt, from connecting to the end of the answer, in place of half a
    /// minute.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.client.timeout = timeout;
        self
    }
}

/// What is POSTed.
#[derive(Serialize)]
struct Delivery<'a> {
    session_id: &'a str,
    event: &'static str,
    message_id: Option<&'a str>,
    in_seq: u64,
    content: Option<&'a RawValue>,
    state: Option<&'a RawValue>,
}

#[async_trait]
impl Agent for Http {
    async fn run(&self, mut seat: Seat) {
        while let Some(entry) = seat.next().await {
            match self.deliver(&seat, &entry).await {
                Ok(Delivered::Covered) => {}
                Ok(Delivered::Stopped) => return,
                Err(unavailable) => {
                    tracing::warn!(session = %seat.session(), %unavailable, "an agent stops");
                    return;
                }
            }
        }
    }
}

enum Delivered {
    Covered,
    /// There is nobody to deliver for any more.
    Stopped,
}

impl Http {
    /// Sends an entry until it is taken, and covers it then.
    async fn deliver(&self, seat: &Seat, entry: &StoredEntry) -> Result<Delivered, Unavailable> {
        let mut wait = FIRST_WAIT;
        while !is_covered(seat, entry).await? {
            let state = seat.state().await?;
            let body = delivery(seat, entry, state.as_ref().map(|state| &*state.body));
            match self.client.post(body, &[]).await {
                Ok(_) => return cover(seat, entry).await,
                Err(why) => {
                    let (session, in_seq) = (seat.session(), entry.in_seq);
                    tracing::warn!(%session, %in_seq, %why, "a backend has not taken an entry");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                () = seat.stopped() => return Ok(Delivered::Stopped),
            }
        }
        Ok(Delivered::Covered)
    }
}

/// The backend may cover an entry itself when it publishes.
async fn is_covered(seat: &Seat, entry: &StoredEntry) -> Result<bool, Unavailable> {
    Ok(seat.record().await?.is_none_or(|record| record.covered >= entry.in_seq))
}

async fn cover(seat: &Seat, entry: &StoredEntry) -> Result<Delivered, Unavailable> {
    if is_covered(seat, entry).await? {
        return Ok(Delivered::Covered);
    }
    let covers = Publication { in_seq: Some(entry.in_seq), ..Publication::default() };
    Ok(match seat.publish(covers).await {
        Ok(_) => Delivered::Covered,
        Err(_) => Delivered::Stopped, // the session is over, or another process runs it
    })
}

fn delivery(seat: &Seat, entry: &StoredEntry, state: Option<&[u8]>) -> Vec<u8> {
    let body = EntryBody::for_agent(&entry.body);
    let delivery = Delivery {
        session_id: seat.session().as_str(),
        event: event_name(entry.kind),
        message_id: body.message_id.as_ref().map(MessageId::as_str),
        in_seq: entry.in_seq.get(),
        content: body.content.as_deref(),
        state: state.and_then(|state| serde_json::from_slice(state).ok()),
    };
    let text = serde_json::to_vec(&delivery);
    debug_assert!(text.is_ok(), "strings, numbers and checked JSON can always be written");
    text.unwrap_or_default()
}
