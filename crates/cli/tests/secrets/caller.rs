//! How everything is tried: sockets, and what came back over them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream as Socket;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::known::*;
use crate::search::Secrets;
use crate::server::Auth;
use crate::trial::web_token;

/// A caller that tries everything.
pub(crate) struct Trial {
    pub(crate) address: String,
    pub(crate) credential: String,
    pub(crate) secrets: Secrets,
    /// What came back, without the members in which a secret is at home.
    pub(crate) answers: Vec<(String, String)>,
}

pub(crate) type WebSocket = WebSocketStream<MaybeTlsStream<Socket>>;

impl Trial {
    pub(crate) fn new(address: String, auth: Auth) -> Self {
        let credential = match auth {
            Auth::ApiKeys => API_KEY.to_owned(),
            Auth::Jwt => web_token(JWT_SECRET, 3_600),
        };
        let mut secrets = Secrets::default();
        for (name, secret) in [
            ("MCP_SESSION_SECRET", SIGNING),
            ("MCP_SESSION_SECRET_PREVIOUS", OLD_SIGNING),
            ("the API key", API_KEY),
            ("the secret of web tokens", JWT_SECRET),
            ("otlp_headers", OTLP),
            ("hook_secret", HOOK),
            ("a cookie", COOKIE),
            ("a mistyped key", WRONG_KEY),
            ("a token in a query", QUERY),
            ("a token that is none", GARBAGE),
            ("the credential", &credential),
        ] {
            secrets.add(name, secret);
        }
        Self { address, credential, secrets, answers: Vec::new() }
    }

    pub(crate) async fn open(&mut self, authorization: &str) -> Result<WebSocket, Error> {
        let mut request = format!("ws://{}/ws", self.address).into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("Cookie", HeaderValue::from_str(&format!("id={COOKIE}")).unwrap());
        if !authorization.is_empty() {
            headers.insert("Authorization", HeaderValue::from_str(authorization).unwrap());
        }
        let opened = connect_async(request).await;
        if let Err(Error::Http(response)) = &opened {
            let said = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let said = format!("{:?} {said}", response.headers());
            self.answers.push(("the answer to an upgrade".to_owned(), said));
        }
        Ok(opened?.0)
    }

    pub(crate) async fn create(&mut self, socket: &mut WebSocket) -> Value {
        let wish = json!({ "event": "user.create_session", "content": { "client_id": "trial" } });
        self.ask(socket, wish, "agent.session_created").await
    }

    /// Sends a frame and reads on until `event` comes.
    pub(crate) async fn ask(&mut self, socket: &mut WebSocket, frame: Value, event: &str) -> Value {
        socket.send(Message::text(frame.to_string())).await.unwrap();
        loop {
            let answer = self.next(socket).await.unwrap_or_else(|| panic!("no {event} came"));
            if answer["event"] == event {
                return answer;
            }
        }
    }

    /// Sends something and reads what comes until the server has answered a question after it.
    pub(crate) async fn ask_anything(&mut self, socket: &mut WebSocket, message: Message) {
        let _ = socket.send(message).await;
        let _ = socket.send(Message::text("{}")).await; // gets INVALID_MESSAGE, after the answer
        while let Some(answer) = self.next(socket).await {
            if answer["content"] == "`event` is missing" {
                return;
            }
        }
    }

    pub(crate) async fn next(&mut self, socket: &mut WebSocket) -> Option<Value> {
        loop {
            let came = tokio::time::timeout(Duration::from_secs(20), socket.next()).await;
            match came.expect("the server answers") {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    self.note("a frame", frame.clone());
                    return Some(frame);
                }
                Some(Ok(Message::Close(frame))) => {
                    self.answers.push(("a close".to_owned(), format!("{frame:?}")));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Remembers what was handed out, takes it out of its place, and keeps the rest.
    pub(crate) fn note(&mut self, place: &str, mut answer: Value) {
        let seen = answer["event"].as_str().unwrap_or(place).to_owned();
        if seen == "agent.error" || seen == "error.recovery_failed" {
            // Whoever asked is told which session it asked for, whatever it took for one.
            answer.as_object_mut().unwrap().remove("session_id");
        }
        for at in ["/metadata", ""] {
            let Some(Value::Object(members)) = answer.pointer_mut(at) else { continue };
            members.remove("session_state");
            for name in ["reconnect_token", "signed_state"] {
                if let Some(Value::String(secret)) = members.remove(name) {
                    self.secrets.add(name, &secret);
                    self.secrets.handed_out += 1;
                }
            }
        }
        self.answers.push((seen, answer.to_string()));
    }

    pub(crate) fn http(
        &mut self,
        method: &str,
        path: &str,
        headers: &[&str],
        sent: &str,
    ) -> String {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = sent.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{sent}"
        ))
    }

    pub(crate) fn raw(&mut self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // what it does not read it may answer with a reset
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let place = request.lines().next().unwrap_or_default().to_owned();
        let json = body(&answer);
        if json.is_null() {
            self.answers.push((place, answer.clone()));
        } else {
            self.note(&place, json);
        }
        answer
    }
}

pub(crate) fn body(answer: &str) -> Value {
    let text = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no {pointer} in {value}")).to_owned()
}
