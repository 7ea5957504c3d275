//! The out log over HTTP: reading it without being attached, and publishing into it from any backend.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use rejoin_core::resume::Gap;
use rejoin_core::worker::Publication;
use rejoin_core::{Epoch, Seq};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::request::{Named, Params, Text, invalid, patience};
use super::stream;
use crate::access::{CredentialFault, Unauthorized};
use crate::entry;
use crate::event::{Envelopes, Spoken};
use crate::service::{Denial, Observed, Place, Visitor};
use crate::web::Front;
use crate::web::answer::Failure;
use crate::web::visitor::OverHttp;

/// Where a reader stands, and how long it waits.
#[derive(Debug, Deserialize)]
pub(super) struct ReadParams {
    after: Option<u64>,
    epoch: Option<String>,
    wait: Option<String>,
}

/// `GET /sessions/{id}/events`: a page of what lies after a place, or all of it as a stream.
pub(super) async fn read(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    Params(params): Params<ReadParams>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let wait = patience(params.wait.as_deref())?;
    let place = match last_event_id(&headers)? {
        Some(place) => place,
        None => Place {
            after: params.after.map(Seq::new),
            epoch: params.epoch.as_deref().map(Epoch::from_text),
        },
    };
    if wants_stream(&headers) {
        let first = front.service.observe(&visitor, &id, &place).await?;
        return Ok(stream::respond(front, visitor, id, first));
    }
    let service = &front.service;
    let expired = || Unauthorized::from(CredentialFault::Expired);
    let wait = front.patience(&visitor.caller, wait).ok_or_else(expired)?;
    let observed = service.await_events(&visitor, &id, &place, wait).await?;
    // It may have waited for as long as its credential was good.
    front.patience(&visitor.caller, wait).ok_or_else(expired)?;
    Ok(([(CONTENT_TYPE, "application/json")], page(&visitor, &observed)).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        let name = kind.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("text/event-stream")
    })
}

/// The place that a broken stream was at: `<epoch>:<seq>`. A stream that had no event yet has none.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Place>, Denial> {
    let value = headers.get("last-event-id").filter(|value| !value.is_empty());
    let Some(value) = value else { return Ok(None) };
    let wrong = || invalid("Last-Event-ID is not the id of an event of this stream");
    let (epoch, seq) = value.to_str().ok().and_then(|id| id.rsplit_once(':')).ok_or_else(wrong)?;
    let seq = seq.parse().map_err(|_| wrong())?;
    Ok(Some(Place { after: Some(Seq::new(seq)), epoch: Some(Epoch::from_text(epoch)) }))
}

