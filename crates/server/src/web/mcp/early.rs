//! The head of a response whose answer takes its time. A connection that breaks before there is a head can
//! end a client for good: the official Python client (mcp 2.3, `_handle_post_request`) catches only what
//! breaks behind it. So the head, and a comment, come soon, whatever the answer waits for: its server that
//! must be started, a lock, the tool. Clients that do not notice when a stream breaks get JSON instead.

use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{BoxStream, StreamExt as _, once, unfold};
use tokio::time::timeout;

use super::sse::{KEEP_ALIVE, STREAM_HEAD};

/// How long a client that takes a stream waits for the head of a response.
const HEAD_WITHIN: Duration = Duration::from_millis(100);

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;
type Chunk = Result<Bytes, axum::Error>;

/// How a response begins whose answer is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// As a stream, with comments.
    Events,
    /// As JSON, with spaces before it.
    Json,
}

impl Early {
    /// What says nothing.
    fn filler(self) -> Bytes {
        let text = match self {
            Self::Events => KEEP_ALIVE,
            Self::Json => " ",
        };
        Bytes::from_static(text.as_bytes())
    }
}

/// The answer itself if it comes soon, or must not begin `early`; else the head of one, which brings it when
/// it comes, with a comment each `keep_alive` until then. The answer is no longer made if the client drops
/// the response.
pub(super) async fn respond(
    early: Option<Early>,
    answering: impl Future<Output = Response> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    let Some(early) = early else { return answering.await };
    let mut answering: Answering = Box::pin(answering);
    if let Ok(response) = timeout(HEAD_WITHIN, &mut answering).await {
        return response;
    }
    let begun = once(async move { Ok(early.filler()) });
    let late = unfold(Late::Waiting { answering, early, keep_alive }, Late::next);
    let body = Body::from_stream(begun.chain(late));
    match early {
        Early::Events => (STREAM_HEAD, body).into_response(),
        Early::Json => ([(CONTENT_TYPE, "application/json")], body).into_response(),
    }
}

/// A response behind a head that was sent before it.
enum Late {
    Waiting { answering: Answering, early: Early, keep_alive: Duration },
    Telling(BoxStream<'static, Chunk>),
}

impl Late {
    async fn next(self) -> Option<(Chunk, Self)> {
        let mut telling = match self {
            Self::Telling(telling) => telling,
            Self::Waiting { mut answering, early, keep_alive } => {
                match timeout(keep_alive, &mut answering).await {
                    Ok(response) => late(early, response),
                    Err(_) => {
                        let waiting = Self::Waiting { answering, early, keep_alive };
                        return Some((Ok(early.filler()), waiting));
                    }
                }
            }
        };
        let chunk = telling.next().await?;
        Some((chunk, Self::Telling(telling)))
    }
}

/// What a response says behind a head that was sent: on a stream events as they are, JSON as one event. Its
/// status can't be told.
fn late(early: Early, response: Response) -> BoxStream<'static, Chunk> {
    let is_stream =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == STREAM_HEAD[0].1);
    let body = response.into_body().into_data_stream();
    if is_stream || early == Early::Json {
        return body.boxed();
    }
    let around = |text: &'static str| once(async move { Ok(Bytes::from_static(text.as_bytes())) });
    around("event: message\ndata: ").chain(body).chain(around("\n\n")).boxed()
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use axum::body::to_bytes;
    use axum::http::StatusCode;
    use tokio::time::sleep;

    use super::*;

    fn refusal() -> Response {
        (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "application/json")], "{}").into_response()
    }

    async fn text_of(response: Response) -> String {
        let body = to_bytes(response.into_body(), 1024).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_is_there_keeps_its_status() {
        let response = respond(Some(Early::Events), ready(refusal()), Duration::from_secs(1)).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(text_of(response).await, "{}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_follows_comments_on_a_stream() {
        let answering = async {
            sleep(Duration::from_millis(2_500)).await;
            refusal()
        };
        let response = respond(Some(Early::Events), answering, Duration::from_secs(1)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let text = text_of(response).await;
        assert_eq!(text, format!("{}event: message\ndata: {{}}\n\n", KEEP_ALIVE.repeat(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_stream_goes_on_as_it_is() {
        let answering = async {
            sleep(Duration::from_secs(1)).await;
            (STREAM_HEAD, "data: 1\n\n").into_response()
        };
        let response = respond(Some(Early::Events), answering, Duration::from_secs(9)).await;
        assert_eq!(text_of(response).await, format!("{KEEP_ALIVE}data: 1\n\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn late_json_has_spaces_before_it() {
        let answering = async {
            sleep(Duration::from_millis(1_500)).await;
            refusal()
        };
        let response = respond(Some(Early::Json), answering, Duration::from_secs(1)).await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(text_of(response).await, "  {}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_answered_to_a_client_that_is_gone() {
        let (sender, mut receiver) = tokio::sync::oneshot::channel::<()>();
        let answering = async move {
            sleep(Duration::from_secs(9)).await;
            drop(sender);
            refusal()
        };
        let response = respond(Some(Early::Events), answering, Duration::from_secs(1)).await;
        assert!(
            receiver
                .try_recv()
                .is_err_and(|why| why == tokio::sync::oneshot::error::TryRecvError::Empty)
        );
        drop(response);
        assert!(receiver.await.is_err(), "it waits no more");
    }
}
