//! `rejoin send`: a message for the agent of a session.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use rejoin_core::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::Api;
use super::failure::Failure;
use super::follow::{Follower, Seen};
use super::line::Event;
use super::out::Out;
use super::target::Target;
use super::{id_arg, interrupted, json_arg, session_of, tail};

/// How often a message whose fate is unknown is sent again; its id makes sure that it is entered once.
const ATTEMPTS: usize = 4;

/// The wait between two of them.
const AGAIN: Duration = Duration::from_millis(500);

pub(super) fn command() -> Command {
    let text = Arg::new("text").required(true).value_name("TEXT").help("What to say to the agent");
    let wait = Arg::new("wait")
        .long("wait")
        .action(ArgAction::SetTrue)
        .help("Print events until the agent's final answer, or until nothing comes any more");
    let idle = Arg::new("idle")
        .long("idle")
        .value_name("SECONDS")
        .value_parser(value_parser!(u64).range(1..))
        .default_value("30")
        .help("With --wait, how long nothing may come");
    let message_id = Arg::new("message-id")
        .long("message-id")
        .value_name("ID")
        .help("The message's own id: sent twice under the same one, it is entered once [default: a new one]");
    let command = Command::new("send").about("Send a message to the agent of a session").args([
        id_arg(),
        text,
        wait,
        idle,
        message_id,
        json_arg(),
    ]);
    Target::add_to(command)
}

/// What the server says when it has a message.
#[derive(Debug, Deserialize, Serialize)]
struct Entered {
    message_id: String,
    in_seq: u64,
    duplicate: bool,
}

pub(super) async fn run(matches: &ArgMatches, api: &Api, out: &Out) -> Result<(), Failure> {
    let id = &session_of(matches, api).await?;
    // Before it is sent, so that no event of the answer falls in between.
    let follower = match matches.get_flag("wait") {
        true => Some(Follower::after(api, id, None).await?),
        false => None,
    };
    let text = matches.get_one::<String>("text").map_or("", String::as_str);
    let message_id = match matches.get_one::<String>("message-id") {
        Some(given) => given.clone(),
        None => new_id()?,
    };
    let entered = post(api, id, text, &message_id).await?;
    let json = matches.get_flag("json");
    let sentence = match entered.duplicate {
        false => format!("accepted as message {} ({})", entered.in_seq, entered.message_id),
        true => {
            format!("was there already, as message {} ({})", entered.in_seq, entered.message_id)
        }
    };
    match (json, &follower) {
        (true, None) => return out.line(&serde_json::to_string(&entered).unwrap_or_default()),
        (false, None) => return out.line(&sentence),
        (_, Some(_)) => out.note(&sentence),
    }
    let Some(follower) = follower else { return Ok(()) };
    let idle = Duration::from_secs(matches.get_one("idle").copied().unwrap_or(30));
    tokio::select! {
        outcome = wait(follower, &entered, idle, json, out) => outcome,
        () = interrupted() => Ok(()),
    }
}

/// Sends a message until the server says that it has it.
async fn post(api: &Api, id: &SessionId, text: &str, message_id: &str) -> Result<Entered, Failure> {
    let body = json!({ "content": text, "message_id": message_id });
    for _ in 1..ATTEMPTS {
        match api.post(id, "/messages", &body).await {
            Err(Failure::Broken { .. }) => tokio::time::sleep(AGAIN).await,
            outcome => return outcome,
        }
    }
    api.post(id, "/messages", &body).await
}

/// Sends a message and leaves it to the agent.
pub(super) async fn say(api: &Api, id: &SessionId, text: &str) -> Result<(), Failure> {
    post(api, id, text, &new_id()?).await.map(drop)
}

fn new_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Other(format!("there are no random bytes: {error}")))?;
    Ok(format!("msg_{:032x}", u128::from_le_bytes(bytes)))
}

/// Prints events until one ends the matter, or none has come for `idle`.
async fn wait(
    mut follower: Follower<'_>,
    entered: &Entered,
    idle: Duration,
    json: bool,
    out: &Out,
) -> Result<(), Failure> {
    loop {
        let Ok(seen) = tokio::time::timeout(idle, follower.next()).await else {
            out.note(&format!("nothing has come for {} s; not waiting any longer", idle.as_secs()));
            return Ok(());
        };
        let seen = seen?;
        let end = match &seen {
            Seen::Event(event, _) => end_of(event, entered),
            Seen::Gap(_) | Seen::Lost(_) | Seen::Back => None,
        };
        tail::show(seen, json, out)?;
        match end {
            None => {}
            Some(End::Answered) => return Ok(()),
            Some(End::Failed) => return Err(Failure::Other("the agent has failed".to_owned())),
        }
    }
}

/// How a message was dealt with.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Answered,
    Failed,
}

/// Whether this event ends the matter. One that says to which message it belongs counts for that alone.
fn end_of(event: &Event, entered: &Entered) -> Option<End> {
    let in_seq = event.metadata.get("in_seq").and_then(Value::as_u64);
    let message_id = event.metadata.get("message_id").and_then(Value::as_str);
    let is_ours = match (message_id, in_seq) {
        (Some(message_id), _) => message_id == entered.message_id,
        (None, Some(in_seq)) => in_seq == entered.in_seq,
        (None, None) => true,
    };
    match event.event.as_str() {
        "agent.final_answer" => is_ours.then_some(End::Answered),
        "agent.cancelled" => Some(End::Answered),
        "agent.failed" => Some(End::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_message_ends_the_wait() {
        let entered = Entered { message_id: "m".into(), in_seq: 2, duplicate: false };
        let end = |name: &str, metadata: Value| {
            let event = serde_json::from_value(json!({"event": name, "metadata": metadata}));
            end_of(&event.unwrap(), &entered)
        };
        let answer = "agent.final_answer";
        assert_eq!(end(answer, json!({"message_id": "m"})), Some(End::Answered));
        assert_eq!(end(answer, json!({"message_id": "other", "in_seq": 2})), None);
        assert_eq!(end(answer, json!({"in_seq": 1})), None);
        assert_eq!(end(answer, Value::Null), Some(End::Answered));
        assert_eq!(end("agent.thinking", json!({"message_id": "m"})), None);
        assert_eq!(end("agent.failed", Value::Null), Some(End::Failed));
    }
}
