//! No credential and no state shows up where it does not belong: not in the log at its most talkative,
//! not in metrics, answers, spans or files. A run of the real binary with every kind of request, good and
//! bad; afterwards each secret that was used or handed out is looked for everywhere.

#![allow(clippy::unwrap_used, reason = "helpers of a test that can't go on fail it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::{SinkExt as _, StreamExt as _};
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpStream as Socket;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// What the process is given to keep.
const SIGNING: &str = "mcp-session-secret-0123456789-abcdefghij";
const OLD_SIGNING: &str = "mcp-session-secret-previous-9876543210-z";
const API_KEY: &str = "rk_live_4f1c9a7be2d34c0a8b55";
const JWT_SECRET: &str = "jwt-shared-secret-aaaabbbbccccddddeeee";
const OTLP: &str = "otlp-header-secret-77f0c1";
const HOOK: &str = "hook-secret-5b1d90c2aa";

/// What callers send along that is nobody's business.
const COOKIE: &str = "cookie-secret-8c2f11d07e";
const WRONG_KEY: &str = "rk_live_mistyped_0c77d1e9";
const QUERY: &str = "access-token-in-a-query-31b7";
const GARBAGE: &str = "garbage-token-e0f2a9c4417b";

/// What agents and clients say: it belongs to them, in frames, and nowhere else.
const STATE: &str = "state-canary-1f4e0a";
const MESSAGE: &str = "message-canary-b83d27";
const EVENT: &str = "event-canary-6a90cc";

