//! A client for HTTP that does nothing by itself: what a test writes is what goes over the socket.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::soon;

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        let headers = vec![("host".to_owned(), address.to_string())];
        Self { address, method, path, headers, body: Vec::new() }
    }

    /// With this header, besides or instead of one of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// By somebody with this key.
    #[must_use]
    pub fn by(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    #[must_use]
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { body: body.clone(), ..self.header("content-length", &body.len().to_string()) }
    }

    /// What goes over the socket.
    pub fn to_bytes(&self, version: &str) -> Vec<u8> {
        let mut text = format!("{} {} {version}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        [text.as_bytes(), b"\r\n", &self.body].concat()
    }

    async fn write(&self, version: &str) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let whole = self.clone().header("connection", "close").to_bytes(version);
        let _ = socket.write_all(&whole).await; // who refuses a body may close while it is sent
        BufReader::new(socket)
    }

    /// Sends it and reads the whole answer.
    pub async fn send(self) -> Answer {
        let answer = async {
            let mut socket = self.write("HTTP/1.1").await;
            let (status, headers) = read_head(&mut socket).await;
            let mut body = Vec::new();
            let _ = socket.read_to_end(&mut body).await;
            let is_chunked = |(name, value): &(String, String)| {
                name == "transfer-encoding" && value == "chunked"
            };
            let body = if headers.iter().any(is_chunked) { unchunked(&body) } else { body };
            Answer { status, headers, body }
        };
        soon(answer).await
    }

    /// Sends it and reads the answer as a stream. By HTTP 1.0, where a body is what comes until the end.
    pub async fn stream(self) -> Stream {
        let request = self.header("accept", "text/event-stream");
        let mut socket = request.write("HTTP/1.0").await;
        let (status, headers) = read_head(&mut socket).await;
        Stream { status, headers, socket }
    }
}

/// What came in chunks, as far as it came.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(line) = body.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&body[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let end = (line + 2 + size).min(body.len());
        whole.extend(&body[line + 2..end]);
        body = &body[(end + 2).min(body.len())..];
    }
    whole
}

async fn read_head(socket: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    socket.read_line(&mut line).await.unwrap();
    let status = line.split(' ').nth(1).expect(&line).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        line.clear();
        socket.read_line(&mut line).await.unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
            None => return (status, headers),
        }
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What it says; the last event of a stream, if it is one.
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        let is_stream = self.header("content-type") == Some("text/event-stream");
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        let text = last.filter(|_| is_stream).map_or(text.clone(), Into::into);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The JSON of an answer that has this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        self.json()
    }
}

/// Server-sent events.
pub struct Stream {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    socket: BufReader<TcpStream>,
}

/// One of them; a comment has only a name, `:`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentEvent {
    pub name: String,
    pub id: String,
    /// What it says; a text if it is no JSON.
    pub data: Value,
    /// The same as it came.
    pub text: String,
    /// When to come back, in milliseconds.
    pub retry: Option<u64>,
}

impl Stream {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Waits until the next one has begun to come; it may be long.
    pub async fn until_it_begins(&mut self) {
        assert!(!soon(self.socket.fill_buf()).await.unwrap().is_empty(), "an event, not the end");
    }

    /// The next one, comments included; nothing at the end.
    pub async fn next_or_comment(&mut self) -> Option<SentEvent> {
        let mut event = SentEvent::default();
        let mut line = String::new();
        loop {
            line.clear();
            if soon(self.socket.read_line(&mut line)).await.unwrap() == 0 {
                return None;
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("", _)) => event.name = ":".into(),
                Some(("event", name)) => event.name = name.into(),
                Some(("id", id)) => event.id = id.into(),
                Some(("data", data)) => {
                    event.data = serde_json::from_str(data).unwrap_or_else(|_| data.into());
                    event.text = data.into();
                }
                Some(("retry", millis)) => event.retry = Some(millis.parse().unwrap()),
                Some(_) => panic!("{line}"),
                None => return Some(event),
            }
        }
    }

    /// The next one that says something.
    pub async fn next(&mut self) -> Option<SentEvent> {
        loop {
            match self.next_or_comment().await {
                Some(event) if event.name == ":" => {}
                other => return other,
            }
        }
    }
}
