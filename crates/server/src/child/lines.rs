//! Lines of a child, however long it makes them.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Reads lines up to a bound. Of longer ones only the beginning is kept, and not even that for long.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bounds: Bounds,
    line: Vec<u8>,
    too_long: bool,
    ended: bool,
}

/// How long lines may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The longest that is read whole.
    pub(crate) whole: usize,
    /// What is kept of one that is longer.
    pub(crate) of_longer: usize,
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    TooLong(Vec<u8>),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R, bounds: Bounds) -> Self {
        Self {
            reader: BufReader::new(from),
            bounds,
            line: Vec::new(),
            too_long: false,
            ended: false,
        }
    }

    /// The next line; nothing at the end. What follows the last line break is a line too. Nothing is
    /// lost if it is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            let ended = chunk.is_empty();
            self.ended = ended;
            let line_break = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..line_break.unwrap_or(chunk.len())];
            if !self.too_long && self.line.len() + part.len() > self.bounds.whole {
                self.too_long = true;
                self.line.extend(part.iter().take(self.bounds.of_longer));
                self.line.truncate(self.bounds.of_longer);
                self.line.shrink_to_fit();
            } else if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(line_break.is_some());
            self.reader.consume(used);
            if line_break.is_some() || (ended && (self.too_long || !self.line.is_empty())) {
                return Ok(Some(self.take()));
            }
            if ended {
                return Ok(None);
            }
        }
    }

    /// Whether the last line has no line break: whoever wrote it may not have come to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) { Line::TooLong(line) } else { Line::Whole(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, whole: usize, of_longer: usize) -> Vec<Line> {
        let mut lines = Lines::new(text.as_bytes(), Bounds { whole, of_longer });
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_at_line_breaks_and_at_the_end() {
        let expected = [whole("one"), whole(""), whole("two")];
        assert_eq!(lines("one\n\ntwo", 10, 0).await, expected);
        assert_eq!(lines("one\n\ntwo\n", 10, 0).await, expected);
        assert_eq!(lines("", 10, 0).await, []);
    }

    #[tokio::test]
    async fn only_a_line_without_a_line_break_is_told_to_be_the_end() {
        let mut lines = Lines::new(&b"one\ntwo"[..], Bounds { whole: 10, of_longer: 0 });
        assert_eq!(lines.next().await.unwrap(), Some(whole("one")));
        assert!(!lines.has_ended());
        assert_eq!(lines.next().await.unwrap(), Some(whole("two")));
        assert!(lines.has_ended());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_cut_and_those_after_it_are_whole() {
        let long = "x".repeat(100_000);
        let text = format!("{long}\nshort\n{long}");
        let cut = || Line::TooLong(b"xx".to_vec());
        assert_eq!(lines(&text, 10, 2).await, [cut(), whole("short"), cut()]);
        assert_eq!(lines("1234567890\n", 10, 0).await, [whole("1234567890")]);
        assert_eq!(lines("12345678901\n", 10, 0).await, [Line::TooLong(vec![])]);
    }
}
