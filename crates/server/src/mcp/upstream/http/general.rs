//! The stream of what belongs to no request. It is opened again whenever it ends, as long as the session
//! goes on; a server need not have one.

use std::sync::Arc;

use hyper::StatusCode;

use super::refusal::{self, Refusal};
use super::stream::{Next, Place, Stream, is_stream};
use super::talk::{Ended, Talk};
use crate::mcp::upstream::Heard;

/// Passes on whatever comes.
pub(super) async fn run(talk: Arc<Talk>) -> Ended {
    let mut place = Place::default();
    let mut opened = false;
    loop {
        match talk.get(place.last.as_deref()).await {
            Ok(answer) if is_stream(&answer) => {
                opened = true;
                let mut stream = Stream::of(&talk, answer);
                while let Next::Message(text) = stream.next(&mut place).await {
                    talk.pass_on(Heard::said(text)).await;
                }
            }
            Ok(answer) if answer.status() == StatusCode::METHOD_NOT_ALLOWED => return Ended::Well,
            Ok(answer) => {
                match (refusal::of(&talk, answer, None).await, opened) {
                    // Where there never was such a stream, 404 may just mean that.
                    (Refusal::Forgotten | Refusal::ForgottenMeanwhile, true) => {
                        return Ended::Forgotten;
                    }
                    (
                        Refusal::Forgotten | Refusal::ForgottenMeanwhile | Refusal::Refused(_),
                        false,
                    ) => return Ended::Well,
                    (Refusal::Refused(_) | Refusal::Said(_) | Refusal::Failed, _) => {}
                }
            }
            Err(_) => {}
        }
        place.pause().await;
    }
}
