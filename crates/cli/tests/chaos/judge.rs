//! Compares what an application testifies to with what was promised, and with the server's record.

use std::collections::HashMap;

use serde::Deserialize;

use crate::visitor::{Seen, Testimony};

/// A broken promise.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// The event after `after` never came.
    Lost { after: u64, next: u64 },
    /// An event came again, right after itself or later.
    Duplicated { seq: u64 },
    /// An event came after one that follows it.
    Reordered { seq: u64, after: u64 },
    /// The server holds something else than the application got.
    NotAsRecorded { seq: u64 },
    /// The application did not get everything the server holds.
    NotCaughtUp { got: u64, head: u64 },
    /// A gap, a lost session, a message given up: nothing here is a reason for any of them.
    Surprised(String),
    /// An accepted message has no answer, or more than one.
    Answered { message_id: String, times: usize },
    /// Messages were numbered, or answered, in another order than they were sent in.
    OutOfOrder(String),
    /// The agent was told something that does not fit its state.
    AgentConfused(String),
    /// What the agent said in one breath is not there in one piece.
    Torn { seq: u64, expected: u64, said: u64 },
}

/// How much went on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) events: usize,
    pub(crate) messages: usize,
    pub(crate) attached: u64,
    /// Bursts that a crash of the server cut off, and that were said again.
    pub(crate) begun_again: usize,
}

#[derive(Deserialize)]
struct Part {
    life: String,
    n: u64,
}

#[derive(Deserialize)]
struct Answer {
    life: String,
    message_id: String,
    in_seq: u64,
    parts: u64,
}

/// Everything that is checked about one session.
pub(crate) fn judge(testimony: &Testimony, record: &[Seen]) -> Result<Tally, Violation> {
    if let Some(surprise) = testimony.surprises.first() {
        return Err(Violation::Surprised(surprise.clone()));
    }
    in_order_each_once(&testimony.events)?;
    as_recorded(&testimony.events, record)?;
    answered_once_in_order(testimony)?;
    let begun_again = said_in_one_piece(&testimony.events)?;
    Ok(Tally {
        events: testimony.events.len(),
        messages: testimony.accepted.len(),
        attached: testimony.attached,
        begun_again,
    })
}

fn in_order_each_once(events: &[Seen]) -> Result<(), Violation> {
    let mut last = 0;
    for (place, event) in events.iter().enumerate() {
        let seq = event.seq;
        if seq <= last {
            let before = events[..place].iter().any(|earlier| earlier.seq == seq);
            return Err(match before {
                true => Violation::Duplicated { seq },
                false => Violation::Reordered { seq, after: last },
            });
        }
        if seq != last + 1 && !events[place..].iter().any(|later| later.seq == last + 1) {
            return Err(Violation::Lost { after: last, next: seq });
        }
        last = seq;
    }
    Ok(())
}

fn as_recorded(events: &[Seen], record: &[Seen]) -> Result<(), Violation> {
    for (event, recorded) in events.iter().zip(record) {
        if event != recorded {
            return Err(Violation::NotAsRecorded { seq: event.seq });
        }
    }
    let last = |events: &[Seen]| events.last().map_or(0, |event| event.seq);
    match events.len() == record.len() {
        true => Ok(()),
        false => Err(Violation::NotCaughtUp { got: last(events), head: last(record) }),
    }
}

fn answered_once_in_order(testimony: &Testimony) -> Result<(), Violation> {
    let answers: Vec<Answer> =
        testimony.events.iter().filter(|event| event.name == "agent.answer").map(read).collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for answer in &answers {
        *times.entry(&answer.message_id).or_default() += 1;
    }
    for (place, (message_id, in_seq)) in testimony.accepted.iter().enumerate() {
        let times = times.remove(message_id.as_str()).unwrap_or(0);
        if times != 1 {
            return Err(Violation::Answered { message_id: message_id.clone(), times });
        }
        let expected = place as u64 + 1;
        let answer = &answers[place];
        if (*in_seq, answer.in_seq, &answer.message_id) != (expected, expected, message_id) {
            return Err(Violation::OutOfOrder(format!("{message_id} is {in_seq}, {expected}th")));
        }
    }
    match times.keys().next() {
        Some(unknown) => Err(Violation::OutOfOrder(format!("{unknown} was never accepted"))),
        None => Ok(()),
    }
}

/// Within one life of the agent its murmurs, and the parts of each answer, are numbered without holes;
/// an answer has all its parts. Returns how many answers were begun again in another life.
fn said_in_one_piece(events: &[Seen]) -> Result<usize, Violation> {
    let (mut begun_again, mut parts) = (0, (String::new(), 0));
    let mut murmurs: HashMap<String, u64> = HashMap::new();
    let check = |seq, expected, said| match expected == said {
        true => Ok(()),
        false => Err(Violation::Torn { seq, expected, said }),
    };
    for event in events {
        match event.name.as_str() {
            "agent.murmur" => {
                let Part { life, n } = read(event);
                let before = murmurs.entry(life).or_default();
                *before += 1;
                check(event.seq, *before, n)?;
            }
            "agent.part" => {
                let Part { life, n } = read(event);
                if parts.0 != life {
                    begun_again += usize::from(parts.1 > 0);
                    parts = (life, 0);
                }
                parts.1 += 1;
                check(event.seq, parts.1, n)?;
            }
            "agent.answer" => {
                let answer: Answer = read(event);
                let said = if parts.0 == answer.life { parts.1 } else { 0 };
                check(event.seq, answer.parts, said)?;
                parts.1 = 0;
            }
            _ => return Err(Violation::AgentConfused(event.content.clone())),
        }
    }
    Ok(begun_again)
}

fn read<'a, T: Deserialize<'a>>(event: &'a Seen) -> T {
    serde_json::from_str(&event.content).expect("the agent wrote it so")
}
