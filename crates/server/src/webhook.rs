//! The hook for those who do not embed: every step in a session's life is POSTed to a URL, and the
//! answer to "its client has gone" says what becomes of the session.
//!
//! What is posted is `{id, type, at, session}`, signed if there is a secret. Posts about one session go
//! out in order; one that is not taken is tried again a few times and then dropped with a word in the
//! log, and the session is treated as the settings say.

use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rejoin_core::Timestamp;
use rejoin_core::record::Record;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::hook::{Cleanup, Lifecycle, SessionHook};
use crate::outward::BadUrl;
use crate::post::Poster;
use crate::random;
use crate::signing::{SIGNATURE, signature};
use crate::web::record_view;

/// Posts at the same time; each session's go through one of these lanes.
const LANES: usize = 8;

/// Posts that may wait in a lane; beyond that they are dropped with a word.
const WAITING: usize = 512;

/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The waits before the second, third and fourth attempt.
const WAITS: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// Tells a URL what happens to sessions, and asks it what becomes of those that were left.
pub struct WebHook {
    clock: Clock,
    lanes: Vec<mpsc::Sender<Note>>,
}

/// Something to be posted.
struct Note {
    kind: &'static str,
    at: Timestamp,
    session: Record,
    /// Where the answer goes, if somebody waits for one.
    reply: Option<oneshot::Sender<Decision>>,
}

/// What becomes of a session whose client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// It is cleaned up now.
    Now,
    /// It is kept for so long.
    After(Duration),
    /// The settings decide.
    Undecided,
}

/// An answer as it stands on the wire.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAnswer {
    keep_for: Option<String>,
    cleanup: bool,
}

/// Posts what comes along one lane.
struct PostLane {
    client: Arc<Poster>,
    secret: Option<Arc<[u8]>>,
    notes: mpsc::Receiver<Note>,
}

impl WebHook {
    /// The hook at this URL. `secret` signs what is posted. To be called inside a tokio runtime; its
    /// tasks end when it is dropped.
    pub fn start(url: &str, secret: Option<&[u8]>, clock: Clock) -> Result<Self, BadUrl> {
        let mut client = Poster::new(url)?;
        client.timeout = ATTEMPT;
        let (client, secret) = (Arc::new(client), secret.map(Arc::from));
        let lanes = (0..LANES).map(|_| {
            let (sender, notes) = mpsc::channel(WAITING);
            let lane = PostLane { client: Arc::clone(&client), secret: secret.clone(), notes };
            #[expect(clippy::disallowed_methods, reason = "the hook is there before the server")]
            tokio::spawn(lane.run());
            sender
        });
        Ok(Self { clock, lanes: lanes.collect() })
    }

    /// Puts a note in the lane of its session; says whether there was room.
    fn post(
        &self,
        kind: &'static str,
        session: &Record,
        reply: Option<oneshot::Sender<Decision>>,
    ) -> bool {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let lane = hasher.hash_one(session.id()) as usize % LANES;
        let note = Note { kind, at: self.clock.now(), session: session.clone(), reply };
        let taken = self.lanes[lane].try_send(note).is_ok();
        if !taken {
            tracing::warn!(session = %session.id(), kind, "the hook is too slow; not told");
        }
        taken
    }
}

#[async_trait]
impl SessionHook for WebHook {
    async fn disconnected(&self, session: Record, cleanup: Cleanup) {
        let (reply, answer) = oneshot::channel();
        if !self.post("disconnected", &session, Some(reply)) {
            return; // the settings decide
        }
        let decided = match answer.await.unwrap_or(Decision::Undecided) {
            Decision::Now => cleanup.run().await.map(drop),
            Decision::After(delay) => cleanup.after(delay).await,
            Decision::Undecided => Ok(()),
        };
        if let Err(error) = decided {
            tracing::error!(session = %session.id(), %error, "what the hook decided was not done");
        }
    }

    fn happened(&self, what: Lifecycle, session: &Record) {
        self.post(what.as_str(), session, None);
    }
}

impl PostLane {
    async fn run(mut self) {
        while let Some(mut note) = self.notes.recv().await {
            let reply = note.reply.take();
            let decision = self.post(&note).await;
            if let Some(reply) = reply {
                let _ = reply.send(decision);
            }
        }
    }

    async fn post(&self, note: &Note) -> Decision {
        let id = random::bytes::<12>()
            .map_or(0, |bytes| bytes.iter().fold(0_u128, |id, byte| id << 8 | u128::from(*byte)));
        let body = json!({
            "id": format!("hook_{id:024x}"),
            "type": note.kind,
            "at": note.at.to_string(),
            "session": record_view(&note.session, note.at),
        });
        let body = body.to_string();
        let mut waits = WAITS.iter();
        loop {
            let signed =
                self.secret.as_ref().map(|secret| signature(secret, body.as_bytes(), note.at));
            let headers: Vec<_> = signed.map(|text| (SIGNATURE, text)).into_iter().collect();
            match (self.client.post(body.clone().into_bytes(), &headers).await, waits.next()) {
                (Ok(answer), _) => return decide(&answer),
                (Err(why), Some(wait)) => {
                    tracing::debug!(kind = note.kind, %why, "the hook is told again");
                    tokio::time::sleep(*wait).await;
                }
                (Err(why), None) => {
                    let session = note.session.id();
                    tracing::warn!(%session, kind = note.kind, %why, "the hook was not told");
                    return Decision::Undecided;
                }
            }
        }
    }
}

/// What an answer says. One that says nothing, or can't be read, leaves it to the settings.
fn decide(answer: &[u8]) -> Decision {
    let answer: WireAnswer = serde_json::from_slice(answer).unwrap_or_default();
    match answer.keep_for.as_deref().map(duration) {
        _ if answer.cleanup => Decision::Now,
        Some(Some(delay)) => Decision::After(delay),
        Some(None) => {
            tracing::warn!("the hook's keep_for is no duration; write \"90s\", \"10m\" or \"24h\"");
            Decision::Undecided
        }
        None => Decision::Undecided,
    }
}

/// A duration as people write it in settings: `10m`, `1h 30m`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text.trim(), None);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(millis)?;
        sum = Some(sum.unwrap_or(0_u64).checked_add(part)?);
        rest = after.trim_start();
    }
    sum.map(Duration::from_millis)
}

impl fmt::Debug for WebHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebHook")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_now_or_later_or_nothing() {
        assert_eq!(decide(br#"{"cleanup":true}"#), Decision::Now);
        assert_eq!(decide(br#"{"keep_for":"10m"}"#), Decision::After(Duration::from_secs(600)));
        let one_and_a_half = Decision::After(Duration::from_secs(5_400));
        assert_eq!(decide(br#"{"keep_for":"1h 30m"}"#), one_and_a_half);
        assert_eq!(decide(br#"{"keep_for":"1h30m"}"#), one_and_a_half);
        for nothing in [&b""[..], b"ok", b"{}", br#"{"keep_for":"soon"}"#, br#"{"keep_for":"-1s"}"#]
        {
            assert_eq!(decide(nothing), Decision::Undecided);
        }
    }
}