/// An agent that puts a canary into its state and into what it says.
const AGENT: &str = r#"
while read -r line; do case $line in *user.message*)
rest=${line#*'"in_seq":'}; n=${rest%%[!0-9]*}
echo '{"event":"agent.said","content":"event-canary-6a90cc","in_seq":'$n',"state":{"stage":"s","current_step":'$n',"memory_snapshot":{"mind":"state-canary-1f4e0a"},"plan_context":"state-canary-1f4e0a"}}'
echo 'not an event: event-canary-6a90cc'
echo '{"event":"agent.error","content":"event-canary-6a90cc"}'
esac; done"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auth {
    ApiKeys,
    Jwt,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_its_place_with_api_keys_and_a_log_of_json() {
    no_secret_leaves_its_place(Auth::ApiKeys, "json").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaves_its_place_with_web_tokens_and_a_log_of_text() {
    no_secret_leaves_its_place(Auth::Jwt, "text").await;
}

async fn no_secret_leaves_its_place(auth: Auth, log: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (collector, spans) = collect();
    let mut server = Server::start(directory.path(), auth, log, &collector);
    let mut trial = Trial::new(server.address.clone(), auth);
    trial.over_websocket().await;
    trial.over_http();
    let metrics = trial.http("GET", "/metrics", &[], "");
    assert!(metrics.contains("# EOF"), "{metrics}");
    let log = server.end();
    assert!(log.contains("DEBUG") && log.contains("ignored a line"), "it says little: {log}");

    let Trial { mut secrets, answers, .. } = trial;
    assert!(secrets.handed_out >= 6, "tokens and states were handed out: {}", secrets.handed_out);
    for (place, text) in &answers {
        secrets.are_not_in(place, text);
    }
    for (place, bytes) in files(&directory.path().join("data")) {
        // Here the agent's words are at home.
        secrets.are_not_in(&place, &String::from_utf8_lossy(&bytes));
    }
    secrets.add_contents();
    log.lines().for_each(|line| secrets.are_not_in("the log", line));
    secrets.are_not_in("/metrics", &metrics);
    let spans = spans.lock().unwrap();
    assert!(!spans.is_empty(), "spans were sent");
    spans.iter().for_each(|span| secrets.are_not_in("a span", &String::from_utf8_lossy(span)));
}

#[test]
fn a_secret_is_noticed_in_every_disguise() {
    let mut secrets = Secrets::default();
    secrets.add("the key", "rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd");
    let whole = b"rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd";
    let hex: String = whole.iter().map(|byte| format!("{byte:02x}")).collect();
    for leak in [
        "key=rk_0123456789.abcdefghijklmnopqrstuvwxyz-abcd",
        "cut off: abcdefghijklmnopqrstuv…",
        &format!("{whole:?}"),
        &hex,
    ] {
        assert_eq!(secrets.found_in(leak), Some("the key"), "{leak}");
    }
    assert_eq!(secrets.found_in("rk_0123456789 is its public name"), None);
}

/// Everything that must not be seen.
#[derive(Default)]
struct Secrets {
    /// What each is called, and the forms it may be seen in.
    known: Vec<(String, Vec<String>)>,
    handed_out: usize,
}

impl Secrets {
    fn add(&mut self, name: &str, secret: &str) {
        let bytes = secret.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let numbers = format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
        let mut forms = vec![secret.to_owned(), hex, numbers];
        // The secret part of what has a public head, also if it is cut off.
        let last = secret.rsplit('.').next().unwrap_or(secret);
        if last.len() >= 24 {
            forms.push(last[..20].to_owned());
        }
        self.known.push((name.to_owned(), forms));
    }

    fn add_contents(&mut self) {
        for (name, canary) in [("state", STATE), ("a message", MESSAGE), ("an event", EVENT)] {
            self.add(name, canary);
        }
    }

    fn found_in(&self, text: &str) -> Option<&str> {
        let shows = |forms: &[String]| forms.iter().any(|form| text.contains(form));
        self.known.iter().find(|(_, forms)| shows(forms)).map(|(name, _)| name.as_str())
    }

    fn are_not_in(&self, place: &str, text: &str) {
        if let Some(name) = self.found_in(text) {
            panic!("{name} is in {place}: {text}");
        }
    }
}

/// A caller that tries everything.
struct Trial {
    address: String,
    credential: String,
    secrets: Secrets,
    /// What came back, without the members in which a secret is at home.
    answers: Vec<(String, String)>,
}

type WebSocket = WebSocketStream<MaybeTlsStream<Socket>>;

impl Trial {
    fn new(address: String, auth: Auth) -> Self {
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

    async fn over_websocket(&mut self) {
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
    async fn bad_frames(&mut self, socket: &mut WebSocket, session: &str, token: &str, seal: &str) {
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
    async fn comings_back(&mut self, session: &str, token: &str, seal: &str) {
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

    async fn bad_credentials(&mut self) {
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
    fn over_http(&mut self) {
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

    async fn open(&mut self, authorization: &str) -> Result<WebSocket, Error> {
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

    async fn create(&mut self, socket: &mut WebSocket) -> Value {
        let wish = json!({ "event": "user.create_session", "content": { "client_id": "trial" } });
        self.ask(socket, wish, "agent.session_created").await
    }

    /// Sends a frame and reads on until `event` comes.
    async fn ask(&mut self, socket: &mut WebSocket, frame: Value, event: &str) -> Value {
        socket.send(Message::text(frame.to_string())).await.unwrap();
        loop {
            let answer = self.next(socket).await.unwrap_or_else(|| panic!("no {event} came"));
            if answer["event"] == event {
                return answer;
            }
        }
    }

    /// Sends something and reads what comes until the server has answered a question after it.
    async fn ask_anything(&mut self, socket: &mut WebSocket, message: Message) {
        let _ = socket.send(message).await;
        let _ = socket.send(Message::text("{}")).await; // gets INVALID_MESSAGE, after the answer
        while let Some(answer) = self.next(socket).await {
            if answer["content"] == "`event` is missing" {
                return;
            }
        }
    }

    async fn next(&mut self, socket: &mut WebSocket) -> Option<Value> {
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
    fn note(&mut self, place: &str, mut answer: Value) {
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

    fn http(&mut self, method: &str, path: &str, headers: &[&str], sent: &str) -> String {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = sent.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{sent}"
        ))
    }

    fn raw(&mut self, request: &str) -> String {
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

fn body(answer: &str) -> Value {
    let text = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(text).unwrap_or_default()
}

fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no {pointer} in {value}")).to_owned()
}

/// A web token of `alice`, good for so many seconds from now.
fn web_token(secret: &str, seconds: i64) -> String {
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

/// A server that was started, its log read as it is written.
struct Server {
    child: Child,
    address: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    fn start(directory: &Path, auth: Auth, log: &str, collector: &str) -> Self {
        let access = match auth {
            Auth::ApiKeys => {
                "[[api_keys]]\nname = \"trial\"\nkey_env = \"TRIAL_KEY\"\nadmin = true\npublish = true\n"
            }
            Auth::Jwt => {
                "auth = \"jwt\"\n[jwt]\nissuer = \"https://issuer.example\"\naudience = \"rejoin\"\n\
                 secret_env = \"TRIAL_JWT\"\n"
            }
        };
        let (config, agent) = (directory.join("rejoin.toml"), directory.join("agent.sh"));
        std::fs::write(&config, access).unwrap();
        std::fs::write(&agent, AGENT).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rejoin"));
        command.env_clear().arg("serve").arg("--config").arg(config);
        command.arg("--data-dir").arg(directory.join("data"));
        command.arg(format!("--agent=exec sh '{}'", agent.display()));
        command.args(["--listen=127.0.0.1:0", "--log-level=trace", "--auto-export-interval=1s"]);
        command.arg(format!("--log={log}")).arg(format!("--otlp-endpoint={collector}"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("MCP_SESSION_SECRET", SIGNING).env("MCP_SESSION_SECRET_PREVIOUS", OLD_SIGNING);
        command.env("TRIAL_KEY", API_KEY).env("TRIAL_JWT", JWT_SECRET);
        command.env("REJOIN_OTLP_HEADERS", format!("x-collector-key={OTLP}"));
        command.env("REJOIN_HOOK_SECRET", HOOK);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            let _ = errors.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap());
        let address = lines.find_map(|line| Some(line.split_once("http://")?.1.trim().to_owned()));
        let Some(address) = address else { panic!("it does not start: {}", log.join().unwrap()) };
        Self { child, address, log: Some(log) }
    }

    /// Stops it in an orderly way, so that its last spans are sent, and gives its log.
    fn end(&mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A collector of spans: it says yes to everything and keeps the bodies.
fn collect() -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bodies);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            while let Some(body) = read_request(&mut reader) {
                kept.lock().unwrap().push(body);
                let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    (format!("http://{address}"), bodies)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            return Some(body);
        }
    }
}

fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}
