//! Server-sent events, read out of whatever pieces the network makes of them. No IO here.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its name; empty stands for `message`.
    pub(crate) event: String,
    /// Its id, if it has one.
    pub(crate) id: Option<String>,
    /// What it says.
    pub(crate) data: String,
}

/// The largest line, which is the largest event: far beyond what a server takes in.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// A line is longer than any that a server of ours sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineTooLong;

/// Takes bytes as they come and gives events as they become whole. What is cut off in the middle by
/// the end of a stream is no event: it comes again, whole, on the next one.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// What came of the line that has no end yet.
    line: Vec<u8>,
    /// What came of the event that has no end yet.
    message: Message,
    has_data: bool,
}

impl Parser {
    /// The events that are whole with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, LineTooLong> {
        let mut whole = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > MAX_LINE_BYTES {
                return Err(LineTooLong);
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                whole.extend(self.take_line(without_end(&line)));
            }
        }
        Ok(whole)
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return std::mem::take(&mut self.has_data).then_some(message);
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.event),
            "id" => self.message.id = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
                self.has_data = true;
            }
            _ => {} // a comment, `retry`, or what later servers may say
        }
        None
    }
}

/// A line without its end.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": hello\n\nevent: gap\nid: a:3\ndata: {}\n\nid: a:4\r\ndata: ä\r\ndata:b\r\n\r\nid: a:5\ndata: cut";

    #[test]
    fn events_are_the_same_however_the_network_cuts_them() {
        let gap = Message { event: "gap".into(), id: Some("a:3".into()), data: "{}".into() };
        let two = Message { event: String::new(), id: Some("a:4".into()), data: "ä\nb".into() };
        for size in 1..=STREAM.len() {
            let mut parser = Parser::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let read: Vec<Message> = pieces.flat_map(|piece| parser.push(piece).unwrap()).collect();
            assert_eq!(read, [gap.clone(), two.clone()], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept_for_ever() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let outcome: Result<Vec<_>, _> = (0..40).map(|_| parser.push(&piece)).collect();
        assert_eq!(outcome.unwrap_err(), LineTooLong);
    }
}
