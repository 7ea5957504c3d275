//! Looking for sessions among many: by a text, by state, and a window of what is found, the latest first.
//! A list by id, page after page without holes, is in `listing.rs`; this is for people, who look at what
//! is on their screen.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use rejoin_core::record::Record;
use rejoin_core::{SessionId, Timestamp};
use rejoin_store::Query;
use serde::{Deserialize, Serialize};

use super::records::{RecordView, StatusWord, shown_bytes};
use super::request::{MAX_PAGE, Params, invalid, page_size};
use crate::limits;
use crate::service::{Denial, Service, Visitor};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::Nearby;

/// The longest text that is looked for.
pub(super) const MAX_TEXT_CHARS: usize = 128;

/// What to look for, and which part of what is found to show.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SearchParams {
    q: Option<String>,
    state: Option<StateWord>,
    offset: Option<u32>,
    limit: Option<usize>,
}

/// Where a session is in its life, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateWord {
    Attached,
    Parked,
    Closed,
    Expired,
}

impl StateWord {
    fn of(record: &Record, now: Timestamp) -> Self {
        match StatusWord::of(record, now) {
            StatusWord::Active if record.attached.is_some() => Self::Attached,
            StatusWord::Active => Self::Parked,
            StatusWord::Closed => Self::Closed,
            StatusWord::Expired => Self::Expired,
        }
    }
}

/// How many there are of each state.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    attached: usize,
    parked: usize,
    closed: usize,
    expired: usize,
}

impl Counts {
    fn add(&mut self, state: StateWord) {
        let count = match state {
            StateWord::Attached => &mut self.attached,
            StateWord::Parked => &mut self.parked,
            StateWord::Closed => &mut self.closed,
            StateWord::Expired => &mut self.expired,
        };
        *count += 1;
    }
}

/// A window of what was found.
#[derive(Debug, Serialize)]
pub(super) struct SearchView {
    sessions: Vec<RecordView>,
    /// How many were found, of the state that was asked for.
    found: usize,
    /// How many the text was found in, of each state.
    counts: Counts,
}

/// `GET /sessions/search`.
pub(super) async fn search(
    Nearby(visitor): Nearby,
    State(front): State<Arc<Front>>,
    Params(params): Params<SearchParams>,
) -> Result<Json<SearchView>, Failure> {
    let limit = page_size(params.limit)?;
    let (service, text) = (&front.service, text(params.q)?);
    let (mut found, counts) = look(service, &visitor, &text, params.state).await?;
    let offset = (params.offset.unwrap_or(0) as usize).min(found.len());
    let end = (offset + limit).min(found.len());
    let latest_first = |(at, id): &(Timestamp, SessionId)| (Reverse(*at), id.clone());
    if end < found.len() {
        found.select_nth_unstable_by_key(end, latest_first);
    }
    found[..end].sort_unstable_by_key(latest_first);
    let (mut sessions, mut bytes) = (Vec::with_capacity(end - offset), 0);
    for (_, id) in &found[offset..end] {
        // One that has been forgotten since is not there any more.
        if let Some(record) = service.sessions().store().session(id).await.map_err(Denial::from)? {
            bytes += shown_bytes(&record);
            if bytes > limits::LIST_BYTES && !sessions.is_empty() {
                break; // whoever wants more goes on from here with `offset`
            }
            sessions.push(RecordView::of(&visitor, &record, service.now()));
        }
    }
    Ok(Json(SearchView { sessions, found: found.len(), counts }))
}

/// The text to look for, in small letters.
fn text(given: Option<String>) -> Result<String, Denial> {
    let text = given.unwrap_or_default().trim().to_lowercase();
    match text.chars().count() {
        0..=MAX_TEXT_CHARS => Ok(text),
        _ => Err(invalid(format!("`q` is a text of at most {MAX_TEXT_CHARS} characters"))),
    }
}

/// All that the caller may see and that have the text, as little of each as is needed to sort them; and how
/// many there are of each state.
async fn look(
    service: &Service,
    visitor: &Visitor,
    text: &str,
    wanted: Option<StateWord>,
) -> Result<(Vec<(Timestamp, SessionId)>, Counts), Denial> {
    let (mut found, mut counts) = (Vec::new(), Counts::default());
    let mut query = Query { limit: MAX_PAGE, ..Query::default() };
    loop {
        let (records, now) = (service.list(visitor, query.clone()).await?, service.now());
        for record in records.iter().filter(|record| has(record, text)) {
            let state = StateWord::of(record, now);
            counts.add(state);
            if wanted.is_none_or(|wanted| wanted == state) {
                found.push((record.last_activity, record.id().clone()));
            }
        }
        match records.last() {
            Some(last) if records.len() == query.limit => query.after = Some(last.id().clone()),
            _ => return Ok((found, counts)),
        }
        tokio::task::yield_now().await; // others want to be served too
    }
}

/// Whether a session's id, its principal or what its client says of itself has the text.
fn has(record: &Record, text: &str) -> bool {
    let about = &record.about;
    text.is_empty()
        || [about.id.as_str(), about.principal.as_str(), &about.client]
            .iter()
            .any(|part| part.to_lowercase().contains(text))
}
