//! Everything that is tried: each kind of request, with what is right and with what is not.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::caller::{Trial, WebSocket, body, text};
use crate::known::*;

impl Trial {
    pub(crate) async fn over_websocket(&mut self) {
        let credential = self.credential.clone();
        let mut first = self.open(&format!("Bearer {credential}")).await.unwrap();
        let created = self.create(&mut first).await;
        let session = text(&created, "/session_id");
        let token = text(&created, "/metadata/reconnect_token");
        let message = json!({
            "event": "user.message", "session_id": session, "content": { "text": MESSAGE },
        });
        self.ask(&mut first, message, "agent.said").await;
        let wish = json!({ "event": "user.request_state", "session_id": session });
        let state = self.ask(&mut first, wish, "agent.state_exported").await;
        assert!(state.to_string().contains(STATE), "the state is its owner's: {state}");
        let signed_state = text(&state, "/metadata/signed_state");

        self.bad_frames(&mut first, &session, &token, &signed_state).await;
        self.comings_back(&session, &token, &signed_state).await;
        self.bad_credentials().await;
    }

    /// Frames that make no sense, each with a secret where somebody might repeat it.
    pub(crate) async fn bad_frames(
        &mut self,
        socket: &mut WebSocket,
        session: &str,
        token: &str,
        seal: &str,
    ) {
        let credential = self.credential.clone();
        for frame in [
            json!({ "event": token }),
            json!({ "event": "user.message", "session_id": token, "content": 1 }),
            json!({ "event": "user.message", "session_id": session, "message_id": [token] }),
            json!({ "event": "user.message", "session_id": credential, "content": seal }),
            json!({ "event": "user.ack", "session_id": session, "metadata": { "last_seq": token } }),
            json!({ "event": "user.ack", "session_id": session, "metadata": { "last_seq": 999_999 } }),
            json!({ "event": "user.request_state", "session_id": session, "content": { "include_memory": token } }),
            json!({ "event": "user.create_session", "session_id": token }),
            json!({ "event": "user.authenticate", "content": { "token": { "is": credential } } }),
        ] {
            self.ask_anything(socket, Message::text(frame.to_string())).await;
        }
        let half = format!(r#"{{"event":"user.reconnect","content":{{"reconnect_token":"{token}""#);
        self.ask_anything(socket, Message::text(half)).await;
        self.ask_anything(socket, Message::binary(token.as_bytes().to_vec())).await;
    }

    /// Coming back in every way, with what is right and with what is not.
    pub(crate) async fn comings_back(&mut self, session: &str, token: &str, seal: &str) {
        let bearer = format!("Bearer {}", self.credential);
        let reconnect = |token: &str| {
            let content = json!({ "last_seq": 0, "reconnect_token": token });
            json!({ "event": "user.reconnect", "session_id": session, "content": content })
        };
        let changed = |text: &str| {
            let (head, end) = text.split_at(text.len() - 4);
            format!("{head}{}", if end == "AAAA" { "BBBB" } else { "AAAA" })
        };
        let restore =
            |seal: &str| json!({ "event": "user.reconnect_with_state", "signed_state": seal });
        let foreign = web_token("another-secret-of-thirty-two-bytes-and", 3_600);
        self.secrets.add("a changed token", &changed(token));
        self.secrets.add("a changed state", &changed(seal));
        self.secrets.add("a foreign token", &foreign);
        let mut socket = self.open(&bearer).await.unwrap();
        for frame in [
            reconnect(GARBAGE),
            reconnect(&changed(token)),
            reconnect(&foreign),
            json!({ "event": "user.reconnect", "session_id": session, "content": { "last_seq": token } }),
            restore(&changed(seal)),
            restore(GARBAGE),
            restore(token),
            json!({ "event": "user.reconnect_with_state", "signed_state": { "is": seal } }),
        ] {
            self.ask_anything(&mut socket, Message::text(frame.to_string())).await;
        }
        let resumed = self.ask(&mut socket, reconnect(token), "agent.session_created").await;
        let next = text(&resumed, "/metadata/reconnect_token");
        let known = json!({
            "event": "user.reconnect_with_state", "session_id": session,
            "content": { "last_seq": 0, "reconnect_token": next },
        });
        let mut socket = self.open(&bearer).await.unwrap();
        self.ask(&mut socket, known, "agent.session_created").await;
        self.ask_anything(&mut socket, Message::text(reconnect(token).to_string())).await; // a reuse
        let restored = self.ask(&mut socket, restore(seal), "agent.state_restored").await;
        let session = text(&restored, "/metadata/new_session_id");
        let end = json!({ "event": "user.end_session", "session_id": session });
        self.ask(&mut socket, end, "agent.session_ended").await;
        self.ask_anything(&mut socket, Message::text(restore(seal).to_string())).await;
        let too_large = format!("{GARBAGE}{}", "x".repeat(1_100_000));
        self.ask_anything(&mut socket, Message::text(too_large)).await;
    }

    pub(crate) async fn bad_credentials(&mut self) {
        let expired = web_token(JWT_SECRET, -3_600);
        self.secrets.add("an expired credential", &expired);
        for wrong in [WRONG_KEY, &expired] {
            for header in [format!("Bearer {wrong}"), format!("Basic {wrong}"), wrong.to_owned()] {
                let _ = self.open(&header).await;
            }
            let mut socket = self.open("").await.unwrap();
            let content = json!({ "token": wrong });
            let frame = json!({ "event": "user.authenticate", "content": content });
            self.ask_anything(&mut socket, Message::text(frame.to_string())).await;
        }
        let mut socket = self.open("").await.unwrap();
        let content = json!({ "token": self.credential });
        let frame = json!({ "event": "user.authenticate", "content": content });
        self.ask(&mut socket, frame, "system.authenticated").await;
        self.create(&mut socket).await;
    }

    /// Every call of the HTTP side, as its owner, as somebody else and as nobody.
    pub(crate) fn over_http(&mut self) {
        let bearer = format!("Authorization: Bearer {}", self.credential);
        let cookie = format!("Cookie: id={COOKIE}");
        let mine = [bearer.as_str(), &cookie];
        let made = self.http("POST", "/api/sessions", &mine, "{}");
        let record = body(&made);
        let id = record["session_id"].as_str().unwrap_or("sess_unknown").to_owned();
        let given = self.http("GET", &format!("/api/sessions/{id}/token"), &mine, "");
        let token = body(&given)["reconnect_token"].as_str().unwrap_or(GARBAGE).to_owned();
        let key = format!("X-API-Key: {WRONG_KEY}");
        let wrong = format!("Authorization: Bearer {WRONG_KEY}");
        let basic = format!("Authorization: Basic {WRONG_KEY}");
        let good = json!({ "token": token }).to_string();
        let events =
            json!([{ "event": "agent.said", "content": EVENT, "state": { "mind": STATE } }]);
        let calls = [
            ("GET", "", String::new()),
            ("GET", "/health", String::new()),
            ("POST", "/messages", json!({ "content": MESSAGE }).to_string()),
            ("POST", "/events", events.to_string()),
            ("GET", "/events?after=0", String::new()),
            ("POST", "/state", "{}".to_owned()),
            ("POST", "/token", String::new()),
            ("POST", "/reconnect", good.clone()),
            ("POST", "/reconnect", good),
            ("POST", "/reconnect", json!({ "token": GARBAGE }).to_string()),
            ("POST", "/reconnect", json!({ "token": [token] }).to_string()),
            ("POST", "/reconnect", format!(r#"{{"token":"{token}"#)),
            ("POST", "/disconnect", String::new()),
            ("DELETE", "", String::new()),
            ("POST", "/reconnect", json!({ "token": GARBAGE }).to_string()),
        ];
        for caller in [&mine[..], &[&key], &[&wrong], &[&basic], &[]] {
            for (method, path, sent) in &calls {
                let path = format!("/api/sessions/{id}{path}");
                self.http(method, &path, caller, sent);
            }
            self.http("GET", "/api/sessions?status=active", caller, "");
            self.http("GET", "/api/audit", caller, "");
            self.http("GET", &format!("/api/sessions?access_token={QUERY}"), caller, "");
            self.http("GET", &format!("/ws?access_token={QUERY}"), caller, "");
            self.http("GET", "/nowhere", caller, "");
        }
        self.raw(&format!("GET / HTTP/9.9\r\n{bearer}\r\n\r\n"));
        self.raw(&format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\nnot a header {COOKIE}\r\n\r\n"
        ));
        self.raw(&format!(
            "GET / HTTP/1.1\r\nHost: evil.example\r\n{bearer}\r\nConnection: close\r\n\r\n"
        ));
    }
}

/// A web token of `alice`, good for so many seconds from now.
pub(crate) fn web_token(secret: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let claims = json!({
        "iss": "https://issuer.example", "aud": "rejoin", "sub": "alice",
        "iat": now, "exp": now + seconds,
    });
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let head = encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", encode(claims.to_string().as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{signed}.{}", encode(hmac::sign(&key, signed.as_bytes()).as_ref()))
}
