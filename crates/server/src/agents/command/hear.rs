//! What a child says: events on its standard output.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rejoin_core::SessionId;
use rejoin_core::worker::Publication;
use tokio::io::AsyncRead;
use tokio::sync::watch;

use crate::agent::{Orders, Saying, Voice};
use crate::agents::{AgentCounts, Ignored, LONGEST_EVENT, publication_of};
use crate::child::lines::{Bounds, Line, Lines};
use crate::child::stray::StrayLog;
use crate::error::PublishError;
use crate::limits::SAYINGS_ON_THEIR_WAY;

/// The longest line that is read as an event.
const EVENT_LINE: Bounds = Bounds { whole: LONGEST_EVENT, of_longer: 0 };

/// Publishes what the child says, in order, until it closes its standard output or the session takes
/// nothing more from it. Of a child that was told to stop the rest is read and dropped, so that it does
/// not stumble over a closed pipe.
pub(super) async fn hear(
    stdout: impl AsyncRead + Unpin,
    voice: &Voice,
    session: &SessionId,
    counts: &AgentCounts,
    orders: &watch::Receiver<Orders>,
) {
    let mut lines = Lines::new(stdout, EVENT_LINE);
    let Err(refused) = publish_all(&mut lines, voice, session, counts).await else { return };
    if orders.borrow().is_stop() {
        while let Ok(Some(_)) = lines.next().await {}
    } else {
        tracing::warn!(%session, %refused, "what an agent said was not taken");
    }
}

async fn publish_all(
    lines: &mut Lines<impl AsyncRead + Unpin>,
    voice: &Voice,
    session: &SessionId,
    counts: &AgentCounts,
) -> Result<(), PublishError> {
    let mut on_their_way: VecDeque<Saying> = VecDeque::new();
    let mut stray = StrayLog::default();
    loop {
        // A child that talks faster than the store takes is slowed down: its standard output is not read.
        let has_room = on_their_way.len() < SAYINGS_ON_THEIR_WAY;
        let oldest = async {
            match on_their_way.front_mut() {
                Some(saying) => saying.published().await,
                None => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            published = oldest => {
                published?;
                on_their_way.pop_front();
                continue;
            }
            line = lines.next(), if has_room => line,
        };
        let Ok(Some(line)) = line else { break };
        match read(&line) {
            Ok(None) => {}
            Ok(Some(publication)) => on_their_way.push_back(voice.say(publication).await?),
            Err(Ignored { why, shown }) => {
                counts.ignored_lines.fetch_add(1, Ordering::Relaxed);
                if let Some(left_out) = stray.admit(Instant::now()) {
                    let line = shown.as_deref();
                    tracing::warn!(target: "rejoin::agent", %session, why, line, left_out, "ignored a line");
                }
            }
        }
    }
    for mut saying in on_their_way {
        saying.published().await?;
    }
    Ok(())
}

fn read(line: &Line) -> Result<Option<Publication>, Ignored> {
    match line {
        Line::Whole(text) => publication_of(text),
        Line::TooLong(_) => Err("it is too long".into()),
    }
}
