//! What a child is told, line by line on its standard input.

use std::io;

use rejoin_core::page::StoredEntry;
use rejoin_core::{InSeq, MessageId, SessionId, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::agent::{Inbox, Orders, Start};
use crate::clock::Clock;
use crate::entry::{EntryBody, event_name};

/// A line for the child: the envelope of the protocol, with what belongs to the event.
#[derive(Serialize)]
struct ChildLine<'a, C: Serialize> {
    event: &'static str,
    session_id: &'a str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<C>,
}

/// What a child goes on from.
#[derive(Serialize)]
struct StartContent<'a> {
    session_id: &'a str,
    /// The last state, or null.
    state: Option<&'a RawValue>,
    /// Entries up to this one are dealt with: those after it follow.
    in_seq: u64,
    /// The out position the state stands for.
    state_seq: u64,
    /// How far the out log has come.
    last_seq: u64,
}

/// Tells the child what it goes on from and what clients want, until it is told to stop; then, if the
/// session is over, that. The child's standard input is closed at the end. A child that does not read
/// makes this wait, and nobody else.
pub(super) async fn feed(
    mut stdin: impl AsyncWrite + Unpin,
    start: &Start,
    inbox: &mut Inbox,
    orders: &mut watch::Receiver<Orders>,
    clock: Clock,
) -> io::Result<()> {
    let session = start.record.id();
    write(&mut stdin, start_line(start, clock.now())).await?;
    loop {
        let entry = tokio::select! {
            biased; // whoever is to stop is told nothing new
            _ = orders.wait_for(|orders| orders.is_stop()) => None,
            entry = inbox.next() => entry,
        };
        let Some(entry) = entry else { break };
        write(&mut stdin, entry_line(session, &entry)).await?;
    }
    if *orders.borrow() == Orders::End {
        write(&mut stdin, end_line(session, clock.now())).await?;
    }
    stdin.shutdown().await
}

async fn write(stdin: &mut (impl AsyncWrite + Unpin), line: String) -> io::Result<()> {
    stdin.write_all(line.as_bytes()).await?;
    stdin.flush().await
}

fn start_line(start: &Start, now: Timestamp) -> String {
    let record = &start.record;
    let snapshot = start.snapshot.as_ref();
    let state = snapshot.and_then(|snapshot| serde_json::from_slice(&snapshot.body).ok());
    let content = StartContent {
        session_id: record.id().as_str(),
        state,
        in_seq: record.covered.get(),
        state_seq: snapshot.map_or(0, |snapshot| snapshot.mark.seq.get()),
        last_seq: record.head.get(),
    };
    line("session.start", record.id(), now, None, None, Some(content))
}

fn entry_line(session: &SessionId, entry: &StoredEntry) -> String {
    let body = EntryBody::for_agent(&entry.body);
    let message_id = body.message_id.as_ref().map(MessageId::as_str);
    line(
        event_name(entry.kind),
        session,
        entry.at,
        Some(entry.in_seq),
        message_id,
        body.content.as_deref(),
    )
}

fn end_line(session: &SessionId, now: Timestamp) -> String {
    line("session.end", session, now, None, None, None::<()>)
}

fn line(
    event: &'static str,
    session: &SessionId,
    at: Timestamp,
    in_seq: Option<InSeq>,
    message_id: Option<&str>,
    content: Option<impl Serialize>,
) -> String {
    let (session_id, timestamp) = (session.as_str(), at.to_string());
    let in_seq = in_seq.map(InSeq::get);
    let line = ChildLine { event, session_id, timestamp, in_seq, message_id, content };
    let text = serde_json::to_string(&line);
    debug_assert!(text.is_ok(), "strings, numbers and checked JSON can always be written");
    // Line breaks in what a client sent stand between its parts, never inside a text.
    let mut text = text.unwrap_or_default().replace(['\n', '\r'], " ");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use rejoin_core::log::EntryKind;

    use super::*;

    fn entry(kind: EntryKind, body: &str) -> String {
        let at = Timestamp::from_millis(0);
        let entry = StoredEntry { in_seq: InSeq::new(7), kind, at, body: body.as_bytes().into() };
        entry_line(&SessionId::from_random([1; 16]), &entry)
    }

    #[test]
    fn a_message_is_one_line_whatever_its_content_looks_like() {
        let text =
            entry(EntryKind::Message, "{\"content\":{\n\"a\":\r\n1.50},\"message_id\":\"m\"}");
        assert_eq!(text.find('\n'), Some(text.len() - 1));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["event"], "user.message");
        assert_eq!((&line["in_seq"], &line["message_id"]), (&7.into(), &"m".into()));
        assert_eq!(line["content"]["a"].to_string(), "1.5");
        assert_eq!(line["timestamp"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_cancel_has_no_content_and_a_body_of_another_form_is_content_as_text() {
        let line: serde_json::Value =
            serde_json::from_str(&entry(EntryKind::Cancel, "{}")).unwrap();
        assert_eq!((line["event"].as_str(), line.get("content")), (Some("user.cancel"), None));
        assert_eq!(line.get("message_id"), None);
        let line: serde_json::Value =
            serde_json::from_str(&entry(EntryKind::Message, "hello")).unwrap();
        assert_eq!(line["content"], "hello");
    }
}
