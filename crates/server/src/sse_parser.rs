//! Server-sent events, read out of whatever pieces the network makes of them. No IO here.

use std::time::Duration;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its name; empty stands for `message`.
    name: String,
    /// Its id, if it has one.
    pub(crate) id: Option<String>,
    /// When to come back if the stream breaks.
    pub(crate) retry: Option<Duration>,
    data: Option<String>,
}

/// An event is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Takes bytes as they come and gives events as they become whole. What the end of a stream cuts off is no
/// event.
#[derive(Debug)]
pub(crate) struct Parser {
    max_bytes: usize,
    /// What came of the line that has no end yet.
    line: Vec<u8>,
    /// What came of the event that has no end yet.
    event: SseEvent,
}

impl SseEvent {
    /// What it says, whatever its name.
    pub(crate) fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    /// The message in it, if there is one.
    pub(crate) fn message(&self) -> Option<&str> {
        let named = self.name.is_empty() || self.name == "message";
        self.data.as_deref().filter(|data| named && !data.trim().is_empty())
    }

    /// Whether it says nothing at all: a comment ends as an event does.
    fn is_nothing(&self) -> bool {
        self.id.is_none() && self.retry.is_none() && self.data.is_none()
    }

    fn data_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, String::len)
    }
}

impl Parser {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, line: Vec::new(), event: SseEvent::default() }
    }

    /// The events that are whole with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, TooLong> {
        let mut whole = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Besides the data there are the field's name and the line's end.
            if self.line.len() + part.len() + self.event.data_bytes() > self.max_bytes + 16 {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = line.trim_ascii_end();
                if line.is_empty() {
                    whole.push(std::mem::take(&mut self.event));
                } else {
                    self.take_line(&String::from_utf8_lossy(line));
                }
            }
        }
        whole.retain(|event| !event.is_nothing());
        Ok(whole)
    }

    fn take_line(&mut self, line: &str) {
        let line = line.trim_start_matches('\u{feff}');
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => {
                let retry = value.parse().ok().map(Duration::from_millis);
                self.event.retry = retry.or(self.event.retry);
            }
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.event.data = Some(value.to_owned()),
            },
            _ => {} // a comment, or something newer than this
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&str]) -> Vec<SseEvent> {
        let mut parser = Parser::new(100);
        pieces.iter().flat_map(|piece| parser.push(piece.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text = "event: message\r\nid: 7\r\nretry: 250\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n";
        let expected = SseEvent {
            name: "message".into(),
            id: Some("7".into()),
            retry: Some(Duration::from_millis(250)),
            data: Some("{\"a\":\n1}".into()),
        };
        for cut in 0..text.len() {
            let (one, two) = text.split_at(cut);
            assert_eq!(events(&[one, two]), vec![expected.clone()], "cut at {cut}");
        }
    }

    #[test]
    fn what_says_nothing_is_no_message_but_may_have_an_id() {
        let read = events(&[": still here\n\nid: 1\ndata: \n\nevent: ping\ndata: x\n\ndata: cut"]);
        assert_eq!(read.len(), 2, "{read:?}");
        assert_eq!((read[0].id.as_deref(), read[0].message()), (Some("1"), None));
        assert_eq!(read[1].message(), None, "it has another name");
    }

    #[test]
    fn an_event_over_the_limit_is_refused_in_one_line_or_in_many() {
        assert_eq!(Parser::new(10).push(&[b'x'; 50]), Err(TooLong));
        assert_eq!(Parser::new(10).push("data: 1234567890\n".repeat(3).as_bytes()), Err(TooLong));
        assert!(Parser::new(10).push(b"data: 1234567890\n\n").is_ok());
    }
}
