//! One request, until it is answered or lost.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::refusal::{self, Refusal};
use super::stream::{Next, Place, Stream, is_stream};
use super::talk::{Ended, Talk, Undelivered};
use crate::mcp::garbled::{Meant, heard, unmarked};
use crate::mcp::message::{Message, RequestId};
use crate::mcp::own_words::{RpcError, code, error_response};
use crate::mcp::upstream::Heard;
use crate::outward::NoAnswer;

/// Attempts to go on with a stream that bring nothing, before its answer counts as lost.
const RESUMES: usize = 5;

/// How long a stream may go on after its answer, so that its connection can be used again.
const AFTER_ANSWER: Duration = Duration::from_secs(1);

/// A request under way.
struct HttpCall {
    talk: Arc<Talk>,
    id: RequestId,
    message: Message,
}

/// What became of a request.
enum CallEnd {
    /// Its answer was passed on.
    Answered,
    /// It is to be answered so.
    Answer(String),
    /// It did not run: the server can't be reached.
    NotTaken(Box<str>),
    /// It did not run: the server has forgotten the session.
    Forgotten,
    /// It may have run: the server has forgotten the session.
    ForgottenMeanwhile,
    /// It may have run.
    Lost,
}

/// Hands a request over and passes on whatever belongs to it.
pub(super) async fn run(talk: Arc<Talk>, id: RequestId, message: Message) -> Ended {
    let call = HttpCall { talk, id, message };
    let outcome = call.run().await;
    let HttpCall { talk, id, .. } = call;
    let (heard, ended) = match outcome {
        CallEnd::Answered => return Ended::Well,
        CallEnd::Answer(text) => (Heard::Said { text, during: id.as_number() }, Ended::Well),
        CallEnd::NotTaken(why) => (Heard::NotTaken { id, why }, Ended::Well),
        CallEnd::Lost => (Heard::Lost { id }, Ended::Well),
        CallEnd::Forgotten => (Heard::Refused { id }, Ended::Forgotten),
        CallEnd::ForgottenMeanwhile => return Ended::Forgotten,
    };
    talk.pass_on(heard).await;
    ended
}

impl HttpCall {
    async fn run(&self) -> CallEnd {
        let answer = match self.talk.post(&self.message).await {
            Ok(answer) => answer,
            Err(Undelivered::NotTaken(why)) => return CallEnd::NotTaken(why),
            Err(Undelivered::Broken) => return CallEnd::Lost,
        };
        if !answer.status().is_success() {
            return self.refused(answer).await;
        }
        if self.begins() {
            self.talk.note_session(&answer);
        }
        match is_stream(&answer) {
            true => self.follow(answer).await,
            false => self.read(answer).await,
        }
    }

    fn begins(&self) -> bool {
        self.message.method() == Some("initialize")
    }

    async fn refused(&self, answer: Response<Incoming>) -> CallEnd {
        match refusal::of(&self.talk, answer, Some(&self.id)).await {
            Refusal::Forgotten => CallEnd::Forgotten,
            Refusal::ForgottenMeanwhile => CallEnd::ForgottenMeanwhile,
            Refusal::Said(error) => CallEnd::Answer(self.error(&error)),
            Refusal::Refused(error) => CallEnd::Answer(error_response(Some(&self.id), &error)),
            Refusal::Failed => CallEnd::Lost,
        }
    }

    fn error(&self, error: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id)
    }

    /// The whole answer at once.
    async fn read(&self, answer: Response<Incoming>) -> CallEnd {
        let body = Limited::new(answer.into_body(), self.talk.max_bytes).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return CallEnd::Answer(self.too_long());
            }
            Err(_) => return CallEnd::Lost,
        };
        let text = String::from_utf8_lossy(&body).into_owned();
        if let Ok(message) = Message::parse(unmarked(&text))
            && let (false, Some(error)) = (message.answers(&self.id), message.error())
        {
            return CallEnd::Answer(self.error(error.get())); // it could not read the id
        }
        match self.pass_on(text).await {
            true => CallEnd::Answered,
            false => CallEnd::Lost,
        }
    }

    /// Reads the stream of the answer, and goes on with it if it breaks.
    async fn follow(&self, answer: Response<Incoming>) -> CallEnd {
        let mut place = Place::default();
        let mut stream = Stream::of(&self.talk, answer);
        loop {
            match stream.next(&mut place).await {
                Next::Message(text) => {
                    if self.pass_on(text).await {
                        let rest =
                            async { while let Next::Message(_) = stream.next(&mut place).await {} };
                        let _ = timeout(AFTER_ANSWER, rest).await; // for the sake of the connection
                        return CallEnd::Answered;
                    }
                }
                Next::TooLong => return CallEnd::Answer(self.too_long()),
                Next::End => match self.go_on(&mut place).await {
                    Ok(answer) => stream = Stream::of(&self.talk, answer),
                    Err(outcome) => return outcome,
                },
            }
        }
    }

    /// Goes on with a stream after the last event of which the server has said the id.
    async fn go_on(&self, place: &mut Place) -> Result<Response<Incoming>, CallEnd> {
        while place.failures < RESUMES && place.last.is_some() {
            place.pause().await;
            match self.talk.get(place.last.as_deref()).await {
                Ok(answer) if is_stream(&answer) => return Ok(answer),
                Ok(answer) if may_pass(answer.status()) => {}
                Ok(answer) if answer.status().is_success() => break, // nothing is left of it
                Ok(answer) => match refusal::of(&self.talk, answer, None).await {
                    Refusal::Forgotten | Refusal::ForgottenMeanwhile => {
                        return Err(CallEnd::ForgottenMeanwhile);
                    }
                    Refusal::Said(_) | Refusal::Refused(_) | Refusal::Failed => break,
                },
                Err(NoAnswer::NoConnection | NoAnswer::Broken) => {}
            }
        }
        Err(CallEnd::Lost)
    }

    /// Passes on what the server said; says whether the answer was in it.
    async fn pass_on(&self, text: String) -> bool {
        let answer = heard(&text).into_iter().find_map(|meant| match meant {
            Meant::Message(message) if message.answers(&self.id) => Some(message),
            Meant::Message(_) | Meant::Question(_) | Meant::Nothing => None,
        });
        if let Some(answer) = &answer
            && self.begins()
        {
            self.talk.note_revision(answer);
        }
        let answered = answer.is_some();
        self.talk.pass_on(Heard::Said { text, during: self.id.as_number() }).await;
        answered
    }

    fn too_long(&self) -> String {
        let sentence = format!(
            "the MCP server's answer has more than {} bytes (max_mcp_bytes)",
            self.talk.max_bytes
        );
        let error = RpcError::new(code::RESULT_EVICTED, sentence).because("result_too_large");
        error_response(Some(&self.id), &error)
    }
}

/// Whether a server that answers so may answer otherwise in a moment.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}
