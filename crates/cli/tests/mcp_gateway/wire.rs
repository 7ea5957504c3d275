//! HTTP for a client that does nothing by itself and can be cut off anywhere.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// An answer that has begun.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    socket: BufReader<TcpStream>,
}

/// An event of a stream.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: String,
    /// Nothing if it has no data.
    pub(crate) message: Value,
}

/// Sends a request and reads until the answer begins. By HTTP 1.0, where a body is what comes until the end.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Answer> {
    let mut socket = TcpStream::connect(address).await?;
    let mut text = format!("{method} {path} HTTP/1.0\r\nhost: {address}\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(text.as_bytes()).await?;
    let mut socket = BufReader::new(socket);
    let head = read_head(&mut socket).await?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Answer { status, head, socket })
}

async fn read_head(socket: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The rest of it.
    pub(crate) async fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.socket.read_to_string(&mut text).await?;
        Ok(text)
    }

    /// It should have been another one.
    pub(crate) async fn refuse(self) -> ! {
        let status = self.status;
        panic!("{status}: {}", self.text().await.unwrap_or_default())
    }

    /// The next event; nothing at the end.
    pub(crate) async fn event(&mut self) -> io::Result<Option<Event>> {
        let (mut event, mut line) = (Event::default(), String::new());
        loop {
            line.clear();
            if self.socket.read_line(&mut line).await? == 0 {
                return Ok(None);
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", data)) => {
                    event.message = serde_json::from_str(data).unwrap_or(Value::Null);
                }
                Some(_) => {}
                None if event.id.is_empty() => {} // it was a comment
                None => return Ok(Some(event)),
            }
        }
    }

    /// The other side gets a reset.
    pub(crate) fn cut(self) {
        let _ = self.socket.get_ref().set_zero_linger();
    }
}