/// A page as JSON. Envelopes are JSON already, and are not read again.
fn page(visitor: &Visitor, observed: &Observed) -> String {
    let Observed { events, gap, record } = observed;
    let bytes: usize = events.iter().map(|event| event.body.len() + 256).sum();
    let mut text = String::with_capacity(bytes + 256);
    let last_seq = observed.place().after.unwrap_or_default();
    let written = write!(text, r#"{{"epoch":{},"events":["#, Value::from(record.epoch.as_str()));
    debug_assert!(written.is_ok(), "a string takes everything");
    let mut envelopes = Envelopes::of(visitor.shown(&record.about), record.log);
    for (index, event) in events.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(&envelopes.envelope(event, false));
    }
    let gap = gap.as_ref().map_or(Value::Null, gap_view);
    let written = write!(text, r#"],"last_seq":{last_seq},"gap":{gap}}}"#);
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

/// What a reader is told of events that it has not seen and will not see.
pub(super) fn gap_view(gap: &Gap) -> Value {
    match gap {
        Gap::Evicted { missing, lost } => json!({
            "from": missing.from.get(),
            "to": missing.to.get(),
            "reason": "evicted",
            "lost": lost.map(|lost| json!({ "from": lost.from.get(), "to": lost.to.get() })),
        }),
        Gap::PositionUnknown => {
            json!({ "from": null, "to": null, "reason": "position_unknown", "lost": null })
        }
    }
}

/// `POST /sessions/{id}/events`: publishes one event, or several in one commit. Under the same
/// `Idempotency-Key` the same body is published once, and answered as it was the first time.
pub(super) async fn publish(
    OverHttp(visitor): OverHttp,
    State(front): State<Arc<Front>>,
    Named(id): Named,
    headers: HeaderMap,
    body: Text,
) -> Result<Json<Value>, Failure> {
    let key = idempotency_key(&headers)?.map(|key| entry::digest(key, body.as_bytes()));
    let publication = Publication { key, ..publication(body.as_bytes())? };
    let has_events = !publication.events.is_empty();
    let epoch = front.service.active_for(&visitor, &id, "publish").await?.epoch;
    let published = front.service.publish(&visitor, &id, publication).await?;
    Ok(Json(json!({
        "epoch": epoch.as_str(),
        "first_seq": has_events.then_some(published.first.get()),
        "last_seq": published.last.get(),
    })))
}

/// The longest idempotency key.
const MAX_KEY_CHARS: usize = 255;

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Denial> {
    let mut given = headers.get_all("idempotency-key").iter();
    let (Some(key), second) = (given.next(), given.next()) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| {
        let plain = key.bytes().all(|byte| byte.is_ascii_graphic());
        plain && (1..=MAX_KEY_CHARS).contains(&key.len()) && second.is_none()
    });
    let wrong = || {
        invalid(format!(
            "Idempotency-Key is one of 1 to {MAX_KEY_CHARS} printable ASCII characters"
        ))
    };
    key.map(Some).ok_or_else(wrong)
}

/// What a body says: an event, or an array of them that are stored together. A state stands for the
/// place right after its event, so in an array it is the last one that has it.
fn publication(text: &[u8]) -> Result<Publication, Denial> {
    if text.first() != Some(&b'[') {
        return Ok(Spoken::parse(text).map_err(invalid)?.into());
    }
    let array = serde_json::from_slice::<Vec<&RawValue>>(text);
    let array = array.map_err(|error| invalid(format!("The body is no JSON array: {error}")))?;
    if array.is_empty() {
        return Err(invalid("An array of events has at least one"));
    }
    let mut all = Publication::default();
    for (index, text) in array.iter().enumerate() {
        let spoken = Spoken::parse(text.get().as_bytes())
            .map_err(|refused| invalid(format!("event {}: {refused}", index + 1)))?;
        if all.state.is_some() && spoken.state.is_none() {
            return Err(invalid(format!(
                "event {index} has a `state` and a later one has none: the state must come with the \
                 last event, or the events after it in a request of their own"
            )));
        }
        all.events.extend(spoken.event);
        all.state = spoken.state;
        all.in_seq = all.in_seq.max(spoken.in_seq);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use rejoin_core::InSeq;

    use super::*;

    #[test]
    fn several_events_are_one_publication_with_the_last_state() {
        let text = br#"[{"event":"a","state":1,"in_seq":2},{"event":"b","state":2,"in_seq":1}]"#;
        let all = publication(text).unwrap();
        assert_eq!(all.events.len(), 2);
        assert_eq!(all.state.as_deref(), Some(&b"2"[..]));
        assert_eq!(all.in_seq, Some(InSeq::new(2)));
    }

    #[test]
    fn a_state_in_the_middle_would_stand_for_the_wrong_place() {
        let refused = publication(br#"[{"event":"a","state":1},{"event":"b"}]"#).unwrap_err();
        assert!(refused.sentence().starts_with("event 1 has a `state`"), "{refused:?}");
        assert!(publication(b"[]").is_err());
        assert!(publication(br#"[{"event":"a"},3]"#).is_err());
    }

    #[test]
    fn an_event_id_is_a_position() {
        let read = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("last-event-id", id.parse().unwrap());
            last_event_id(&headers)
        };
        let place = Place { after: Some(Seq::new(7)), epoch: Some(Epoch::from_text("ab:c")) };
        assert_eq!(read("ab:c:7"), Ok(Some(place)));
        assert_eq!(read(""), Ok(None));
        for id in ["7", "abc:", "abc:-1", "abc:x"] {
            assert!(read(id).is_err(), "{id}");
        }
    }
}
